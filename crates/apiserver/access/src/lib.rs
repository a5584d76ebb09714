// SPDX-License-Identifier: Apache-2.0
//! Who is asking, and may they: certificates, tokens, RBAC.
//!
//! Nothing here listens, stores or waits. The server hands in credentials, objects and the
//! current time, and gets identities, decisions and the exact texts of the reference server
//! back. Whatever cannot be decided is refused.
//!
//! ```
//! use cobaltcore_access::rbac::{authorize, bootstrap_objects, forbidden};
//! use cobaltcore_access::{Attributes, Index, User};
//!
//! let index = Index::build(&bootstrap_objects(|_group| true));
//! let agent = User::service_account("kube-system", "agent", None);
//! assert!(authorize(&index, &Attributes::path(&agent, "get", "/version")).allowed);
//!
//! let asked = Attributes::resource(&agent, "list", "", "pods").in_namespace("default");
//! let decision = authorize(&index, &asked);
//! assert!(!decision.allowed);
//! assert_eq!(
//!     forbidden(&asked, &decision.reason()).message(),
//!     "pods is forbidden: User \"system:serviceaccount:kube-system:agent\" cannot list resource \"pods\" \
//!      in API group \"\" in the namespace \"default\""
//! );
//! ```

mod error;
pub mod identity;
pub mod impersonation;
pub mod pki;
pub mod rbac;
pub mod recorder;
pub mod review;
pub mod tokens;

pub use error::{AccessError, FieldCause, Refusal};
pub use identity::User;
pub use rbac::{Attributes, Decision, Index};
