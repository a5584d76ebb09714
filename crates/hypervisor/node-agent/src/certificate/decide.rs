// SPDX-License-Identifier: Apache-2.0
//! The judgement about the certificate: one step after the other from secret to proof, and what the condition says
//! at each point. Ready means that libvirt has loaded what the secret holds, and serves it where it serves TLS.

use std::sync::Arc;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::TlsCertificateReason as Reason;
use cobaltcore_kit::status::NewCondition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::material::{Invalid, Material};

const TYPE: HypervisorCondition = HypervisorCondition::TlsCertificateInstalled;

/// What the watch of the secret told.
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing yet.
    Unknown,
    /// There is no secret.
    Absent,
    /// The secret.
    Secret(Arc<Secret>),
}

/// The files compared with the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Nothing to compare with.
    Unknown,
    /// They differ.
    Different,
    /// They are equal, and libvirt was made to load them.
    Loaded,
    /// They are equal, but nobody knows whether libvirt loaded them.
    Equal,
}

/// How making libvirt load the files ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// Not tried.
    Unknown,
    /// Done.
    Done,
    /// The unit failed, is missing, or systemd cannot be asked.
    Failed(String),
    /// The files could not be written.
    NotInstalled(String),
}

/// What libvirt serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Not asked.
    Unknown,
    /// The installed certificate.
    Same,
    /// Another one.
    Other,
    /// Nobody listens, so there is nothing to compare.
    NotListening,
}

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Whether the Hypervisor asks for the installation.
    pub install: bool,
    /// Whether the Hypervisor asks the agent to request a certificate.
    pub requested: bool,
    /// Whether the agent requests certificates.
    pub managed: bool,
    /// Whether it is certain that there is no secret.
    pub absent: bool,
    /// What the secret holds, once there is one.
    pub material: Option<Result<Arc<Material>, Invalid>>,
    /// The files.
    pub disk: Disk,
    /// How making libvirt load them ended.
    pub reload: Reload,
    /// What libvirt serves.
    pub served: Served,
    /// Whether the files were replaced by this process.
    pub updated: bool,
}

/// What to do next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing now.
    Nothing,
    /// Write the files.
    Install(Arc<Material>),
    /// Make libvirt load them.
    Reload(Arc<Material>),
    /// Compare what libvirt serves.
    Prove(Arc<Material>),
}

/// Decides the next step.
pub fn decide(observed: &Observed) -> Step {
    let material = match &observed.material {
        Some(Ok(material)) if observed.install => material.clone(),
        _ => return Step::Nothing,
    };
    match (observed.disk, &observed.reload, observed.served) {
        (Disk::Different | Disk::Unknown, ..) => Step::Install(material),
        (Disk::Equal, Reload::Unknown | Reload::NotInstalled(_), _) => Step::Reload(material),
        // Something else is served although it was loaded once: load it again.
        (Disk::Loaded, Reload::Unknown, Served::Other) => Step::Reload(material),
        (_, Reload::Done | Reload::Unknown, Served::Unknown) => Step::Prove(material),
        _ => Step::Nothing,
    }
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The condition; `None` when there is nothing to say.
    pub condition: Option<NewCondition>,
    /// When the installed certificate ends.
    pub not_after: Option<Timestamp>,
    /// Whether everything is as it should be.
    pub ready: bool,
    /// What people should be told, if something is wrong.
    pub trouble: Option<String>,
}

/// What to say.
pub fn verdict(observed: &Observed, now: Timestamp) -> Verdict {
    if !observed.install {
        return said(None);
    }
    let material = match &observed.material {
        None if observed.absent && observed.requested && !observed.managed => {
            let message = "there is no secret yet; the operator requests certificates, not this agent";
            return said(Some(NewCondition::no(TYPE, Reason::ManagedByOperator, message)));
        }
        None => return said(None),
        Some(Err(invalid)) => {
            let message = format!("{invalid}; the files on the host stay as they are");
            return trouble(Reason::InvalidCertificate, message);
        }
        Some(Ok(material)) => material,
    };
    let verdict = match (&observed.reload, observed.served) {
        (Reload::NotInstalled(error), _) => trouble(
            Reason::FailedToUpdate,
            format!("Failed to update TLS certificate: {error}"),
        ),
        (Reload::Failed(error), _) => trouble(
            Reason::FailedToStartUpdateService,
            format!("Failed to start virt-admin-server-update-tls service: {error}"),
        ),
        (_, Served::Other) => trouble(
            Reason::NotServed,
            "libvirt was told to load the certificate but serves another one".to_owned(),
        ),
        _ => ready(observed, material, now),
    };
    Verdict {
        not_after: Some(material.validity().not_after),
        ..verdict
    }
}

fn ready(observed: &Observed, material: &Material, now: Timestamp) -> Verdict {
    let state = if observed.updated { "updated" } else { "up to date" };
    let validity = material.validity();
    let mut message = format!(
        "TLS certificate is ready and {state}, valid until {}",
        validity.not_after
    );
    if observed.served == Served::NotListening {
        message.push_str("; libvirt serves no TLS at this host's address, so it was not seen in use");
    }
    if validity.is_running_out(now) {
        message.push_str("; less than a quarter of its life is left, look at cert-manager");
    }
    Verdict {
        ready: true,
        ..said(Some(NewCondition::yes(TYPE, Reason::Ready, message)))
    }
}

fn said(condition: Option<NewCondition>) -> Verdict {
    Verdict {
        condition,
        not_after: None,
        ready: false,
        trouble: None,
    }
}

fn trouble(reason: Reason, message: String) -> Verdict {
    Verdict {
        trouble: Some(message.clone()),
        ..said(Some(NewCondition::no(TYPE, reason, message)))
    }
}
