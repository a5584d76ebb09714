// SPDX-License-Identifier: Apache-2.0
//! The service catalog of a token and the choice of an endpoint from it: by type, interface and
//! region. Where the choice is not clear it is refused, with what there is to choose from, because
//! the wrong region is the wrong cloud.

use std::collections::BTreeSet;

use serde::Deserialize;
use url::Url;

use crate::call::Service;
use crate::config::{CloudConfig, Interface};
use crate::error::Error;

/// The catalog as Keystone hands it out with a token.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Catalog(Vec<Entry>);

#[derive(Debug, Clone, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, Deserialize)]
struct Endpoint {
    interface: String,
    url: String,
    region_id: Option<String>,
    /// The older name of the same.
    region: Option<String>,
}

impl Endpoint {
    fn region(&self) -> Option<&str> {
        self.region_id.as_deref().or(self.region.as_deref())
    }
}

impl Catalog {
    /// The service types in the catalog.
    pub fn services(&self) -> BTreeSet<&str> {
        self.0.iter().map(|entry| entry.kind.as_str()).collect()
    }

    /// Where a service answers, with the version segment its calls are relative to.
    pub(crate) fn endpoint(&self, service: Service, cloud: &CloudConfig) -> Result<Url, Error> {
        if let Some(url) = cloud.endpoint_override(service) {
            return Ok(versioned(url.clone(), service));
        }
        let found = self.choose(service, cloud.interface, cloud.region.as_deref())?;
        let url = Url::parse(found).map_err(|error| Error::NoEndpoint {
            service,
            detail: format!("the catalog's endpoint {found:?} is no address: {error}"),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::NoEndpoint {
                service,
                detail: format!("the catalog's endpoint {found:?} is neither http nor https"),
            });
        }
        Ok(versioned(url, service))
    }

