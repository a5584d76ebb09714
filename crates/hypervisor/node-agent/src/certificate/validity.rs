// SPDX-License-Identifier: Apache-2.0
//! The two dates of an X.509 certificate. Checking signatures and names is done elsewhere by a real verifier; this
//! reads just enough DER to say when a certificate ends.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
}

/// The bytes are not a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct NotACertificate;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    /// The dates of a certificate in DER.
    pub fn of(der: &[u8]) -> Result<Self, NotACertificate> {
        let mut outer = Reader(der);
        let mut certificate = Reader(outer.expect(SEQUENCE)?);
        let mut tbs = Reader(certificate.expect(SEQUENCE)?);
        if tbs.0.first() == Some(&VERSION) {
            tbs.next()?;
        }
        // Serial number, signature algorithm, issuer.
        for _ in 0..3 {
            tbs.next()?;
        }
        let mut dates = Reader(tbs.expect(SEQUENCE)?);
        Ok(Self {
            not_before: dates.time()?,
            not_after: dates.time()?,
        })
    }

    /// Whether less than a quarter of its life is left.
    pub fn is_running_out(&self, now: Timestamp) -> bool {
        let life = self
            .not_after
            .as_second()
            .saturating_sub(self.not_before.as_second());
        let left = self.not_after.as_second().saturating_sub(now.as_second());
        left.saturating_mul(4) < life
    }
}

/// Reads DER values one after the other; never beyond its bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next value as tag and content.
    fn next(&mut self) -> Result<(u8, &'a [u8]), NotACertificate> {
        let [tag, first, rest @ ..] = self.0 else {
            return Err(NotACertificate);
        };
        let (length, rest) = match usize::from(*first) {
            short @ 0..=0x7f => (short, rest),
            long => {
                let (digits, rest) = rest.split_at_checked(long - 0x80).ok_or(NotACertificate)?;
                // Four digits are 4 GiB, more than any certificate; none means a length this form does not allow.
                if digits.is_empty() || digits.len() > 4 {
                    return Err(NotACertificate);
                }
                let length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
                (length, rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(NotACertificate)?;
        self.0 = rest;
        Ok((*tag, content))
    }

    fn expect(&mut self, tag: u8) -> Result<&'a [u8], NotACertificate> {
        match self.next()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(NotACertificate),
        }
    }

    fn time(&mut self) -> Result<Timestamp, NotACertificate> {
        let (tag, content) = self.next()?;
        let text = std::str::from_utf8(content).map_err(|_| NotACertificate)?;
        let text = match tag {
            // Two digits of a year mean 1950 to 2049.
            UTC_TIME if text.get(..2).ok_or(NotACertificate)? < "50" => format!("20{text}"),
            UTC_TIME => format!("19{text}"),
            GENERALIZED_TIME => text.to_owned(),
            _ => return Err(NotACertificate),
        };
        let civil = DateTime::strptime("%Y%m%d%H%M%SZ", &text).map_err(|_| NotACertificate)?;
        let zoned = civil.to_zoned(TimeZone::UTC).map_err(|_| NotACertificate)?;
        Ok(zoned.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["host.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn both_forms_of_dates_are_read() {
        let near = Validity::of(&certificate((2026, 1, 2), (2026, 3, 4))).unwrap();
        assert_eq!(near.not_before.to_string(), "2026-01-02T00:00:00Z");
        assert_eq!(near.not_after.to_string(), "2026-03-04T00:00:00Z");
        let far = Validity::of(&certificate((1999, 12, 31), (2123, 4, 5))).unwrap();
        assert_eq!(far.not_before.to_string(), "1999-12-31T00:00:00Z");
        assert_eq!(far.not_after.to_string(), "2123-04-05T00:00:00Z");
    }

    #[test]
    fn the_last_quarter_is_running_out() {
        let validity = Validity::of(&certificate((2026, 1, 1), (2026, 1, 5))).unwrap();
        assert!(!validity.is_running_out("2026-01-04T00:00:00Z".parse().unwrap()));
        assert!(validity.is_running_out("2026-01-04T00:00:01Z".parse().unwrap()));
        assert!(validity.is_running_out("2027-01-01T00:00:00Z".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Validity::of(&bytes);
        }

        #[test]
        fn a_damaged_certificate_does_no_harm(at in 0usize..500, byte in any::<u8>(), keep in 0usize..600) {
            static GOOD: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
            let mut bytes = GOOD.get_or_init(|| certificate((2026, 1, 1), (2027, 1, 1))).clone();
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(keep);
            let _ = Validity::of(&bytes);
        }
    }
}
