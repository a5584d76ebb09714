// SPDX-License-Identifier: Apache-2.0
//! Installs the host's TLS certificate for libvirt, QEMU and Cloud Hypervisor, and makes libvirtd load it. A secret
//! is checked before the disk is touched, files are replaced atomically and only when they differ, and the condition
//! says Ready only when libvirt serves what was installed. Issuing certificates is left to the operator, unless the
//! agent is told to ask cert-manager itself.

mod decide;
mod files;
mod material;
mod request;
mod served;
mod validity;

use std::sync::Arc;
use std::time::Duration;

use cobaltcore_api::conditions::HypervisorCondition;
use cobaltcore_api::reasons::{EventReason, TlsCertificateReason};
use cobaltcore_kit::events::Happening;
use cobaltcore_kit::status::NewCondition;
use cobaltcore_kit::{BoxError, CancellationToken};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::Config;
use crate::context::{Context, Seen, differs};
use crate::systemd::{BusError, Link, Manager, settled};

pub use decide::{Disk, Found, Observed, Reload, Served, Step, Verdict, decide, verdict};
pub use files::{InstallError, PkiFiles, replace_file};
pub use material::{Invalid, Material};
pub use request::{CertificateRequest, certificate_for};
pub use validity::{NotACertificate, Validity};

/// The host's unit that makes libvirtd load its certificate again.
const RELOAD_UNIT: &str = "virt-admin-server-update-tls.service";
const RELOAD_TIME: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_mins(10);
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LAST: Duration = Duration::from_mins(5);

/// The name of the host's secret.
pub fn secret_name(host: &str) -> String {
    format!("tls-libvirt-{host}")
}

/// Keeps the installed certificate equal to the host's secret until `stop`.
pub async fn run(
    context: Context,
    bus: watch::Receiver<Link>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let name = secret_name(context.config.host.as_str());
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.config.namespace);
    let selector = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(secrets, selector).default_backoff().boxed();
    let mut hypervisor = context.hypervisor.clone();
    let mut part = Part::new(context, bus.clone());
    let mut bus = bus;
    let mut seen = false;
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = settled(&mut bus) => {}
    }
    loop {
        let asked = asked(&hypervisor.borrow_and_update());
        bus.mark_unchanged();
        let pause = part.step().await;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = differs(&mut hypervisor, &asked, self::asked) => changed?,
            changed = bus.changed(), if part.failures > 0 => changed?,
            () = tokio::time::sleep(pause) => {}
            event = events.next() => match event {
                None => return Err("the watch of the secret ended".into()),
                Some(Err(error)) => tracing::warn!(secret = name, %error, "cannot watch the secret of the certificate"),
                Some(Ok(watcher::Event::Init)) => seen = false,
                Some(Ok(watcher::Event::InitApply(secret) | watcher::Event::Apply(secret))) => {
                    seen = true;
                    part.found(Found::Secret(Arc::new(secret)));
                }
                Some(Ok(watcher::Event::InitDone)) if seen => {}
                Some(Ok(watcher::Event::InitDone | watcher::Event::Delete(_))) => part.found(Found::Absent),
            },
        }
    }
}

/// What the own Hypervisor asks for, if there is one: to install, and to request.
fn asked(seen: &Seen) -> Option<(bool, bool)> {
    let spec = &seen.as_deref()?.spec;
    Some((spec.install_certificate, spec.create_cert_manager_certificate))
}

struct Part {
    context: Context,
    bus: watch::Receiver<Link>,
    files: Option<PkiFiles>,
    found: Found,
    /// How the last reload for the present content ended.
    reload: Reload,
    served: Served,
    /// When that was asked.
    proved: Option<Instant>,
    updated: bool,
    /// Whether libvirt was restarted for the present content.
    restarted: bool,
    /// Whether an installation has not been told yet.
    news: bool,
    failures: u32,
    request: CertificateRequest,
}

impl Part {
    fn new(context: Context, bus: watch::Receiver<Link>) -> Self {
        let settings = &context.config.certificate;
        let files = settings
            .pki_path
            .as_ref()
            .map(|path| PkiFiles::new(path, settings.key_mode, settings.key_gid));
        Self {
            files,
            bus,
            found: Found::Unknown,
            reload: Reload::Unknown,
            served: Served::Unknown,
            proved: None,
            updated: false,
            restarted: false,
            news: false,
            failures: 0,
            request: CertificateRequest::default(),
            context,
        }
    }

    fn found(&mut self, found: Found) {
        self.found = found;
        self.reload = Reload::Unknown;
        self.served = Served::Unknown;
        self.restarted = false;
        self.failures = 0;
    }

