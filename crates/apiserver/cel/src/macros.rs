// SPDX-License-Identifier: Apache-2.0
//! The macros: `has`, the loops over lists and maps in one and two variables, `sortBy` and the
//! two that look into optionals. What is not offered (single-variable `existsOne`, `cel.bind`)
//! is simply not here, so it is refused as an unknown function.

use cel::common::ast::{CallExpr, Expr, IdedExpr};

use crate::check::Checker;
use crate::functions;
use crate::node::{Kind, Loop, LoopKind, Node, SelectMode};
use crate::ty::Ty;

/// Names that the accumulator of a loop has in the reference.
const ACCUMULATORS: [&str; 2] = ["@result", "__result__"];

impl Checker<'_> {
    /// Expands a call that is a macro.
    pub(crate) fn expand(&mut self, call: &CallExpr, at: usize) -> Option<Node> {
        let args = call.args.as_slice();
        let Some(target) = &call.target else {
            return match (call.func_name.as_str(), args) {
                ("has", [arg]) => Some(self.has(arg, at)),
                _ => None,
            };
        };
        let (kind, vars, filtered) = shape(&call.func_name, args.len())?;
        let (names, rest) = args.split_at_checked(vars)?;
        let (filter, body) = match rest {
            [body] if !filtered => (None, body),
            [filter, body] if filtered => (Some(filter), body),
            _ => return None,
        };
        let Some(names) = self.names(kind, names) else {
            return Some(Self::failed(at));
        };
        Some(match kind {
            LoopKind::OptMap | LoopKind::OptFlatMap => self.optional_loop(kind, target, names, body, at),
            _ => self.iterate(kind, target, names, filter, body, at),
        })
    }

    fn has(&mut self, arg: &IdedExpr, at: usize) -> Node {
        if let Expr::Select(select) = &arg.expr {
            return self.field(&select.operand, &select.field, SelectMode::Test, at);
        }
        let arg_at = self.at(arg.id);
        self.report_syntax(arg_at, "invalid argument to has() macro");
        Self::failed(at)
    }

    fn names(&mut self, kind: LoopKind, names: &[IdedExpr]) -> Option<Vec<String>> {
        let mut out: Vec<String> = Vec::new();
        for name in names {
            let at = self.at(name.id);
            let Expr::Ident(ident) = &name.expr else {
                let message = match kind {
                    LoopKind::OptMap => "optMap() variable name must be a simple identifier",
                    LoopKind::OptFlatMap => "optFlatMap() variable name must be a simple identifier",
                    LoopKind::Map | LoopKind::Filter | LoopKind::SortBy if names.len() == 1 => {
                        "argument is not an identifier"
                    }
                    _ => "argument must be a simple name",
                };
                self.report_syntax(at, message);
                return None;
            };
            if out.contains(ident) {
                self.report_syntax(at, &format!("duplicate variable name: {ident}"));
                return None;
            }
            if ACCUMULATORS.contains(&ident.as_str()) {
                self.report_syntax(at, "iteration variable overwrites accumulator variable");
                return None;
            }
            out.push(ident.clone());
        }
        Some(out)
    }

    fn optional_loop(
        &mut self,
        kind: LoopKind,
        target: &IdedExpr,
        names: Vec<String>,
        body: &IdedExpr,
        at: usize,
    ) -> Node {
        let range = self.check(target);
        let inner = self.bindings.fresh();
        let wanted = Ty::optional(inner.clone());
        if !self.bindings.assign(&range.ty, &wanted) {
            let types = [range.ty.clone()];
            if let Some(function) = functions::lookup("hasValue") {
                self.overload(function, true, &types, at);
            }
        }
        let vars = names.into_iter().map(|n| (n, inner.clone())).collect();
        let (body, first) = self.with_locals(vars, |c, slots| {
            (c.check(body), slots.first().copied().unwrap_or_default())
        });
        let ty = if kind == LoopKind::OptMap {
            Ty::optional(body.ty.clone())
        } else {
            let result = self.bindings.fresh();
            let wanted = Ty::optional(result);
            if !self.bindings.assign(&body.ty, &wanted)
                && let Some(function) = functions::lookup("_?_:_")
            {
                let none = Ty::optional(self.bindings.fresh());
                self.overload(function, false, &[Ty::Bool, body.ty.clone(), none], at);
            }
            self.bindings.resolve(&wanted, false)
        };
        let ty = self.bindings.resolve(&ty, false);
        Node {
            kind: Kind::Loop(Box::new(Loop {
                kind,
                range,
                first,
                second: None,
                filter: None,
                body,
            })),
            ty,
            at,
        }
    }

    fn iterate(
        &mut self,
        kind: LoopKind,
        target: &IdedExpr,
        names: Vec<String>,
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
        at: usize,
    ) -> Node {
        let range = self.check(target);
        let range_ty = self.bindings.resolve(&range.ty, false);
        let (key, element) = self.range_types(&range_ty, range.at);
        let two = names.len() == 2;
        let element_ty = match (&range_ty, two) {
            (Ty::Map(..), false) => key.clone(),
            _ => element,
        };
        let types = if two {
            vec![key.clone(), element_ty.clone()]
        } else {
            vec![element_ty.clone()]
        };
        let vars = names.into_iter().zip(types).collect();
        let (filter, body, first, second) = self.with_locals(vars, |c, slots| {
            let filter = filter.map(|f| c.check(f));
            let body = c.check(body);
            (
                filter,
                body,
                slots.first().copied().unwrap_or_default(),
                slots.get(1).copied(),
            )
        });
        let ty = self.loop_type(kind, &key, &element_ty, filter.as_ref(), &body, at);
        let mut node = Node {
            kind: Kind::Loop(Box::new(Loop {
                kind,
                range,
                first,
                second,
                filter,
                body,
            })),
            ty,
            at,
        };
        if kind == LoopKind::SortBy {
            self.sort_by_types(&mut node, &range_ty, at);
        }
        node
    }

    /// What the first and second variable of a two-variable loop are.
    fn range_types(&mut self, range: &Ty, at: usize) -> (Ty, Ty) {
        match range {
            Ty::List(element) => (Ty::Int, (**element).clone()),
            Ty::Map(key, value) => ((**key).clone(), (**value).clone()),
            Ty::Dyn | Ty::Error | Ty::Var(_) => {
                self.bindings.assign(&Ty::Dyn, range);
                (Ty::Dyn, Ty::Dyn)
            }
            other => {
                self.report(
                    at,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Ty::Error, Ty::Error)
            }
        }
    }

    fn loop_type(
        &mut self,
        kind: LoopKind,
        key: &Ty,
        element: &Ty,
        filter: Option<&Node>,
        body: &Node,
        at: usize,
    ) -> Ty {
        let result = match kind {
            LoopKind::All | LoopKind::Exists => {
                self.expect_bool(body);
                return Ty::Bool;
            }
            LoopKind::ExistsOne => {
                self.condition(body, &Ty::Int, at);
                return Ty::Bool;
            }
            LoopKind::Filter => {
                let list = Ty::list(element.clone());
                self.condition(body, &list, at);
                return self.bindings.resolve(&list, false);
            }
            LoopKind::TransformMap => Ty::map(key.clone(), body.ty.clone()),
            LoopKind::TransformMapEntry => {
                let wanted = Ty::map(self.bindings.fresh(), self.bindings.fresh());
                if !self.bindings.assign(&body.ty, &wanted) {
                    let message = format!(
                        "found no matching overload for 'cel.@mapInsert' applied to '(map(dyn, dyn), {})'",
                        self.bindings.resolve(&body.ty, true)
                    );
                    self.report(at, message);
                }
                wanted
            }
            _ => Ty::list(body.ty.clone()),
        };
        if let Some(filter) = filter {
            self.condition(filter, &result, at);
        }
        self.bindings.resolve(&result, false)
    }

    /// The reference expands a condition to `condition ? accumulated : kept`.
    fn condition(&mut self, condition: &Node, accumulated: &Ty, at: usize) {
        if let Some(function) = functions::lookup("_?_:_") {
            self.overload(
                function,
                false,
                &[condition.ty.clone(), accumulated.clone(), accumulated.clone()],
                at,
            );
        }
    }

    /// `sortBy` gives back the list; its keys must be of one comparable type.
    fn sort_by_types(&mut self, node: &mut Node, range: &Ty, at: usize) {
        let keys = node.ty.clone();
        let sortable = functions::lookup("sort").is_some_and(|sort| {
            sort.overloads
                .iter()
                .any(|o| self.bindings.assign_all(std::slice::from_ref(&keys), &o.args))
        });
        if !sortable || !matches!(range, Ty::List(_) | Ty::Dyn | Ty::Error | Ty::Var(_)) {
            let range = self.bindings.resolve(range, true);
            let keys = self.bindings.resolve(&keys, true);
            self.report(
                at,
                format!(
                    "found no matching overload for '@sortByAssociatedKeys' applied to '{range}.({keys})'"
                ),
            );
        }
        node.ty = match range {
            Ty::List(_) => range.clone(),
            _ => Ty::list(Ty::Dyn),
        };
    }
}

