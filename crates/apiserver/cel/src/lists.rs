// SPDX-License-Identifier: Apache-2.0
//! The list and set libraries.

use std::cmp::Ordering;

use crate::cost;
use crate::eval::{BYTES_PER_WORK, Fail, Machine, R, no_overload};
use crate::node::Call;
use crate::ops;
use crate::ty::Ty;
use crate::value::{List, Value};

impl<'a> Machine<'a> {
    /// Functions whose first argument, or receiver, is a list.
    pub(crate) fn list_function(
        &mut self,
        call: &'a Call,
        list: &List<'a>,
        rest: &[Value<'a>],
    ) -> R<Option<Value<'a>>> {
        self.work(list.len() as u64)?;
        let name = call.name;
        Ok(Some(match (name, rest) {
            ("isSorted", []) => Value::Bool(is_sorted(list)?),
            ("sum", []) => sum(call, list)?,
            ("min", []) => extreme(name, list, Ordering::Less)?,
            ("max", []) => extreme(name, list, Ordering::Greater)?,
            ("indexOf", [item]) => self.position(list, item, false)?,
            ("lastIndexOf", [item]) => self.position(list, item, true)?,
            ("join", []) => self.join(list, "")?,
            ("join", [Value::Str(separator)]) => self.join(list, separator.as_str())?,
            ("slice", [Value::Int(start), Value::Int(end)]) => slice(list, *start, *end)?,
            ("flatten", []) => self.flatten(list, 1)?,
            ("flatten", [Value::Int(depth)]) if *depth < 0 => {
                return Err(Fail::error("level must be non-negative"));
            }
            ("flatten", [Value::Int(depth)]) => self.flatten(list, *depth)?,
            ("sort", []) => sort(list)?,
            ("distinct", []) => self.distinct(list)?,
            ("reverse", []) => Value::list(list.items()?.into_iter().rev().collect()),
            ("first", []) => ends(list.get(0))?,
            ("last", []) => ends(list.len().checked_sub(1).and_then(|i| list.get(i)))?,
            ("optional.unwrap" | "unwrapOpt", []) => unwrap(list)?,
            ("sets.contains", [Value::List(other)]) => Value::Bool(self.contains_all(other, list)?),
            ("sets.equivalent", [Value::List(other)]) => {
                Value::Bool(self.contains_all(other, list)? && self.contains_all(list, other)?)
            }
            ("sets.intersects", [Value::List(other)]) => Value::Bool(self.intersects(list, other)?),
            _ => return Ok(None),
        }))
    }

    fn position(&mut self, list: &List<'a>, item: &Value<'a>, from_end: bool) -> R<Value<'a>> {
        let places: Box<dyn Iterator<Item = usize>> = if from_end {
            Box::new((0..list.len()).rev())
        } else {
            Box::new(0..list.len())
        };
        for i in places {
            if let Some(value) = list.get(i)
                && self.equal(&value?, item)?
            {
                return Ok(Value::Int(i as i64));
            }
        }
        Ok(Value::Int(-1))
    }

    fn join(&mut self, list: &List<'a>, separator: &str) -> R<Value<'a>> {
        let items = list.items()?;
        let mut parts = Vec::with_capacity(items.len());
        let mut size = items.len().saturating_sub(1) as u64 * separator.chars().count() as u64;
        for item in &items {
            let Value::Str(s) = item else {
                return Err(Fail::Error(format!(
                    "join: invalid input: {}",
                    crate::render::plain(item)
                )));
            };
            self.work(1 + s.as_str().len() as u64 / BYTES_PER_WORK)?;
            size = size.saturating_add(s.as_str().chars().count() as u64);
            parts.push(s.as_str());
        }
        // Charged before it is made, so that the text cannot grow out of hand.
        self.charge(cost::tenth(size.saturating_mul(2)))?;
        Ok(Value::owned(parts.join(separator)))
    }

    fn flatten(&mut self, list: &List<'a>, depth: i64) -> R<Value<'a>> {
        let mut out = Vec::new();
        self.flatten_into(list, depth, &mut out)?;
        Ok(Value::list(out))
    }

    fn flatten_into(&mut self, list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) -> R<()> {
        for item in list.iter() {
            self.work(1)?;
            match item? {
                Value::List(inner) if depth > 0 => self.flatten_into(&inner, depth - 1, out)?,
                other => out.push(other),
            }
        }
        Ok(())
    }

    fn distinct(&mut self, list: &List<'a>) -> R<Value<'a>> {
        let mut out: Vec<Value<'a>> = Vec::new();
        let mut index = std::collections::BTreeSet::new();
        for item in list.iter() {
            let item = item?;
            if !self.among(&item, &out, &index)? {
                index.extend(item.key());
                out.push(item);
            }
        }
        Ok(Value::list(out))
    }

    fn intersects(&mut self, a: &List<'a>, b: &List<'a>) -> R<bool> {
        let items = b.items()?;
        let index = self.keys_of(&items)?;
        for x in a.iter() {
            if self.among(&x?, &items, &index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_sorted(list: &List<'_>) -> R<bool> {
    let mut previous: Option<Value<'_>> = None;
    for item in list.iter() {
        let item = item?;
        if let Some(p) = &previous
            && ops::compare(p, &item)? == Ordering::Greater
        {
            return Ok(false);
        }
        previous = Some(item);
    }
    Ok(true)
}

fn sum<'a>(call: &Call, list: &List<'a>) -> R<Value<'a>> {
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        total = Some(match total {
            None => item,
            Some(t) => ops::add(&t, &item)?,
        });
    }
    // An empty list sums up to the zero of its declared type.
    let zero = match call.overloads.first().map(|o| &o.result) {
        Some(Ty::Uint) => Value::Uint(0),
        Some(Ty::Double) => Value::Double(0.0),
        Some(Ty::Duration) => Value::Duration(0),
        _ => Value::Int(0),
    };
    Ok(total.unwrap_or(zero))
}

fn extreme<'a>(name: &str, list: &List<'a>, wanted: Ordering) -> R<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        let better = match &best {
            None => true,
            Some(b) => ops::compare(&item, b)? == wanted,
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Fail::Error(format!("{name} called on empty list")))
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> R<Value<'a>> {
    let fail = |why: String| Err(Fail::Error(format!("cannot slice({start}, {end}), {why}")));
    if start < 0 || end < 0 {
        return fail("negative indexes not supported".into());
    }
    if start > end {
        return fail("start index must be less than or equal to end index".into());
    }
    if end > list.len() as i64 {
        return fail(format!("list is length {}", list.len()));
    }
    let items: Result<Vec<_>, String> = list
        .iter()
        .skip(start as usize)
        .take((end - start) as usize)
        .collect();
    Ok(Value::list(items?))
}

fn sort<'a>(list: &List<'a>) -> R<Value<'a>> {
    let mut items = list.items()?;
    let mut failed = None;
    items.sort_by(|a, b| match ops::compare(a, b) {
        Ok(order) => order,
        Err(e) => {
            failed = Some(e);
            Ordering::Equal
        }
    });
    match failed {
        Some(e) => Err(e),
        None => Ok(Value::list(items)),
    }
}

fn ends(item: Option<Result<Value<'_>, String>>) -> R<Value<'_>> {
    match item {
        Some(value) => Ok(Value::some(value?)),
        None => Ok(Value::none()),
    }
}

fn unwrap<'a>(list: &List<'a>) -> R<Value<'a>> {
    let mut out = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(inner)) => out.push((*inner).clone()),
            Value::Optional(None) => {}
            _ => return Err(no_overload()),
        }
    }
    Ok(Value::list(out))
}
