// SPDX-License-Identifier: Apache-2.0
//! The paths of a served resource with their operations, in a form both editions are written from.

use crate::registry::{Resource, SubresourceEntry};

use super::names;
use super::parameters;

/// One path with what can be done at it.
#[derive(Debug)]
pub(super) struct PathItem {
    /// The path, with `{name}` and `{namespace}`.
    pub(super) path: String,
    /// The kind whose name is part of the path.
    pub(super) named: Option<String>,
    /// Whether the namespace is part of the path.
    pub(super) namespaced: bool,
    /// The operations.
    pub(super) operations: Vec<Operation>,
}

/// One operation.
#[derive(Debug)]
pub(super) struct Operation {
    /// HTTP method, lower case.
    pub(super) method: &'static str,
    /// `x-kubernetes-action`.
    pub(super) action: &'static str,
    /// operationId.
    pub(super) id: String,
    /// What it does.
    pub(super) text: String,
    /// Group, version and kind it is about.
    pub(super) about: [String; 3],
    /// Names of query parameters.
    pub(super) parameters: &'static [&'static str],
    /// The body it takes.
    pub(super) body: Option<Body>,
    /// The definition of its answer.
    pub(super) answer: String,
    /// Codes it succeeds with.
    pub(super) codes: &'static [u16],
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Body {
    /// Its definition.
    pub(super) definition: String,
    /// Whether it may be left out.
    pub(super) required: bool,
    /// Media types.
    pub(super) media: &'static [&'static str],
}

const ANY: &[&str] = &["*/*"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// Custom resources have no strategic merge.
const CUSTOM_PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// What the operations of one path have in common.
struct Site<'a> {
    resource: &'a Resource,
    /// Group, version and kind the operations are about.
    about: [String; 3],
    /// Definition of the bodies.
    definition: String,
    /// What follows the verb in operation ids, with the kind.
    noun: String,
    /// What the operations act on, in words.
    words: String,
}

impl Site<'_> {
    fn operation(&self, verb: &str) -> Option<Operation> {
        let resource = self.resource;
        let camel = names::camel(&resource.group, &resource.version);
        let Site { noun, words, .. } = self;
        let status = || names::meta("Status");
        let own = || self.definition.clone();
        let (method, action, id, text, parameters, answer, codes): (_, _, _, _, _, _, &'static [u16]) =
            match verb {
                "get" => (
                    "get",
                    "get",
                    format!("read{camel}{noun}"),
                    format!("read {words}"),
                    &[][..],
                    own(),
                    &[200],
                ),
                "list" => {
                    let text = format!("list objects of kind {}, or watch them", resource.kind);
                    (
                        "get",
                        "list",
                        format!("list{camel}{noun}"),
                        text,
                        parameters::LIST,
                        names::list_definition(resource),
                        &[200],
                    )
                }
                "watch" | "watchlist" => {
                    let text = format!(
                        "watch objects of kind {}; deprecated, a list with the parameter watch does the same",
                        resource.kind
                    );
                    (
                        "get",
                        if verb == "watch" { "watch" } else { "watchlist" },
                        format!("watch{camel}{noun}"),
                        text,
                        parameters::LIST,
                        names::meta("WatchEvent"),
                        &[200],
                    )
                }
                "create" => {
                    let id = format!("create{camel}{noun}");
                    (
                        "post",
                        "post",
                        id,
                        format!("create {words}"),
                        parameters::WRITE,
                        own(),
                        &[200, 201, 202],
                    )
                }
                "update" => {
                    let id = format!("replace{camel}{noun}");
                    (
                        "put",
                        "put",
                        id,
                        format!("replace {words}"),
                        parameters::WRITE,
                        own(),
                        &[200, 201],
                    )
                }
                "patch" => {
                    let id = format!("patch{camel}{noun}");
                    (
                        "patch",
                        "patch",
                        id,
                        format!("change parts of {words}"),
                        parameters::PATCH,
                        own(),
                        &[200, 201],
                    )
                }
                "delete" => {
                    let answer = if resource.as_builtin().is_some_and(|k| k.delete_returns_object) {
                        own()
                    } else {
                        status()
                    };
                    let id = format!("delete{camel}{noun}");
                    (
                        "delete",
                        "delete",
                        id,
                        format!("delete {words}"),
                        parameters::DELETE,
                        answer,
                        &[200, 202],
                    )
                }
                "deletecollection" => {
                    let id = format!("delete{camel}Collection{noun}");
                    let text = format!("delete objects of kind {}", resource.kind);
                    (
                        "delete",
                        "deletecollection",
                        id,
                        text,
                        parameters::DELETE_COLLECTION,
                        status(),
                        &[200],
                    )
                }
                _ => return None,
            };
        let body = self.body(verb);
        Some(Operation {
            method,
            action,
            id,
            text,
            about: self.about.clone(),
            parameters,
            body,
            answer,
            codes,
        })
    }

    fn body(&self, verb: &str) -> Option<Body> {
        let custom = self.resource.as_custom().is_some();
        match verb {
            "create" | "update" => Some(Body {
                definition: self.definition.clone(),
                required: true,
                media: ANY,
            }),
            "patch" => {
                let media = if custom { CUSTOM_PATCHES } else { PATCHES };
                Some(Body {
                    definition: names::meta("Patch"),
                    required: true,
                    media,
                })
            }
            "delete" | "deletecollection" => Some(Body {
                definition: names::meta("DeleteOptions"),
                required: false,
                media: ANY,
            }),
            _ => None,
        }
    }
}

