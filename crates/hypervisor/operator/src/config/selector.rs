// SPDX-License-Identifier: Apache-2.0
//! Label selectors as far as the operator must understand them: which keys they speak of, and
//! which lease belongs to them. Matching is left to the API server.

/// The lease of the running system, so that old and new operator never act together.
const LEASE: &str = "4c28796a.cloud.sap";

/// The keys that a selector names, each once.
pub fn selector_keys(selector: &str) -> Result<Vec<String>, String> {
    let mut keys = Vec::new();
    for part in requirements(selector)? {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let bare = part.strip_prefix('!').unwrap_or(part).trim_start();
        let end = bare
            .find(|c: char| c.is_whitespace() || "=!<>(".contains(c))
            .unwrap_or(bare.len());
        let key = bare.get(..end).unwrap_or_default();
        if key.is_empty() {
            return Err(format!("{part:?} names no label"));
        }
        if !keys.iter().any(|known| known == key) {
            keys.push(key.to_owned());
        }
    }
    Ok(keys)
}

/// The requirements of a selector: what commas outside of parentheses separate.
fn requirements(selector: &str) -> Result<Vec<&str>, String> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(selector.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            break;
        }
    }
    if depth != 0 {
        return Err(format!("{selector:?} has unbalanced parentheses"));
    }
    parts.push(selector.get(start..).unwrap_or_default());
    Ok(parts)
}

/// The lease of an operator with that selector.
pub fn lease_name(selector: &str) -> String {
    if selector.is_empty() {
        return LEASE.to_owned();
    }
    let text = format!("{LEASE}{selector}");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.cloud.sap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_every_form_of_requirement() {
        let selector = "a=b, c in (d, e),!f ,g!=h,i notin (j),k==l,x.io/y,a,n>3";
        assert_eq!(
            selector_keys(selector).unwrap(),
            ["a", "c", "f", "g", "i", "k", "x.io/y", "n"]
        );
        assert_eq!(selector_keys("").unwrap(), Vec::<String>::new());
        for bad in ["=a", "a in (b", "a)", "! ,b"] {
            assert!(selector_keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_partition_has_a_lease_of_its_own() {
        assert_eq!(lease_name(""), "4c28796a.cloud.sap");
        let name = lease_name("zone=a");
        assert_eq!(name.len(), 64 + ".cloud.sap".len());
        assert!(name.ends_with(".cloud.sap") && name != lease_name("zone=b"));
        // sha256 of the text "4c28796a.cloud.sapzone=a"
        assert!(name.starts_with("b696c0ee8a155e4c"), "{name}");
    }
}
