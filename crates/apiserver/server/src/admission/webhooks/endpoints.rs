// SPDX-License-Identifier: Apache-2.0
//! Where the Service of a webhook is reached: as the operator of this server said, or at the
//! addresses its EndpointSlices or Endpoints name. There is no service network to send packets to.

use cobaltcore_text::go;
use serde_json::Value;

use crate::api::Api;

/// Addresses tried for one call at most.
const MAX_ADDRESSES: usize = 5;

/// The addresses of a Service, or why there are none.
pub(super) fn of_service(api: &Api, namespace: &str, name: &str, port: u16) -> Result<Vec<String>, String> {
    if let Some(address) = api.config.webhook_services.get(&format!("{namespace}/{name}")) {
        return Ok(vec![address.clone()]);
    }
    let service = api
        .lookup("", "services", namespace, name)
        .ok_or_else(|| format!("service {name} not found", name = go::quote(name)))?
        .parse();
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        let host = spec["externalName"].as_str().unwrap_or_default();
        return Ok(vec![join(host, port.into())]);
    }
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = ports.iter().find(|entry| entry["port"] == port).ok_or_else(|| {
        format!(
            "no service port {port} found for service {name}",
            name = go::quote(name)
        )
    })?;
    let port_name = wanted["name"].as_str().unwrap_or_default();
    let mut found = from_slices(api, namespace, name, port_name);
    if found.is_empty() {
        found = from_endpoints(api, namespace, name, port_name);
    }
    found.truncate(MAX_ADDRESSES);
    if found.is_empty() {
        Err(format!(
            "no endpoints available for service {name}",
            name = go::quote(name)
        ))
    } else {
        Ok(found)
    }
}

fn from_slices(api: &Api, namespace: &str, name: &str, port_name: &str) -> Vec<String> {
    let Some(table) = api.store.find("discovery.k8s.io", "endpointslices") else {
        return Vec::new();
    };
    let snapshot = table.snapshot(Some(namespace), || api.store.revision());
    let slices = snapshot.items.iter().map(|(_, record)| record);
    let own = slices.filter(|record| record.facts.label("kubernetes.io/service-name") == Some(name));
    own.flat_map(|record| of_slice(&record.parse(), port_name))
        .collect()
}

fn of_slice(slice: &Value, port_name: &str) -> Vec<String> {
    let Some(port) = port_called(&slice["ports"], port_name) else {
        return Vec::new();
    };
    let endpoints = slice["endpoints"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    // An unknown state counts as ready.
    let ready = endpoints
        .iter()
        .filter(|endpoint| endpoint["conditions"]["ready"] != false);
    ready
        .flat_map(|endpoint| texts(&endpoint["addresses"]).map(|address| join(address, port)))
        .collect()
}

fn from_endpoints(api: &Api, namespace: &str, name: &str, port_name: &str) -> Vec<String> {
    let stored = api.lookup("", "endpoints", namespace, name);
    stored
        .map(|record| of_endpoints(&record.parse(), port_name))
        .unwrap_or_default()
}

fn of_endpoints(endpoints: &Value, port_name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let Some(port) = port_called(&subset["ports"], port_name) else {
            continue;
        };
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        found.extend(
            addresses
                .filter_map(|address| address["ip"].as_str())
                .map(|ip| join(ip, port)),
        );
    }
    found
}

fn port_called(ports: &Value, name: &str) -> Option<u64> {
    let ports = ports.as_array()?;
    let named = ports
        .iter()
        .find(|port| port["name"].as_str().unwrap_or_default() == name);
    named.and_then(|port| port["port"].as_u64())
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn join(host: &str, port: u64) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ready_addresses_of_the_right_port_are_found() {
        let slice = json!({
            "endpoints": [{"addresses": ["10.0.0.9"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.1"]}, {"addresses": ["fd00::1"], "conditions": {"ready": true}}],
            "ports": [{"name": "other", "port": 1}, {"name": "https", "port": 8443}],
        });
        assert_eq!(of_slice(&slice, "https"), ["10.0.0.1:8443", "[fd00::1]:8443"]);
        assert!(of_slice(&slice, "absent").is_empty() && of_slice(&json!({}), "").is_empty());
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.9"}], "ports": [{"port": 9443}]},
            {"addresses": [{"ip": "10.0.0.2"}], "ports": [{"name": "other", "port": 1}]}]});
        assert_eq!(of_endpoints(&endpoints, ""), ["10.0.0.1:9443"]);
    }
}
