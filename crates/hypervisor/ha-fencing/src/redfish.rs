// SPDX-License-Identifier: Apache-2.0
//! A BMC that speaks Redfish. The power is read from the system at every question; an order counts
//! as taken when the BMC takes it, or when it refuses because the system is off already. Only
//! `ForceOff` switches off: a restart could resume guests, and a graceful shutdown waits for a
//! kernel that may hang.

mod wire;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use crate::config::Driver;
use crate::credentials::Source;
use crate::device::Device;
use crate::error::{Error, Result};

pub(crate) use wire::Wire;
use wire::{Answer, Ask};

/// How long a task of the BMC is followed. What counts is the power, and that is read anyway.
const TASK: Duration = Duration::from_secs(4);
const TASK_POLL: Duration = Duration::from_millis(500);

/// One system behind one BMC.
#[derive(Debug)]
pub(crate) struct Redfish {
    wire: Arc<Wire>,
    host: HostName,
    url: Url,
    system: String,
    credentials: Option<Source>,
}

/// What is read of a system.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct System {
    #[serde(default)]
    power_state: Option<String>,
    #[serde(default, rename = "UUID")]
    uuid: Option<String>,
    #[serde(default)]
    serial_number: Option<String>,
    #[serde(default)]
    actions: Value,
    #[serde(skip)]
    tag: Option<String>,
    #[serde(skip)]
    path: String,
}

