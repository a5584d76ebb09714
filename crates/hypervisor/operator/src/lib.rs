// SPDX-License-Identifier: Apache-2.0
//! The hypervisor operator: brings hosts in, drains them, returns them and takes them out.
