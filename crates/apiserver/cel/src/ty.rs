// SPDX-License-Identifier: Apache-2.0
//! Types of the static check, and when a value of one may stand where another is expected.
//! Type variables are bound while overloads are tried; a failed try leaves no binding behind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::decl::DeclType;

/// Fields of an object type, by JSON name.
pub(crate) type Fields = Arc<BTreeMap<String, Arc<DeclType>>>;

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

/// A type.
#[derive(Debug, Clone)]
pub(crate) enum Ty {
    Dyn,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Ty>),
    Map(Arc<Ty>, Arc<Ty>),
    Object(Arc<str>, Fields),
    Opaque(&'static str, Vec<Ty>),
    Type(Option<Arc<Ty>>),
    /// A parameter of a declaration, replaced by a variable before use.
    Param(char),
    /// A type variable.
    Var(usize),
}

impl Ty {
    pub(crate) fn list(element: Ty) -> Ty {
        Ty::List(Arc::new(element))
    }

    pub(crate) fn map(key: Ty, value: Ty) -> Ty {
        Ty::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(inner: Ty) -> Ty {
        Ty::Opaque(OPTIONAL, vec![inner])
    }

    pub(crate) fn type_of(inner: Ty) -> Ty {
        Ty::Type(Some(Arc::new(inner)))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Ty::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Ty::Dyn | Ty::Error)
    }

    /// The type inside an optional.
    pub(crate) fn unwrap_optional(&self) -> Option<&Ty> {
        match self {
            Ty::Opaque(OPTIONAL, params) => params.first(),
            _ => None,
        }
    }

    /// The type of a declared value.
    pub(crate) fn of(decl: &DeclType) -> Ty {
        match decl {
            DeclType::Dyn => Ty::Dyn,
            DeclType::Null => Ty::Null,
            DeclType::Bool => Ty::Bool,
            DeclType::Int => Ty::Int,
            DeclType::Uint => Ty::Uint,
            DeclType::Double => Ty::Double,
            DeclType::String { .. } => Ty::String,
            DeclType::Bytes { .. } => Ty::Bytes,
            DeclType::Timestamp => Ty::Timestamp,
            DeclType::Duration => Ty::Duration,
            DeclType::List { element, .. } => Ty::list(Ty::of(element)),
            DeclType::Map { value, .. } => Ty::map(Ty::String, Ty::of(value)),
            DeclType::Object { name, fields } => Ty::Object(Arc::from(name.as_str()), fields.clone()),
            DeclType::Authorizer => Ty::Opaque("kubernetes.authorization.Authorizer", Vec::new()),
            DeclType::ResourceCheck => Ty::Opaque("kubernetes.authorization.ResourceCheck", Vec::new()),
        }
    }

