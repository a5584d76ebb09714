// SPDX-License-Identifier: Apache-2.0
//! The function table: every operator and function that Kubernetes offers to rules, with its
//! overloads. The table is written as text so that it can be compared with the documentation
//! line by line; whatever is not in it is refused when a rule is registered.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::ty::{OPTIONAL, Ty};

/// One overload of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) member: bool,
    pub(crate) args: Vec<Ty>,
    pub(crate) result: Ty,
    pub(crate) params: Vec<char>,
}

/// A function and its overloads.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

/// One line per function and style: `name(args) result`, a leading `T.` marks the receiver.
/// A `|` separates overloads; `@` names a family that is spelled out below.
const TABLE: &str = "
_?_:_ (bool, A, A) A
!_ (bool) bool
_&&_ (bool, bool) bool
_||_ (bool, bool) bool
_==_ (A, A) bool
_!=_ (A, A) bool
_+_ (bytes, bytes) bytes | (double, double) double | (duration, duration) duration | (duration, timestamp) timestamp | (timestamp, duration) timestamp | (int, int) int | (list<A>, list<A>) list<A> | (string, string) string | (uint, uint) uint
_-_ (double, double) double | (duration, duration) duration | (int, int) int | (timestamp, duration) timestamp | (timestamp, timestamp) duration | (uint, uint) uint
_*_ (double, double) double | (int, int) int | (uint, uint) uint
_/_ (double, double) double | (int, int) int | (uint, uint) uint
_%_ (int, int) int | (uint, uint) uint
-_ (double) double | (int) int
_<_ @ordered
_<=_ @ordered
_>_ @ordered
_>=_ @ordered
_[_] (list<A>, int) A | (map<A, B>, A) B | (optional<list<A>>, int) optional<A> | (optional<map<A, B>>, A) optional<B>
_[?_] (list<A>, int) optional<A> | (optional<list<A>>, int) optional<A> | (map<A, B>, A) optional<B> | (optional<map<A, B>>, A) optional<B>
@in (A, list<A>) bool | (A, map<A, B>) bool
size (bytes) int | bytes.() int | (list<A>) int | list<A>.() int | (map<A, B>) int | map<A, B>.() int | (string) int | string.() int
type (A) type<A>
bool (bool) bool | (string) bool
bytes (bytes) bytes | (string) bytes
double (double) double | (int) double | (string) double | (uint) double
duration (duration) duration | (string) duration
dyn (A) dyn
int (int) int | (double) int | (duration) int | (string) int | (timestamp) int | (uint) int
string (string) string | (bool) string | (bytes) string | (double) string | (duration) string | (int) string | (timestamp) string | (uint) string | (net.IP) string | (net.CIDR) string
timestamp (timestamp) timestamp | (int) timestamp | (string) timestamp
uint (uint) uint | (double) uint | (int) uint | (string) uint
contains string.(string) bool
endsWith string.(string) bool
startsWith string.(string) bool
matches (string, string) bool | string.(string) bool
getFullYear timestamp.() int | timestamp.(string) int
getMonth timestamp.() int | timestamp.(string) int
getDayOfYear timestamp.() int | timestamp.(string) int
getDayOfMonth timestamp.() int | timestamp.(string) int
getDate timestamp.() int | timestamp.(string) int
getDayOfWeek timestamp.() int | timestamp.(string) int
getHours timestamp.() int | timestamp.(string) int | duration.() int
getMinutes timestamp.() int | timestamp.(string) int | duration.() int
getSeconds timestamp.() int | timestamp.(string) int | duration.() int
getMilliseconds timestamp.() int | timestamp.(string) int | duration.() int
charAt string.(int) string
indexOf string.(string) int | string.(string, int) int | list<A>.(A) int
lastIndexOf string.(string) int | string.(string, int) int | list<A>.(A) int
lowerAscii string.() string
upperAscii string.() string
replace string.(string, string) string | string.(string, string, int) string
split string.(string) list<string> | string.(string, int) list<string>
substring string.(int) string | string.(int, int) string
trim string.() string
format string.(list<dyn>) string
strings.quote (string) string
jsonpatch.escapeKey (string) string
join list<string>.() string | list<string>.(string) string
sets.contains (list<A>, list<A>) bool
sets.equivalent (list<A>, list<A>) bool
sets.intersects (list<A>, list<A>) bool
slice list<A>.(int, int) list<A>
flatten list<list<A>>.() list<A> | list<dyn>.(int) list<dyn>
sort @sort
distinct list<A>.() list<A>
reverse list<A>.() list<A>
lists.range (int) list<int>
first list<A>.() optional<A>
last list<A>.() optional<A>
isSorted @sorted
sum @sum
min @extreme
max @extreme
find string.(string) string
findAll string.(string) list<string> | string.(string, int) list<string>
url (string) kubernetes.URL
isURL (string) bool
getScheme kubernetes.URL.() string
getHost kubernetes.URL.() string
getHostname kubernetes.URL.() string
getPort kubernetes.URL.() string
getEscapedPath kubernetes.URL.() string
getQuery kubernetes.URL.() map<string, list<string>>
ip (string) net.IP | net.CIDR.() net.IP
isIP (string) bool
ip.isCanonical (string) bool
family net.IP.() int
isUnspecified net.IP.() bool
isLoopback net.IP.() bool
isLinkLocalMulticast net.IP.() bool
isLinkLocalUnicast net.IP.() bool
isGlobalUnicast net.IP.() bool
cidr (string) net.CIDR
isCIDR (string) bool
containsIP net.CIDR.(string) bool | net.CIDR.(net.IP) bool
containsCIDR net.CIDR.(string) bool | net.CIDR.(net.CIDR) bool
prefixLength net.CIDR.() int
masked net.CIDR.() net.CIDR
quantity (string) kubernetes.Quantity
isQuantity (string) bool
sign (kubernetes.Quantity) int
isGreaterThan kubernetes.Quantity.(kubernetes.Quantity) bool | kubernetes.Semver.(kubernetes.Semver) bool
isLessThan kubernetes.Quantity.(kubernetes.Quantity) bool | kubernetes.Semver.(kubernetes.Semver) bool
compareTo kubernetes.Quantity.(kubernetes.Quantity) int | kubernetes.Semver.(kubernetes.Semver) int
asApproximateFloat kubernetes.Quantity.() double
asInteger kubernetes.Quantity.() int
isInteger kubernetes.Quantity.() bool
add kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity | kubernetes.Quantity.(int) kubernetes.Quantity
sub kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity | kubernetes.Quantity.(int) kubernetes.Quantity
semver (string) kubernetes.Semver | (string, bool) kubernetes.Semver
isSemver (string) bool | (string, bool) bool
major kubernetes.Semver.() int
minor kubernetes.Semver.() int
patch kubernetes.Semver.() int
format.named (string) optional<kubernetes.NamedFormat>
validate kubernetes.NamedFormat.(string) optional<list<string>>
optional.of (A) optional<A>
optional.ofNonZeroValue (A) optional<A>
optional.none () optional<A>
optional.unwrap (list<optional<A>>) list<A>
unwrapOpt list<optional<A>>.() list<A>
value optional<A>.() A
hasValue optional<A>.() bool
or optional<A>.(optional<A>) optional<A>
orValue optional<A>.(A) A
path kubernetes.authorization.Authorizer.(string) kubernetes.authorization.PathCheck
group kubernetes.authorization.Authorizer.(string) kubernetes.authorization.GroupCheck
serviceAccount kubernetes.authorization.Authorizer.(string, string) kubernetes.authorization.Authorizer
resource kubernetes.authorization.GroupCheck.(string) kubernetes.authorization.ResourceCheck
subresource kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
namespace kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
name kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
fieldSelector kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
labelSelector kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.ResourceCheck
check kubernetes.authorization.PathCheck.(string) kubernetes.authorization.Decision | kubernetes.authorization.ResourceCheck.(string) kubernetes.authorization.Decision
allowed kubernetes.authorization.Decision.() bool
reason kubernetes.authorization.Decision.() string
errored kubernetes.authorization.Decision.() bool
error kubernetes.authorization.Decision.() string
";

