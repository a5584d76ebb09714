// SPDX-License-Identifier: Apache-2.0
//! The Kubernetes API of `up`: the embedded one, or a real one that a kubeconfig names. Either way the platform's
//! definitions, accounts and rights are installed there, and each role acts as its own account.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use cobaltcore_api::Hypervisor;
use cobaltcore_apiserver::{Config, Server, User};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{Scope, oneshot};
use serde_json::Value;

use crate::run::{Failure, of_server};

const MANAGER: &str = "cobaltcore-up";
/// How long a real cluster may take to serve a new definition.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// Where the objects are.
pub(crate) enum Cluster {
    Embedded(Server),
    Real {
        config: Box<kube::Config>,
        kubeconfig: PathBuf,
    },
}

impl Cluster {
    /// Starts the embedded API.
    pub(crate) async fn embedded(config: Config) -> Result<Self, Failure> {
        Ok(Self::Embedded(Server::start(config).await.map_err(of_server)?))
    }

    /// Uses the cluster of a kubeconfig.
    pub(crate) async fn real(kubeconfig: &Path) -> anyhow::Result<Self> {
        Ok(Self::Real {
            config: Box::new(crate::run::cluster(Some(kubeconfig)).await?),
            kubeconfig: kubeconfig.to_owned(),
        })
    }

    /// A real cluster may have hosts of its own, which nobody may manage with the answers of a simulated cloud.
    pub(crate) async fn has_no_others(&self, ours: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let Self::Real { kubeconfig, .. } = self else {
            return Ok(());
        };
        let hypervisors: Api<Hypervisor> = Api::all(self.administrator()?);
        let found = hypervisors
            .list(&ListParams::default())
            .await
            .context("cannot list the hypervisors of the cluster")?;
        if let Some(other) = found.iter().find(|found| !ours(&found.name_any())) {
            bail!(
                "the cluster of {} has a hypervisor that is not simulated ({}), and a simulated cloud knows nothing of it: \
                 name its cloud with --cloud, or use a cluster without hypervisors",
                kubeconfig.display(),
                other.name_any()
            );
        }
        Ok(())
    }

    /// Speaks to the API and may do everything; with the embedded one it does not leave the process.
    pub(crate) fn administrator(&self) -> anyhow::Result<kube::Client> {
        match self {
            Self::Embedded(server) => Ok(kube::Client::new(server.client_as(User::admin()), "default")),
            Self::Real { config, .. } => client(kube::Config::clone(config)),
        }
    }

    /// The same as one of the platform's accounts.
    pub(crate) fn account(&self, namespace: &str, name: &str) -> anyhow::Result<kube::Client> {
        match self {
            Self::Embedded(server) => Ok(kube::Client::new(
                server.client_as(User::service_account(namespace, name, None)),
                namespace,
            )),
            Self::Real { config, .. } => {
                let mut config = kube::Config::clone(config);
                config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{name}"));
                namespace.clone_into(&mut config.default_namespace);
                client(config)
            }
        }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Embedded(server) => server.url().unwrap_or_default(),
            Self::Real { config, .. } => config.cluster_url.to_string(),
        }
    }

    /// The kubeconfig of somebody who may do everything.
    pub(crate) fn kubeconfig(&self) -> Option<&Path> {
        match self {
            Self::Embedded(server) => server.kubeconfig(),
            Self::Real { kubeconfig, .. } => Some(kubeconfig),
        }
    }

    /// Installs the definitions of the platform's kinds.
    pub(crate) async fn install_definitions(&self) -> anyhow::Result<()> {
        for crd in &cobaltcore_api::crds() {
            let object = serde_json::to_value(crd).with_context(|| crd.name_any())?;
            self.apply(&object).await?;
            if let Self::Real { .. } = self {
                self.until_served(&crd.name_any()).await?;
            }
        }
        Ok(())
    }

    async fn until_served(&self, name: &str) -> anyhow::Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.administrator()?);
        let served = async {
            loop {
                let crd = definitions.get(name).await?;
                let conditions = crd
                    .status
                    .and_then(|status| status.conditions)
                    .unwrap_or_default();
                if conditions
                    .iter()
                    .any(|condition| condition.type_ == "Established" && condition.status == "True")
                {
                    return Ok::<_, kube::Error>(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, served)
            .await
            .map_err(|_| anyhow!("the cluster does not serve {name} after {PATIENCE:?}"))?
            .with_context(|| format!("cannot look at the definition {name}"))
    }

    /// Applies every document of a manifest.
    pub(crate) async fn apply_yaml(&self, path: &str, text: &str) -> anyhow::Result<()> {
        if let Self::Embedded(server) = self {
            let applied = server.apply_yaml(text).await;
            return applied.map_err(|error| anyhow!("cannot apply deploy/{path}: {error}"));
        }
        for document in text.split("\n---\n") {
            let object: Value = cobaltcore_kit::config::Config::new()
                .text(path, document)
                .load()?;
            self.apply(&object)
                .await
                .with_context(|| format!("deploy/{path}"))?;
        }
        Ok(())
    }

    /// Applies an object.
    pub(crate) async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let name = object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match self {
            Self::Embedded(server) => {
                let applied = server.apply(object).await;
                applied.map_err(|error| anyhow!("cannot apply {name}: {error}"))
            }
            Self::Real { .. } => {
                let applied = apply(&self.administrator()?, object).await;
                applied.with_context(|| format!("cannot apply {name}"))
            }
        }
    }

    /// Ends what was started here.
    pub(crate) async fn stop(self) {
        if let Self::Embedded(server) = self {
            server.stop().await;
        }
    }
}

fn client(config: kube::Config) -> anyhow::Result<kube::Client> {
    kube::Client::try_from(config).context("cannot make a client for the Kubernetes API")
}

async fn apply(client: &kube::Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("it has no kind")?;
    let (resource, capabilities) = oneshot::pinned_kind(client, &(&types).try_into()?).await?;
    let api: Api<DynamicObject> = match (&capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    api.patch(&object.name_any(), &params, &Patch::Apply(&object))
        .await?;
    Ok(())
}
