// SPDX-License-Identifier: Apache-2.0
//! Loops of the evaluator. The reference expands them to steps over an accumulator; here each is
//! run directly, and charged what those steps would cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cost;
use crate::eval::{Fail, Machine, R, no_overload};
use crate::node::{Loop, LoopKind, Node};
use crate::ops;
use crate::value::{List, Map, Value};

/// What a loop runs over.
enum Range<'a> {
    List(List<'a>),
    Map(Map<'a>, Vec<Value<'a>>),
}

impl<'a> Range<'a> {
    fn of(value: Value<'a>) -> R<Range<'a>> {
        match value {
            Value::List(list) => Ok(Range::List(list)),
            Value::Map(map) => {
                let keys = map.keys();
                Ok(Range::Map(map, keys))
            }
            other => Err(Fail::Error(format!(
                "got '{}', expected iterable type",
                go_name(&other)
            ))),
        }
    }

    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Map(_, keys) => keys.len(),
        }
    }

    /// The key (or index) and element at a place.
    fn at(&self, i: usize, two: bool) -> R<(Value<'a>, Value<'a>)> {
        match self {
            Range::List(list) => match list.get(i) {
                Some(value) => Ok((Value::Int(i as i64), value?)),
                None => Err(Fail::error("index out of bounds")),
            },
            Range::Map(map, keys) => {
                let key = keys.get(i).cloned().unwrap_or(Value::Null);
                if !two {
                    return Ok((Value::Null, key));
                }
                match map.get(&key) {
                    Some(value) => Ok((key, value?)),
                    None => Err(Fail::Error(format!(
                        "no such key: {}",
                        crate::render::plain(&key)
                    ))),
                }
            }
        }
    }
}

impl<'a> Machine<'a> {
    #[inline(never)]
    pub(crate) fn run_loop(&mut self, l: &'a Loop) -> R<Value<'a>> {
        if matches!(l.kind, LoopKind::OptMap | LoopKind::OptFlatMap) {
            return self.optional_map(l);
        }
        let range = self.eval(&l.range)?;
        let range = Range::of(range)?;
        if let Range::Map(_, keys) = &range {
            self.work(keys.len() as u64)?;
        }
        match l.kind {
            LoopKind::All => self.quantify(l, &range, false),
            LoopKind::Exists => self.quantify(l, &range, true),
            LoopKind::ExistsOne => self.exactly_one(l, &range),
            LoopKind::SortBy => self.sort_by(l, &range),
            LoopKind::TransformMap | LoopKind::TransformMapEntry => self.transform_map(l, &range),
            _ => self.collect(l, &range),
        }
    }

    fn bind(&mut self, l: &Loop, range: &Range<'a>, i: usize) -> R<()> {
        let (key, element) = range.at(i, l.second.is_some())?;
        match l.second {
            Some(second) => {
                self.set(l.first, key);
                self.set(second, element);
            }
            None => self.set(l.first, element),
        }
        Ok(())
    }

    /// `all` and `exists`: a deciding element wins over errors of others.
    fn quantify(&mut self, l: &'a Loop, range: &Range<'a>, decides: bool) -> R<Value<'a>> {
        let mut failed = None;
        for i in 0..range.len() {
            self.charge(if decides {
                cost::EXISTS_STEP
            } else {
                cost::ALL_STEP
            })?;
            self.bind(l, range, i)?;
            match self.truth(&l.body) {
                Ok(b) if b == decides => {
                    let check = if decides {
                        cost::EXISTS_CHECK
                    } else {
                        cost::ALL_CHECK
                    };
                    self.charge(if i + 1 < range.len() { check + 1 } else { 1 })?;
                    return Ok(Value::Bool(decides));
                }
                Ok(_) => {}
                Err(Fail::Budget) => return Err(Fail::Budget),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        self.charge(1)?;
        match failed {
            Some(e) => Err(e),
            None => Ok(Value::Bool(!decides)),
        }
    }

    fn exactly_one(&mut self, l: &'a Loop, range: &Range<'a>) -> R<Value<'a>> {
        let mut count = 0_u64;
        for i in 0..range.len() {
            self.bind(l, range, i)?;
            if self.truth(&l.body)? {
                self.charge(2)?;
                count += 1;
            }
        }
        self.charge(2)?;
        Ok(Value::Bool(count == 1))
    }

    /// `map`, `filter` and `transformList`.
    fn collect(&mut self, l: &'a Loop, range: &Range<'a>) -> R<Value<'a>> {
        let mut out = Vec::new();
        for i in 0..range.len() {
            self.bind(l, range, i)?;
            if l.kind == LoopKind::Filter {
                if self.truth(&l.body)? {
                    self.charge(cost::FILTER_STEP)?;
                    let (_, element) = range.at(i, false)?;
                    out.push(element);
                }
                continue;
            }
            if self.passes(l.filter.as_ref())? {
                let value = self.eval(&l.body)?;
                self.charge(cost::MAP_STEP)?;
                out.push(value);
            }
        }
        self.charge(1)?;
        Ok(Value::list(out))
    }

