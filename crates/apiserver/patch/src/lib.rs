// SPDX-License-Identifier: Apache-2.0
//! The four kinds of patch: JSON patch, merge patch, strategic merge, server-side apply.