    /// Whether two types are the same.
    pub(crate) fn same(&self, other: &Ty) -> bool {
        match (self, other) {
            (Ty::List(a), Ty::List(b)) => a.same(b),
            (Ty::Map(ak, av), Ty::Map(bk, bv)) => ak.same(bk) && av.same(bv),
            (Ty::Object(a, _), Ty::Object(b, _)) => a == b,
            (Ty::Opaque(a, ap), Ty::Opaque(b, bp)) => {
                a == b && ap.len() == bp.len() && ap.iter().zip(bp).all(|(x, y)| x.same(y))
            }
            (Ty::Type(a), Ty::Type(b)) => match (a, b) {
                (Some(a), Some(b)) => a.same(b),
                (None, None) => true,
                _ => false,
            },
            (Ty::Param(a), Ty::Param(b)) => a == b,
            (Ty::Var(a), Ty::Var(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Whether null may stand for a value of this type.
    fn nullable(&self) -> bool {
        matches!(
            self,
            Ty::Null | Ty::Opaque(..) | Ty::Object(..) | Ty::Duration | Ty::Timestamp
        )
    }

    /// Replaces declaration parameters by variables.
    pub(crate) fn instantiate(&self, params: &[(char, Ty)]) -> Ty {
        match self {
            Ty::Param(p) => params
                .iter()
                .find(|(c, _)| c == p)
                .map_or(Ty::Dyn, |(_, t)| t.clone()),
            Ty::List(e) => Ty::list(e.instantiate(params)),
            Ty::Map(k, v) => Ty::map(k.instantiate(params), v.instantiate(params)),
            Ty::Opaque(n, ps) => Ty::Opaque(n, ps.iter().map(|p| p.instantiate(params)).collect()),
            Ty::Type(Some(t)) => Ty::type_of(t.instantiate(params)),
            other => other.clone(),
        }
    }

    /// The parameters used in a declaration.
    pub(crate) fn params(&self, into: &mut Vec<char>) {
        match self {
            Ty::Param(p) if !into.contains(p) => into.push(*p),
            Ty::List(e) => e.params(into),
            Ty::Map(k, v) => {
                k.params(into);
                v.params(into);
            }
            Ty::Opaque(_, ps) => ps.iter().for_each(|p| p.params(into)),
            Ty::Type(Some(t)) => t.params(into),
            _ => {}
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::Dyn => f.write_str("dyn"),
            Ty::Error => f.write_str("!error!"),
            Ty::Null => f.write_str("null"),
            Ty::Bool => f.write_str("bool"),
            Ty::Int => f.write_str("int"),
            Ty::Uint => f.write_str("uint"),
            Ty::Double => f.write_str("double"),
            Ty::String => f.write_str("string"),
            Ty::Bytes => f.write_str("bytes"),
            Ty::Timestamp => f.write_str("timestamp"),
            Ty::Duration => f.write_str("duration"),
            Ty::List(e) => write!(f, "list({e})"),
            Ty::Map(k, v) => write!(f, "map({k}, {v})"),
            Ty::Object(name, _) => f.write_str(name),
            Ty::Opaque(name, params) if params.is_empty() => f.write_str(name),
            Ty::Opaque(name, params) => {
                write!(f, "{name}(")?;
                for (i, p) in params.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{p}")?;
                }
                f.write_str(")")
            }
            Ty::Type(None) => f.write_str("type"),
            Ty::Type(Some(t)) => write!(f, "type({t})"),
            Ty::Param(p) => write!(f, "{p}"),
            Ty::Var(n) => write!(f, "_var{n}"),
        }
    }
}

/// Bindings of type variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<Ty>>,
}

impl Bindings {
    /// A new, unbound variable.
    pub(crate) fn fresh(&mut self) -> Ty {
        self.bound.push(None);
        Ty::Var(self.bound.len() - 1)
    }

    fn find(&self, ty: &Ty) -> Option<&Ty> {
        match ty {
            Ty::Var(n) => self.bound.get(*n).and_then(Option::as_ref),
            _ => None,
        }
    }

    fn bind(&mut self, var: &Ty, ty: Ty) {
        if let Ty::Var(n) = var
            && let Some(slot) = self.bound.get_mut(*n)
        {
            *slot = Some(ty);
        }
    }

    /// Replaces bound variables; unbound ones become dyn if asked for.
    pub(crate) fn resolve(&self, ty: &Ty, free_to_dyn: bool) -> Ty {
        if let Some(bound) = self.find(ty) {
            return self.resolve(bound, free_to_dyn);
        }
        match ty {
            Ty::Var(_) if free_to_dyn => Ty::Dyn,
            Ty::List(e) => Ty::list(self.resolve(e, free_to_dyn)),
            Ty::Map(k, v) => Ty::map(self.resolve(k, free_to_dyn), self.resolve(v, free_to_dyn)),
            Ty::Opaque(n, ps) => Ty::Opaque(n, ps.iter().map(|p| self.resolve(p, free_to_dyn)).collect()),
            Ty::Type(Some(t)) => Ty::type_of(self.resolve(t, free_to_dyn)),
            other => other.clone(),
        }
    }

    /// Whether `from` may stand where `to` is expected; binds variables if so.
    pub(crate) fn assign(&mut self, from: &Ty, to: &Ty) -> bool {
        let mut attempt = self.clone();
        let fits = attempt.fits(from, to);
        if fits {
            *self = attempt;
        }
        fits
    }

    /// The same for a list of arguments.
    pub(crate) fn assign_all(&mut self, from: &[Ty], to: &[Ty]) -> bool {
        if from.len() != to.len() {
            return false;
        }
        let mut attempt = self.clone();
        let fits = from.iter().zip(to).all(|(f, t)| attempt.fits(f, t));
        if fits {
            *self = attempt;
        }
        fits
    }

    fn fits(&mut self, from: &Ty, to: &Ty) -> bool {
        if matches!(to, Ty::Var(_)) {
            let (valid, bound) = self.substitutes(from, to);
            if valid {
                return true;
            }
            if bound {
                return false;
            }
        }
        if matches!(from, Ty::Var(_)) {
            return self.substitutes(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        if matches!(from, Ty::Null) {
            return to.nullable();
        }
        if matches!(to, Ty::Null) {
            return from.nullable();
        }
        match (from, to) {
            (Ty::List(a), Ty::List(b)) => self.fits(a, b),
            (Ty::Map(ak, av), Ty::Map(bk, bv)) => self.fits(ak, bk) && self.fits(av, bv),
            (Ty::Opaque(a, ap), Ty::Opaque(b, bp)) => {
                a == b && ap.len() == bp.len() && ap.iter().zip(bp).all(|(x, y)| self.fits(x, y))
            }
            (Ty::Type(_), Ty::Type(_)) => true,
            _ => from.same(to),
        }
    }

    /// Whether `ty` can be bound to `var`, and whether the variable was bound already.
    fn substitutes(&mut self, ty: &Ty, var: &Ty) -> (bool, bool) {
        if ty.same(var) {
            return (true, true);
        }
        if let Some(bound) = self.find(var).cloned() {
            if ty.same(&bound) {
                return (true, true);
            }
            if self.fits(ty, &bound) {
                let general = most_general(ty, &bound);
                if !self.occurs(var, &general) {
                    self.bind(var, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(var, ty) {
            return (false, false);
        }
        self.bind(var, ty.clone());
        (true, false)
    }

    fn occurs(&self, var: &Ty, within: &Ty) -> bool {
        if var.same(within) {
            return true;
        }
        match within {
            Ty::Var(_) => self.find(within).is_some_and(|bound| self.occurs(var, bound)),
            Ty::List(e) => self.occurs(var, e),
            Ty::Map(k, v) => self.occurs(var, k) || self.occurs(var, v),
            Ty::Opaque(_, ps) => ps.iter().any(|p| self.occurs(var, p)),
            Ty::Type(Some(t)) => self.occurs(var, t),
            _ => false,
        }
    }
}

/// The less specific of two types that fit each other.
pub(crate) fn most_general(a: &Ty, b: &Ty) -> Ty {
    if less_specific(a, b) { a.clone() } else { b.clone() }
}

fn less_specific(a: &Ty, b: &Ty) -> bool {
    if a.is_dyn() || matches!(a, Ty::Var(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Ty::Var(_)) {
        return false;
    }
    match (a, b) {
        (Ty::List(x), Ty::List(y)) => less_specific(x, y),
        (Ty::Map(xk, xv), Ty::Map(yk, yv)) => less_specific(xk, yk) && less_specific(xv, yv),
        (Ty::Opaque(n, xs), Ty::Opaque(m, ys)) => {
            n == m && xs.len() == ys.len() && xs.iter().zip(ys).all(|(x, y)| less_specific(x, y))
        }
        (Ty::Type(_), Ty::Type(_)) => true,
        _ => a.same(b),
    }
}