    fn passes(&mut self, filter: Option<&'a Node>) -> R<bool> {
        filter.map_or(Ok(true), |f| self.truth(f))
    }

    fn transform_map(&mut self, l: &'a Loop, range: &Range<'a>) -> R<Value<'a>> {
        let mut out = BTreeMap::new();
        for i in 0..range.len() {
            self.bind(l, range, i)?;
            if !self.passes(l.filter.as_ref())? {
                continue;
            }
            let value = self.eval(&l.body)?;
            self.charge(if l.kind == LoopKind::TransformMap { 3 } else { 2 })?;
            if l.kind == LoopKind::TransformMap {
                let (key, _) = range.at(i, true)?;
                insert(&mut out, key, value)?;
                continue;
            }
            let Value::Map(entries) = &value else {
                return Err(no_overload());
            };
            for key in entries.keys() {
                if let Some(value) = entries.get(&key) {
                    self.work(1)?;
                    insert(&mut out, key, value?)?;
                }
            }
        }
        self.charge(1)?;
        Ok(Value::Map(Map::Owned(Arc::new(out))))
    }

    fn sort_by(&mut self, l: &'a Loop, range: &Range<'a>) -> R<Value<'a>> {
        let Range::List(_) = range else {
            return Err(no_overload());
        };
        let mut keyed = Vec::with_capacity(range.len());
        for i in 0..range.len() {
            self.bind(l, range, i)?;
            let key = self.eval(&l.body)?;
            self.charge(cost::MAP_STEP)?;
            keyed.push((key, range.at(i, false)?.1));
        }
        let keys = Value::list(keyed.iter().map(|(k, _)| k.clone()).collect());
        self.charge(cost::self_compared(Some(&keys)).saturating_add(3))?;
        let mut failed = None;
        keyed.sort_by(|(a, _), (b, _)| match ops::compare(a, b) {
            Ok(order) => order,
            Err(e) => {
                failed = Some(e);
                std::cmp::Ordering::Equal
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        Ok(Value::list(keyed.into_iter().map(|(_, v)| v).collect()))
    }

    /// `optMap` and `optFlatMap`; the reference looks at the optional a second time for its value.
    fn optional_map(&mut self, l: &'a Loop) -> R<Value<'a>> {
        let before = self.cost;
        let target = self.eval(&l.range)?;
        let again = self.cost.saturating_sub(before);
        let inner = match target {
            Value::Optional(Some(inner)) => inner,
            Value::Optional(None) => {
                self.charge(2)?;
                return Ok(Value::none());
            }
            _ => return Err(no_overload()),
        };
        self.charge(again.saturating_add(2))?;
        self.set(l.first, (*inner).clone());
        let value = self.eval(&l.body)?;
        if l.kind == LoopKind::OptFlatMap {
            return Ok(value);
        }
        self.charge(1)?;
        Ok(Value::some(value))
    }
}

fn insert<'a>(
    out: &mut BTreeMap<crate::value::Key, (Value<'a>, Value<'a>)>,
    key: Value<'a>,
    value: Value<'a>,
) -> R<()> {
    let Some(k) = key.key() else {
        return Err(Fail::Error(format!("unsupported key type: {}", key.type_name())));
    };
    let shown = crate::render::plain(&key);
    if out.insert(k, (key, value)).is_some() {
        return Err(Fail::Error(format!("insert failed: key {shown} already exists")));
    }
    Ok(())
}

/// What the reference calls the value's implementation in its message.
fn go_name(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::Str(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::List(_) | Value::Map(_) | Value::Opaque(_) => "ref.Val",
    }
}
