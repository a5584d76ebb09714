// SPDX-License-Identifier: Apache-2.0
//! The custom resource definitions, assembled from hand-written schemas. They accept and
//! default exactly what the definitions of the running system do; what we add on top is listed
//! in [`differences`] and nowhere else.

pub mod differences;
mod eviction;
mod ha_incident;
mod hypervisor;
mod migration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::schema::Schema;
use crate::yaml::to_yaml;

/// Every definition of the project, ordered by group and plural name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        eviction::definition(),
        ha_incident::definition(),
        hypervisor::definition(),
        migration::definition(),
    ]
}

/// The definitions as one stream of YAML documents, all of them or those of one group.
///
/// ```
/// let yaml = cobaltcore_api::crds_yaml(Some("kvm.cloud.sap"));
/// assert!(yaml.starts_with("---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"));
/// assert_eq!(cobaltcore_api::crds_yaml(Some("example.com")), "");
/// ```
pub fn crds_yaml(group: Option<&str>) -> String {
    crds()
        .iter()
        .filter(|crd| group.is_none_or(|group| crd.spec.group == group))
        .map(document)
        .collect()
}

/// One definition as a YAML document, with its leading marker.
pub fn document(crd: &CustomResourceDefinition) -> String {
    // The typed object always serialises; an empty document would be caught by the tests.
    let value = serde_json::to_value(crd).unwrap_or_default();
    format!("---\n{}", to_yaml(&value))
}

/// Whether objects live in namespaces.
#[derive(Clone, Copy)]
enum Scope {
    Cluster,
    Namespaced,
}

/// The parts in which definitions differ.
struct Definition {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    scope: Scope,
    columns: Vec<CustomResourceColumnDefinition>,
    schema: Schema,
}

impl Definition {
    fn build(self) -> CustomResourceDefinition {
        let Self {
            group,
            version,
            kind,
            plural,
            singular,
            short_names,
            scope,
            columns,
            schema,
        } = self;
        let version = CustomResourceDefinitionVersion {
            name: version.into(),
            served: true,
            storage: true,
            additional_printer_columns: Some(columns),
            schema: Some(CustomResourceValidation {
                open_api_v3_schema: Some(schema.build()),
            }),
            subresources: Some(CustomResourceSubresources {
                status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
                scale: None,
            }),
            ..CustomResourceDefinitionVersion::default()
        };
        CustomResourceDefinition {
            metadata: ObjectMeta {
                name: Some(format!("{plural}.{group}")),
                ..ObjectMeta::default()
            },
            spec: CustomResourceDefinitionSpec {
                group: group.into(),
                names: CustomResourceDefinitionNames {
                    kind: kind.into(),
                    list_kind: Some(format!("{kind}List")),
                    plural: plural.into(),
                    singular: Some(singular.into()),
                    short_names: Some(short_names.iter().map(|name| (*name).to_owned()).collect()),
                    categories: None,
                },
                scope: match scope {
                    Scope::Cluster => "Cluster".into(),
                    Scope::Namespaced => "Namespaced".into(),
                },
                versions: vec![version],
                ..CustomResourceDefinitionSpec::default()
            },
            status: None,
        }
    }
}

/// The root of every schema: type information, metadata, spec and status.
fn root(doc: &str, spec: Schema, status: Schema) -> Schema {
    Schema::object([
        (
            "apiVersion",
            Schema::text().doc("The group and version that this object is written in."),
        ),
        ("kind", Schema::text().doc("The kind of this object.")),
        ("metadata", Schema::object([])),
        ("spec", spec),
        ("status", status),
    ])
    .doc(doc)
}

fn column(name: &str, type_: &str, path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.into(),
        type_: type_.into(),
        json_path: path.into(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// A column that only wide output shows.
fn wide(priority: i32, column: CustomResourceColumnDefinition) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        priority: Some(priority),
        ..column
    }
}

/// The path of a member of one condition.
fn condition_path(condition: &str, member: &str) -> String {
    format!(".status.conditions[?(@.type==\"{condition}\")].{member}")
}

/// The path of a label, whose dots must not be read as steps.
fn label_path(label: crate::Key) -> String {
    format!(".metadata.labels.{}", label.as_str().replace('.', "\\."))
}
