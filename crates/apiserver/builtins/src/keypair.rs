// SPDX-License-Identifier: Apache-2.0
//! What is plainly wrong with the certificate and key of a TLS Secret. Only the envelope is looked
//! at: whether there are PEM blocks, and of which kind.

use base64::Engine as _;
use serde_json::Value;

use crate::json::text;

/// Why the Secret cannot serve TLS, in the words of the reference.
pub(crate) fn keypair_warning(secret: &Value) -> Option<String> {
    if text(secret, "type") != "kubernetes.io/tls" {
        return None;
    }
    certificate_problem(&pem(secret, "tls.crt")).or_else(|| key_problem(&pem(secret, "tls.key")))
}

/// The kinds of the PEM blocks under a key.
fn pem(secret: &Value, key: &str) -> Vec<String> {
    let encoded = secret.pointer("/data").and_then(|data| data.get(key));
    block_kinds(encoded.and_then(Value::as_str).unwrap_or_default())
}

/// The kinds of the PEM blocks in a field that is kept in base64.
pub(crate) fn block_kinds(encoded: &str) -> Vec<String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let begun = text.lines().filter_map(|line| {
        let kind = line.trim_end().strip_prefix("-----BEGIN ")?;
        kind.strip_suffix("-----")
    });
    begun
        .filter(|kind| text.contains(&format!("-----END {kind}-----")))
        .map(str::to_owned)
        .collect()
}

fn certificate_problem(blocks: &[String]) -> Option<String> {
    if blocks.iter().any(|kind| kind == "CERTIFICATE") {
        return None;
    }
    Some(match blocks {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [only] if only.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned()
        }
        others => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    })
}

fn key_problem(blocks: &[String]) -> Option<String> {
    if blocks
        .iter()
        .any(|kind| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY"))
    {
        return None;
    }
    Some(match blocks {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [only] if only == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        others => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let block = |kind: &str| format!("-----BEGIN {kind}-----\nAA==\n-----END {kind}-----\n");
        let code = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let (certificate, key) = (block("CERTIFICATE"), block("EC PRIVATE KEY"));
        for (crt, secret, said) in [
            (certificate.as_str(), key.as_str(), None),
            (
                "x",
                key.as_str(),
                Some("tls: failed to find any PEM data in certificate input"),
            ),
            (
                key.as_str(),
                key.as_str(),
                Some(
                    "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
                ),
            ),
            (
                certificate.as_str(),
                "",
                Some("tls: failed to find any PEM data in key input"),
            ),
            (
                certificate.as_str(),
                certificate.as_str(),
                Some("tls: found a certificate rather than a key in the PEM for the private key"),
            ),
        ] {
            let object =
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": code(crt), "tls.key": code(secret)}});
            assert_eq!(keypair_warning(&object).as_deref(), said);
        }
        assert_eq!(keypair_warning(&json!({"type": "Opaque"})), None);
    }
}
