// SPDX-License-Identifier: Apache-2.0
//! Faults on demand: what the next matching calls, migrations and builds run into. A fault counts its uses and ends by
//! itself when it was made for a number of them. Faults of hosts (power, network, libvirt) are states of the host instead.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names::HostName;

/// What a call to the cloud runs into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApiEffect {
    /// It is answered this much later.
    Delay(Duration),
    /// It is refused with this code before anything happens.
    Refuse(u16),
    /// It has its effect, then fails with this code.
    FailAfter(u16),
    /// It has its effect and is never answered.
    HangAfter,
    /// It is never answered and has no effect.
    Hang,
    /// It does not get there: what stands before the service answers with this code, in words of its own.
    Gateway(u16),
}

/// A fault of the cloud's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiFault {
    /// `compute`, `placement` and so on; none for all.
    pub service: Option<String>,
    /// HTTP method; none for all.
    pub method: Option<String>,
    /// A piece of the path or, for actions, of the body; none for all.
    pub part: Option<String>,
    /// What happens.
    pub effect: ApiEffect,
    /// How often; none for always.
    pub times: Option<u32>,
}

impl ApiFault {
    /// Every call of every service.
    pub fn all(effect: ApiEffect) -> Self {
        Self {
            service: None,
            method: None,
            part: None,
            effect,
            times: None,
        }
    }

    /// Only calls of this service.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// Only calls with this method.
    pub fn method(mut self, name: impl Into<String>) -> Self {
        self.method = Some(name.into());
        self
    }

    /// Only calls whose path, query or body contains this.
    pub fn part(mut self, text: impl Into<String>) -> Self {
        self.part = Some(text.into());
        self
    }

    /// Only this often.
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether it meets every call of this service, and goes on doing so.
    pub(crate) fn stands(&self, service: &str) -> bool {
        let whole = self.method.is_none() && self.part.is_none() && self.times.is_none();
        whole && self.service.as_deref() == Some(service)
    }
}

/// What a live migration runs into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationTrouble {
    /// No host will take it.
    NoValidHost,
    /// The destination refuses it after it was chosen.
    PreCheck,
    /// It breaks while memory goes over.
    Fails,
    /// No byte moves.
    Stalls,
}

/// A fault of migrations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationFault {
    /// Of which server; none for all.
    pub server: Option<Uuid>,
    /// From which host; none for all.
    pub source: Option<HostName>,
    /// What happens.
    pub trouble: MigrationTrouble,
    /// How often; none for always.
    pub times: Option<u32>,
}

impl MigrationFault {
    /// Whether it meets every migration that starts on this host, and goes on doing so.
    pub(crate) fn stands(&self, source: &HostName) -> bool {
        self.server.is_none() && self.times.is_none() && self.source.as_ref() == Some(source)
    }
}

/// What the making of a server runs into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuildTrouble {
    /// It ends in ERROR with this message.
    Error(String),
    /// It never leaves BUILD.
    Stuck,
    /// It becomes ACTIVE, and its guest never says anything on its console.
    Mute,
}

/// A fault of new servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFault {
    /// On which host; none for all.
    pub host: Option<HostName>,
    /// What happens.
    pub trouble: BuildTrouble,
    /// How often; none for always.
    pub times: Option<u32>,
}

/// Everything that is broken on purpose.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Faults {
    /// Of the API.
    pub api: Vec<ApiFault>,
    /// Of migrations.
    pub migrations: Vec<MigrationFault>,
    /// Of new servers.
    pub builds: Vec<BuildFault>,
}

/// Takes the first item that matches and counts its use.
fn draw<T: Clone>(
    items: &mut Vec<T>,
    times: impl Fn(&mut T) -> &mut Option<u32>,
    matches: impl Fn(&T) -> bool,
) -> Option<T> {
    let at = items.iter().position(matches)?;
    let item = items.get_mut(at)?;
    let found = item.clone();
    if let Some(left) = times(item) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            items.remove(at);
        }
    }
    Some(found)
}

impl Faults {
    /// What every call of a service runs into until somebody ends it.
    pub fn standing(&self, service: &str) -> Option<&ApiEffect> {
        let fault = self.api.iter().find(|fault| fault.stands(service))?;
        Some(&fault.effect)
    }

    /// The migrations that start on a host and fail until somebody ends it.
    pub fn fail_from(&self, source: &HostName) -> bool {
        self.migrations.iter().any(|fault| fault.stands(source))
    }

    pub(crate) fn api(&mut self, service: &str, method: &str, text: &[&str]) -> Option<ApiEffect> {
        let wanted = |fault: &ApiFault| {
            fault.service.as_deref().is_none_or(|name| name == service)
                && fault.method.as_deref().is_none_or(|name| name == method)
                && fault
                    .part
                    .as_deref()
                    .is_none_or(|part| text.iter().any(|text| text.contains(part)))
        };
        draw(&mut self.api, |fault| &mut fault.times, wanted).map(|fault| fault.effect)
    }

    pub(crate) fn migration(
        &mut self,
        server: Uuid,
        source: &HostName,
        troubles: &[MigrationTrouble],
    ) -> Option<MigrationTrouble> {
        let wanted = |fault: &MigrationFault| {
            troubles.contains(&fault.trouble)
                && fault.server.is_none_or(|id| id == server)
                && fault.source.as_ref().is_none_or(|name| name == source)
        };
        draw(&mut self.migrations, |fault| &mut fault.times, wanted).map(|fault| fault.trouble)
    }

    pub(crate) fn build(&mut self, host: &HostName) -> Option<BuildTrouble> {
        let wanted = |fault: &BuildFault| fault.host.as_ref().is_none_or(|name| name == host);
        draw(&mut self.builds, |fault| &mut fault.times, wanted).map(|fault| fault.trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_what_it_names_as_often_as_it_says() {
        let mut faults = Faults::default();
        let fault = ApiFault::all(ApiEffect::Refuse(503));
        faults
            .api
            .push(fault.service("compute").part("os-migrateLive").times(2));
        let mut hit =
            |service| faults.api(service, "POST", &["/servers/1/action", "{\"os-migrateLive\":{}}"]);
        assert_eq!(hit("placement"), None);
        assert_eq!(hit("compute"), Some(ApiEffect::Refuse(503)));
        assert_eq!(hit("compute"), Some(ApiEffect::Refuse(503)));
        assert_eq!(hit("compute"), None);
    }

    #[test]
    fn only_what_meets_every_call_stands() {
        let slow = ApiEffect::Delay(Duration::from_secs(1));
        let faults = Faults {
            api: vec![
                ApiFault::all(ApiEffect::Hang).service("compute").times(1),
                ApiFault::all(ApiEffect::Hang),
                ApiFault::all(slow.clone()).service("compute"),
            ],
            ..Faults::default()
        };
        assert_eq!(faults.standing("compute"), Some(&slow));
        assert_eq!(faults.standing("image"), None);
    }
}
