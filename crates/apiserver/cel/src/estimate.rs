// SPDX-License-Identifier: Apache-2.0
//! The cost estimate at registration: how much an evaluation can cost at worst, given the
//! declared limits of lists, maps and strings. It follows the reference step by step, oddities
//! included, because a rule that a real cluster refuses must be refused here as well.

use std::collections::HashMap;

use crate::decl::{DeclType, Env};
use crate::node::{Entry, Item, Kind, Loop, LoopKind, Node, Select, SelectMode};
use crate::range::Range;
use crate::ty::Ty;
use crate::value::Value;

/// Where a value comes from, as far as the declarations tell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    /// It was computed.
    None,
    /// It is declared like this.
    At(&'a DeclType),
    /// It is a key of a map, which has no declared limit.
    Key,
    /// It comes from a place without declaration.
    Lost,
}

/// Sizes of the keys and values inside a list or map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inside {
    list: bool,
    key: Range,
    value: Range,
}

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) cost: Range,
    /// The size of the value, where one is known.
    pub(crate) size: Option<Range>,
    pub(crate) inside: Option<Inside>,
    pub(crate) path: Path<'a>,
}

impl Known<'_> {
    pub(crate) fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

/// A variable of a loop.
struct Local<'a> {
    path: Path<'a>,
    size: Option<Range>,
    inside: Option<Inside>,
}

pub(crate) struct Estimator<'a> {
    root: &'a DeclType,
    locals: HashMap<usize, Local<'a>>,
}

static NOTHING_DECLARED: DeclType = DeclType::Dyn;

/// The worst case of one evaluation.
pub(crate) fn worst_case(root: &Node, env: &Env) -> u64 {
    let declared = env.find("self").map_or(&NOTHING_DECLARED, |(_, v)| &*v.ty);
    let mut estimator = Estimator {
        root: declared,
        locals: HashMap::new(),
    };
    estimator.node(root).cost.max
}

