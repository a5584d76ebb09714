// SPDX-License-Identifier: Apache-2.0
//! What the server fills in from what is stored: service addresses and node ports, definition
//! status, aggregated roles. Allocations are derived from the stored objects every time, so there is
//! no second bookkeeping that could disagree.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;

impl Api {
    /// Fills in server-allocated fields before the object is validated.
    pub fn before_validation(&self, write: &Write<'_>, object: &mut Value, old: Option<&Value>) -> ApiResult<()> {
        let resource = write.resource;
        if resource.is_definition() && write.subresource.is_none() {
            // A new storage version counts as stored from now on; validation asks for it.
            crate::definitions::note_stored_versions(object);
            if resource.validate_create(object).is_empty() {
                self.settle_definition(object);
            }
            return Ok(());
        }
        if resource.is("", "Service") && write.subresource.is_none() {
            return self.allocate_service(object, old);
        }
        if resource.is("rbac.authorization.k8s.io", "ClusterRole") && object["aggregationRule"].is_object() {
            self.aggregate_role(object);
        }
        Ok(())
    }

    fn aggregate_role(&self, role: &mut Value) {
        let roles = self.objects("rbac.authorization.k8s.io", "clusterroles", None);
        let roles: Vec<&Value> = roles.iter().collect();
        if let Some(rules) = cobaltcore_access::rbac::aggregated_rules(role, &roles) {
            meta::fields(role).insert("rules".into(), json!(rules));
        }
    }

    fn allocate_service(&self, service: &mut Value, old: Option<&Value>) -> ApiResult<()> {
        let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
        if kind == "ExternalName" {
            let spec = meta::fields(meta::field(meta::fields(service), "spec"));
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                spec.remove(key);
            }
            return Ok(());
        }
        let name = meta::name(service).to_owned();
        let used = self.used_by_services(meta::namespace(service), &name);
        let mut errors = self.allocate_address(service, old, &used.addresses);
        errors.extend(self.allocate_ports(service, &kind, &used.ports));
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "Service", &name, &errors)) }
    }

    fn allocate_address(&self, service: &mut Value, old: Option<&Value>, used: &BTreeSet<Ipv4Addr>) -> Vec<FieldError> {
        let spec = meta::fields(meta::field(meta::fields(service), "spec"));
        if let Some(old) = old {
            let before = &old["spec"];
            let empty = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty();
            if empty && before["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty()) {
                for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                    if let Some(value) = before.get(key) {
                        spec.insert(key.into(), value.clone());
                    }
                }
            }
        }
        let given = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
        match given.as_str() {
            "" => {
                let Some(free) = self.free_address(used) else {
                    return vec![FieldError::new(
                        cobaltcore_schema::Cause::InternalError,
                        "spec.clusterIPs[0]",
                        "failed to allocate IP: range is full",
                    )];
                };
                spec.insert("clusterIP".into(), json!(free.to_string()));
            }
            "None" => {}
            text => {
                let parsed: Result<Ipv4Addr, _> = text.parse();
                let problem = match parsed {
                    Err(_) => None, // the kind's own validation names the wrong address
                    Ok(ip) if !self.in_service_range(ip) => Some(format!(
                        "failed to allocate IP {ip}: the provided IP ({ip}) is not in the valid range. The range of valid IPs is {}/{}",
                        self.config.service_cidr.0, self.config.service_cidr.1
                    )),
                    Ok(ip) if used.contains(&ip) => Some(format!("failed to allocate IP {ip}: provided IP is already allocated")),
                    Ok(_) => None,
                };
                if let Some(why) = problem {
                    return vec![FieldError::invalid("spec.clusterIPs", &json!([text]), &why)];
                }
            }
        }
        let address = spec.get("clusterIP").cloned().unwrap_or_default();
        spec.entry("clusterIPs").or_insert_with(|| json!([address]));
        spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
        spec.entry("ipFamilyPolicy").or_insert_with(|| json!("SingleStack"));
        Vec::new()
    }

    fn allocate_ports(&self, service: &mut Value, kind: &str, used: &BTreeSet<u16>) -> Vec<FieldError> {
        let wants = kind == "NodePort"
            || (kind == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false);
        let Some(Value::Array(ports)) = service.get_mut("spec").and_then(|s| s.get_mut("ports")) else { return Vec::new() };
        let mut errors = Vec::new();
        let mut taken = used.clone();
        for (at, port) in ports.iter_mut().enumerate() {
            let given = port["nodePort"].as_u64().unwrap_or(0);
            if given != 0 {
                let field = format!("spec.ports[{at}].nodePort");
                let number = u16::try_from(given).unwrap_or(0);
                let (low, high) = self.config.node_ports;
                if !(low..=high).contains(&number) {
                    let why = format!("provided port is not in the valid range. The range of valid ports is {low}-{high}");
                    errors.push(FieldError::invalid(field, &json!(given), &why));
                } else if used.contains(&number) {
                    errors.push(FieldError::invalid(field, &json!(given), "provided port is already allocated"));
                }
                taken.insert(number);
            } else if wants {
                let (low, high) = self.config.node_ports;
                if let Some(free) = (low..=high).find(|p| !taken.contains(p)) {
                    port["nodePort"] = json!(free);
                    taken.insert(free);
                }
            }
        }
        errors
    }

    fn in_service_range(&self, ip: Ipv4Addr) -> bool {
        let (base, bits) = self.config.service_cidr;
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        u32::from(ip) & mask == u32::from(base) & mask
    }

    /// A free address, beginning somewhere in the range so that addresses are not reused at once.
    fn free_address(&self, used: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let (base, bits) = self.config.service_cidr;
        let size = 1u64.checked_shl(32 - u32::from(bits)).unwrap_or(1).max(3);
        let offset = uuid::Uuid::new_v4().as_u128() as u64 % (size - 2);
        (0..size - 2)
            .map(|step| Ipv4Addr::from(u32::from(base) + 1 + ((offset + step) % (size - 2)) as u32))
            .find(|ip| !used.contains(ip))
    }

    fn used_by_services(&self, namespace: &str, name: &str) -> Used {
        let mut used = Used::default();
        used.addresses.insert(self.config.service_ip());
        for service in self.objects("", "services", None) {
            if meta::namespace(&service) == namespace && meta::name(&service) == name {
                continue;
            }
            used.addresses.extend(service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse::<Ipv4Addr>().ok()));
            for port in service["spec"]["ports"].as_array().into_iter().flatten() {
                used.ports.extend(port["nodePort"].as_u64().and_then(|p| u16::try_from(p).ok()));
            }
        }
        used
    }
}

#[derive(Default)]
struct Used {
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u16>,
}
