// SPDX-License-Identifier: Apache-2.0
//! Which machine is meant. A device that switches another machine off kills the guests of a host that works, so two
//! machines are one only if something that tells machines apart is equal. Numbers that makers forgot to set tell
//! nothing apart.

use serde::{Deserialize, Serialize};

/// What boards carry that were never given a number, in lower case.
const UNSET: [&str; 15] = [
    "to be filled by o.e.m.",
    "to be filled by o.e.m",
    "default string",
    "system serial number",
    "chassis serial number",
    "not specified",
    "not available",
    "not applicable",
    "unknown",
    "none",
    "empty",
    "n/a",
    "0123456789",
    "1234567890",
    "123456789",
];
/// The UUIDs that well-known firmware has before it is given one.
const UNSET_UUIDS: [&str; 2] = [
    "03000200040005000006000700080009",
    "123456781234567890abcddeefaabbcc",
];

/// What identifies a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The DMI system UUID.
    pub system_uuid: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
}

impl Identity {
    /// Whether the two name one machine: something both know is equal, and nothing differs.
    pub fn matches(&self, other: &Self) -> bool {
        fn pair(a: Option<String>, b: Option<String>, same: fn(&str, &str) -> bool) -> Option<bool> {
            Some(same(&a?, &b?))
        }
        let (ours, theirs) = (self.known(), other.known());
        let answers = [
            pair(ours.system_uuid, theirs.system_uuid, same_uuid),
            pair(ours.serial, theirs.serial, str::eq_ignore_ascii_case),
        ];
        answers.contains(&Some(true)) && !answers.contains(&Some(false))
    }

    /// What of it tells this machine from others.
    pub fn known(&self) -> Self {
        let uuid = self.system_uuid.clone().filter(|uuid| {
            let digits = digits(uuid);
            !unset(uuid) && !all(&digits, "0f") && !UNSET_UUIDS.contains(&digits.as_str())
        });
        Self {
            system_uuid: uuid,
            serial: self.serial.clone().filter(|serial| !unset(serial)),
        }
    }
}

fn unset(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    all(&text, "0.-x ") || UNSET.contains(&text.as_str())
}

/// Whether a text is one of these characters and nothing else, or empty.
fn all(text: &str, one_of: &str) -> bool {
    let first = text.chars().next();
    first.is_none_or(|first| one_of.contains(first) && text.chars().all(|c| c == first))
}

/// The digits of a UUID, in lower case.
fn digits(uuid: &str) -> String {
    let digits = uuid.chars().filter(char::is_ascii_hexdigit);
    digits.map(|digit| digit.to_ascii_lowercase()).collect()
}

/// Some boards tell the first three parts of their UUID from the other end.
fn same_uuid(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || turned(a).is_some_and(|turned| turned == digits(b))
}

fn turned(uuid: &str) -> Option<String> {
    let digits = digits(uuid);
    if digits.len() != 32 {
        return None;
    }
    let byte = |n: usize| digits.get(n * 2..n * 2 + 2);
    [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]
        .into_iter()
        .map(byte)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(uuid: &str, serial: &str) -> Identity {
        let text = |text: &str| (text != "-").then(|| text.to_owned());
        Identity {
            system_uuid: text(uuid),
            serial: text(serial),
        }
    }

    #[test]
    fn one_machine_is_known_by_what_it_has_of_its_own() {
        let (a, b) = (
            "4c4c4544-0042-4d10-8053-b9c04f4d3132",
            "9b1e0f7a-1111-4222-8333-444455556666",
        );
        for (ours, theirs, same) in [
            (machine(a, "CZ1"), machine(a, "CZ1"), true),
            (machine(a, "-"), machine(&a.to_uppercase(), "CZ1"), true),
            (machine("-", "cz1"), machine(b, "CZ1"), true),
            (machine(a, "CZ1"), machine(a, "CZ2"), false),
            (machine(a, "CZ1"), machine(b, "CZ1"), false),
            (machine(a, "-"), machine("-", "CZ1"), false),
            (machine("-", "-"), machine("-", "-"), false),
            // From the other end.
            (
                machine(a, "-"),
                machine("44454c4c-4200-104d-8053-b9c04f4d3132", "-"),
                true,
            ),
            (
                machine(a, "-"),
                machine("44454c4c-4200-104d-8053-b9c04f4d3133", "-"),
                false,
            ),
        ] {
            assert_eq!(ours.matches(&theirs), same, "{ours:?} {theirs:?}");
            assert_eq!(theirs.matches(&ours), same, "{theirs:?} {ours:?}");
        }
    }

    #[test]
    fn numbers_that_nobody_set_tell_no_machines_apart() {
        for serial in [
            "To Be Filled By O.E.M.",
            "Default string",
            " ",
            "0000",
            "Not Specified",
            "None",
            "......",
        ] {
            let one = machine("-", serial);
            assert!(!one.matches(&one), "{serial:?}");
            let known = machine("9b1e0f7a-1111-4222-8333-444455556666", serial);
            assert!(known.matches(&known), "its UUID is its own");
        }
        for uuid in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
            "Not Available",
        ] {
            let one = machine(uuid, "-");
            assert!(!one.matches(&one), "{uuid:?}");
            assert!(machine(uuid, "CZ1").matches(&machine(uuid, "CZ1")));
        }
    }
}
