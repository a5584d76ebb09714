// SPDX-License-Identifier: Apache-2.0
//! OpenStack clients for the roles: sessions that keep themselves valid, typed calls and typed
//! errors for Keystone, Nova, Placement, Glance, Neutron and Cinder. Every call has a deadline; what
//! may be repeated is repeated a little, what must not be is reported as an unknown outcome. What to
//! do about any of it is left to the roles.
//!
//! ```no_run
//! use cobaltcore_openstack::nova::{BlockMigration, ServerFilter};
//! use cobaltcore_openstack::{CloudConfig, Optional, Session, Settings};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let nova = Session::new(CloudConfig::from_env()?, Settings::default())?.nova();
//! for server in nova.servers(&ServerFilter::on_host("hv1")).await? {
//!     match nova.live_migrate(&server.id, None, BlockMigration::Auto).await {
//!         Ok(()) => {}
//!         Err(error) if error.outcome_unknown() => println!("look at {} first: {error}", server.id),
//!         Err(error) if error.is_conflict() => println!("not now: {error}"),
//!         Err(error) => return Err(error.into()),
//!     }
//!     let gone = nova.server(&server.id).await.optional()?.is_none();
//! }
//! # Ok(()) }
//! ```

pub mod cinder;
pub mod glance;
pub mod keystone;
pub mod neutron;
pub mod nova;
pub mod placement;

mod call;
mod catalog;
mod config;
mod error;
mod fault;
mod ids;
mod json;
mod observe;
mod pages;
mod retry;
mod secret;
mod session;
mod transport;
mod version;
mod when;

pub use call::{Call, Repeat, Service};
pub use catalog::Catalog;
pub use cinder::Cinder;
pub use config::{
    ApplicationCredentialRef, CloudConfig, ConfigError, Credentials, DomainRef, Interface, Scope, Tls,
    UserRef,
};
pub use error::{Attempted, Error, Kind, Optional, Refusal, Result};
pub use glance::Glance;
pub use ids::{
    AgentId, AggregateId, ConsumerId, DomainId, FlavorId, HypervisorId, ImageId, MigrationId, NetworkId,
    PortId, ProjectId, ProviderId, RoleId, ServerGroupId, ServerId, ServiceId, SubnetId, UserId, VolumeId,
};
pub use keystone::Keystone;
pub use neutron::Neutron;
pub use nova::Nova;
pub use observe::{Observer, Report};
pub use placement::Placement;
pub use secret::Secret;
pub use session::{Identity, Named, Removal, Session, Settings};
pub use version::{Microversion, Offer};
