// SPDX-License-Identifier: Apache-2.0
//! What may leave the journal: records of incidents that it has forgotten, and old ones that are
//! about no incident. One record stands for those that left between two that stay, so that a missing
//! part is still told from one that was removed on purpose.

use std::collections::BTreeSet;

use cobaltcore_ha_engine::{Entry, IncidentId, Record, VERSION};
use jiff::Timestamp;

/// Records after a cut.
pub(super) struct Cut {
    /// What stays.
    pub(super) records: Vec<Record>,
    /// How many records about incidents left.
    pub(super) left: usize,
}

impl Cut {
    /// Whether nothing is left but the mark of what was there.
    pub(super) fn empty(&self) -> bool {
        matches!(self.records.as_slice(), [only] if matches!(only.entry, Entry::Left { .. }))
    }
}

/// Leaves out what is about incidents in `gone`, and what is about none and older than `before`.
pub(super) fn cut(
    records: impl IntoIterator<Item = Record>,
    gone: &BTreeSet<IncidentId>,
    before: Timestamp,
) -> Cut {
    let mut kept: Vec<Record> = Vec::new();
    let mut left = 0;
    for record in records {
        let about = record.entry.incident();
        let goes = match about {
            Some(incident) => gone.contains(incident),
            None => matches!(record.entry, Entry::Left { .. }) || record.at < before,
        };
        if !goes {
            kept.push(record);
            continue;
        }
        left += usize::from(about.is_some());
        let seq = match kept.pop() {
            Some(mark) if matches!(mark.entry, Entry::Left { .. }) => mark.seq,
            other => {
                kept.extend(other);
                record.seq
            }
        };
        kept.push(Record {
            version: VERSION,
            seq,
            epoch: record.epoch,
            at: record.at,
            entry: Entry::Left {
                until: record.until(),
            },
        });
    }
    Cut { records: kept, left }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{about, host, record};
    use super::*;

    #[test]
    fn what_is_forgotten_leaves_and_its_place_stays() {
        let all = vec![
            record(1, 1),
            about(2, 1, "n1"),
            about(3, 1, "n2"),
            about(4, 2, "n1"),
            record(5, 2),
        ];
        let shape = |records: &[Record]| -> Vec<(u64, u64)> {
            records
                .iter()
                .map(|record| (record.seq, record.until()))
                .collect()
        };
        let gone = BTreeSet::from([host("n1")]);
        let young = cut(all.clone(), &gone, Timestamp::UNIX_EPOCH);
        assert_eq!(shape(&young.records), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
        assert_eq!((young.left, young.empty()), (2, false));
        let gone = BTreeSet::from([host("n1"), host("n2")]);
        let old = cut(young.records, &gone, Timestamp::MAX);
        assert_eq!(shape(&old.records), [(1, 5)]);
        assert_eq!((old.left, old.empty()), (1, true));
        let again = cut(old.records, &gone, Timestamp::MAX);
        assert_eq!((again.left, again.empty()), (0, true));
    }
}
