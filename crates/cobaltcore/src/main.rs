// SPDX-License-Identifier: Apache-2.0
//! The `cobaltcore` binary.

fn main() {}
