// SPDX-License-Identifier: Apache-2.0
//! Validation of whole definitions, new or updated.
//!
//! What all versions have in common is reported where the reference keeps it internally, at
//! `spec.validation`, `spec.subresources` and so on; what differs, at its version.

use cobaltcore_text::go;
use serde_json::{Map, Value};

use super::conversion::{check_conversion, speaks_known_version};
use super::spec::{
    Demands, check_column, check_names, check_schema, check_selectable, check_subresources,
    has_too_many_selectable,
};
use super::{list, schema_of, text};
use crate::error::FieldError;
use crate::keywords::{Leniency, check_keywords};
use crate::meta::{validate_object_meta, validate_object_meta_update};
use crate::names::{self, NameRule};
use crate::parse::parse;
use crate::structural::{check_structural, is_set, subschemas, type_of, unsupported};
use cobaltcore_text::go::{json, quote as quoted};

const APPROVED: &str = "api-approved.kubernetes.io";
const IMMUTABLE: &str = "field is immutable";

static NOTHING: Value = Value::Null;

fn part<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&NOTHING)
}

/// Validates a new definition, after [`super::default_crd`].
pub fn validate_crd(crd: &Value) -> Vec<FieldError> {
    let metadata = part(crd, "metadata");
    let spec = part(crd, "spec");
    let mut errors = validate_object_meta(metadata, false, NameRule::Subdomain, "metadata");
    // The syntax of the name is judged with the metadata of every kind; here, what it must be.
    errors.retain(|e| !is_about_name(e));
    check_name(metadata, spec, &mut errors);
    errors.extend(check_spec(spec, None));
    errors.extend(check_status(crd));
    errors.extend(check_approval(metadata, spec, None));
    errors.extend(check_preserve(spec, None));
    errors
}

/// Validates a definition that replaces another.
pub fn validate_crd_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let metadata = part(new, "metadata");
    let (spec, old_spec) = (part(new, "spec"), part(old, "spec"));
    let mut errors = validate_object_meta_update(metadata, part(old, "metadata"), "metadata");
    errors.extend(check_spec(spec, Some(old)));
    let mut immutable = |new: &str, old: &str, field: &str| {
        if new != old {
            errors.push(FieldError::invalid(field, &Value::from(new), IMMUTABLE));
        }
    };
    let (names, old_names) = (part(spec, "names"), part(old_spec, "names"));
    if is_established(old) {
        immutable(text(spec, "scope"), text(old_spec, "scope"), "spec.scope");
        immutable(text(names, "kind"), text(old_names, "kind"), "spec.names.kind");
    }
    immutable(text(spec, "group"), text(old_spec, "group"), "spec.group");
    immutable(
        text(names, "plural"),
        text(old_names, "plural"),
        "spec.names.plural",
    );
    errors.extend(check_status(new));
    errors.extend(check_approval(metadata, spec, Some(old)));
    errors.extend(check_preserve(spec, Some(old_spec)));
    errors
}

/// Validates an update through the status endpoint.
pub fn validate_crd_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_object_meta_update(part(new, "metadata"), part(old, "metadata"), "metadata");
    errors.extend(check_names(
        part(part(new, "status"), "acceptedNames"),
        "status.acceptedNames",
    ));
    errors
}

fn is_about_name(error: &FieldError) -> bool {
    matches!(error.field.as_str(), "metadata.name" | "metadata.generateName")
}

fn is_established(crd: &Value) -> bool {
    list(part(crd, "status"), "conditions")
        .iter()
        .any(|c| text(c, "type") == "Established" && text(c, "status") == "True")
}

fn check_name(metadata: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let wanted = format!("{}.{}", text(part(spec, "names"), "plural"), text(spec, "group"));
    let detail = "must be spec.names.plural+\".\"+spec.group";
    for key in ["generateName", "name"] {
        let name = text(metadata, key);
        if !name.is_empty() && name != wanted {
            let field = format!("metadata.{key}");
            let at = errors
                .iter()
                .rposition(|e| e.field == field)
                .map_or(0, |at| at + 1);
            errors.insert(at, FieldError::invalid(field, &Value::from(name), detail));
        }
    }
}

