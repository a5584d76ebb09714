// SPDX-License-Identifier: Apache-2.0
//! Requests a libvirt certificate for each hypervisor node from cert-manager and mirrors how
//! far it got. cert-manager issues it, the node agent installs it; both go with the Node.

mod decide;
mod resource;

use std::sync::Arc;

use cobaltcore_api::field_managers::FieldManager;
use cobaltcore_api::labels;
use cobaltcore_kit::controller::{Plan, Reconciler, SharedRunner};
use cobaltcore_kit::status::{Intent, NewCondition};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};

use crate::config::Config;
use crate::context::{Context, same_name};
use crate::error::Error;
use crate::seen::node_label;

pub use resource::{Certificate, CertificateSpec, CertificateStatus, IssuerRef, PrivateKey, Subject};

use decide::{Action, Facts};

/// The definition that cert-manager brings.
pub(crate) const DEFINITION: &str = "certificates.cert-manager.io";

/// The controller.
pub(crate) fn controller(context: &Context) -> SharedRunner<Certificates> {
    let caches = &context.caches;
    let changed = caches.nodes.own_triggers(|change| change.differs(decide::inputs));
    let hypervisors = caches.hypervisors.triggers(|change| {
        same_name(change).filter(|_| change.differs(|hv| (hv.spec.install_certificate, hv.status.is_some())))
    });
    let certificates = caches.certificates.triggers(|change| {
        let name = change.object()?.metadata.name.as_deref()?;
        Some(ObjectRef::<Node>::new(name.strip_prefix(decide::PREFIX)?))
    });
    // When cert-manager arrives, every node is looked at.
    let nodes = caches.nodes.clone();
    let installed = caches.definitions.triggers(move |change| {
        let arrived = change.before.is_none() && change.object().is_some_and(|d| d.name_any() == DEFINITION);
        let all = if arrived { nodes.all() } else { Vec::new() };
        all.into_iter()
            .map(|node| ObjectRef::from_obj(node.as_ref()))
            .collect::<Vec<_>>()
    });
    SharedRunner::new("certificate", caches.nodes.store(), Certificates(context.clone()))
        .on(changed)
        .on(hypervisors)
        .on(certificates)
        .on(installed)
}

/// Looks after the certificates of Nodes.
pub(crate) struct Certificates(Context);

impl Reconciler for Certificates {
    type Object = Node;
    type Facts = Facts;
    type Action = Action;
    type Error = Error;

    async fn observe(&self, node: &Arc<Node>) -> Result<Facts, Error> {
        let (caches, config, name) = (&self.0.caches, &self.0.config, node.name_any());
        Ok(Facts {
            installed: caches.has_kind(DEFINITION),
            hypervisor: caches.hypervisors.get(&name),
            certificate: caches
                .certificates
                .get_in(&config.certificate_namespace, &decide::name(&name)),
        })
    }

    fn decide(&self, node: &Node, facts: &Facts) -> Plan<Action> {
        if node_label(node, labels::VIRT_DRIVER).is_none() {
            return Plan::rest();
        }
        decide::decide(node, facts, &self.0.config)
    }

    async fn act(&self, node: &Arc<Node>, action: Action) -> Result<(), Error> {
        match action {
            Action::Request(spec) => self.request(node, &spec).await,
            Action::Report(condition) => self.report(&node.name_any(), condition).await,
        }
    }
}

impl Certificates {
    async fn request(&self, node: &Node, spec: &CertificateSpec) -> Result<(), Error> {
        let Config {
            certificate_namespace: namespace,
            ..
        } = self.0.config.as_ref();
        let (of, name) = (node.name_any(), decide::name(&node.name_any()));
        let object: Value = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": of, "uid": node.uid()}
            ]},
            "spec": spec,
        });
        let api: Api<Certificate> = Api::namespaced(self.0.client.clone(), namespace);
        let params = PatchParams::apply(FieldManager::Certificate.as_str()).force();
        let patch = Patch::Apply(&object);
        let what = format!("applying Certificate {namespace}/{name}");
        self.0
            .call(what, api.patch(&name, &params, &patch))
            .await
            .map(drop)
    }

    async fn report(&self, name: &str, condition: Option<NewCondition>) -> Result<(), Error> {
        let Some(hypervisor) = self.0.caches.hypervisors.get(name) else {
            return Ok(());
        };
        let intent = condition.into_iter().fold(Intent::new(), Intent::condition);
        let manager = FieldManager::Certificate;
        self.0
            .write_status(manager, hypervisor.as_ref(), &intent)
            .await
            .map(drop)
    }
}
