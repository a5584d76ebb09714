// SPDX-License-Identifier: Apache-2.0
//! The little of X.509 that this crate reads and writes itself.
//!
//! Reading finds names, dates and keys in certificates; trust is never decided here, TLS has
//! verified client certificates before. Writing makes client certificates, whose subjects may
//! hold several organisations, which the certificate library cannot express.

use crate::error::AccessError;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rcgen::{KeyPair, SigningKey as _};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls_pki_types::CertificateDer;
use std::net::{Ipv4Addr, Ipv6Addr};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const INTEGER: u8 = 0x02;

/// A reader of consecutive tag-length-value items.
struct Reader<'a>(&'a [u8]);

struct Item<'a> {
    tag: u8,
    content: &'a [u8],
    /// Tag and length included.
    whole: &'a [u8],
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Item<'a>> {
        let input = self.0;
        let (&tag, rest) = input.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            let (digits, rest) = rest.split_at_checked(count)?;
            (
                digits.iter().fold(0usize, |n, &d| (n << 8) | usize::from(d)),
                rest,
            )
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let whole = input.get(..input.len().checked_sub(rest.len())?)?;
        self.0 = rest;
        Some(Item { tag, content, whole })
    }

    fn expect(&mut self, tag: u8) -> Option<Item<'a>> {
        self.next().filter(|item| item.tag == tag)
    }
}

/// What a certificate says about itself.
#[derive(Debug, Clone)]
pub struct CertificateInfo {
    /// End of validity.
    pub not_after: Timestamp,
    /// The public key's bits: for P-256 an uncompressed point.
    pub public_key: Vec<u8>,
    /// Host names and addresses it is valid for.
    pub names: Vec<String>,
    /// Common name of the subject.
    pub common_name: String,
    /// Organisations of the subject.
    pub organizations: Vec<String>,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl CertificateInfo {
    /// Reads a certificate in DER form; `None` when it is not one.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let mut certificate = Reader(Reader(der).expect(SEQUENCE)?.content);
        let body = certificate.expect(SEQUENCE)?;
        certificate.expect(SEQUENCE)?;
        let signature = bits(certificate.expect(BIT_STRING)?.content)?.to_vec();
        let mut fields = Reader(body.content);
        let mut item = fields.next()?;
        if item.tag == 0xa0 {
            item = fields.next()?;
        }
        if item.tag != INTEGER {
            return None;
        }
        fields.expect(SEQUENCE)?;
        fields.expect(SEQUENCE)?;
        let mut validity = Reader(fields.expect(SEQUENCE)?.content);
        validity.next()?;
        let not_after = time(&validity.next()?)?;
        let subject = fields.expect(SEQUENCE)?.content;
        let mut key = Reader(fields.expect(SEQUENCE)?.content);
        key.expect(SEQUENCE)?;
        let public_key = bits(key.expect(BIT_STRING)?.content)?.to_vec();
        let mut names = Vec::new();
        while let Some(item) = fields.next() {
            if item.tag == 0xa3 {
                names = alternative_names(item.content)?;
            }
        }
        Some(Self {
            not_after,
            public_key,
            names,
            common_name: attributes(subject, COMMON_NAME)?
                .into_iter()
                .next()
                .unwrap_or_default(),
            organizations: attributes(subject, ORGANIZATION)?,
            signed: body.whole.to_vec(),
            signature,
        })
    }

    /// Whether the P-256 key signed this certificate.
    pub(super) fn signed_by(&self, key: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
            .verify(&self.signed, &self.signature)
            .is_ok()
    }
}

/// User name (CN) and groups (O) of a client certificate that has been verified already.
pub fn client_identity(der: &[u8]) -> Option<(String, Vec<String>)> {
    let info = CertificateInfo::parse(der)?;
    Some((info.common_name, info.organizations))
}

fn bits(content: &[u8]) -> Option<&[u8]> {
    content
        .split_first()
        .filter(|(unused, _)| **unused == 0)
        .map(|(_, bits)| bits)
}