    /// Observes, decides and acts until nothing is left to do now; returns how long to wait.
    async fn step(&mut self) -> Duration {
        let Some(hypervisor) = self.context.hypervisor() else {
            return LOOK;
        };
        self.request.ensure(&self.context, &hypervisor).await;
        if self.proved.is_some_and(|proved| proved.elapsed() >= LOOK) {
            self.served = Served::Unknown;
        }
        // Each round does one of at most four things; more rounds would be a circle.
        for _ in 0..6 {
            let Some(files) = self.files.clone() else {
                return LOOK;
            };
            let observed = self.observe(&files, &hypervisor);
            let step = decide(&observed);
            let failed = match step {
                Step::Nothing => {
                    self.publish(&verdict(&observed, Timestamp::now()));
                    self.failures = 0;
                    return LOOK;
                }
                Step::Install(material) => {
                    self.say_installing();
                    self.install(&files, &material)
                }
                Step::Reload(material) => self.reload_libvirt(&files, &material).await,
                Step::Prove(material) => {
                    self.prove(&material).await;
                    false
                }
            };
            if failed || (self.served == Served::Other && self.reload == Reload::Done) {
                let observed = self.observe(&files, &hypervisor);
                self.publish(&verdict(&observed, Timestamp::now()));
                self.failures += 1;
                let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(7).saturating_sub(1));
                self.reload = Reload::Unknown;
                self.served = Served::Unknown;
                return pause.min(RETRY_LAST);
            }
        }
        LOOK
    }

    fn observe(&self, files: &PkiFiles, hypervisor: &cobaltcore_api::Hypervisor) -> Observed {
        let config = &self.context.config;
        let material = match &self.found {
            Found::Secret(secret) => Some(
                Material::from_secret(secret, config.host.as_str(), config.host_ip, Timestamp::now())
                    .map(Arc::new),
            ),
            Found::Absent | Found::Unknown => None,
        };
        let disk = match &material {
            Some(Ok(material)) => files.compare(material),
            _ => Disk::Unknown,
        };
        Observed {
            install: hypervisor.spec.install_certificate,
            requested: hypervisor.spec.create_cert_manager_certificate,
            managed: config.certificate.manage,
            absent: matches!(self.found, Found::Absent),
            material,
            disk,
            reload: self.reload.clone(),
            served: self.served,
            updated: self.updated,
        }
    }

    fn install(&mut self, files: &PkiFiles, material: &Material) -> bool {
        match files.install(material) {
            Ok(()) => {
                tracing::info!(not_after = %material.validity().not_after, "TLS certificate installed");
                self.updated = true;
                self.news = true;
                self.reload = Reload::Unknown;
                false
            }
            Err(error) => {
                self.reload = Reload::NotInstalled(error.to_string());
                true
            }
        }
    }

    async fn reload_libvirt(&mut self, files: &PkiFiles, material: &Material) -> bool {
        let link = self.bus.borrow().clone();
        let ended = async {
            let manager = Manager::new(link.connection("making libvirt load its certificate")?).await?;
            manager.start(RELOAD_UNIT).await?.done_within(RELOAD_TIME).await
        };
        if let Err(error) = ended.await
            && !self.restart_libvirt(&link).await
        {
            self.reload = Reload::Failed(error.to_string());
            return true;
        }
        self.reload = Reload::Done;
        self.served = Served::Unknown;
        if let Err(error) = files.remember(material) {
            tracing::warn!(%error, "libvirt will load its certificate once more after a restart of the agent");
        }
        false
    }

    /// Restarts libvirt where that is wanted, once per certificate. Says whether it now has the files.
    async fn restart_libvirt(&mut self, link: &Link) -> bool {
        let wanted = self.context.config.certificate.restart_libvirtd;
        if !wanted || self.restarted {
            return false;
        }
        let unit = &self.context.config.system.libvirt_unit;
        let restarted = async {
            let manager = Manager::new(link.connection("restarting libvirt")?).await?;
            manager.restart(unit).await?.done_within(RELOAD_TIME).await
        };
        let restarted: Result<(), BusError> = restarted.await;
        // What was refused had no effect and may be asked for again.
        self.restarted = !matches!(&restarted, Err(error) if error.is_refusal());
        match &restarted {
            Ok(()) => tracing::warn!(
                unit,
                "restarted, because it could not be told to load its certificate"
            ),
            Err(error) => tracing::error!(%error, "libvirt still serves its old certificate"),
        }
        restarted.is_ok()
    }

    async fn prove(&mut self, material: &Material) {
        self.proved = Some(Instant::now());
        let Config {
            host_ip, certificate, ..
        } = &*self.context.config;
        let address = host_ip.map(|ip| (ip, certificate.tls_port).into());
        self.served = match address {
            None => Served::NotListening,
            Some(address) => served::compare(address, material).await,
        };
        self.context
            .metrics
            .tls_served
            .set((self.served == Served::Same).into());
    }

    fn say_installing(&self) {
        self.context.board.set_condition(
            HypervisorCondition::TlsCertificateInstalled,
            NewCondition::no(
                HypervisorCondition::TlsCertificateInstalled,
                TlsCertificateReason::Installing,
                "Installing TLS certificate from Secret",
            ),
        );
    }

    fn publish(&mut self, verdict: &Verdict) {
        let type_ = HypervisorCondition::TlsCertificateInstalled;
        if let Some(end) = verdict.not_after {
            self.context.metrics.tls_not_after.set(end.as_second());
        }
        match &verdict.condition {
            Some(condition) => self.context.board.set_condition(type_, condition.clone()),
            None => self.context.board.clear_condition(type_),
        }
        if let Some(trouble) = &verdict.trouble {
            tracing::warn!(trouble, "TLS certificate");
            self.context.tell(Happening::warning(
                EventReason::CertificateFailed,
                "Installing",
                trouble.clone(),
            ));
        } else if verdict.ready && std::mem::take(&mut self.news) {
            let note = "a new TLS certificate is installed and libvirt has loaded it";
            self.context.tell(Happening::normal(
                EventReason::CertificateInstalled,
                "Installing",
                note,
            ));
        }
    }
}

#[cfg(test)]
mod tests;