/// Formats, each with a function of its own: `format.<name>()`.
pub(crate) const FORMATS: [&str; 13] = [
    "format.dns1123Label",
    "format.dns1123Subdomain",
    "format.dns1035Label",
    "format.qualifiedName",
    "format.dns1123LabelPrefix",
    "format.dns1123SubdomainPrefix",
    "format.dns1035LabelPrefix",
    "format.labelValue",
    "format.uri",
    "format.uuid",
    "format.byte",
    "format.date",
    "format.datetime",
];

const ORDERED: [&str; 14] = [
    "(bool, bool) bool",
    "(int, int) bool",
    "(int, double) bool",
    "(int, uint) bool",
    "(uint, uint) bool",
    "(uint, double) bool",
    "(uint, int) bool",
    "(double, double) bool",
    "(double, int) bool",
    "(double, uint) bool",
    "(string, string) bool",
    "(bytes, bytes) bool",
    "(timestamp, timestamp) bool",
    "(duration, duration) bool",
];

const COMPARABLE: [&str; 8] = [
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "string",
    "bytes",
];
const SUMMABLE: [&str; 4] = ["int", "uint", "double", "duration"];

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(build);

/// Looks a function up by its full name; a leading dot is the root container.
pub(crate) fn lookup(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name.strip_prefix('.').unwrap_or(name))
}

