// SPDX-License-Identifier: Apache-2.0
//! How bodies are made smaller: with zstd, or with gzip where the other side does not know zstd. What is unpacked is
//! bounded in length and in memory, because whoever sent it may be broken.

use std::io::{self, Read as _, Write as _};

/// Bytes from which a body is worth packing.
pub const PACK_FROM: usize = 4096;
/// What is understood, as `Accept-Encoding` has it.
pub const PACKINGS: &str = "zstd, gzip";
/// Speed matters more than the last byte.
const ZSTD_LEVEL: i32 = 1;

/// A way to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

/// Why a body could not be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpackable {
    /// It is longer than allowed.
    TooLarge,
    /// It is something else.
    Broken,
}

impl Packing {
    /// Its name as `Content-Encoding` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The way that a `Content-Encoding` names.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Zstd, Self::Gzip]
            .into_iter()
            .find(|way| name.trim().eq_ignore_ascii_case(way.as_str()))
    }

    /// Makes a body smaller.
    pub fn pack(self, body: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL),
            Self::Gzip => {
                let packed = Vec::with_capacity(body.len() / 4);
                let mut packer = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
                packer.write_all(body)?;
                packer.finish()
            }
        }
    }

    /// Unpacks at most `limit` bytes, with memory to match.
    pub fn unpack(self, packed: &[u8], limit: usize) -> Result<Vec<u8>, Unpackable> {
        let mut body = Vec::with_capacity(packed.len().saturating_mul(4).min(limit));
        let most = limit as u64 + 1;
        let read = match self {
            Self::Zstd => unpacker(packed, limit).and_then(|all| all.take(most).read_to_end(&mut body)),
            Self::Gzip => flate2::read::GzDecoder::new(packed)
                .take(most)
                .read_to_end(&mut body),
        };
        match read {
            Ok(length) if length > limit => Err(Unpackable::TooLarge),
            Ok(_) => Ok(body),
            Err(_) => Err(Unpackable::Broken),
        }
    }
}

/// Refuses frames that want a window much larger than any body, which is how a few bytes could ask for megabytes.
fn unpacker(packed: &[u8], limit: usize) -> io::Result<zstd::Decoder<'_, &[u8]>> {
    let mut unpacker = zstd::Decoder::with_buffer(packed)?;
    let window = limit.max(1 << 10).next_power_of_two().ilog2();
    unpacker.window_log_max(window)?;
    Ok(unpacker)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn what_is_packed_comes_back_and_is_smaller() {
        let body = "{\"kind\":\"lifecycle\",\"event\":\"stopped\"}"
            .repeat(500)
            .into_bytes();
        for way in [Packing::Zstd, Packing::Gzip] {
            let packed = way.pack(&body).unwrap();
            assert!(packed.len() * 4 < body.len(), "{way:?}: {}", packed.len());
            assert_eq!(way.unpack(&packed, LIMIT).as_deref(), Ok(&body[..]));
            assert_eq!(way.unpack(&packed, body.len()).as_deref(), Ok(&body[..]));
            assert_eq!(way.unpack(&packed, body.len() - 1), Err(Unpackable::TooLarge));
            assert_eq!(Packing::named(way.as_str()), Some(way));
        }
        assert_eq!(Packing::named(" ZSTD "), Some(Packing::Zstd));
        assert_eq!(Packing::named("br"), None);
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let zeros = vec![0; 50 << 20];
        for way in [Packing::Zstd, Packing::Gzip] {
            let bomb = way.pack(&zeros).unwrap();
            assert!(bomb.len() < 1 << 19, "{way:?}: {}", bomb.len());
            let answer = way.unpack(&bomb, LIMIT);
            assert!(answer.is_err(), "{way:?}");
            assert_eq!(way.unpack(b"plain text", LIMIT), Err(Unpackable::Broken));
        }
    }

    #[test]
    fn a_frame_that_wants_a_huge_window_is_refused() {
        let mut packer = zstd::Encoder::new(Vec::new(), 1).unwrap();
        packer.window_log(27).unwrap();
        packer.include_contentsize(false).unwrap();
        packer.write_all(&[7; 100]).unwrap();
        packer.flush().unwrap();
        packer.write_all(&[8; 100]).unwrap();
        let frame = packer.finish().unwrap();
        assert_eq!(Packing::Zstd.unpack(&frame, LIMIT), Err(Unpackable::Broken));
    }
}
