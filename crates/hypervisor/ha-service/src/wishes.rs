// SPDX-License-Identifier: Apache-2.0
//! What owners, flavors, images and aggregates ask high availability to do for a guest, and which guests are left alone. A
//! word that is not known asks for nothing.

use std::collections::BTreeMap;

use cobaltcore_ha_engine::VmPolicy;
use cobaltcore_openstack::glance::Image;
use cobaltcore_openstack::nova::Server;

use crate::config::Exclusion;

/// What a guest's owner, flavor, image or aggregate say about high availability.
const POLICY: &str = "cobaltcore:ha";
const PRIORITY: &str = "cobaltcore:ha_priority";
const GROUP: &str = "cobaltcore:ha_group";
/// The same as an image property, which cannot have a colon.
const IMAGE_POLICY: &str = "cobaltcore_ha";
const IMAGE_PRIORITY: &str = "cobaltcore_ha_priority";
/// What Masakari's users have written down already.
const MASAKARI: &str = "HA_Enabled";
/// A guest that says nothing.
const USUAL_PRIORITY: u16 = 500;

/// What is asked for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// What is to be done for it; nothing if nobody says.
    pub(crate) policy: Option<VmPolicy>,
    /// 0 to 1000.
    pub(crate) priority: u16,
    /// Its start group, empty if none.
    pub(crate) group: String,
    /// It is never touched.
    pub(crate) excluded: bool,
}

impl Wishes {
    /// What is to be done for it in a word; empty for what is usual.
    pub(crate) fn word(&self) -> &'static str {
        match self.policy {
            _ if self.excluded => "excluded",
            Some(VmPolicy::Evacuate) => "evacuate",
            Some(VmPolicy::Restart) => "restart",
            Some(VmPolicy::Ignore) => "ignore",
            None => "",
        }
    }
}

/// What is asked for a guest with this image on a host in aggregates with this metadata.
pub(crate) fn wishes(
    server: &Server,
    image: Option<&Image>,
    aggregates: &[BTreeMap<String, String>],
    exclude: &[Exclusion],
) -> Wishes {
    let said = |key, image_key| said(server, image, aggregates, key, image_key);
    // The owner's word comes first, in whose terms ever it was given.
    let policy = server.metadata.get(POLICY).and_then(|word| policy_word(word));
    let policy = policy
        .or_else(|| masakari(server))
        .or_else(|| said(POLICY, IMAGE_POLICY).find_map(policy_word));
    let priority = said(PRIORITY, IMAGE_PRIORITY).find_map(|text| text.trim().parse::<u16>().ok());
    Wishes {
        policy,
        priority: priority.map_or(USUAL_PRIORITY, |priority| priority.min(1000)),
        group: server.metadata.get(GROUP).cloned().unwrap_or_default(),
        excluded: exclude.iter().any(|rule| excludes(rule, server, image)),
    }
}

/// Whether an image says anything that matters here.
pub(crate) fn speaks(image: &Image, exclude: &[Exclusion]) -> bool {
    let tagged = |rule: &Exclusion| image.tags.contains(&rule.image_tag);
    let named = |key: &str| image.properties.contains_key(key);
    named(IMAGE_POLICY) || named(IMAGE_PRIORITY) || exclude.iter().any(tagged)
}

/// What is said, first by the owner, then by the flavor, the image, the aggregates. Whoever says what nobody understands
/// has said nothing.
fn said<'a>(
    server: &'a Server,
    image: Option<&'a Image>,
    aggregates: &'a [BTreeMap<String, String>],
    key: &'static str,
    image_key: &'static str,
) -> impl Iterator<Item = &'a str> {
    let words = |of: &'a BTreeMap<String, String>| of.get(key).map(String::as_str);
    let image = image.and_then(|image| image.properties.get(image_key)?.as_str());
    let owner = server.metadata.get(key).map(String::as_str);
    let flavor = server.flavor.extra_specs.get(key).map(String::as_str);
    let around = aggregates.iter().filter_map(words);
    [owner, flavor, image].into_iter().flatten().chain(around)
}

fn policy_word(word: &str) -> Option<VmPolicy> {
    match word.trim().to_ascii_lowercase().as_str() {
        "evacuate" => Some(VmPolicy::Evacuate),
        "restart" => Some(VmPolicy::Restart),
        "ignore" => Some(VmPolicy::Ignore),
        _ => None,
    }
}

fn masakari(server: &Server) -> Option<VmPolicy> {
    match server
        .metadata
        .get(MASAKARI)?
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "true" => Some(VmPolicy::Evacuate),
        "false" => Some(VmPolicy::Ignore),
        _ => None,
    }
}

