// SPDX-License-Identifier: Apache-2.0
//! The node agent: reports one hypervisor to Kubernetes and keeps it in order.
