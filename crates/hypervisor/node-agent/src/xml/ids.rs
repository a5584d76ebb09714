// SPDX-License-Identifier: Apache-2.0
//! Sets of processor or node numbers in libvirt's notation: `0-3,^2,8`. Ranges are kept as ranges, so that a set of
//! four billion numbers costs as much as a set of one.

/// Pieces beyond this are no set that libvirt wrote.
const MOST_PIECES: usize = 4096;

/// A set of processor or node numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSet {
    /// Sorted, not touching each other.
    ranges: Vec<(u32, u32)>,
}

impl IdSet {
    /// Reads `0-3,^2,8`; says what is wrong with anything else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{:?} is no set of numbers such as 0-3,^2", super::shorten(text));
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut holes: Vec<u32> = Vec::new();
        for piece in text.split(',').map(str::trim) {
            if ranges.len() + holes.len() >= MOST_PIECES {
                return Err(wrong());
            }
            if let Some(hole) = piece.strip_prefix('^') {
                holes.push(hole.parse().map_err(|_| wrong())?);
                continue;
            }
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (first, last): (u32, u32) = (
                first.trim().parse().map_err(|_| wrong())?,
                last.trim().parse().map_err(|_| wrong())?,
            );
            if first > last {
                return Err(wrong());
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut set = Self::default();
        for (first, last) in ranges {
            match set.ranges.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => set.ranges.push((first, last)),
            }
        }
        for hole in holes {
            set.remove(hole);
        }
        Ok(set)
    }

    fn remove(&mut self, id: u32) {
        let Some(at) = self
            .ranges
            .iter()
            .position(|(first, last)| (*first..=*last).contains(&id))
        else {
            return;
        };
        let (first, last) = self.ranges.remove(at);
        if id < last {
            self.ranges.insert(at, (id + 1, last));
        }
        if first < id {
            self.ranges.insert(at, (first, id - 1));
        }
    }

    /// Whether a number is in the set.
    pub fn contains(&self, id: u32) -> bool {
        self.ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&id))
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u64 {
        self.ranges
            .iter()
            .map(|(first, last)| u64::from(*last - *first) + 1)
            .sum()
    }

    /// Whether no number is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The lowest number.
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|(first, _)| *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_are_read_as_libvirt_means_them() {
        for (text, members, count) in [
            ("0", vec![0], 1),
            ("0-3,^2", vec![0, 1, 3], 3),
            ("^0,0-1", vec![1], 1),
            ("8,0-1,1-4", vec![0, 1, 2, 3, 4, 8], 6),
            ("0-4294967295", vec![0, 4_294_967_295], 4_294_967_296),
            ("3,^3", vec![], 0),
        ] {
            let set = IdSet::parse(text).unwrap();
            assert_eq!(set.len(), count, "{text}");
            assert!(members.iter().all(|id| set.contains(*id)), "{text}");
            assert_eq!(set.is_empty(), count == 0);
        }
        assert!(!IdSet::parse("0-3,^2").unwrap().contains(2));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "a", "3-1", "0-", "-1", "^", "99999999999", "1,,2"] {
            assert!(IdSet::parse(text).is_err(), "{text:?}");
        }
        assert!(IdSet::parse(&"1,".repeat(10_000)).is_err());
    }

    proptest! {
        #[test]
        fn a_set_has_exactly_its_members(ranges in proptest::collection::vec((0_u32..200, 0_u32..20), 1..8),
            holes in proptest::collection::vec(0_u32..220, 0..8)) {
            let mut text: Vec<String> = ranges.iter().map(|(a, n)| format!("{a}-{}", a + n)).collect();
            text.extend(holes.iter().map(|hole| format!("^{hole}")));
            let set = IdSet::parse(&text.join(",")).unwrap();
            let wanted: Vec<u32> = (0..=240)
                .filter(|id| ranges.iter().any(|(a, n)| (*a..=a + n).contains(id)) && !holes.contains(id))
                .collect();
            prop_assert_eq!(set.len(), wanted.len() as u64);
            prop_assert_eq!(set.first(), wanted.first().copied());
            for id in 0..=240 {
                prop_assert_eq!(set.contains(id), wanted.contains(&id));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9,^a-]{0,40}") {
            let _ = IdSet::parse(&text);
        }
    }
}
