// SPDX-License-Identifier: Apache-2.0
//! CEL as Kubernetes speaks it: type checker, evaluator and cost budget.
//! Expressions are checked against declared types when they are registered and evaluated over
//! JSON directly; every step is counted, so no rule can run away.
//!
//! ```
//! use cobaltcore_cel::{Budget, DeclType, Env, Input, Outcome, compile};
//!
//! let env = Env::new().variable("self", DeclType::String { max: Some(63) });
//! let rule = compile("self.startsWith('kvm-') && self.size() > 4", &env)?;
//! let name = serde_json::json!("kvm-node-1");
//! let outcome = rule.evaluate(&[("self", Input::Json(&name))], &mut Budget::per_object())?;
//! assert_eq!(outcome, Outcome::Bool(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod authorizer;
mod base64;
mod budget;
mod check;
mod cost;
mod decl;
mod error;
mod escape;
mod estimate;
mod estimate_calls;
mod eval;
mod format;
mod functions;
mod kube;
mod lists;
mod loops;
mod macros;
mod net;
mod node;
mod objects;
mod ops;
mod parse;
mod pattern;
mod printf;
mod program;
mod quantity;
mod range;
mod render;
mod semver;
mod stdlib;
mod strings;
mod time;
mod ty;
mod url;
mod validate;
mod value;

pub use authorizer::{Authority, Question, Verdict};
pub use budget::{Budget, PER_EXPRESSION, PER_OBJECT};
pub use decl::{DeclType, Env, ListKind, max_cardinality, max_items, max_properties};
pub use error::{CompileError, EvalError};
pub use escape::escape;
pub use pattern::compile as compile_pattern;
pub use program::{Input, Outcome, Program, compile};
