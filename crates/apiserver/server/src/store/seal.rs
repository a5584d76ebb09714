// SPDX-License-Identifier: Apache-2.0
//! Secrets as they lie in the database: sealed with AES-256-GCM where the server has a key, in the clear where it
//! has none. A sealed value belongs to the object and revision it was written for and opens nowhere else. Whoever
//! takes the file alone, or a copy of it, learns the names of Secrets and nothing of what they hold.

use std::borrow::Cow;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cobaltcore_access::pki::read_private;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::StoreError;

/// How a value is encoded: as it is, or as the id of a key, a nonce and what was sealed.
pub(super) const PLAIN: i64 = 0;
pub(super) const SEALED: i64 = 1;

/// Bytes by which a key is told from others.
const ID: usize = 4;
/// Bytes of a key.
const KEY: usize = 32;
/// The word that stands for no key.
const IN_THE_CLEAR: &str = "plain";

/// Keys that may have sealed a value, and the one that seals new ones.
#[derive(Default)]
pub struct Keys {
    known: Vec<SealingKey>,
    /// Among the known ones; none writes in the clear.
    writes: Option<usize>,
}

struct SealingKey {
    id: [u8; ID],
    key: LessSafeKey,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.known.iter().map(|key| name_of(key.id));
        f.debug_list().entries(ids).finish()
    }
}

/// The row a value stands in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) revision: u64,
}

impl Place<'_> {
    /// What a value is bound to. Neither part can hold the byte between them.
    fn bytes(&self) -> Vec<u8> {
        let revision = self.revision.to_be_bytes();
        [self.namespace.as_bytes(), self.name.as_bytes(), &revision].join(&0)
    }
}

/// Why a value does not open.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Closed {
    /// Nobody has its key.
    #[error("it is sealed with key {0}, which --encryption-key-file does not have")]
    UnknownKey(String),
    /// It is not what was sealed for this place.
    #[error("what is sealed there was changed, or was sealed for another place")]
    Broken,
}

impl Keys {
    /// Reads a file of keys, which must not be accessible to others.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let content = read_private(path).map_err(|error| StoreError::Keys(error.to_string()))?;
        let content = content.ok_or_else(|| {
            let path = path.display();
            StoreError::Keys(format!(
                "{path} does not exist; make a key with: (umask 077; head -c {KEY} /dev/urandom | base64 > {path})"
            ))
        })?;
        Self::parse(&content)
            .map_err(|(line, why)| StoreError::Keys(format!("{}:{line}: {why}", path.display())))
    }

    /// Keys line by line, the first of which writes. The error has the line.
    fn parse(content: &[u8]) -> Result<Self, (usize, String)> {
        let mut keys = Self::default();
        let mut first = true;
        for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let writes = std::mem::take(&mut first);
            if line == IN_THE_CLEAR.as_bytes() {
                continue;
            }
            let wrong = |why: &str| (number + 1, why.to_owned());
            let bytes = STANDARD
                .decode(line)
                .ok()
                .filter(|bytes| bytes.len() == KEY)
                .ok_or_else(|| {
                    wrong("a key is 32 random bytes in base64: head -c 32 /dev/urandom | base64")
                })?;
            let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| wrong("the key cannot be used"))?;
            let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
            let id = digest.as_ref().first_chunk().copied().unwrap_or_default();
            if keys.known.iter().any(|other| other.id == id) {
                return Err(wrong("the key stands in the file twice"));
            }
            keys.known.push(SealingKey {
                id,
                key: LessSafeKey::new(key),
            });
            if writes {
                keys.writes = Some(keys.known.len() - 1);
            }
        }
        if first {
            return Err((1, "the file has no key".to_owned()));
        }
        Ok(keys)
    }

    fn writing(&self) -> Option<&SealingKey> {
        self.known.get(self.writes?)
    }

    /// Whether anything is sealed.
    pub(super) fn seals(&self) -> bool {
        self.writes.is_some()
    }

    /// A value as it is going to lie in a row, with its tag.
    pub(super) fn seal<'a>(
        &self,
        place: Place<'_>,
        value: &'a [u8],
    ) -> Result<(i64, Cow<'a, [u8]>), StoreError> {
        let Some(SealingKey { id, key }) = self.writing() else {
            return Ok((PLAIN, Cow::Borrowed(value)));
        };
        let failed = |_| StoreError::Keys("a Secret cannot be sealed".to_owned());
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut inside = value.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, Aad::from(place.bytes()), &mut inside)
            .map_err(failed)?;
        Ok((SEALED, Cow::Owned([&id[..], &nonce, &inside].concat())))
    }

    /// What a row holds.
    pub(super) fn open(&self, place: Place<'_>, tag: i64, value: Vec<u8>) -> Result<Vec<u8>, Closed> {
        if tag == PLAIN {
            return Ok(value);
        }
        let (id, rest) = value.split_first_chunk::<ID>().ok_or(Closed::Broken)?;
        let known = self.known.iter().find(|key| key.id == *id);
        let SealingKey { key, .. } = known.ok_or_else(|| Closed::UnknownKey(name_of(*id)))?;
        let (nonce, inside) = rest.split_first_chunk().ok_or(Closed::Broken)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut inside = inside.to_vec();
        let length = key
            .open_in_place(nonce, Aad::from(place.bytes()), &mut inside)
            .map_err(|_| Closed::Broken)?
            .len();
        inside.truncate(length);
        Ok(inside)
    }

    /// Whether a row is as it would be written now.
    pub(super) fn is_current(&self, tag: i64, value: &[u8]) -> bool {
        match self.writing() {
            None => tag == PLAIN,
            Some(key) => tag == SEALED && value.starts_with(&key.id),
        }
    }
}