fn time(item: &Item<'_>) -> Option<Timestamp> {
    let text = std::str::from_utf8(item.content).ok()?.strip_suffix('Z')?;
    let (year, rest) = match item.tag {
        // Two digits: below 50 is this century.
        0x17 => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        0x18 => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| -> Option<i8> { rest.get(at..at + 2)?.parse().ok() };
    let civil = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The values of one attribute of a name, in order.
fn attributes(name: &[u8], wanted: &[u8]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut sets = Reader(name);
    while let Some(set) = sets.next() {
        let mut pairs = Reader(set.content);
        while let Some(pair) = pairs.next() {
            let mut pair = Reader(pair.content);
            let kind = pair.expect(OBJECT_ID)?;
            let value = pair.next()?;
            if kind.content == wanted {
                found.push(String::from_utf8(value.content.to_vec()).ok()?);
            }
        }
    }
    Some(found)
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut list = Reader(Reader(extensions).expect(SEQUENCE)?.content);
    while let Some(extension) = list.next() {
        let mut parts = Reader(extension.content);
        if parts.expect(OBJECT_ID)?.content != SUBJECT_ALT_NAME {
            continue;
        }
        let mut value = parts.next()?;
        if value.tag == 0x01 {
            value = parts.next()?;
        }
        let mut names = Reader(Reader(value.content).expect(SEQUENCE)?.content);
        while let Some(name) = names.next() {
            match name.tag {
                0x82 => found.push(String::from_utf8(name.content.to_vec()).ok()?),
                0x87 => {
                    if let Ok(v4) = <[u8; 4]>::try_from(name.content) {
                        found.push(Ipv4Addr::from(v4).to_string());
                    } else if let Ok(v6) = <[u8; 16]>::try_from(name.content) {
                        found.push(Ipv6Addr::from(v6).to_string());
                    }
                }
                _ => {}
            }
        }
    }
    Some(found)
}

/// Tag, length and content.
fn item(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|&d| d == 0).collect();
        out.push(0x80 | digits.len() as u8);
        out.extend(digits);
    }
    out.extend_from_slice(content);
    out
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    item(SEQUENCE, &parts.concat())
}

fn name_part(kind: &[u8], value: &str) -> Vec<u8> {
    item(
        SET,
        &sequence(&[item(OBJECT_ID, kind), item(0x0c, value.as_bytes())]),
    )
}

fn generalized_time(at: Timestamp) -> Vec<u8> {
    let year = at.to_zoned(TimeZone::UTC).year();
    // Dates before 2050 must be written in the short form.
    if year < 2050 {
        item(0x17, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        item(0x18, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

/// The subject of a client certificate.
pub(super) struct Subject<'a> {
    pub(super) common_name: &'a str,
    pub(super) organizations: &'a [&'a str],
}

/// A client certificate for a P-256 key, signed by the authority.
pub(super) fn client_certificate(
    ca_key: &KeyPair,
    ca_name: &str,
    subject: &Subject<'_>,
    public_key: &[u8],
    from: Timestamp,
    until: Timestamp,
) -> Result<CertificateDer<'static>, AccessError> {
    let failed = |detail: String| AccessError::Crypto {
        action: "create a client certificate",
        detail,
    };
    let algorithm = sequence(&[item(OBJECT_ID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02])]);
    let mut serial = super::random::<16>()?;
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    let mut parts: Vec<Vec<u8>> = subject
        .organizations
        .iter()
        .map(|o| name_part(ORGANIZATION, o))
        .collect();
    parts.push(name_part(COMMON_NAME, subject.common_name));
    let key_kind = sequence(&[
        item(OBJECT_ID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]),
        item(OBJECT_ID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
    ]);
    let bit_string = |bits: &[u8]| item(BIT_STRING, &[&[0u8], bits].concat());
    let critical = item(0x01, &[0xff]);
    let extensions = sequence(&[
        // keyUsage: digitalSignature
        sequence(&[
            item(OBJECT_ID, &[0x55, 0x1d, 0x0f]),
            critical.clone(),
            item(OCTET_STRING, &item(BIT_STRING, &[7, 0x80])),
        ]),
        // extKeyUsage: clientAuth
        sequence(&[
            item(OBJECT_ID, &[0x55, 0x1d, 0x25]),
            item(
                OCTET_STRING,
                &sequence(&[item(OBJECT_ID, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02])]),
            ),
        ]),
        // basicConstraints: not an authority
        sequence(&[
            item(OBJECT_ID, &[0x55, 0x1d, 0x13]),
            critical,
            item(OCTET_STRING, &sequence(&[])),
        ]),
    ]);
    let body = sequence(&[
        item(0xa0, &item(INTEGER, &[2])),
        item(INTEGER, &serial),
        algorithm.clone(),
        sequence(&[name_part(COMMON_NAME, ca_name)]),
        sequence(&[generalized_time(from), generalized_time(until)]),
        sequence(&parts),
        sequence(&[key_kind, bit_string(public_key)]),
        item(0xa3, &extensions),
    ]);
    let signature = ca_key.sign(&body).map_err(|e| failed(e.to_string()))?;
    Ok(CertificateDer::from(sequence(&[
        body,
        algorithm,
        bit_string(&signature),
    ])))
}
