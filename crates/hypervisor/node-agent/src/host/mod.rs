// SPDX-License-Identifier: Apache-2.0
//! What the host is: operating system, kernel, hardware, firmware. hostnamed is asked first; what
//! it does not tell is read from the host's own files, so a host without it is reported too.
//! Facts are read at start and every ten minutes and always replace what was known before.
//! Writing them into the status is left to the publisher.

mod describe;
mod files;
mod os_release;

use std::time::Duration;

use cobaltcore_api::OperatingSystem;
use cobaltcore_kit::{BoxError, CancellationToken};
use tokio::sync::watch;

use crate::context::Context;
use crate::metrics::Source;
use crate::systemd::{Link, hostnamed, tried};

pub use describe::{Description, NotADescription};
pub use files::{BootId, HostFiles};
pub use os_release::OsRelease;

/// How long facts are believed before they are read again.
pub const REFRESH: Duration = Duration::from_mins(10);

/// Everything known about the host from both sources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    /// What hostnamed says, when it can be asked.
    pub description: Option<Description>,
    /// The host's release file.
    pub release: OsRelease,
    /// What the kernel says about itself, the hardware and the firmware.
    pub kernel: files::KernelFacts,
}

/// One text for each fact: hostnamed's where it has one, the host's own otherwise.
///
/// ```
/// use cobaltcore_node_agent::host::{OsRelease, Sources, decide};
/// let sources = Sources {
///     release: OsRelease::parse(b"PRETTY_NAME=\"Debian 12\"\nVERSION_ID=12\n"),
///     ..Sources::default()
/// };
/// let system = decide(&sources);
/// assert_eq!((system.pretty_version.as_str(), system.version.as_str()), ("Debian 12", "12"));
/// ```
pub fn decide(sources: &Sources) -> OperatingSystem {
    let Sources {
        description,
        release,
        kernel,
    } = sources;
    let absent = Description::default();
    let told = description.as_ref().unwrap_or(&absent);
    let release = if told.release.is_empty() {
        release
    } else {
        &told.release
    };
    let text = |key: &str| release.get(key).unwrap_or_default().to_owned();
    let either = |first: &Option<String>, second: &str| first.clone().unwrap_or_else(|| second.to_owned());
    OperatingSystem {
        version: release
            .get("GARDENLINUX_VERSION")
            .or_else(|| release.get("VERSION_ID"))
            .unwrap_or_default()
            .to_owned(),
        variant_id: text("VARIANT_ID"),
        pretty_version: text("PRETTY_NAME"),
        kernel_name: either(&told.kernel_name, &kernel.name),
        kernel_release: either(&told.kernel_release, &kernel.release),
        kernel_version: either(&told.kernel_version, &kernel.version),
        kernel_command_line: kernel.command_line.clone(),
        hardware_vendor: either(&told.hardware_vendor, &kernel.hardware_vendor),
        hardware_model: either(&told.hardware_model, &kernel.hardware_model),
        hardware_serial: either(&told.hardware_serial, &kernel.hardware_serial),
        firmware_version: either(&told.firmware_version, &kernel.firmware_version),
        firmware_vendor: either(&told.firmware_vendor, &kernel.firmware_vendor),
        firmware_date: told
            .firmware_date
            .or(kernel.firmware_date)
            .map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time),
        garden_linux_commit_id: text("GARDENLINUX_COMMIT_ID_LONG"),
        garden_linux_features: split_features(release.get("GARDENLINUX_FEATURES").unwrap_or_default()),
    }
}

fn split_features(list: &str) -> Vec<String> {
    let features = list.split(',').map(str::trim);
    features
        .filter(|feature| !feature.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Reads the facts once. A bus that is down or a hostnamed that does not answer leaves the files.
pub async fn observe(files: &HostFiles, link: &Link) -> Sources {
    let description = match link {
        Link::Untried | Link::Down(_) => None,
        Link::Up(connection) => match hostnamed::describe(connection).await {
            Ok(text) => match Description::parse(&text) {
                Ok(description) => Some(description),
                Err(error) => {
                    tracing::warn!(%error, "hostnamed answered what is not a description; using the host's files");
                    None
                }
            },
            Err(error) => {
                tracing::info!(%error, "hostnamed does not answer; using the host's files");
                None
            }
        },
    };
    Sources {
        description,
        release: files.os_release(),
        kernel: files.kernel(),
    }
}

/// Keeps the host's facts on the board until `stop`: at once, again when the bus comes or goes, and every ten minutes.
pub async fn run(
    context: Context,
    mut bus: watch::Receiver<Link>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let files = HostFiles::below(&context.config.system.host_root);
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = tried(&mut bus) => {}
    }
    loop {
        let link = bus.borrow_and_update().clone();
        let found = decide(&observe(&files, &link).await);
        context.board.set_operating_system(found);
        context.metrics.ages.fresh(Source::Host);
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(REFRESH) => {}
            changed = bus.changed() => changed?,
        }
    }
}

#[cfg(test)]
mod tests;
