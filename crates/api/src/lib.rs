// SPDX-License-Identifier: Apache-2.0
//! The vocabulary of CobaltCore: custom resources, conditions, reasons, labels.
