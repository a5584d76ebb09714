// SPDX-License-Identifier: Apache-2.0
//! OpenStack clients for the roles: sessions with re-authentication, typed calls and typed errors.