/// The keys of a version that move to the spec when all versions agree on them.
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn of(versions: &[Value]) -> Self {
        let same = |key: &str| {
            let empty = |v: &&Value| is_set(v);
            let first = versions.first().and_then(|v| v.get(key)).filter(empty);
            versions.iter().all(|v| v.get(key).filter(empty) == first)
        };
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

fn has_status(version: &Value) -> bool {
    version
        .get("subresources")
        .and_then(|s| s.get("status"))
        .is_some_and(|s| !s.is_null())
}

fn check_spec(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = text(spec, "group");
    let group_problems = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group_problems.is_empty() {
        errors.push(FieldError::invalid(
            "spec.group",
            &Value::from(group),
            &group_problems.join(","),
        ));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &Value::from(group), detail));
    }
    match text(spec, "scope") {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => {
            let supported = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported(
                "spec.scope",
                &Value::from(other),
                &supported,
            ));
        }
    }
    let versions = list(spec, "versions");
    let demands = demands(spec, old);
    check_schemas_present(versions, old, &mut errors);
    let preserve = part(spec, "preserveUnknownFields") == &Value::Bool(true);
    if preserve
        && versions
            .iter()
            .filter_map(schema_of)
            .any(|s| any_schema(s, &has_default))
    {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &Value::Bool(true),
            detail,
        ));
    }
    let shared = Shared::of(versions);
    for (i, version) in versions.iter().enumerate() {
        errors.extend(check_version(version, i, &shared, demands, versions, old));
    }
    check_version_list(versions, part(spec, "versions").is_array(), &shared, &mut errors);
    check_first_version(versions, &mut errors);
    let names = part(spec, "names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    errors.extend(check_names(names, "spec.names"));
    if let Some(first) = versions.first() {
        errors.extend(check_shared(first, versions, &shared, demands, old));
    }
    let conversion = part(spec, "conversion");
    if preserve && conversion.is_object() && text(conversion, "strategy") != "None" {
        let detail = "must be None if spec.preserveUnknownFields is true";
        let value = Value::from(text(conversion, "strategy"));
        errors.push(FieldError::invalid("spec.conversion.strategy", &value, detail));
    }
    let recognized = old.is_none_or(|old| {
        let webhook = part(part(part(old, "spec"), "conversion"), "webhook");
        speaks_known_version(list(webhook, "conversionReviewVersions"))
    });
    errors.extend(check_conversion(conversion, recognized));
    errors
}

fn check_schemas_present(versions: &[Value], old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let had_all = old.is_none_or(|old| {
        list(part(old, "spec"), "versions")
            .iter()
            .all(|v| schema_of(v).is_some())
    });
    for (i, version) in versions.iter().enumerate() {
        if schema_of(version).is_some() {
            continue;
        }
        let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
        if had_all {
            errors.push(FieldError::required(field, ""));
        } else if version.get("served") == Some(&Value::Bool(true)) {
            errors.push(FieldError::required(
                field,
                "because otherwise all fields are pruned",
            ));
        }
    }
}

fn check_version(
    version: &Value,
    index: usize,
    shared: &Shared,
    demands: Demands,
    versions: &[Value],
    old: Option<&Value>,
) -> Vec<FieldError> {
    let at = format!("spec.versions[{index}]");
    let mut errors = Vec::new();
    let name = text(version, "name");
    let problems = names::dns1035_label(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(
            format!("{at}.name"),
            &Value::from(name),
            &problems.join(","),
        ));
    }
    errors.extend(check_deprecation(version, &at));
    if !shared.schema
        && let Some(schema) = schema_of(version)
    {
        let status = if shared.subresources {
            versions.iter().any(has_status)
        } else {
            has_status(version)
        };
        let demands = forgive_cost(demands, version, old);
        errors.extend(check_schema(schema, status, demands, &format!("{at}.schema")));
    }
    if !shared.subresources {
        errors.extend(check_subresources(
            part(version, "subresources"),
            &format!("{at}.subresources"),
        ));
    }
    if !shared.columns {
        for (i, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
            errors.extend(check_column(
                column,
                &format!("{at}.additionalPrinterColumns[{i}]"),
            ));
        }
    }
    let selectable = list(version, "selectableFields");
    if !shared.selectable && !selectable.is_empty() {
        let field = format!("{at}.selectableFields");
        match schema_of(version).filter(|_| !shared.schema) {
            None => {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.push(FieldError::invalid(field, &Value::from(""), detail));
            }
            Some(schema) => {
                let known = keeps_selectable(version, old);
                errors.extend(check_selectable(selectable, schema, known, &field));
            }
        }
    }
    errors
}

fn check_deprecation(version: &Value, at: &str) -> Vec<FieldError> {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else {
        return Vec::new();
    };
    let field = format!("{at}.deprecationWarning");
    let shown = Value::from(warning);
    let refuse = |detail: &str| FieldError::invalid(field.clone(), &shown, detail);
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        return vec![refuse("can only be set for deprecated versions")];
    }
    let mut errors = Vec::new();
    if warning.len() > 256 {
        errors.push(refuse("must be <= 256 characters long"));
    }
    if warning.is_empty() {
        errors.push(refuse("must not be an empty string"));
    }
    if let Some((i, _)) = warning.char_indices().find(|(_, c)| !go::is_printable(*c)) {
        errors.push(refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        )));
    }
    errors
}