/// The paths of a resource and its subresources.
pub(super) fn of(resource: &Resource) -> Vec<PathItem> {
    let root = format!("/{}", names::group_version(&resource.group, &resource.version));
    let Resource {
        plural,
        kind,
        namespaced,
        ..
    } = resource;
    let scope = if *namespaced { "Namespaced" } else { "" };
    let collection = if *namespaced {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let offers = |verb: &&&str| resource.verbs().contains(*verb);
    let site = |noun: String, words: String| Site {
        resource,
        about: [
            resource.group.to_string(),
            resource.version.to_string(),
            kind.to_string(),
        ],
        definition: names::definition(resource),
        noun,
        words,
    };
    let operations = |site: &Site<'_>, verbs: &[&str]| {
        verbs
            .iter()
            .filter(offers)
            .filter_map(|v| site.operation(v))
            .collect::<Vec<_>>()
    };
    let main = site(format!("{scope}{kind}"), format!("an object of kind {kind}"));
    let mut items = vec![PathItem {
        path: collection.clone(),
        named: None,
        namespaced: *namespaced,
        operations: operations(&main, &["deletecollection", "list", "create"]),
    }];
    if *namespaced {
        let everywhere = site(format!("{kind}ForAllNamespaces"), String::new());
        let operations = operations(&everywhere, &["list"]);
        items.push(PathItem {
            path: format!("{root}/{plural}"),
            named: None,
            namespaced: false,
            operations,
        });
    }
    let object = format!("{collection}/{{name}}");
    let operations = operations(&main, &["delete", "get", "patch", "update"]);
    items.push(PathItem {
        path: object.clone(),
        named: Some(kind.to_string()),
        namespaced: *namespaced,
        operations,
    });
    for sub in resource.subresource_entries() {
        let site = subresource_site(resource, &sub, scope);
        let operations = sub.verbs.iter().filter_map(|verb| site.operation(verb)).collect();
        let named = Some(if sub.verbs == ["create"] {
            sub.kind.clone()
        } else {
            kind.to_string()
        });
        items.push(PathItem {
            path: format!("{object}/{}", sub.name),
            named,
            namespaced: *namespaced,
            operations,
        });
    }
    if resource.as_builtin().is_some() && resource.verbs().contains(&"watch") {
        let watched = |path: String, noun: String, verb: &str, named: bool, namespaced: bool| PathItem {
            path: path.replacen(&root, &format!("{root}/watch"), 1),
            named: named.then(|| kind.to_string()),
            namespaced,
            operations: site(noun, String::new()).operation(verb).into_iter().collect(),
        };
        let list = format!("{scope}{kind}List");
        items.push(watched(collection, list, "watchlist", false, *namespaced));
        items.push(watched(
            object,
            format!("{scope}{kind}"),
            "watch",
            true,
            *namespaced,
        ));
        if *namespaced {
            let noun = format!("{kind}ListForAllNamespaces");
            let path = format!("{root}/{plural}");
            items.push(watched(path, noun, "watchlist", false, false));
        }
    }
    items.retain(|item| !item.operations.is_empty());
    items
}

fn subresource_site<'a>(resource: &'a Resource, sub: &SubresourceEntry, scope: &str) -> Site<'a> {
    let Resource {
        group, version, kind, ..
    } = resource;
    let about = if resource.as_custom().is_some() {
        [group.to_string(), version.to_string(), kind.to_string()]
    } else if sub.version.is_empty() {
        [group.to_string(), version.to_string(), sub.kind.clone()]
    } else {
        [sub.group.clone(), sub.version.clone(), sub.kind.clone()]
    };
    Site {
        resource,
        about,
        definition: names::subresource_definition(resource, sub),
        noun: format!("{scope}{kind}{}", names::capital(&sub.name)),
        words: format!("{} of an object of kind {kind}", sub.name),
    }
}