fn name_of(id: [u8; ID]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'static> = Place {
        namespace: "ns",
        name: "s",
        revision: 7,
    };

    fn line(byte: u8) -> String {
        STANDARD.encode([byte; KEY])
    }

    fn keys(text: &str) -> Keys {
        Keys::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_in_its_place_and_nowhere_else() {
        let keys = keys(&line(1));
        let (tag, sealed) = keys.seal(HERE, b"hush").unwrap();
        assert_eq!(tag, SEALED);
        assert!(!sealed.windows(4).any(|part| part == b"hush"));
        assert_eq!(keys.open(HERE, tag, sealed.to_vec()).unwrap(), b"hush");
        let elsewhere = [
            Place { name: "t", ..HERE },
            Place {
                namespace: "n",
                ..HERE
            },
            Place { revision: 8, ..HERE },
        ];
        for place in elsewhere {
            assert_eq!(
                keys.open(place, tag, sealed.to_vec()),
                Err(Closed::Broken),
                "{place:?}"
            );
        }
        for at in ID..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert_eq!(keys.open(HERE, tag, changed), Err(Closed::Broken), "byte {at}");
            assert!(keys.open(HERE, tag, sealed[..at].to_vec()).is_err(), "{at} bytes");
        }
        let (_, again) = keys.seal(HERE, b"hush").unwrap();
        assert_ne!(sealed, again, "no two values share a nonce");
    }

    #[test]
    fn the_first_key_seals_and_all_of_them_open() {
        let (_, old) = keys(&line(1)).seal(HERE, b"hush").unwrap();
        let rotated = keys(&format!("# new\n{}\n\n{}\n", line(2), line(1)));
        assert_eq!(rotated.open(HERE, SEALED, old.to_vec()).unwrap(), b"hush");
        assert!(!rotated.is_current(SEALED, &old));
        let (tag, new) = rotated.seal(HERE, b"hush").unwrap();
        assert!(rotated.is_current(tag, &new));
        let refused = keys(&line(2)).open(HERE, SEALED, old.to_vec()).unwrap_err();
        assert!(matches!(refused, Closed::UnknownKey(_)), "{refused}");
        // Back to the clear, with the key that opens what is there.
        let clear = keys(&format!("plain\n{}", line(2)));
        assert!(!clear.seals());
        assert_eq!(clear.open(HERE, tag, new.to_vec()).unwrap(), b"hush");
        assert_eq!(clear.seal(HERE, b"hush").unwrap().0, PLAIN);
    }

    #[test]
    fn mistakes_in_a_file_of_keys_name_their_line_and_no_key() {
        for (text, line, why) in [
            (String::new(), 1, "no key"),
            ("# only words\n".to_owned(), 1, "no key"),
            (format!("{}\nshort", line(1)), 2, "32 random bytes"),
            (format!("{}\n{}", line(1), line(1)), 2, "twice"),
        ] {
            let (found, said) = Keys::parse(text.as_bytes()).unwrap_err();
            assert_eq!(found, line, "{said}");
            assert!(said.contains(why), "{said}");
        }
        let shown = format!("{:?}", keys(&line(1)));
        assert!(!shown.contains(&line(1)) && !shown.contains("1, 1"), "{shown}");
    }
}