fn check_version_list(versions: &[Value], given: bool, shared: &Shared, errors: &mut Vec<FieldError>) {
    let mut refuse = |detail: &str| {
        let list: Vec<String> = versions.iter().map(|v| show_version(v, shared)).collect();
        // No list at all is shown as such.
        let shown = if versions.is_empty() && !given {
            "null".to_owned()
        } else {
            format!("[{}]", list.join(","))
        };
        let message = format!("Invalid value: {shown}: {detail}");
        errors.push(FieldError::new(crate::Cause::Invalid, "spec.versions", message));
    };
    let twice = versions.iter().enumerate().any(|(i, v)| {
        versions
            .iter()
            .take(i)
            .any(|earlier| text(earlier, "name") == text(v, "name"))
    });
    if twice {
        refuse("must contain unique version names");
    }
    if versions
        .iter()
        .filter(|v| v.get("storage") == Some(&Value::Bool(true)))
        .count()
        != 1
    {
        refuse("must have exactly one version marked as storage version");
    }
}

/// The first version also stands in the spec itself, where its name is judged once more.
fn check_first_version(versions: &[Value], errors: &mut Vec<FieldError>) {
    let name = versions.first().map_or("", |first| text(first, "name"));
    let problems = names::dns1035_label(name);
    if !name.is_empty() && !problems.is_empty() {
        let detail = problems.join(",");
        errors.push(FieldError::invalid("spec.version", &Value::from(name), &detail));
    }
}

/// A version as the reference shows it, without what all versions share.
fn show_version(version: &Value, shared: &Shared) -> String {
    let flag = |key: &str| version.get(key).and_then(Value::as_bool).unwrap_or(false);
    let other = |key: &str, shared: bool| match version.get(key) {
        Some(value) if !shared && is_set(value) => json(value),
        _ => "null".to_owned(),
    };
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
        quoted(text(version, "name")),
        flag("served"),
        flag("storage"),
        flag("deprecated"),
        other("deprecationWarning", false),
        other("schema", shared.schema),
        other("subresources", shared.subresources),
        other("additionalPrinterColumns", shared.columns),
        other("selectableFields", shared.selectable),
    )
}

/// What all versions agree on, reported at the spec.
fn check_shared(
    first: &Value,
    versions: &[Value],
    shared: &Shared,
    demands: Demands,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let schema = schema_of(first).filter(|_| shared.schema);
    if let Some(schema) = schema {
        let status = versions.iter().any(has_status);
        errors.extend(check_schema(
            schema,
            status,
            forgive_cost(demands, first, old),
            "spec.validation",
        ));
    }
    if shared.subresources {
        errors.extend(check_subresources(
            part(first, "subresources"),
            "spec.subresources",
        ));
    }
    if shared.columns {
        for (i, column) in list(first, "additionalPrinterColumns").iter().enumerate() {
            errors.extend(check_column(
                column,
                &format!("spec.additionalPrinterColumns[{i}]"),
            ));
        }
    }
    let selectable = list(first, "selectableFields");
    if shared.selectable && !selectable.is_empty() {
        let field = "spec.selectableFields";
        match schema {
            None => {
                let detail = "may only be set when validations.schema is included";
                errors.push(FieldError::invalid(field, &Value::from(""), detail));
            }
            Some(schema) => {
                errors.extend(check_selectable(
                    selectable,
                    schema,
                    keeps_selectable(first, old),
                    field,
                ));
            }
        }
    }
    errors
}

fn old_version<'a>(version: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let name = text(version, "name");
    list(part(old?, "spec"), "versions")
        .iter()
        .find(|v| text(v, "name") == name)
}

/// A schema that did not change is not refused for what its rules cost.
fn forgive_cost(mut demands: Demands, version: &Value, old: Option<&Value>) -> Demands {
    demands.lenient.rule_cost =
        old_version(version, old).is_some_and(|old| schema_of(old) == schema_of(version));
    demands
}

fn keeps_selectable(version: &Value, old: Option<&Value>) -> bool {
    old_version(version, old).is_some_and(|old| {
        let before = list(old, "selectableFields");
        has_too_many_selectable(before) && before == list(version, "selectableFields")
    })
}

