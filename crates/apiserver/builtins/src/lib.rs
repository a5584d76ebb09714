// SPDX-License-Identifier: Apache-2.0
//! The kinds Kubernetes brings along: structure, defaults, validation, columns.
