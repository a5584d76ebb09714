// SPDX-License-Identifier: Apache-2.0
//! The libvirt RPC protocol: codec, client, and the server half.
