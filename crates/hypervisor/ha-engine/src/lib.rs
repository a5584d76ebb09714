// SPDX-License-Identifier: Apache-2.0
//! The judgement of high availability: evidence, fencing, recovery. Pure and synchronous.
