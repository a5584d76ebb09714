// SPDX-License-Identifier: Apache-2.0
//! The cost estimate of calls: most cost one unit; those that walk over strings, lists or
//! patterns cost by the sizes of their arguments.

use crate::estimate::{Estimator, Known, Path, Step, joined};
use crate::functions::Overload;
use crate::node::{Call, Kind, Node};
use crate::range::Range;
use crate::ty::Ty;
use crate::value::Value;

/// The cost of a call beside its arguments, and the size of its result where that is known.
type Estimate = (Range, Option<Range>);

/// The longest pattern of a named format.
const FORMAT_PATTERN: f64 = 128.0;

impl<'a> Estimator<'a> {
    pub(crate) fn call(&mut self, call: &'a Call, node: &'a Node) -> Known<'a> {
        let args: Vec<Known<'a>> = call.args.iter().map(|a| self.node(a)).collect();
        let arguments = args.iter().fold(Range::ZERO, |sum, a| sum.plus(a.cost));
        if call.name == "dyn"
            && let Some(arg) = args.first()
        {
            let size = arg.size;
            return Known {
                cost: arg.cost.plus(Range::ONE),
                size,
                inside: arg.inside,
                path: Path::None,
            };
        }
        let mut cost = Range::NOTHING;
        let mut size: Option<Range> = None;
        for overload in &call.overloads {
            let (c, s) = self.overload(call, overload, &args);
            cost = cost.union(c);
            size = match (size, s) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
        }
        if call.overloads.is_empty() {
            cost = Range::ONE;
        }
        let (mut path, mut inside) = (Path::None, None);
        match (call.name, args.as_slice()) {
            ("_[_]", [of, _])
                if matches!(
                    call.args.first().map(|a| &a.ty),
                    Some(Ty::List(_) | Ty::Map(..) | Ty::Dyn)
                ) =>
            {
                (path, size) = self.element(of, &node.ty);
            }
            ("_+_", [a, b]) => inside = joined(a.inside, b.inside),
            _ => {}
        }
        let size = size.or_else(|| Self::size(path, &node.ty));
        Known {
            cost: arguments.plus(cost),
            size,
            inside,
            path,
        }
    }

    fn overload(&self, call: &'a Call, overload: &Overload, args: &[Known<'a>]) -> Estimate {
        let size = |i: usize| args.get(i).map_or(Range::UNKNOWN, Known::size_or_unknown);
        if let Some(estimate) = list_library(call, &size) {
            return estimate;
        }
        if let Some(estimate) = self.kubernetes(call, overload, args) {
            return estimate;
        }
        let first = overload.args.first();
        let text = matches!(first, Some(Ty::String | Ty::Bytes));
        match call.name {
            "format" => (size(0).tenth(), None),
            "bytes" if matches!(first, Some(Ty::String)) => {
                let sz = size(0);
                (
                    sz.tenth(),
                    Some(Range {
                        min: sz.min,
                        max: sz.max.saturating_mul(4),
                    }),
                )
            }
            "string" if matches!(first, Some(Ty::Bytes)) => {
                let sz = size(0);
                (
                    sz.tenth(),
                    Some(Range {
                        min: sz.min / 4,
                        max: sz.max,
                    }),
                )
            }
            "strings.quote" | "jsonpatch.escapeKey" => {
                let sz = size(0);
                let max = sz.max.saturating_mul(2).saturating_add(2);
                (
                    sz.tenth(),
                    Some(Range {
                        min: sz.min.saturating_add(2),
                        max,
                    }),
                )
            }
            "startsWith" | "endsWith" => (size(1).tenth(), None),
            "check" => (Range::fixed(crate::cost::CHECK), None),
            "@in" if matches!(overload.args.get(1), Some(Ty::List(_))) => (size(1), None),
            "matches" if overload.member => (search(size(0), size(1)), None),
            "contains" => (size(0).tenth().times(size(1).tenth()), None),
            "_+_" if text || matches!(first, Some(Ty::List(_))) => {
                let sum = size(0).plus(size(1));
                (if text { sum.tenth() } else { Range::ONE }, Some(sum))
            }
            "_==_" | "_!=_" => (comparison(size(0), size(1)), None),
            "_<_" | "_<=_" | "_>_" | "_>=_" if text => (comparison(size(0), size(1)), None),
            _ => (Range::ONE, None),
        }
    }

    /// Functions that Kubernetes estimates itself.
    fn kubernetes(&self, call: &'a Call, overload: &Overload, args: &[Known<'a>]) -> Option<Estimate> {
        let size = |i: usize| args.get(i).map_or(Range::UNKNOWN, Known::size_or_unknown);
        let walk = |i: usize| Some((size(i).tenth(), None));
        match call.name {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let cost = match self.elements(call.args.first()?, args.first()?) {
                    Some(element) => size(0).times(element),
                    None => size(0).tenth(),
                };
                Some((cost, None))
            }
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                Some((size(0).tenth(), Some(size(0))))
            }
            "replace" => Some((size(0).scaled(0.2), Some(replaced(size(0), size(1), size(2))))),
            "split" => {
                let most = match call.args.get(2).map(|a| &a.kind) {
                    Some(Kind::Const(Value::Int(n))) => *n as u64,
                    _ => size(0).max,
                };
                Some((size(0).scaled(0.2), Some(Range { min: 0, max: most })))
            }
            "join" => {
                let sz = self.joined_text(call.args.first()?, args.first()?, args.get(1));
                Some((sz.tenth(), Some(sz)))
            }
            "find" | "findAll" => Some((
                search(size(0), size(1)),
                Some(Range {
                    min: 0,
                    max: size(0).max,
                }),
            )),
            "ip" if overload.member => Some((Range::ONE, None)),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => walk(0),
            "ip.isCanonical" => Some((size(0).scaled(0.2), None)),
            "containsIP" | "containsCIDR" => {
                let bytes = Range { min: 4, max: 16 };
                let mut cost = bytes.plus(bytes).tenth();
                if call.name == "containsCIDR" {
                    cost = cost.plus(bytes.tenth()).plus(Range::ONE);
                }
                if matches!(overload.args.get(1), Some(Ty::String)) {
                    cost = cost.plus(size(1).tenth());
                }
                Some((cost, None))
            }
            "validate" => Some((size(1).tenth().scaled(FORMAT_PATTERN * 0.25), None)),
            "_==_" => equal_values(call, args),
            _ => None,
        }
    }

    /// The cost of looking at one element of a list, or `None` if it is not a list.
    fn elements(&self, node: &Node, list: &Known<'a>) -> Option<Range> {
        let Ty::List(element) = &node.ty else { return None };
        if !matches!(**element, Ty::String | Ty::Bytes) {
            return Some(Range::ONE);
        }
        Some(Range::ONE.plus(self.element_size(list).tenth()))
    }

    fn element_size(&self, list: &Known<'a>) -> Range {
        match list.path {
            Path::None => Range::UNKNOWN,
            path => Self::declared(self.step(path, Step::Value)).unwrap_or(Range::UNKNOWN),
        }
    }

    fn joined_text(&self, node: &Node, list: &Known<'a>, separator: Option<&Known<'a>>) -> Range {
        let count = list.size_or_unknown();
        let mut size = match node.ty {
            Ty::List(_) => count.times(self.element_size(list)),
            _ => Range::ZERO,
        };
        if let Some(separator) = separator {
            let gaps = Range {
                min: count.min.saturating_sub(1),
                max: count.max.saturating_sub(1),
            };
            size = size.plus(separator.size_or_unknown().times(gaps));
        }
        size
    }
}