/// The macro of a name and number of arguments: what it does, how many variables it binds, and
/// whether it takes a filter.
fn shape(name: &str, args: usize) -> Option<(LoopKind, usize, bool)> {
    Some(match (name, args) {
        ("all", 2) => (LoopKind::All, 1, false),
        ("all", 3) => (LoopKind::All, 2, false),
        ("exists", 2) => (LoopKind::Exists, 1, false),
        ("exists", 3) => (LoopKind::Exists, 2, false),
        ("exists_one", 2) => (LoopKind::ExistsOne, 1, false),
        ("existsOne" | "exists_one", 3) => (LoopKind::ExistsOne, 2, false),
        ("map", 2) => (LoopKind::Map, 1, false),
        ("map", 3) => (LoopKind::Map, 1, true),
        ("filter", 2) => (LoopKind::Filter, 1, false),
        ("transformList", 3) => (LoopKind::Map, 2, false),
        ("transformList", 4) => (LoopKind::Map, 2, true),
        ("transformMap", 3) => (LoopKind::TransformMap, 2, false),
        ("transformMap", 4) => (LoopKind::TransformMap, 2, true),
        ("transformMapEntry", 3) => (LoopKind::TransformMapEntry, 2, false),
        ("transformMapEntry", 4) => (LoopKind::TransformMapEntry, 2, true),
        ("sortBy", 2) => (LoopKind::SortBy, 1, false),
        ("optMap", 2) => (LoopKind::OptMap, 1, false),
        ("optFlatMap", 2) => (LoopKind::OptFlatMap, 1, false),
        _ => return None,
    })
}
