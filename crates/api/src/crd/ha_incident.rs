// SPDX-License-Identifier: Apache-2.0
//! The definition of HaIncidents. Nothing outside this project has such a kind, so nothing but our
//! own documents binds it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Definition, Scope, column, root};
use crate::schema::Schema;
use crate::{HaHeldReason, HaIncidentState, HaIncidentType};

pub(super) fn definition() -> CustomResourceDefinition {
    Definition {
        group: crate::KVM_GROUP,
        version: "v1alpha1",
        kind: "HaIncident",
        plural: "haincidents",
        singular: "haincident",
        short_names: &["hai"],
        scope: Scope::Cluster,
        columns: vec![
            column("Host", "string", ".spec.host"),
            column("Type", "string", ".spec.type"),
            column("State", "string", ".status.state"),
            column("Held", "string", ".status.heldReason"),
            column("Done", "string", ".status.summary.done"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ],
        schema: root(
            "What the HA service does about one host. A mirror of its journal: changing it changes nothing.",
            spec(),
            status(),
        ),
    }
    .build()
}

fn spec() -> Schema {
    let fixed = |schema: Schema| schema.rule("self == oldSelf", "Value is immutable");
    Schema::object([
        (
            "host",
            fixed(
                Schema::text()
                    .max_length(253)
                    .pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
            )
            .doc("The host, by the name of its Hypervisor."),
        ),
        (
            "type",
            fixed(Schema::word(HaIncidentType::WORDS)).doc("What it is about."),
        ),
        (
            "openedBy",
            Schema::text().doc("The monitor or the person who opened it."),
        ),
    ])
    .required(&["host", "type", "openedBy"])
    .doc("About which host, and who opened it.")
}

fn status() -> Schema {
    // Empty while nothing holds it.
    let held = [&[""], HaHeldReason::WORDS].concat();
    Schema::object([
        (
            "state",
            Schema::word(HaIncidentState::WORDS)
                .default_value(HaIncidentState::Suspect.as_str())
                .doc("Where it stands."),
        ),
        (
            "heldReason",
            Schema::word(&held).doc("Why it does not go on. Absent or empty while it does."),
        ),
        (
            "epoch",
            Schema::int64()
                .rule("self >= oldSelf", "A term never gives way to an older one")
                .doc("The leadership term that wrote last."),
        ),
        (
            "journalSeq",
            Schema::int64().doc("The number of the journal's latest record about it."),
        ),
        (
            "snapshot",
            once(snapshot()).doc("What it was concluded from. Written once."),
        ),
        (
            "previousMaintenance",
            once(Schema::text().max_length(63)).doc("The maintenance that the host gets back. Written once."),
        ),
        ("fence", Schema::list_of(fence()).doc("Fences that were verified.")),
        (
            "steps",
            Schema::list_of(step())
                .keyed_by(&["key", "attempt"])
                .max_items(200)
                .doc("What was intended, and what came of it."),
        ),
        (
            "vms",
            Schema::list_of(vm()).keyed_by(&["uuid"]).max_items(800).doc(
                "The guests. Beyond 800 they continue in objects of the same name followed by -vms- and a number.",
            ),
        ),
        ("summary", summary().doc("The guests, counted.")),
        (
            "conditions",
            Schema::conditions().doc("Open, Fenced and Recovered, one entry each."),
        ),
    ])
    .rule("!has(oldSelf.epoch) || has(self.epoch)", "The term stays")
    .rule("!has(oldSelf.snapshot) || has(self.snapshot)", "The snapshot stays")
    .rule(
        "!has(oldSelf.previousMaintenance) || has(self.previousMaintenance)",
        "The maintenance to give back stays",
    )
    .doc("How far it got.")
}

fn once(schema: Schema) -> Schema {
    schema.rule("self == oldSelf", "Value is written once")
}

/// Bounded in every part, so that it never takes more than 16 KiB.
fn snapshot() -> Schema {
    let groups = Schema::list_of(signal()).keyed_by(&["group"]).max_items(16);
    Schema::object([
        ("takenAt", Schema::time().doc("When.")),
        (
            "bootId",
            Schema::text()
                .max_length(64)
                .doc("The boot that the host was last seen with."),
        ),
        ("groups", groups.doc("What every group of signals said.")),
    ])
    .required(&["takenAt", "groups"])
}

fn signal() -> Schema {
    Schema::object([
        (
            "group",
            Schema::text().max_length(8).doc("The letter of the group."),
        ),
        (
            "verdict",
            Schema::word(&["alive", "kernel-only", "unknown", "dead"]).doc("What it said."),
        ),
        (
            "ageMs",
            Schema::int64().doc("Milliseconds since the last sign of life it knew of."),
        ),
        (
            "untrusted",
            Schema::boolean().doc("Too many hosts died in this group together, so it did not count."),
        ),
    ])
    .required(&["group", "verdict"])
}

fn fence() -> Schema {
    Schema::object([
        ("level", Schema::int64().doc("The level, counted from zero.")),
        ("driver", Schema::text().doc("The devices of the level.")),
        ("grade", Schema::text().doc("What the fence proves.")),
        ("verifiedAt", Schema::time().doc("When it was verified.")),
        (
            "holdCheckedAt",
            Schema::time().doc("When it was last seen to hold; brought up to date with other changes only."),
        ),
    ])
    .required(&["level", "grade"])
}

fn step() -> Schema {
    Schema::object([
        ("key", Schema::text().doc("What was to be done.")),
        ("attempt", Schema::int64().doc("How many times so far.")),
        (
            "intentAt",
            Schema::time().doc("When it was written down, before it was done."),
        ),
        ("resultAt", Schema::time().doc("When its result was seen.")),
        ("result", Schema::text().doc("The result in a word.")),
        ("detail", Schema::text().max_length(512).doc("More about it.")),
    ])
    .required(&["key", "attempt"])
}

fn vm() -> Schema {
    Schema::object([
        ("uuid", Schema::text().doc("UUID of the server.")),
        ("name", Schema::text().doc("Its name.")),
        (
            "priority",
            Schema::int64().doc("0 to 1000; higher ones come first."),
        ),
        ("group", Schema::text().doc("Its start group.")),
        (
            "originalState",
            Schema::text().doc("Its state before the host died."),
        ),
        (
            "wantedPower",
            Schema::text().doc("Whether it is to run afterwards."),
        ),
        ("state", Schema::text().doc("How far this guest got.")),
        ("attempt", Schema::int64().doc("How often it was asked for.")),
        ("intentAt", Schema::time().doc("When it was last asked for.")),
        ("migrationId", Schema::int64().doc("The migration in Nova.")),
        (
            "destination",
            Schema::text().doc("Where it went, or where it was seen."),
        ),
        (
            "locked",
            Schema::boolean().doc("The service may have locked it against its owner."),
        ),
        ("reason", Schema::text().doc("Why it stands there.")),
    ])
    .required(&["uuid", "priority", "attempt"])
}

fn summary() -> Schema {
    Schema::object([
        ("total", Schema::int64().doc("All of them.")),
        (
            "recovered",
            Schema::int64().doc("Those that are as they were before."),
        ),
        (
            "failed",
            Schema::int64().doc("Those that could not be brought back."),
        ),
        ("skipped", Schema::int64().doc("Those left alone.")),
        ("blocked", Schema::int64().doc("Those that wait for a person.")),
        ("done", Schema::text().doc("Recovered and all, for tables.")),
    ])
    .required(&["total", "recovered", "failed", "skipped", "blocked", "done"])
}
