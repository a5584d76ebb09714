// SPDX-License-Identifier: Apache-2.0
//! The numbers of one spool. They only grow; one that anybody may have seen is never given to another record, whatever
//! was lost on disk in between.

/// Which number is next, and up to which everything is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    next: u64,
    /// Numbers below this are known to somebody: the next record begins here.
    jump: u64,
    flushed: u64,
}

impl Numbers {
    /// After a start: `last` is the last record that was found, `known` the highest number that somebody may have seen.
    pub fn found(last: u64, known: u64) -> Self {
        Self {
            next: last.max(known) + 1,
            jump: 0,
            flushed: last,
        }
    }

    /// The number of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Every record up to this number is durable.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Whether the next record has to begin behind numbers that others know and we do not.
    pub fn must_jump(&self) -> bool {
        self.jump > self.next
    }

    /// Begins there.
    pub fn jump(&mut self) {
        self.next = self.next.max(self.jump);
    }

    /// So many records were written.
    pub fn give(&mut self, records: u64) {
        self.next += records;
    }

    /// Everything written so far was flushed.
    pub fn accept(&mut self) -> u64 {
        self.flushed = self.next - 1;
        self.flushed
    }

    /// What was written and not accepted is taken back, but for numbers that were sent.
    pub fn take_back(&mut self, sent: u64) {
        self.next = self.flushed.max(sent) + 1;
    }

    /// Somebody has stored everything up to `acked`. Whether that is more than there ever was here: then this spool is
    /// older than what was delivered, and its numbers continue behind.
    pub fn acked(&mut self, acked: u64) -> bool {
        let beyond = acked >= self.next && acked >= self.jump;
        if beyond {
            self.jump = acked + 1;
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_somebody_may_have_seen_is_not_given_again() {
        let mut numbers = Numbers::found(0, 0);
        assert_eq!(numbers.next(), 1);
        numbers.give(3);
        assert_eq!(numbers.flushed(), 0, "written is not durable");
        assert_eq!(numbers.accept(), 3);
        numbers.give(2);
        numbers.take_back(3);
        assert_eq!(numbers.next(), 4, "nobody has seen 4 and 5");
        assert_eq!(
            Numbers::found(2, 3).next(),
            4,
            "3 was sent, and its record is lost"
        );
        assert_eq!(Numbers::found(2, 3).flushed(), 2);
    }

    #[test]
    fn a_spool_older_than_what_was_delivered_continues_behind() {
        let mut numbers = Numbers::found(5, 5);
        assert!(!numbers.acked(5));
        assert!(numbers.acked(9));
        assert!(!numbers.acked(9), "once is enough");
        assert!(numbers.must_jump());
        numbers.jump();
        assert_eq!(numbers.next(), 10);
        assert!(!numbers.must_jump());
    }
}
