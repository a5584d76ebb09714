// SPDX-License-Identifier: Apache-2.0
//! Standard base64 with padding, the only encoding that JSON bytes use here.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes; line breaks are skipped, anything else that is not base64 is refused.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !symbols.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(symbols.len() / 4 * 3);
    let groups = symbols.len() / 4;
    for (i, group) in symbols.chunks_exact(4).enumerate() {
        let padding = group.iter().rev().take_while(|b| **b == b'=').count();
        if padding > 2 || (padding > 0 && i + 1 != groups) {
            return None;
        }
        let mut bits = 0_u32;
        for (j, b) in group.iter().enumerate() {
            let digit = if j + padding >= 4 { 0 } else { digit(*b)? };
            bits = bits << 6 | digit;
        }
        let bytes = bits.to_be_bytes();
        out.extend(bytes.iter().skip(1).take(3 - padding));
    }
    Some(out)
}

/// Encodes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) as usize & 63;
            let symbol = ALPHABET.get(digit).copied().unwrap_or_default();
            out.push(if place > group.len() {
                '='
            } else {
                char::from(symbol)
            });
        }
    }
    out
}

fn digit(b: u8) -> Option<u32> {
    ALPHABET.iter().position(|a| *a == b).map(|p| p as u32)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn padding_must_be_right() {
        assert_eq!(decode("aGVsbG8=").as_deref(), Some(b"hello".as_slice()));
        assert_eq!(decode("aGk=").as_deref(), Some(b"hi".as_slice()));
        assert_eq!(decode("").as_deref(), Some(b"".as_slice()));
        assert_eq!(decode("aGk"), None);
        assert_eq!(decode("a==="), None);
        assert_eq!(decode("aG=k"), None);
    }

    #[test]
    fn what_is_encoded_decodes() {
        for text in ["", "a", "ab", "abc", "hello", "\u{ff}\u{0}?"] {
            assert_eq!(decode(&encode(text.as_bytes())).as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(encode(b"hi"), "aGk=");
    }
}
