// SPDX-License-Identifier: Apache-2.0
//! The guests of a host, kept small: a fleet has tens of thousands, and every replica knows them
//! all. An id is sixteen bytes here instead of the text it is everywhere else.

use cobaltcore_api::names::ServerId;

use crate::input::DomainState;

/// A server id as a number.
pub(crate) type Number = [u8; 16];

/// Which guests a host has, and how they are. Ordered by id, each guest once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains(Box<[(Number, DomainState)]>);

impl Domains {
    /// How a guest is, if the host has it.
    pub fn get(&self, server: &ServerId) -> Option<DomainState> {
        let number = number(server)?;
        let found = self.0.binary_search_by(|(known, _)| known.cmp(&number)).ok()?;
        self.0.get(found).map(|(_, state)| *state)
    }

    /// Whether the guest occupies its disks on the host.
    pub fn active(&self, server: &ServerId) -> bool {
        self.get(server).is_some_and(DomainState::active)
    }

    /// Whether any guest occupies its disks on the host.
    pub fn any_active(&self) -> bool {
        self.0.iter().any(|(_, state)| state.active())
    }

    /// The guests that execute, as numbers.
    pub(crate) fn running(&self) -> impl Iterator<Item = Number> {
        let runs = |(_, state): &&(Number, DomainState)| *state == DomainState::Running;
        self.0.iter().filter(runs).map(|(number, _)| *number)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(ServerId, DomainState)> for Domains {
    fn from_iter<T: IntoIterator<Item = (ServerId, DomainState)>>(guests: T) -> Self {
        let numbered = |(server, state): (ServerId, DomainState)| Some((number(&server)?, state));
        let mut all: Vec<(Number, DomainState)> = guests.into_iter().filter_map(numbered).collect();
        // Of a guest that is named twice, what is said last counts.
        all.reverse();
        all.sort_by_key(|(number, _)| *number);
        all.dedup_by_key(|(number, _)| *number);
        Self(all.into_boxed_slice())
    }
}

/// The number behind an id. Every id is made of 32 digits, so there always is one.
fn number(server: &ServerId) -> Option<Number> {
    let mut number = Number::default();
    let mut digits = server.as_str().bytes().filter(|byte| *byte != b'-');
    for byte in &mut number {
        let high = char::from(digits.next()?).to_digit(16)?;
        let low = char::from(digits.next()?).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    digits.next().is_none().then_some(number)
}

/// The id of a number.
pub(crate) fn server(number: Number) -> Option<ServerId> {
    let mut text = String::with_capacity(36);
    for (n, byte) in number.iter().enumerate() {
        if matches!(n, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.extend(char::from_digit(u32::from(byte >> 4), 16));
        text.extend(char::from_digit(u32::from(byte & 15), 16));
    }
    ServerId::new(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ServerId {
        ServerId::new(text).unwrap()
    }

    #[test]
    fn ids_are_numbers_and_come_back() {
        for text in [
            "12e479eb-6bef-4fdb-bfdc-0388df68bed9",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ] {
            let back = number(&id(text)).and_then(server);
            assert_eq!(back, Some(id(text)));
        }
    }

    #[test]
    fn guests_are_found_by_their_id() {
        let [one, two, three] = [1, 2, 3].map(|n| id(&format!("{n:08x}-0000-4000-8000-000000000000")));
        let all: Domains = [
            (two.clone(), DomainState::Off),
            (one.clone(), DomainState::Running),
            (two.clone(), DomainState::Paused),
        ]
        .into_iter()
        .collect();
        assert_eq!((all.len(), all.is_empty()), (2, false));
        assert_eq!(all.get(&one), Some(DomainState::Running));
        assert_eq!(all.get(&two), Some(DomainState::Paused), "the last word");
        assert_eq!(all.get(&three), None);
        assert!(all.active(&two) && !all.active(&three) && all.any_active());
        assert_eq!(all.running().filter_map(server).collect::<Vec<_>>(), [one]);
    }
}
