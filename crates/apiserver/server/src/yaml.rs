// SPDX-License-Identifier: Apache-2.0
//! YAML in and out, as every part of the project reads and writes it: bodies and manifests by the
//! rules of YAML 1.1, answers in the style of `kubectl -o yaml`.

pub(crate) use cobaltcore_text::yaml::{decode_all, decode_first as decode, encode};