/// What is asked of schemas, given that an old definition may have been accepted with less.
fn demands(spec: &Value, old: Option<&Value>) -> Demands {
    let mut demands = Demands::default();
    let Some(old) = old else { return demands };
    let schemas: Vec<&Value> = list(part(old, "spec"), "versions")
        .iter()
        .filter_map(schema_of)
        .collect();
    let any = |pred: &dyn Fn(&Map<String, Value>) -> bool| schemas.iter().any(|s| any_schema(s, pred));
    demands.lenient = Leniency {
        types: any(&|n| !type_of(n).is_empty() && crate::parse::parse_type(type_of(n)).is_none()),
        set_items: any(&|n| keyword_error(n, "must be atomic as item of a list")),
        list_keys: any(&|n| {
            keyword_error(n, "this property is in x-kubernetes-list-map-keys")
                || keyword_error(n, "cannot be nullable when x-kubernetes-list-type")
        }),
        rule_cost: false,
    };
    demands.pruned_defaults = !schemas.iter().any(|s| {
        super::defaults::check_defaults(&parse(s), "", true)
            .iter()
            .any(|e| e.message.ends_with("must not have unknown fields"))
    });
    let old_is_structural = schemas
        .iter()
        .all(|s| unsupported(s).is_none() && check_structural(s, "").is_empty());
    let preserve = part(spec, "preserveUnknownFields") == &Value::Bool(true);
    demands.structural = old_is_structural || !preserve;
    demands
}

/// Whether a single node, without what is below it, is refused with such a text.
fn keyword_error(node: &Map<String, Value>, text: &str) -> bool {
    if node.get("x-kubernetes-list-type").is_none() {
        return false;
    }
    check_keywords(&Value::Object(node.clone()), None, "", Leniency::default())
        .iter()
        .any(|e| e.message.contains(text))
}

fn has_default(node: &Map<String, Value>) -> bool {
    node.get("default").is_some_and(|d| !d.is_null())
}

fn any_schema(schema: &Value, pred: &dyn Fn(&Map<String, Value>) -> bool) -> bool {
    schema
        .as_object()
        .is_some_and(|node| pred(node) || subschemas(node).any(|s| any_schema(s, pred)))
}

fn check_status(crd: &Value) -> Vec<FieldError> {
    let status = part(crd, "status");
    let mut errors = check_names(part(status, "acceptedNames"), "status.acceptedNames");
    let stored = list(status, "storedVersions");
    let at = "status.storedVersions";
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            at,
            &Value::Null,
            "must have at least one stored version",
        ));
        return errors;
    }
    let versions = list(part(crd, "spec"), "versions");
    for version in versions
        .iter()
        .filter(|v| v.get("storage") == Some(&Value::Bool(true)))
    {
        let name = text(version, "name");
        if !stored.iter().any(|s| s.as_str() == Some(name)) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(at, &Value::from(stored.to_vec()), &detail));
        }
    }
    for (i, version) in stored.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        if !versions.iter().any(|v| text(v, "name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{at}[{i}]"), version, &detail));
        }
    }
    errors
}

/// How the annotation that allows a kind in a group of the Kubernetes community stands.
#[derive(Debug, PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

fn approval(metadata: &Value) -> Approval {
    let annotation = text(part(metadata, "annotations"), APPROVED);
    if annotation.is_empty() {
        return Approval::Missing;
    }
    if annotation.starts_with("unapproved") {
        return Approval::Bypassed;
    }
    let host = annotation
        .split_once("://")
        .map(|(scheme, rest)| !scheme.is_empty() && !rest.split('/').next().unwrap_or_default().is_empty());
    if host == Some(true) && crate::formats::is_request_uri(annotation) {
        return Approval::Approved;
    }
    Approval::Invalid
}

fn check_approval(metadata: &Value, spec: &Value, old: Option<&Value>) -> Option<FieldError> {
    let group = text(spec, "group");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|g| g.ends_with('.')));
    if !protected {
        return None;
    }
    let state = approval(metadata);
    if old.is_some_and(|old| approval(part(old, "metadata")) == state) {
        return None;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let link = "see https://github.com/kubernetes/enhancements/pull/1111";
    let head = format!(
        "protected groups must have approval annotation {}",
        quoted(APPROVED)
    );
    match state {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(FieldError::required(field, &format!("{head}, {link}"))),
        Approval::Invalid => {
            let value = Value::from(text(part(metadata, "annotations"), APPROVED));
            let detail = format!("{head} with either a URL or a reason starting with \"unapproved\", {link}");
            Some(FieldError::invalid(field, &value, &detail))
        }
    }
}

fn check_preserve(spec: &Value, old_spec: Option<&Value>) -> Option<FieldError> {
    let on = |spec: &Value| part(spec, "preserveUnknownFields") == &Value::Bool(true);
    if !on(spec) || old_spec.is_some_and(on) {
        return None;
    }
    let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    Some(FieldError::invalid(
        "spec.preserveUnknownFields",
        &Value::Bool(true),
        detail,
    ))
}
