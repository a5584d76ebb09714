// SPDX-License-Identifier: Apache-2.0
//! Whom a source is fetched from: a list, or a template filled in for each hypervisor.

use std::net::IpAddr;

use cobaltcore_api::names::HostName;

use super::Puller;
use crate::config::TargetsFrom;

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) url: String,
    pub(super) host: Option<HostName>,
}

impl Puller {
    pub(super) fn targets(&self) -> Vec<Target> {
        if self.pull.from == TargetsFrom::Hypervisors {
            return self
                .app
                .directory
                .all()
                .iter()
                .filter_map(|(host, entry)| {
                    let url = fill(&self.pull.url, |name| match name {
                        "host" => Some(host.to_string()),
                        "internal_ip" => entry.internal_ip.clone(),
                        "zone" => entry.zone().map(str::to_owned),
                        "bb" => entry.building_block().map(str::to_owned),
                        _ => None,
                    })?;
                    Some(Target {
                        url,
                        host: Some(host.clone()),
                    })
                })
                .collect();
        }
        self.pull
            .targets
            .iter()
            .map(|url| Target {
                host: self.host_of_url(url),
                url: url.clone(),
            })
            .collect()
    }

    /// The host a static target is on, if it is one of ours: by its name or its address.
    fn host_of_url(&self, url: &str) -> Option<HostName> {
        let parsed = url::Url::parse(url).ok()?;
        let name = parsed.host_str()?.to_ascii_lowercase();
        let short = name.split('.').next()?.to_owned();
        let named = HostName::new(short)
            .ok()
            .filter(|host| self.app.directory.get(host).is_some());
        named.or_else(|| {
            let address: IpAddr = name.parse().ok()?;
            self.app
                .directory
                .all()
                .into_iter()
                .find(|(_, entry)| {
                    entry.internal_ip.as_deref().and_then(|ip| ip.parse().ok()) == Some(address)
                })
                .map(|(host, _)| host)
        })
    }
}

/// Fills a template; nothing if something it names is not known.
fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (name, after) = after.split_once('}')?;
        out.push_str(&value(name)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_or_left_out() {
        let value = |name: &str| (name == "host").then(|| "n1".to_owned());
        assert_eq!(
            fill("http://{host}:9100/metrics", value).unwrap(),
            "http://n1:9100/metrics"
        );
        assert_eq!(fill("http://{internal_ip}:9100", value), None);
        assert_eq!(fill("http://{host", value), None);
    }
}
