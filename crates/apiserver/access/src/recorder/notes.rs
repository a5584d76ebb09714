// SPDX-License-Identifier: Apache-2.0
//! The quick side of the recorder. Every request of a server passes here, and most of them were seen
//! a moment ago: those only count up. Tallies are added to the records when somebody asks for them or
//! when there are many.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;

use super::{Records, Request, Usage};
use crate::rbac::{Attributes, Decision, Role, RuleRef};

/// Tallies kept before they are added to the records.
const MAX_TALLIES: usize = 1_024;

/// Records, and what is still to be added to them.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) records: Records,
    tallies: HashMap<u64, Vec<Tally>>,
    count: usize,
}

/// How often one request was seen with one outcome.
#[derive(Debug)]
struct Tally {
    user: String,
    groups: Vec<String>,
    request: Request,
    rule: Option<(Arc<Role>, usize)>,
    usage: Usage,
}

impl Notes {
    /// Counts a decision.
    pub(super) fn count(&mut self, attributes: &Attributes<'_>, decision: &Decision, now: Timestamp) {
        let key = fingerprint(attributes);
        let rule = decision.rule.as_ref();
        let place = |tallies: &Vec<Tally>| tallies.iter().position(|tally| tally.is_of(attributes, rule));
        if self.tallies.get(&key).and_then(place).is_none() {
            if self.count >= MAX_TALLIES {
                self.settle();
            }
            self.count += 1;
            let tally = Tally::new(attributes, rule, now);
            self.tallies.entry(key).or_default().push(tally);
        }
        let tallies = self.tallies.get_mut(&key).into_iter().flatten();
        for tally in tallies.filter(|tally| tally.is_of(attributes, rule)) {
            tally.usage.note(decision.allowed, now);
        }
    }

    /// Adds the tallies to the records.
    pub(super) fn settle(&mut self) {
        let mut tallies: Vec<Tally> = self.tallies.drain().flat_map(|(_, tallies)| tallies).collect();
        self.count = 0;
        // In the order they were seen in: the first names of many are the ones kept.
        tallies.sort_by_key(|tally| tally.usage.first);
        for tally in tallies {
            self.records
                .add(&tally.user, &tally.groups, tally.request, &tally.usage);
        }
    }
}

impl Tally {
    fn new(attributes: &Attributes<'_>, rule: Option<&RuleRef>, now: Timestamp) -> Self {
        Self {
            user: attributes.user.name.clone(),
            groups: attributes.user.groups.clone(),
            request: Request::of(attributes),
            rule: rule.map(|rule| (Arc::clone(&rule.role), rule.index)),
            usage: Usage {
                first: Some(now),
                rule: rule.map(RuleRef::id),
                ..Usage::default()
            },
        }
    }

    fn is_of(&self, attributes: &Attributes<'_>, rule: Option<&RuleRef>) -> bool {
        let same_rule = match (&self.rule, rule) {
            (None, None) => true,
            (Some((role, index)), Some(rule)) => Arc::ptr_eq(role, &rule.role) && *index == rule.index,
            _ => false,
        };
        let request = &self.request;
        same_rule
            && request.verb == attributes.verb
            && request.group == attributes.group
            && request.resource == attributes.resource
            && request.subresource == attributes.subresource
            && request.namespace == attributes.namespace
            && request.name == attributes.name
            && request.path == attributes.path.unwrap_or_default()
            && self.user == attributes.user.name
            && self.groups == attributes.user.groups
    }
}

fn fingerprint(attributes: &Attributes<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (
        &attributes.user.name,
        attributes.verb,
        attributes.group,
        attributes.resource,
        attributes.subresource,
        attributes.namespace,
        attributes.name,
        attributes.path,
    )
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::User;

    #[test]
    fn tallies_become_records_whether_few_or_many() {
        let user = User::anonymous();
        let mut notes = Notes::default();
        let times = 3 * MAX_TALLIES;
        for n in 0..times {
            let namespace = format!("n{n}");
            let attributes = Attributes::resource(&user, "get", "", "pods").in_namespace(&namespace);
            notes.count(&attributes, &Decision::allow(), Timestamp::UNIX_EPOCH);
            notes.count(&attributes, &Decision::default(), Timestamp::UNIX_EPOCH);
        }
        assert!(notes.count <= MAX_TALLIES);
        notes.settle();
        let record = &notes.records.users[&user.name];
        assert_eq!(record.requests.len(), times);
        assert!(record.requests.values().all(|u| (u.allowed, u.denied) == (1, 1)));
    }
}
