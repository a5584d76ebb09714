// SPDX-License-Identifier: Apache-2.0
//! CEL as Kubernetes speaks it: type checker, evaluator and cost budget.