impl<'a> Estimator<'a> {
    pub(crate) fn node(&mut self, node: &'a Node) -> Known<'a> {
        match &node.kind {
            Kind::Const(Value::Type(_)) => Self::known(Range::ONE, Path::At(self.root), &node.ty),
            Kind::Const(value) => Known {
                cost: Range::ZERO,
                size: Some(Range::fixed(value.cost_size())),
                inside: None,
                path: Path::None,
            },
            Kind::Var(slot) => self.variable(*slot, node),
            Kind::Select(s) => self.select(s, node),
            Kind::Call(call) => self.call(call, node),
            Kind::And(two) | Kind::Or(two) => {
                let [left, right] = &**two;
                let (left, right) = (self.node(left).cost, self.node(right).cost);
                let cost = Range {
                    min: left.min,
                    max: left.plus(right).max,
                };
                Self::known(cost, Path::None, &node.ty)
            }
            Kind::Cond(three) => {
                let [condition, yes, no] = &**three;
                let condition = self.node(condition).cost;
                let (yes, no) = (self.node(yes), self.node(no));
                Self::either(condition, &yes, &no)
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Loop(l) => self.run_loop(l, node),
        }
    }

    /// A node whose size follows from its path or type.
    pub(crate) fn known(cost: Range, path: Path<'a>, ty: &Ty) -> Known<'a> {
        Known {
            cost,
            size: Self::size(path, ty),
            inside: None,
            path,
        }
    }

    /// The declared size, else one for values of fixed size.
    pub(crate) fn size(path: Path<'a>, ty: &Ty) -> Option<Range> {
        Self::declared(path).or_else(|| fixed_size(ty).then_some(Range::ONE))
    }

    pub(crate) fn declared(path: Path<'a>) -> Option<Range> {
        match path {
            Path::At(decl) => Some(Range {
                min: 0,
                max: decl.max_elements(),
            }),
            Path::Key => Some(Range::ZERO),
            Path::None | Path::Lost => None,
        }
    }

    /// One step further: the reference looks a path up from the root, without its first element,
    /// so a step from nowhere ends at the root.
    pub(crate) fn step(&self, path: Path<'a>, step: Step<'_>) -> Path<'a> {
        let decl = match path {
            Path::None => return Path::At(self.root),
            Path::Key | Path::Lost => return Path::Lost,
            Path::At(decl) => decl,
        };
        match (step, decl) {
            (Step::Value, DeclType::List { element: inner, .. } | DeclType::Map { value: inner, .. }) => {
                Path::At(inner)
            }
            (Step::Key, DeclType::Map { .. }) => Path::Key,
            (Step::Field(json), DeclType::Object { fields, .. }) => {
                fields.get(json).map_or(Path::Lost, |f| Path::At(f))
            }
            _ => Path::Lost,
        }
    }

    fn variable(&mut self, slot: usize, node: &'a Node) -> Known<'a> {
        let Some(local) = self.locals.get(&slot) else {
            return Self::known(Range::ONE, Path::At(self.root), &node.ty);
        };
        let size = Self::size(local.path, &node.ty).or(local.size);
        Known {
            cost: Range::ONE,
            size,
            inside: local.inside,
            path: local.path,
        }
    }

    fn select(&mut self, s: &'a Select, node: &'a Node) -> Known<'a> {
        let operand = self.node(&s.operand);
        match s.mode {
            SelectMode::Test => Self::known(operand.cost, Path::None, &node.ty),
            SelectMode::Optional => Self::known(operand.cost.plus(Range::ONE), Path::None, &node.ty),
            SelectMode::Value => {
                let counted = matches!(&s.operand.ty, Ty::Map(..) | Ty::Object(..));
                let cost = if counted {
                    operand.cost.plus(Range::ONE)
                } else {
                    operand.cost
                };
                let path = self.step(operand.path, Step::Field(s.json.as_deref().unwrap_or(&s.field)));
                Self::known(cost, path, &node.ty)
            }
        }
    }

    /// One of two values, after a condition.
    fn either(condition: Range, yes: &Known<'a>, no: &Known<'a>) -> Known<'a> {
        Known {
            cost: condition.plus(yes.cost.union(no.cost)),
            size: Some(yes.size_or_unknown().union(no.size_or_unknown())),
            inside: joined(yes.inside, no.inside),
            path: Path::None,
        }
    }

    fn list(&mut self, items: &'a [Item]) -> Known<'a> {
        let mut cost = Range::fixed(crate::cost::LIST);
        let mut value = if items.is_empty() {
            Range::ZERO
        } else {
            Range::NOTHING
        };
        for item in items {
            let known = self.node(&item.node);
            cost = cost.plus(known.cost);
            value = value.union(known.size_or_unknown());
        }
        let inside = Some(Inside {
            list: true,
            key: Range::ONE,
            value,
        });
        Known {
            cost,
            size: Some(Range::fixed(items.len() as u64)),
            inside,
            path: Path::None,
        }
    }

    fn map(&mut self, entries: &'a [Entry]) -> Known<'a> {
        let mut cost = Range::fixed(crate::cost::MAP);
        let nothing = if entries.is_empty() {
            Range::ZERO
        } else {
            Range::NOTHING
        };
        let (mut key, mut value) = (nothing, nothing);
        for entry in entries {
            let (k, v) = (self.node(&entry.key), self.node(&entry.value));
            cost = cost.plus(k.cost).plus(v.cost);
            key = key.union(k.size_or_unknown());
            value = value.union(v.size_or_unknown());
        }
        let inside = Some(Inside {
            list: false,
            key,
            value,
        });
        Known {
            cost,
            size: Some(Range::fixed(entries.len() as u64)),
            inside,
            path: Path::None,
        }
    }

    /// The elements of an indexed list or map.
    pub(crate) fn element(&self, of: &Known<'a>, ty: &Ty) -> (Path<'a>, Option<Range>) {
        let path = self.step(of.path, Step::Value);
        let size = of.inside.map(|i| i.value).or_else(|| Self::size(path, ty));
        (path, size)
    }

    fn run_loop(&mut self, l: &'a Loop, node: &'a Node) -> Known<'a> {
        match l.kind {
            LoopKind::OptMap | LoopKind::OptFlatMap => return self.optional(l, node),
            LoopKind::SortBy => return self.sort_by(l),
            _ => {}
        }
        let range = self.node(&l.range);
        self.bind(l, &range);
        let body = self.node(&l.body);
        let filter = l.filter.as_ref().map(|f| self.node(f).cost);
        self.unbind(l);
        self.looped(l, &range, &body, filter, node)
    }

    fn bind(&mut self, l: &'a Loop, range: &Known<'a>) {
        let list = range.inside.map_or(matches!(l.range.ty, Ty::List(_)), |i| i.list);
        let first_step = if list { Step::Index } else { Step::Key };
        let value = Local {
            path: self.step(range.path, Step::Value),
            size: range.inside.map(|i| i.value),
            inside: None,
        };
        let key = Local {
            path: self.step(range.path, first_step),
            size: range.inside.map(|i| i.key),
            inside: None,
        };
        match l.second {
            Some(second) => {
                self.locals.insert(l.first, key);
                self.locals.insert(second, value);
            }
            None => {
                self.locals.insert(l.first, if list { value } else { key });
            }
        }
    }

    fn unbind(&mut self, l: &Loop) {
        self.locals.remove(&l.first);
        if let Some(second) = l.second {
            self.locals.remove(&second);
        }
    }

    /// The cost of a loop: of its range, its start, its rounds and its result.
    fn looped(
        &mut self,
        l: &'a Loop,
        range: &Known<'a>,
        body: &Known<'a>,
        filter: Option<Range>,
        node: &'a Node,
    ) -> Known<'a> {
        let kept = Range::ONE;
        let (init, round, result) = match l.kind {
            LoopKind::All => (0, logic_round(2, body.cost), 1),
            LoopKind::Exists => (0, logic_round(3, body.cost), 1),
            LoopKind::ExistsOne => (0, body.cost.plus(Range::fixed(2).union(kept)), 2),
            LoopKind::Filter => (crate::cost::LIST, body.cost.plus(Range::fixed(13).union(kept)), 1),
            LoopKind::TransformMap => (
                crate::cost::MAP,
                filtered(filter, body.cost.plus(Range::fixed(3))),
                1,
            ),
            LoopKind::TransformMapEntry => (
                crate::cost::MAP,
                filtered(filter, body.cost.plus(Range::fixed(2))),
                1,
            ),
            _ => (
                crate::cost::LIST,
                filtered(filter, body.cost.plus(Range::fixed(12))),
                1,
            ),
        };
        let count = range.size_or_unknown();
        let cost = range
            .cost
            .plus(Range::fixed(init + result))
            .plus(count.times(round));
        match l.kind {
            LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne => Known {
                cost,
                size: Some(Range::ONE),
                inside: None,
                path: Path::None,
            },
            LoopKind::TransformMap | LoopKind::TransformMapEntry => Known {
                cost,
                size: Some(count),
                inside: None,
                path: Path::None,
            },
            LoopKind::Filter => {
                let element = self.filtered_element(l, range, node);
                Known {
                    cost,
                    size: Some(count),
                    inside: Some(grown(element)),
                    path: Path::None,
                }
            }
            _ => Known {
                cost,
                size: Some(count),
                inside: Some(grown(body.size_or_unknown())),
                path: Path::None,
            },
        }
    }

    /// The size of an element that a filter lets pass.
    fn filtered_element(&self, l: &Loop, range: &Known<'a>, node: &Node) -> Range {
        let element_ty = match &node.ty {
            Ty::List(e) => (**e).clone(),
            _ => Ty::Dyn,
        };
        let list = range.inside.map_or(matches!(l.range.ty, Ty::List(_)), |i| i.list);
        let path = self.step(range.path, if list { Step::Value } else { Step::Key });
        Self::size(path, &element_ty)
            .or_else(|| range.inside.map(|i| if i.list { i.value } else { i.key }))
            .unwrap_or(Range::UNKNOWN)
    }

    /// `sortBy` binds its list, maps it to keys and sorts by them.
    fn sort_by(&mut self, l: &'a Loop) -> Known<'a> {
        let range = self.node(&l.range);
        self.bind(l, &range);
        let body = self.node(&l.body);
        self.unbind(l);
        let count = range.size_or_unknown();
        let keys =
            Range::fixed(1 + crate::cost::LIST + 1).plus(count.times(body.cost.plus(Range::fixed(12))));
        let squared = count.times(count);
        let factor = if matches!(l.body.ty, Ty::String | Ty::Bytes) {
            2.1
        } else {
            2.0
        };
        let sort = squared.scaled(factor).plus(Range::fixed(1 + crate::cost::LIST));
        let cost = Range::fixed(crate::cost::LIST + 1)
            .plus(range.cost)
            .plus(keys)
            .plus(sort);
        Known {
            cost,
            size: Some(squared),
            inside: None,
            path: Path::None,
        }
    }

    /// `optMap` and `optFlatMap` look at the optional twice and bind its value.
    fn optional(&mut self, l: &'a Loop, node: &'a Node) -> Known<'a> {
        let target = self.node(&l.range);
        let value_ty = l.range.ty.unwrap_optional().cloned().unwrap_or(Ty::Dyn);
        let value = Local {
            path: Path::None,
            size: Self::size(Path::None, &value_ty),
            inside: None,
        };
        self.locals.insert(l.first, value);
        let body = self.node(&l.body);
        self.locals.remove(&l.first);
        let bound = Range::fixed(crate::cost::LIST + 1)
            .plus(target.cost)
            .plus(body.cost);
        let yes = if l.kind == LoopKind::OptMap {
            bound.plus(Range::ONE)
        } else {
            bound
        };
        let cost = target.cost.plus(Range::ONE).plus(yes.union(Range::ONE));
        Self::known(cost, Path::None, &node.ty)
    }
}

/// A step along a path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'s> {
    Value,
    Key,
    Index,
    Field(&'s str),
}

/// A round of `all` or `exists`: the condition, the accumulated value, perhaps the body.
fn logic_round(condition: u64, body: Range) -> Range {
    let step = Range {
        min: 1,
        max: body.max.saturating_add(1),
    };
    step.plus(Range::fixed(condition))
}

fn filtered(filter: Option<Range>, round: Range) -> Range {
    match filter {
        Some(condition) => condition.plus(round.union(Range::ONE)),
        None => round,
    }
}

/// The inside of a list that started empty and got elements of a size.
fn grown(element: Range) -> Inside {
    Inside {
        list: true,
        key: Range::ONE,
        value: Range::ZERO.union(element),
    }
}

pub(crate) fn joined(a: Option<Inside>, b: Option<Inside>) -> Option<Inside> {
    let (a, b) = (a?, b?);
    Some(Inside {
        list: a.list,
        key: a.key.union(b.key),
        value: a.value.union(b.value),
    })
}

/// Whether all values of a type have the same size.
fn fixed_size(ty: &Ty) -> bool {
    match ty {
        Ty::Bool | Ty::Double | Ty::Duration | Ty::Int | Ty::Timestamp | Ty::Uint => true,
        other => other.unwrap_optional().is_some_and(fixed_size),
    }
}
