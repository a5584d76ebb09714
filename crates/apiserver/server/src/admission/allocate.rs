// SPDX-License-Identifier: Apache-2.0
//! What the server fills in from what is stored: service addresses and node ports, definition
//! status, aggregated roles. Allocations are derived from the stored objects every time, so there is
//! no second bookkeeping that could disagree.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cobaltcore_cel::Budget;
use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::status::{ApiError, ApiResult};
use crate::write::Write;

impl Api {
    /// Fills in server-allocated fields before the object is validated.
    pub fn before_validation(
        &self,
        write: &Write<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> ApiResult<()> {
        let resource = write.resource;
        if resource.is_definition() && write.subresource.is_none() {
            // A new storage version counts as stored from now on; validation asks for it.
            crate::definitions::note_stored_versions(object);
            if resource
                .validate_create(object, &mut Budget::per_object())
                .is_empty()
            {
                self.settle_definition(object);
            }
            return Ok(());
        }
        if resource.is("", "Service") && write.subresource.is_none() {
            return self.allocate_service(object, old);
        }
        if resource.is("certificates.k8s.io", "CertificateSigningRequest") && old.is_none() {
            sign_request(write, object);
        }
        // What the client wrote is judged before it is written over.
        if resource.is("rbac.authorization.k8s.io", "ClusterRole")
            && object["aggregationRule"].is_object()
            && resource
                .validate_create(object, &mut Budget::per_object())
                .is_empty()
        {
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

    /// Fills in what the kind itself cannot know: free addresses and ports. What the client chose is
    /// checked against the range and against what others have.
    fn allocate_service(&self, service: &mut Value, old: Option<&Value>) -> ApiResult<()> {
        let name = meta::name(service).to_owned();
        let mut errors = cobaltcore_builtins::prepare_service(service, old);
        let needs = cobaltcore_builtins::service_needs(service);
        let mut used = self.used_by_services(meta::namespace(service), &name);
        errors.extend(self.check_choices(service, old, &used));
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "Service", &name, &errors));
        }
        let spec = meta::fields(meta::field(meta::fields(service), "spec"));
        if needs.cluster_ip {
            let free = self
                .free_address(&used.addresses)
                .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
            spec.insert("clusterIP".into(), json!(free.to_string()));
            spec.insert("clusterIPs".into(), json!([free.to_string()]));
        }
        let full = || ApiError::internal("failed to allocate a nodePort: range is full");
        if let Some(Value::Array(ports)) = spec.get_mut("ports") {
            for port in ports.iter() {
                used.ports
                    .extend(port["nodePort"].as_u64().and_then(|p| u16::try_from(p).ok()));
            }
            for at in &needs.node_ports {
                let free = self.free_port(&used.ports).ok_or_else(full)?;
                used.ports.insert(free);
                if let Some(Value::Object(port)) = ports.get_mut(*at) {
                    port.insert("nodePort".into(), json!(free));
                }
            }
        }
        if needs.health_check_port {
            let free = self.free_port(&used.ports).ok_or_else(full)?;
            spec.insert("healthCheckNodePort".into(), json!(free));
        }
        Ok(())
    }

    /// Addresses and ports the client chose itself must be in range and free.
    fn check_choices(&self, service: &Value, old: Option<&Value>, used: &Used) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let text = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        // An address is asked for once; whether it may change or be there at all is told by validation.
        let outside = |service: &Value| service["spec"]["type"] == "ExternalName";
        let asks = !outside(service) && old.is_none_or(outside);
        if asks && let Ok(ip) = text.parse::<Ipv4Addr>() {
            let why = if !self.in_service_range(ip) {
                Some(format!(
                    "failed to allocate IP {ip}: the provided network does not match the current range"
                ))
            } else if used.addresses.contains(&ip) {
                Some(format!(
                    "failed to allocate IP {ip}: provided IP is already allocated"
                ))
            } else {
                None
            };
            if let Some(why) = why {
                errors.push(FieldError::invalid("spec.clusterIPs", &json!([text]), &why));
            }
        }
        let (low, high) = self.config.node_ports;
        for (at, port) in service["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let given = port["nodePort"].as_u64().unwrap_or(0);
            if given == 0 {
                continue;
            }
            let number = u16::try_from(given).unwrap_or(0);
            let why = if !(low..=high).contains(&number) {
                format!("provided port is not in the valid range. The range of valid ports is {low}-{high}")
            } else if used.ports.contains(&number) {
                "provided port is already allocated".to_owned()
            } else {
                continue;
            };
            errors.push(FieldError::invalid(
                format!("spec.ports[{at}].nodePort"),
                &json!(given),
                &why,
            ));
        }
        errors
    }

    fn free_port(&self, used: &BTreeSet<u16>) -> Option<u16> {
        let (low, high) = self.config.node_ports;
        let size = u32::from(high - low) + 1;
        let offset = uuid::Uuid::new_v4().as_u128() as u32 % size;
        (0..size)
            .map(|step| low + ((offset + step) % size) as u16)
            .find(|port| !used.contains(port))
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
        if (namespace, name) != ("default", "kubernetes") {
            used.addresses.insert(self.config.service_ip());
        }
        for service in self.objects("", "services", None) {
            if meta::namespace(&service) == namespace && meta::name(&service) == name {
                continue;
            }
            used.addresses.extend(
                service["spec"]["clusterIP"]
                    .as_str()
                    .and_then(|ip| ip.parse::<Ipv4Addr>().ok()),
            );
            for port in service["spec"]["ports"].as_array().into_iter().flatten() {
                used.ports
                    .extend(port["nodePort"].as_u64().and_then(|p| u16::try_from(p).ok()));
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

/// Who asks for a certificate is what the server knows, not what the request says.
fn sign_request(write: &Write<'_>, request: &mut Value) {
    let user = write.call.user.to_user_info();
    let spec = meta::fields(meta::field(meta::fields(request), "spec"));
    for key in ["username", "uid", "groups", "extra"] {
        match user.get(key) {
            Some(value) => spec.insert(key.into(), value.clone()),
            None => spec.remove(key),
        };
    }
}