/// Whether a rule of exclusion fits. Every field that is given must.
fn excludes(rule: &Exclusion, server: &Server, image: Option<&Image>) -> bool {
    let Exclusion {
        name,
        project,
        flavor,
        metadata,
        image_tag,
    } = rule;
    let project_fits = || server.tenant_id.as_ref().is_some_and(|id| id.as_str() == project);
    (name.is_empty() || glob(name, &server.name))
        && (project.is_empty() || project_fits())
        && (flavor.is_empty() || glob(flavor, &server.flavor.original_name))
        && metadata
            .iter()
            .all(|(key, value)| server.metadata.get(key) == Some(value))
        && (image_tag.is_empty() || image.is_some_and(|image| image.tags.contains(image_tag)))
}

/// A pattern in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else {
        return rest.is_empty();
    };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(extra: Value) -> Server {
        let mut all = json!({
            "id": "12e479eb-6bef-4fdb-bfdc-0388df68bed9", "name": "web-1", "status": "ACTIVE",
            "flavor": {"original_name": "m1.small", "ram": 2048, "extra_specs": {}},
            "image": {"id": "i1"}, "metadata": {},
        });
        for (key, value) in extra.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn image(extra: Value) -> Image {
        let mut all = json!({"id": "i1", "status": "active"});
        for (key, value) in extra.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn the_first_who_says_something_about_a_guest_is_heard() {
        let property = image(json!({"cobaltcore_ha": "ignore"}));
        let aggregate = [BTreeMap::from([(POLICY.to_owned(), "restart".to_owned())])];
        let around = (Some(&property), aggregate.as_slice());
        let owner = json!({"metadata": {POLICY: "evacuate"}});
        let flavor = json!({"flavor": {"extra_specs": {POLICY: "restart"}}});
        let masakari = |word: &str| json!({"metadata": {MASAKARI: word}});
        let none = (None, [].as_slice());
        for (extra, around, wanted) in [
            (owner, around, Some(VmPolicy::Evacuate)),
            (flavor, around, Some(VmPolicy::Restart)),
            (json!({}), around, Some(VmPolicy::Ignore)),
            (json!({}), (None, aggregate.as_slice()), Some(VmPolicy::Restart)),
            (json!({}), none, None),
            (masakari("True"), none, Some(VmPolicy::Evacuate)),
            (masakari("false"), none, Some(VmPolicy::Ignore)),
            (masakari("false"), around, Some(VmPolicy::Ignore)),
            (
                json!({"metadata": {MASAKARI: "false"}, "flavor": {"extra_specs": {POLICY: "evacuate"}}}),
                none,
                Some(VmPolicy::Ignore),
            ),
            (
                json!({"metadata": {MASAKARI: "true", POLICY: "ignore"}}),
                none,
                Some(VmPolicy::Ignore),
            ),
            (json!({"metadata": {POLICY: "sometimes"}}), none, None),
            (
                json!({"metadata": {POLICY: "ingore"}}),
                around,
                Some(VmPolicy::Ignore),
            ),
        ] {
            let (image, aggregates) = around;
            let found = wishes(&shown(extra.clone()), image, aggregates, &[]);
            assert_eq!(found.policy, wanted, "{extra}");
        }
    }

    #[test]
    fn priorities_and_groups_come_along() {
        let of = |metadata: Value| {
            let found = wishes(&shown(json!({ "metadata": metadata })), None, &[], &[]);
            (found.priority, found.group)
        };
        assert_eq!(
            of(json!({PRIORITY: "9000", GROUP: "database"})),
            (1000, "database".to_owned())
        );
        assert_eq!(of(json!({PRIORITY: "soon"})), (500, String::new()));
        let image = image(json!({"cobaltcore_ha_priority": "700"}));
        assert_eq!(wishes(&shown(json!({})), Some(&image), &[], &[]).priority, 700);
        let mistyped = shown(json!({"metadata": {PRIORITY: "soon"}}));
        assert_eq!(wishes(&mistyped, Some(&image), &[], &[]).priority, 700);
    }

    #[test]
    fn load_balancers_are_left_alone() {
        let exclude = crate::config::Recovery::default().exclude;
        let excluded = |extra, image: Option<&Image>| wishes(&shown(extra), image, &[], &exclude).excluded;
        assert!(excluded(json!({"name": "amphora-17"}), None));
        assert!(!excluded(json!({}), None));
        assert!(excluded(json!({}), Some(&image(json!({"tags": ["amphora"]})))));
    }

    #[test]
    fn people_are_shown_what_would_be_done() {
        let word = |metadata: Value, name: &str| {
            let exclude = crate::config::Recovery::default().exclude;
            wishes(
                &shown(json!({"metadata": metadata, "name": name})),
                None,
                &[],
                &exclude,
            )
            .word()
        };
        assert_eq!(word(json!({POLICY: "restart"}), "web"), "restart");
        assert_eq!(word(json!({}), "web"), "");
        assert_eq!(word(json!({POLICY: "evacuate"}), "amphora-1"), "excluded");
    }

    #[test]
    fn globs_match_as_people_expect() {
        for (pattern, text, fits) in [
            ("amphora-*", "amphora-1", true),
            ("amphora-*", "my-amphora-1", false),
            ("*-db", "a-db", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }
}
