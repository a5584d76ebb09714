// SPDX-License-Identifier: Apache-2.0
//! Signed tokens of ServiceAccounts: ES256 and nothing else.
//!
//! The algorithm is fixed by the key, never chosen by the token. Claims are read only after the
//! signature is good, except for the issuer, which decides whether the token is ours at all.

use super::AuthnError;
use crate::error::AccessError;
use crate::identity::service_account_name;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Map, Value, json};

/// What stands before the point in a P-256 public key in DER form.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Name and uid of an object in a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectRef {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl ObjectRef {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, value) in [("name", &self.name), ("uid", &self.uid)] {
            if !value.is_empty() {
                out.insert(key.to_owned(), json!(value));
            }
        }
        Value::Object(out)
    }
}

/// What a ServiceAccount token says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    /// For whom the token is meant.
    pub audiences: Vec<String>,
    /// End of validity, seconds since 1970.
    pub expires: i64,
    /// Time of issue.
    pub issued_at: i64,
    /// Start of validity.
    pub not_before: i64,
    /// Identifier of this token.
    pub id: String,
    /// Namespace of the account.
    pub namespace: String,
    /// The account.
    pub service_account: ObjectRef,
    /// The pod it is bound to.
    pub pod: Option<ObjectRef>,
    /// The secret it is bound to.
    pub secret: Option<ObjectRef>,
    /// The node it is bound to, or on which its pod runs.
    pub node: Option<ObjectRef>,
    /// When use of the token is noted as stale, for tokens whose validity was extended.
    pub warn_after: Option<i64>,
}

impl Claims {
    fn to_value(&self, issuer: &str) -> Value {
        let mut private = Map::new();
        private.insert("namespace".into(), json!(self.namespace));
        private.insert("serviceaccount".into(), self.service_account.to_value());
        for (key, bound) in [("pod", &self.pod), ("secret", &self.secret), ("node", &self.node)] {
            if let Some(bound) = bound {
                private.insert(key.to_owned(), bound.to_value());
            }
        }
        if let Some(at) = self.warn_after {
            private.insert("warnafter".into(), json!(at));
        }
        json!({
            "aud": self.audiences,
            "exp": self.expires,
            "iat": self.issued_at,
            "nbf": self.not_before,
            "iss": issuer,
            "jti": self.id,
            "sub": service_account_name(&self.namespace, &self.service_account.name),
            "kubernetes.io": private,
        })
    }

    fn from_value(value: &Value) -> Option<Self> {
        let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let private = value.get("kubernetes.io")?;
        let reference = |key: &str| {
            let found = private.get(key).filter(|v| v.is_object())?;
            Some(ObjectRef {
                name: text(found, "name"),
                uid: text(found, "uid"),
            })
        };
        let audiences = match value.get("aud")? {
            Value::String(one) => vec![one.clone()],
            Value::Array(many) => many
                .iter()
                .map(|v| v.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            _ => return None,
        };
        let claims = Self {
            audiences,
            expires: value.get("exp")?.as_i64()?,
            issued_at: value.get("iat")?.as_i64()?,
            not_before: value.get("nbf")?.as_i64()?,
            id: text(value, "jti"),
            namespace: text(private, "namespace"),
            service_account: reference("serviceaccount")?,
            pod: reference("pod"),
            secret: reference("secret"),
            node: reference("node"),
            warn_after: private.get("warnafter").and_then(Value::as_i64),
        };
        let subject = service_account_name(&claims.namespace, &claims.service_account.name);
        (text(value, "sub") == subject).then_some(claims)
    }
}

/// The P-256 key that signs ServiceAccount tokens.
pub struct ServiceAccountKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
    kid: String,
    random: SystemRandom,
}

impl std::fmt::Debug for ServiceAccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceAccountKey")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

impl ServiceAccountKey {
    /// A new random key.
    pub fn generate() -> Result<Self, AccessError> {
        let failed = |detail: String| AccessError::Crypto {
            action: "create the service account key",
            detail,
        };
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|e| failed(e.to_string()))?;
        Self::from_pkcs8(document.as_ref())
    }

    /// The key in a PKCS#8 document.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, AccessError> {
        let random = SystemRandom::new();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).map_err(|e| {
                AccessError::Crypto {
                    action: "read the service account key",
                    detail: e.to_string(),
                }
            })?;
        let mut spki = SPKI_PREFIX.to_vec();
        spki.extend_from_slice(pair.public_key().as_ref());
        let kid = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &spki));
        Ok(Self {
            pair,
            pkcs8: pkcs8.to_vec(),
            kid,
            random,
        })
    }

    /// The PKCS#8 document of the key.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The identifier of the key in token headers and in the key set.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The public key as JSON Web Key.
    pub fn jwk(&self) -> Value {
        // An uncompressed point: 0x04, then 32 bytes x, then 32 bytes y.
        let point = self.pair.public_key().as_ref();
        let part = |from: usize, to: usize| URL_SAFE_NO_PAD.encode(point.get(from..to).unwrap_or_default());
        json!({
            "use": "sig", "kty": "EC", "kid": self.kid, "crv": "P-256", "alg": "ES256",
            "x": part(1, 33), "y": part(33, 65),
        })
    }

    /// Random bytes for identifiers; `None` when the system has no randomness.
    pub(crate) fn random_uuid(&self) -> Option<String> {
        let mut bytes = [0u8; 16];
        self.random.fill(&mut bytes).ok()?;
        let mut value = u128::from_be_bytes(bytes);
        value = (value & !(0xf << 76)) | (0x4 << 76);
        value = (value & !(0x3 << 62)) | (0x2 << 62);
        let hex = format!("{value:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        Some(format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        ))
    }

    /// Signs claims into a token.
    pub fn sign(&self, issuer: &str, claims: &Claims) -> Result<String, AccessError> {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": self.kid}).to_string());
        let payload = URL_SAFE_NO_PAD.encode(claims.to_value(issuer).to_string());
        let message = format!("{header}.{payload}");
        let signature =
            self.pair
                .sign(&self.random, message.as_bytes())
                .map_err(|e| AccessError::Crypto {
                    action: "sign a service account token",
                    detail: e.to_string(),
                })?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token with a good signature and the right issuer. Times, audiences and
    /// objects are not looked at.
    pub fn verify(&self, token: &str, issuer: &str) -> Result<Claims, AuthnError> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(AuthnError::unknown());
        };
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| AuthnError::unknown());
        let read = |part: &str| -> Result<Value, AuthnError> {
            serde_json::from_slice(&decode(part)?).map_err(|_| AuthnError::unknown())
        };
        let claims = read(payload)?;
        if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
            return Err(AuthnError::unknown());
        }
        let fields = read(header)?;
        if fields.get("alg").and_then(Value::as_str) != Some("ES256") || fields.get("crit").is_some() {
            return Err(AuthnError::new("invalid signature, no keys found"));
        }
        if fields
            .get("kid")
            .is_some_and(|kid| kid.as_str() != Some(&self.kid))
        {
            return Err(AuthnError::new("invalid signature, no keys found"));
        }
        // The signed text is the first two parts with the dot between them.
        let signed = token.get(..header.len() + 1 + payload.len()).unwrap_or_default();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &decode(signature)?)
            .map_err(|_| AuthnError::new("go-jose/go-jose: error in cryptographic primitive"))?;
        Claims::from_value(&claims).ok_or_else(AuthnError::unknown)
    }
}