    fn choose(&self, service: Service, interface: Interface, region: Option<&str>) -> Result<&str, Error> {
        let refuse = |detail: String| Err(Error::NoEndpoint { service, detail });
        let types = service.catalog_types();
        let entries: Vec<_> = types
            .iter()
            .flat_map(|kind| self.0.iter().filter(move |entry| entry.kind == *kind))
            .collect();
        let Some(first) = entries.first() else {
            let known: Vec<_> = self.services().into_iter().collect();
            return refuse(format!(
                "the catalog has no service of type {}; it has {}",
                types.join(" or "),
                list(&known)
            ));
        };
        let of_interface: Vec<_> = entries
            .iter()
            .filter(|entry| entry.kind == first.kind)
            .flat_map(|entry| &entry.endpoints)
            .filter(|endpoint| endpoint.interface.trim_end_matches("URL") == interface.as_str())
            .collect();
        let regions: BTreeSet<_> = of_interface
            .iter()
            .filter_map(|endpoint| endpoint.region())
            .collect();
        let regions: Vec<_> = regions.into_iter().collect();
        if region.is_none() && regions.len() > 1 {
            return refuse(format!(
                "the catalog has endpoints in several regions ({}); set OS_REGION_NAME or region_name",
                list(&regions)
            ));
        }
        let endpoint = of_interface
            .iter()
            .find(|endpoint| region.is_none() || endpoint.region() == region);
        match endpoint {
            Some(endpoint) => Ok(&endpoint.url),
            None => refuse(format!(
                "the catalog has no {interface} endpoint{}; there are {interface} endpoints in {}",
                region
                    .map(|region| format!(" in region {region}"))
                    .unwrap_or_default(),
                list(&regions)
            )),
        }
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// Adds the version segment where the catalog left it out, and never a slash at the end.
pub(crate) fn versioned(mut url: Url, service: Service) -> Url {
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    let has_version = path.split('/').any(is_version);
    let path = match service.version_segment() {
        Some(version) if !has_version => format!("{path}/{version}"),
        _ => path,
    };
    url.set_path(&path);
    url
}

/// The address of the version document: the endpoint up to its version segment.
pub(crate) fn version_document(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let mut kept = String::new();
    for segment in endpoint.path().split('/').filter(|segment| !segment.is_empty()) {
        kept.push('/');
        kept.push_str(segment);
        if is_version(segment) {
            break;
        }
    }
    url.set_path(&format!("{kept}/"));
    url
}

fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let text = r#"[
            {"type": "compute", "name": "nova", "endpoints": [
                {"interface": "public", "region": "one", "region_id": "one", "url": "http://nova.one/v2.1", "id": "1"},
                {"interface": "internal", "region": "one", "region_id": "one", "url": "http://inside.one/v2.1", "id": "2"},
                {"interface": "public", "region": "two", "region_id": "two", "url": "http://nova.two/compute", "id": "3"}]},
            {"type": "volumev3", "endpoints": [
                {"interface": "publicURL", "region_id": "one", "url": "http://cinder/v3/abc"}]},
            {"type": "odd", "endpoints": []}]"#;
        serde_json::from_str(text).unwrap()
    }

    fn cloud(interface: Interface, region: Option<&str>) -> CloudConfig {
        let mut cloud = CloudConfig::for_tests("http://keystone");
        cloud.interface = interface;
        cloud.region = region.map(str::to_owned);
        cloud
    }

    fn found(service: Service, interface: Interface, region: Option<&str>) -> Result<String, String> {
        let url = catalog().endpoint(service, &cloud(interface, region));
        url.map(|url| url.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn region_and_interface_decide() {
        use Interface::{Admin, Internal, Public};
        let one = found(Service::Nova, Public, Some("one"));
        assert_eq!(one.as_deref(), Ok("http://nova.one/v2.1"));
        let two = found(Service::Nova, Public, Some("two"));
        assert_eq!(two.as_deref(), Ok("http://nova.two/compute/v2.1"));
        let inside = found(Service::Nova, Internal, None);
        assert_eq!(inside.as_deref(), Ok("http://inside.one/v2.1"));
        let cinder = found(Service::Cinder, Public, Some("one"));
        assert_eq!(cinder.as_deref(), Ok("http://cinder/v3/abc"));
        let unclear = found(Service::Nova, Public, None).unwrap_err();
        assert!(
            unclear.contains("one, two") && unclear.contains("OS_REGION_NAME"),
            "{unclear}"
        );
        let missing = found(Service::Nova, Admin, Some("one")).unwrap_err();
        assert!(missing.contains("no admin endpoint in region one"), "{missing}");
        let unknown = found(Service::Glance, Public, None).unwrap_err();
        assert!(
            unknown.contains("type image") && unknown.contains("compute, odd, volumev3"),
            "{unknown}"
        );
    }

    #[test]
    fn version_segments_are_added_and_found() {
        let cases = [
            (
                Service::Nova,
                "http://a:8774/v2.1/",
                "http://a:8774/v2.1",
                "http://a:8774/v2.1/",
            ),
            (
                Service::Nova,
                "http://a/compute/v2.1/0abc",
                "http://a/compute/v2.1/0abc",
                "http://a/compute/v2.1/",
            ),
            (
                Service::Placement,
                "http://a/placement/",
                "http://a/placement",
                "http://a/placement/",
            ),
            (
                Service::Placement,
                "http://a:8778",
                "http://a:8778/",
                "http://a:8778/",
            ),
            (
                Service::Glance,
                "http://a:9292",
                "http://a:9292/v2",
                "http://a:9292/v2/",
            ),
            (
                Service::Neutron,
                "http://a:9696/",
                "http://a:9696/v2.0",
                "http://a:9696/v2.0/",
            ),
            (
                Service::Keystone,
                "http://a/identity/v3",
                "http://a/identity/v3",
                "http://a/identity/v3/",
            ),
            (
                Service::Nova,
                "http://a/vm1/",
                "http://a/vm1/v2.1",
                "http://a/vm1/v2.1/",
            ),
        ];
        for (service, given, endpoint, document) in cases {
            let url = versioned(Url::parse(given).unwrap(), service);
            assert_eq!(url.as_str(), endpoint);
            assert_eq!(version_document(&url).as_str(), document);
        }
    }
}
