// SPDX-License-Identifier: Apache-2.0
//! What every role needs to be a good citizen.
