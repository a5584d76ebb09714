// SPDX-License-Identifier: Apache-2.0
//! Requests a libvirt certificate for each hypervisor node from cert-manager and mirrors how
//! far it got. cert-manager issues it, the node agent installs it.

mod resource;

pub use resource::{Certificate, CertificateSpec, CertificateStatus};
