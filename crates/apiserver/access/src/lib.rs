// SPDX-License-Identifier: Apache-2.0
//! Who is asking, and may they: certificates, tokens, RBAC.