fn build() -> HashMap<&'static str, Function> {
    let mut all = HashMap::new();
    for line in TABLE.lines().filter(|l| !l.is_empty()) {
        let Some((name, rest)) = line.split_once(' ') else {
            continue;
        };
        let overloads = match rest {
            "@ordered" => ORDERED.iter().filter_map(|o| overload(o)).collect(),
            "@sort" => each(&COMPARABLE, "list<X>.() list<X>"),
            "@sorted" => each(&COMPARABLE, "list<X>.() bool"),
            "@extreme" => each(&COMPARABLE, "list<X>.() X"),
            "@sum" => each(&SUMMABLE, "list<X>.() X"),
            _ => rest.split('|').filter_map(|o| overload(o.trim())).collect(),
        };
        all.insert(name, Function { name, overloads });
    }
    for name in FORMATS {
        let overloads = overload("() kubernetes.NamedFormat").into_iter().collect();
        all.insert(name, Function { name, overloads });
    }
    all
}

fn each(types: &[&str], pattern: &str) -> Vec<Overload> {
    types
        .iter()
        .filter_map(|t| overload(&pattern.replace('X', t)))
        .collect()
}

/// Parses `[receiver.](args) result`.
fn overload(text: &str) -> Option<Overload> {
    let open = text.find('(')?;
    let close = text.find(')')?;
    let receiver = text.get(..open)?.strip_suffix('.');
    let mut args = Vec::new();
    if let Some(r) = receiver {
        args.push(ty(r)?);
    }
    for part in split_top(text.get(open + 1..close)?) {
        args.push(ty(part)?);
    }
    let result = ty(text.get(close + 1..)?)?;
    let mut params = Vec::new();
    for arg in &args {
        arg.params(&mut params);
    }
    result.params(&mut params);
    Some(Overload {
        member: receiver.is_some(),
        args,
        result,
        params,
    })
}

/// Splits at commas outside angle brackets.
fn split_top(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

fn ty(text: &str) -> Option<Ty> {
    let text = text.trim();
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|t| t.split_once('<')) {
        let mut inner = split_top(inner)
            .into_iter()
            .map(ty)
            .collect::<Option<Vec<_>>>()?
            .into_iter();
        let first = inner.next()?;
        return match outer {
            "list" => Some(Ty::list(first)),
            "map" => Some(Ty::map(first, inner.next()?)),
            "optional" => Some(Ty::Opaque(OPTIONAL, vec![first])),
            "type" => Some(Ty::type_of(first)),
            _ => None,
        };
    }
    Some(match text {
        "dyn" => Ty::Dyn,
        "bool" => Ty::Bool,
        "int" => Ty::Int,
        "uint" => Ty::Uint,
        "double" => Ty::Double,
        "string" => Ty::String,
        "bytes" => Ty::Bytes,
        "timestamp" => Ty::Timestamp,
        "duration" => Ty::Duration,
        "A" => Ty::Param('A'),
        "B" => Ty::Param('B'),
        other => Ty::Opaque(opaque(other)?, Vec::new()),
    })
}

/// The Kubernetes types that rules can name. Those of the authorizer are known everywhere so that
/// messages are right; only expressions of admission have an `authorizer`.
pub(crate) fn opaque(name: &str) -> Option<&'static str> {
    [
        "kubernetes.URL",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "kubernetes.NamedFormat",
        "net.IP",
        "net.CIDR",
        "kubernetes.authorization.Authorizer",
        "kubernetes.authorization.PathCheck",
        "kubernetes.authorization.GroupCheck",
        "kubernetes.authorization.ResourceCheck",
        "kubernetes.authorization.Decision",
    ]
    .into_iter()
    .find(|n| *n == name)
}

#[cfg(test)]
mod tests {
    use super::{TABLE, lookup};

    #[test]
    fn every_line_of_the_table_is_understood() {
        for line in TABLE.lines().filter(|l| !l.is_empty()) {
            let (name, rest) = line.split_once(' ').expect("a name and overloads");
            let function = lookup(name).expect("declared");
            let wanted = if rest.starts_with('@') {
                4
            } else {
                rest.split('|').count()
            };
            assert!(function.overloads.len() >= wanted, "{line}");
        }
    }
}
