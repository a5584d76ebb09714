// SPDX-License-Identifier: Apache-2.0
//! What viewers and operators read from the service: hosts, incidents with their journal, guests, pauses. Service,
//! command line and console share these types.