fn search(text: Range, pattern: Range) -> Range {
    text.plus(Range::ONE).tenth().times(pattern.scaled(0.25))
}

/// The shorter of two values decides.
fn comparison(a: Range, b: Range) -> Range {
    let max = a.max.min(b.max);
    Range {
        min: u64::from(max > 0),
        max,
    }
    .tenth()
}

/// Equality of the Kubernetes value types.
fn equal_values(call: &Call, args: &[Known<'_>]) -> Option<Estimate> {
    let (left, right) = (call.args.first()?, call.args.get(1)?);
    if !left.ty.same(&right.ty) {
        return None;
    }
    let Ty::Opaque(name, _) = &left.ty else {
        return None;
    };
    let cost = match *name {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Range::ONE,
        "kubernetes.NamedFormat" => Range { min: 1, max: 64 }.tenth(),
        "kubernetes.URL" => {
            let max = args.get(1).and_then(|a| a.size).map_or(1, |s| s.max);
            Range { min: 1, max }.tenth()
        }
        _ => return None,
    };
    Some((cost, None))
}

/// The size after a replacement: the longest and the shortest that can come out.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let per = |size: u64, each: u64| (size as f64 / each as f64).ceil() as u64;
    let (max_count, max_kept) = if old.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (per(text.max, old.min), 0)
    };
    let (min_count, min_kept) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (per(text.min, old.max), 0)
    };
    Range {
        min: min_count,
        max: max_count,
    }
    .times(new)
    .plus(Range {
        min: min_kept,
        max: max_kept,
    })
}

/// Functions of the list and set libraries: what they allocate, and the pairs they compare.
fn list_library(call: &Call, size: &dyn Fn(usize) -> Range) -> Option<Estimate> {
    let literal = |i: usize, default: u64| match call.args.get(i).map(|a| &a.kind) {
        Some(Kind::Const(Value::Int(n))) => u64::try_from(*n).unwrap_or(0),
        _ => default,
    };
    let allocated = |factor: f64, items: Range| {
        Some((
            items.scaled(factor).plus(Range::fixed(1 + crate::cost::LIST)),
            Some(items),
        ))
    };
    match call.name {
        "slice" => {
            let (start, end) = (literal(1, 0), literal(2, size(0).max));
            allocated(1.0, Range::fixed(end.wrapping_sub(start)))
        }
        "lists.range" => allocated(1.0, Range::fixed(literal(0, u64::MAX))),
        "reverse" => allocated(1.0, size(0)),
        "flatten" => {
            let depth = if call.args.len() > 1 {
                literal(1, u64::MAX)
            } else {
                1
            };
            allocated(depth as f64, size(0))
        }
        "distinct" => allocated(2.0, size(0).times(size(0))),
        "sort" => {
            let text = matches!(call.args.first().map(|a| &a.ty), Some(Ty::List(e)) if matches!(**e, Ty::String | Ty::Bytes));
            allocated(if text { 2.1 } else { 2.0 }, size(0).times(size(0)))
        }
        "sets.contains" | "sets.intersects" => Some((size(0).times(size(1)).plus(Range::ONE), None)),
        "sets.equivalent" => Some((size(0).times(size(1)).scaled(2.0).plus(Range::ONE), None)),
        _ => None,
    }
}