impl Redfish {
    pub(crate) fn new(
        wire: Arc<Wire>,
        host: HostName,
        url: &str,
        system: &str,
        credentials: Option<Source>,
    ) -> Result<Self> {
        let wrong = |message: String| Error::Config {
            key: format!("the BMC of {host}"),
            message,
        };
        let parsed = Url::parse(url).map_err(|error| wrong(format!("{url:?} is no address: {error}")))?;
        if !matches!(parsed.scheme(), "https" | "http") || parsed.host_str().is_none() {
            return Err(wrong(format!("{url:?} does not begin with https://")));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong("credentials do not belong into an address".to_owned()));
        }
        if !wire.may_reach(&parsed) {
            return Err(wrong(format!("{url} is in none of fencing.allowed_networks")));
        }
        Ok(Self {
            wire,
            host,
            url: parsed,
            system: system.to_owned(),
            credentials,
        })
    }

    /// Where the BMC is. What stands behind the port does not matter: paths are the BMC's own.
    fn device(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    fn bad(&self, what: &'static str, detail: impl Into<String>) -> Error {
        Error::BadAnswer {
            what,
            device: self.device(),
            detail: detail.into(),
        }
    }

    async fn send(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        body: Option<&Value>,
        tag: Option<&str>,
    ) -> Result<Answer> {
        let credentials = self
            .credentials
            .as_ref()
            .map(|source| source.of(&self.host))
            .transpose()?;
        self.wire
            .send(Ask {
                what,
                url: &self.url,
                method,
                path,
                body,
                tag,
                credentials: credentials.as_ref(),
            })
            .await
    }

    async fn get(&self, what: &'static str, path: &str) -> Result<Answer> {
        self.send(what, Method::GET, path, None, None)
            .await?
            .good(what, &self.device())
    }

    /// The path of the system: as configured, or the only one there is.
    async fn path(&self) -> Result<String> {
        const WHAT: &str = "finding the system";
        if !self.system.is_empty() {
            return Ok(format!("/{}", self.system.trim_matches('/')));
        }
        if let Some(known) = self.wire.known_system(&self.url) {
            return Ok(known);
        }
        let all = self
            .get(WHAT, "/redfish/v1/Systems")
            .await?
            .json(WHAT, &self.device())?;
        let members = all["Members"].as_array().map_or(&[][..], Vec::as_slice);
        // A list may be told in parts; then its first part says how many there are.
        let told = all["Members@odata.count"].as_u64().unwrap_or_default();
        let more = !all["Members@odata.nextLink"].is_null() || told > 1;
        match members {
            [only] if !more => {
                let path = only["@odata.id"].as_str();
                let path = path.ok_or_else(|| self.bad(WHAT, "the BMC does not say where its system is"))?;
                self.wire.learn_system(&self.url, path);
                Ok(path.to_owned())
            }
            [] if !more => Err(self.bad(WHAT, "the BMC has no system")),
            _ => Err(self.bad(
                WHAT,
                format!(
                    "the BMC has several systems; name the right one in fencing.hosts.{}.system",
                    self.host
                ),
            )),
        }
    }

    async fn read(&self, what: &'static str) -> Result<System> {
        let path = self.path().await?;
        let answer = self.send(what, Method::GET, &path, None, None).await?;
        if answer.status == 404 {
            // Another board, or another firmware: where the system is has to be asked again.
            self.wire.forget_system(&self.url);
        }
        let answer = answer.good(what, &self.device())?;
        let tag = answer.header(&header::ETAG);
        let body = answer.json(what, &self.device())?;
        let mut system: System = serde_json::from_value(body)
            .map_err(|error| self.bad(what, format!("this is no ComputerSystem: {error}")))?;
        system.tag = tag;
        system.path = path;
        Ok(system)
    }

    fn state(&self, system: &System) -> Result<Power> {
        match system.power_state.as_deref() {
            Some("Off") => Ok(Power::Off),
            Some("On" | "PoweringOn" | "PoweringOff" | "Paused") => Ok(Power::On),
            Some(other) => Err(self.bad("reading the power", format!("{other:?} is no PowerState"))),
            None => Err(self.bad("reading the power", "the system has no PowerState")),
        }
    }

    async fn read_power(&self) -> Result<Power> {
        let system = self.read("reading the power").await?;
        self.state(&system)
    }

    async fn read_identity(&self) -> Result<Identity> {
        let System {
            uuid, serial_number, ..
        } = self.read("reading whom it belongs to").await?;
        let text = |value: Option<String>| {
            value
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        Ok(Identity {
            system_uuid: text(uuid),
            serial: text(serial_number),
        })
    }

    async fn switch_off(&self) -> Result<()> {
        const WHAT: &str = "switching off";
        let system = self.read(WHAT).await?;
        // A BMC that cannot tell whether the system is on can still switch it off.
        if self.state(&system).is_ok_and(|power| power == Power::Off) {
            return Ok(());
        }
        self.press(WHAT, &system, &["ForceOff"], Power::Off).await
    }

    async fn switch_on(&self) -> Result<()> {
        const WHAT: &str = "switching on";
        let system = self.read(WHAT).await?;
        if system.power_state.as_deref() == Some("On") {
            return Ok(());
        }
        self.press(WHAT, &system, &["On", "ForceOn"], Power::On).await
    }

    /// Presses the first of the buttons that the system offers.
    async fn press(
        &self,
        what: &'static str,
        system: &System,
        buttons: &[&str],
        wanted: Power,
    ) -> Result<()> {
        let reset = &system.actions["#ComputerSystem.Reset"];
        let target = match reset["target"].as_str() {
            Some(target) => target.to_owned(),
            None => format!(
                "{}/Actions/ComputerSystem.Reset",
                system.path.trim_end_matches('/')
            ),
        };
        let offered = self.offered(what, reset).await?;
        let button = match &offered {
            // A system that does not say what it offers is asked for the usual.
            None => buttons.first(),
            Some(offered) => buttons
                .iter()
                .find(|button| offered.iter().any(|name| name == *button)),
        };
        let Some(button) = button else {
            return Err(Error::NotOffered {
                what,
                device: self.device(),
                detail: format!(
                    "it offers only {}; use another driver for it",
                    offered.unwrap_or_default().join(", ")
                ),
            });
        };
        let body = json!({ "ResetType": button });
        let mut answer = self.send(what, Method::POST, &target, Some(&body), None).await?;
        // Some want to hear which state of the system is meant.
        if matches!(answer.status, 412 | 428) && system.tag.is_some() {
            answer = self
                .send(what, Method::POST, &target, Some(&body), system.tag.as_deref())
                .await?;
        }
        match answer.status {
            202 => self.follow(what, &answer).await,
            200..300 => Ok(()),
            // Common for a system that is in the wanted state already; the state decides.
            400 | 409 if self.read_power().await.is_ok_and(|power| power == wanted) => Ok(()),
            _ => answer.good(what, &self.device()).map(drop),
        }
    }

    async fn offered(&self, what: &'static str, reset: &Value) -> Result<Option<Vec<String>>> {
        let names = |list: &Value| {
            let list = list
                .as_array()?
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned));
            Some(list.collect::<Vec<_>>()).filter(|list| !list.is_empty())
        };
        if let Some(inline) = names(&reset["ResetType@Redfish.AllowableValues"]) {
            return Ok(Some(inline));
        }
        let Some(info) = reset["@Redfish.ActionInfo"].as_str() else {
            return Ok(None);
        };
        let info = self.get(what, info).await?.json(what, &self.device())?;
        let parameters = info["Parameters"].as_array();
        let reset_type = parameters.and_then(|all| all.iter().find(|one| one["Name"] == "ResetType"));
        Ok(reset_type.and_then(|one| names(&one["AllowableValues"])))
    }

    /// Follows a task for a moment, so that what goes wrong at once is told at once. A task that
    /// takes longer is no failure: the power will tell.
    async fn follow(&self, what: &'static str, answer: &Answer) -> Result<()> {
        let Some(monitor) = answer.header(&header::LOCATION) else {
            return Ok(());
        };
        let path = match Url::parse(&monitor) {
            Ok(url) => url.path().to_owned(),
            Err(_) => monitor,
        };
        let until = Instant::now() + TASK;
        while Instant::now() < until {
            tokio::time::sleep(TASK_POLL).await;
            let Ok(task) = self.send(what, Method::GET, &path, None, None).await else {
                return Ok(());
            };
            if task.status == 202 {
                continue;
            }
            let body = task.body();
            match body["TaskState"].as_str() {
                Some("Exception" | "Killed" | "Cancelled" | "Interrupted") => {
                    let words = body["Messages"][0]["Message"]
                        .as_str()
                        .unwrap_or("the task of the BMC failed");
                    return Err(self.bad(what, task.words(words)));
                }
                Some("New" | "Starting" | "Running" | "Pending" | "Service") => {}
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

impl Device for Redfish {
    fn driver(&self) -> Driver {
        Driver::Redfish
    }

    fn address(&self) -> String {
        let system = self.system.trim_matches('/');
        if system.is_empty() {
            self.device()
        } else {
            format!("{}/{system}", self.device())
        }
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity>> {
        self.read_identity().boxed()
    }

    fn power(&self) -> BoxFuture<'_, Result<Power>> {
        self.read_power().boxed()
    }

    fn power_off(&self) -> BoxFuture<'_, Result<()>> {
        self.switch_off().boxed()
    }

    /// A BMC cannot lock its own button. The engine reads the power every few seconds and fences
    /// again; that, and the taint of the node, is the hold.
    fn hold(&self) -> BoxFuture<'_, Result<()>> {
        futures::future::ready(Ok(())).boxed()
    }

    fn release(&self) -> BoxFuture<'_, Result<()>> {
        self.switch_on().boxed()
    }
}
