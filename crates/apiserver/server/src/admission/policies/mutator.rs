// SPDX-License-Identifier: Apache-2.0
//! A policy that changes objects, compiled once when it is committed: apply configurations that are
//! merged and JSON patches that are applied, one after the other.

use std::sync::OnceLock;

use cobaltcore_cel::{Budget, Env, Input, Program};
use cobaltcore_patch::PatchError;
use cobaltcore_schema::{FieldError, Schema};
use serde_json::Value;

use super::policy::{Check, ParamKind, Wanted, entries, environments, param_kind};
use crate::admission::conditions::{self, Conditions};
use crate::admission::matching::Scope;
use crate::meta;
use crate::metrics::Metrics;

/// A mutating policy, ready to be asked.
#[derive(Debug)]
pub(super) struct Mutator {
    pub name: String,
    pub scope: Scope,
    /// What cannot be done is left undone.
    pub fails_open: bool,
    /// It is asked again when others changed the object after it.
    pub reinvocable: bool,
    pub param_kind: Option<ParamKind>,
    pub conditions: Conditions,
    pub mutations: Vec<Mutation>,
}

/// One change.
#[derive(Debug)]
pub(super) struct Mutation {
    kind: Kind,
    expression: String,
    program: Result<Program, String>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The expression gives a configuration.
    Apply,
    /// The expression gives operations.
    Patch,
}

impl Kind {
    fn of(mutation: &Value) -> (Self, &'static str) {
        if mutation["patchType"] == "JSONPatch" {
            (Self::Patch, "jsonPatch")
        } else {
            (Self::Apply, "applyConfiguration")
        }
    }

    fn wanted(self) -> Wanted {
        match self {
            Self::Apply => Wanted::Object,
            Self::Patch => Wanted::Patch,
        }
    }
}

impl Mutator {
    pub(super) fn of(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let (base, env) = environments(spec, environment());
        Self {
            name: name.to_owned(),
            scope: Scope::of_resources(&spec["matchConstraints"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            reinvocable: spec["reinvocationPolicy"] == "IfNeeded",
            param_kind: param_kind(spec),
            conditions: Conditions::of(&spec["matchConditions"], &base),
            mutations: entries(spec, "mutations")
                .map(|(_, mutation)| Mutation::of(mutation, &env))
                .collect(),
        }
    }
}

impl Mutation {
    fn of(mutation: &Value, env: &Env) -> Self {
        let (kind, key) = Kind::of(mutation);
        let expression = mutation[key]["expression"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Self {
            program: kind.wanted().compile(&expression, env),
            kind,
            expression,
        }
    }

    /// What becomes of an object; the error is why that cannot be told.
    pub(super) fn change(
        &self,
        object: &Value,
        schema: &Schema,
        bindings: &[(&str, Input<'_>)],
        counts: &Metrics,
    ) -> Result<Value, String> {
        let mut budget = Budget::per_object();
        let made = match &self.program {
            Ok(program) => program
                .evaluate_json(bindings, &mut budget)
                .map_err(|error| error.to_string()),
            Err(text) => Err(text.clone()),
        };
        counts.evaluated(&budget);
        let mut made = made.map_err(|why| {
            let expression = &self.expression;
            format!("expression '{expression}' resulted in error: {why}")
        })?;
        match self.kind {
            Kind::Apply => {
                let fields = meta::fields(&mut made);
                for key in ["kind", "apiVersion"] {
                    fields.insert(key.into(), object[key].clone());
                }
                cobaltcore_patch::merge_configuration(object, &made, schema)
                    .map_err(|why| format!("error applying patch: {why}"))
            }
            Kind::Patch => match cobaltcore_patch::json_patch(object, &made) {
                Ok(changed) => Ok(changed),
                // A test that fails is the policy's way to say that there is nothing to do.
                // One that finds nothing to look at has failed otherwise.
                Err(PatchError::Operation { op, reason, .. })
                    if op == "test" && reason.ends_with("test failed") =>
                {
                    Ok(object.clone())
                }
                Err(PatchError::Operation { reason, .. }) => Err(format!("JSON Patch: {reason}")),
                Err(error) => Err(format!("JSON Patch: {error}")),
            },
        }
    }
}

/// The variables of conditions, and objects to be made.
fn environment() -> &'static Env {
    static ENV: OnceLock<Env> = OnceLock::new();
    ENV.get_or_init(|| conditions::environment().clone().with_objects())
}

/// What is wrong with the expressions of a policy.
pub(crate) fn errors(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut check = Check::of(spec, environment());
    for (at, mutation) in entries(spec, "mutations") {
        let (kind, key) = Kind::of(mutation);
        let field = format!("spec.mutations[{at}].{key}.expression");
        check.expression(field, &mutation[key]["expression"], kind.wanted());
    }
    check.errors
}
