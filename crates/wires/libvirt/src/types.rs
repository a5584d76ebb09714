// SPDX-License-Identifier: Apache-2.0
//! The structures calls and events carry. Field names follow libvirt's, units are in the names or the docs.

use std::fmt;

use uuid::Uuid;

use crate::limits;
use crate::xdr::{Decode, Decoder, Encode, Encoder, List, Opaque, XdrError, wire_struct};

wire_struct! {
    /// A domain as every call and event names it. The daemon looks it up by UUID only.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Domain {
        /// Name in libvirt.
        pub name: String,
        /// Identity.
        pub uuid: Uuid,
        /// Number while active, -1 otherwise.
        pub id: i32,
    }
}

impl Domain {
    /// A reference to a domain.
    pub fn new(name: impl Into<String>, uuid: Uuid, id: i32) -> Self {
        Self {
            name: name.into(),
            uuid,
            id,
        }
    }

    /// A reference that is good enough for a request, which only needs the UUID.
    pub fn by_uuid(uuid: Uuid) -> Self {
        Self::new("", uuid, -1)
    }

    /// Whether it had a live id when this reference was made.
    pub fn is_active(&self) -> bool {
        self.id >= 0
    }
}

wire_struct! {
    /// A network, as errors may name it.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Network {
        /// Name in libvirt.
        pub name: String,
        /// Identity.
        pub uuid: Uuid,
    }
}

/// How a daemon wants to be convinced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthType {
    /// Not at all.
    None,
    /// By SASL.
    Sasl,
    /// By polkit.
    Polkit,
    /// By something newer.
    Other(i32),
}

impl From<i32> for AuthType {
    fn from(raw: i32) -> Self {
        match raw {
            0 => Self::None,
            1 => Self::Sasl,
            2 => Self::Polkit,
            other => Self::Other(other),
        }
    }
}

impl From<AuthType> for i32 {
    fn from(auth: AuthType) -> Self {
        match auth {
            AuthType::None => 0,
            AuthType::Sasl => 1,
            AuthType::Polkit => 2,
            AuthType::Other(raw) => raw,
        }
    }
}

impl fmt::Display for AuthType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Sasl => f.write_str("sasl"),
            Self::Polkit => f.write_str("polkit"),
            Self::Other(raw) => write!(f, "unknown:{raw}"),
        }
    }
}

impl Encode for AuthType {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        i32::from(*self).encode(out)
    }
}

impl Decode for AuthType {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        i32::decode(input).map(Self::from)
    }
}

/// What the host is made of. `sockets` counts per NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// CPU model, at most 31 characters.
    pub model: String,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Active CPUs.
    pub cpus: i32,
    /// Nominal frequency.
    pub mhz: i32,
    /// NUMA nodes.
    pub nodes: i32,
    /// Sockets per node.
    pub sockets: i32,
    /// Cores per socket.
    pub cores: i32,
    /// Threads per core.
    pub threads: i32,
}

impl Encode for NodeInfo {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        // The last element stays the terminating zero of a C string, and no character is cut in half.
        let fits = |(at, letter): &(usize, char)| at + letter.len_utf8() < limits::NODE_MODEL;
        let end = self
            .model
            .char_indices()
            .take_while(fits)
            .map(|(at, letter)| at + letter.len_utf8())
            .last();
        let text = self.model.as_bytes().get(..end.unwrap_or(0)).unwrap_or_default();
        for index in 0..limits::NODE_MODEL {
            out.u32(text.get(index).map_or(0, |byte| u32::from(*byte)));
        }
        (self.memory_kib, self.cpus, self.mhz, self.nodes).encode(out)?;
        (self.sockets, self.cores, self.threads).encode(out)
    }
}

impl Decode for NodeInfo {
    const MIN_WIRE: usize = limits::NODE_MODEL * 4 + 8 + 6 * 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let mut model = Vec::with_capacity(limits::NODE_MODEL);
        for _ in 0..limits::NODE_MODEL {
            // A char is signed in C and travels as a whole int; only its low byte means something.
            model.push((input.u32()? & 0xff) as u8);
        }
        let text = model.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self {
            model: String::from_utf8_lossy(text).into_owned(),
            memory_kib: u64::decode(input)?,
            cpus: i32::decode(input)?,
            mhz: i32::decode(input)?,
            nodes: i32::decode(input)?,
            sockets: i32::decode(input)?,
            cores: i32::decode(input)?,
            threads: i32::decode(input)?,
        })
    }
}

wire_struct! {
    /// State and size of a domain.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct DomainInfo {
        /// See [`crate::names::domain_state`].
        pub state: u32,
        /// Most memory it may use, KiB.
        pub max_memory_kib: u64,
        /// Memory it uses, KiB.
        pub memory_kib: u64,
        /// Virtual CPUs.
        pub vcpus: u32,
        /// CPU time used, nanoseconds.
        pub cpu_time_ns: u64,
    }
}

wire_struct! {
    /// State of a domain and why it is in it.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct DomainState {
        /// See [`crate::names::domain_state`].
        pub state: i32,
        /// Meaning depends on the state.
        pub reason: i32,
    }
}

wire_struct! {
    /// Whether the monitor of a domain answers.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ControlInfo {
        /// 0 ok, 1 a job runs, 2 occupied, 3 error.
        pub state: u32,
        /// Detail of an error.
        pub details: u32,
        /// Milliseconds in that state.
        pub state_time_ms: u64,
    }
}

wire_struct! {
    /// The old fixed-size form of job statistics.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct JobInfo {
        /// 0 none, 1 bounded, 2 unbounded, 3 completed, 4 failed, 5 cancelled.
        pub kind: i32,
        /// Milliseconds.
        pub time_elapsed_ms: u64,
        /// Milliseconds.
        pub time_remaining_ms: u64,
        /// Bytes.
        pub data_total: u64,
        /// Bytes.
        pub data_processed: u64,
        /// Bytes.
        pub data_remaining: u64,
        /// Bytes.
        pub memory_total: u64,
        /// Bytes.
        pub memory_processed: u64,
        /// Bytes.
        pub memory_remaining: u64,
        /// Bytes.
        pub file_total: u64,
        /// Bytes.
        pub file_processed: u64,
        /// Bytes.
        pub file_remaining: u64,
    }
}

wire_struct! {
    /// Job statistics by name.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct JobStats {
        /// 0 none, 1 bounded, 2 unbounded, 3 completed, 4 failed, 5 cancelled.
        pub kind: i32,
        /// The figures.
        pub params: Params<{ limits::JOB_STATS }>,
    }
}

wire_struct! {
    /// Statistics of one domain.
    #[derive(Debug, Clone, PartialEq)]
    pub struct DomainStats {
        /// Which one.
        pub domain: Domain,
        /// The figures.
        pub params: Params<{ limits::DOMAIN_STATS }>,
    }
}

wire_struct! {
    /// One figure of host statistics.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeStat {
        /// Its name.
        pub field: String,
        /// Its value: KiB for memory, nanoseconds for CPU time.
        pub value: u64,
    }
}

wire_struct! {
    /// Which host CPUs exist and which are online.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct CpuMap {
        /// One bit per CPU, lowest bit first; set means online.
        pub map: Opaque<{ limits::CPU_MAP }>,
        /// How many are online.
        pub online: u32,
        /// How many are present.
        pub present: i32,
    }
}

wire_struct! {
    /// An address of a guest interface.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GuestAddress {
        /// 0 IPv4, 1 IPv6.
        pub kind: i32,
        /// The address in text form.
        pub address: String,
        /// Length of the network prefix.
        pub prefix: u32,
    }
}

wire_struct! {
    /// A network interface of a guest.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GuestInterface {
        /// Name of the device.
        pub name: String,
        /// Hardware address.
        pub hwaddr: Option<String>,
        /// Its addresses.
        pub addresses: List<GuestAddress, { limits::ADDRESSES }>,
    }
}

/// The value of a typed parameter, as the sender typed it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// 32 bits, signed.
    Int(i32),
    /// 32 bits.
    UInt(u32),
    /// 64 bits, signed.
    LLong(i64),
    /// 64 bits.
    ULLong(u64),
    /// Floating point.
    Double(f64),
    /// Truth.
    Boolean(bool),
    /// Text.
    String(String),
}

impl Value {
    /// The number, whatever its wire type; `None` for text, fractions and negative numbers.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            Self::UInt(value) => Some(u64::from(*value)),
            Self::LLong(value) => u64::try_from(*value).ok(),
            Self::ULLong(value) => Some(*value),
            Self::Boolean(value) => Some(u64::from(*value)),
            Self::Double(value) if value.fract() == 0.0 && (0.0..1.8e19).contains(value) => {
                Some(*value as u64)
            }
            Self::Double(_) | Self::String(_) => None,
        }
    }

    /// The number, whatever its wire type; `None` for text and what does not fit.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(i64::from(*value)),
            Self::LLong(value) => Some(*value),
            other => other.as_u64().and_then(|value| i64::try_from(value).ok()),
        }
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Encode for Value {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        match self {
            Self::Int(value) => (1, *value).encode(out),
            Self::UInt(value) => (2, *value).encode(out),
            Self::LLong(value) => (3, *value).encode(out),
            Self::ULLong(value) => (4, *value).encode(out),
            Self::Double(value) => (5, *value).encode(out),
            Self::Boolean(value) => (6, *value).encode(out),
            Self::String(value) => {
                7.encode(out)?;
                value.encode(out)
            }
        }
    }
}

impl Decode for Value {
    const MIN_WIRE: usize = 8;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match i32::decode(input)? {
            1 => Self::Int(Decode::decode(input)?),
            2 => Self::UInt(Decode::decode(input)?),
            3 => Self::LLong(Decode::decode(input)?),
            4 => Self::ULLong(Decode::decode(input)?),
            5 => Self::Double(Decode::decode(input)?),
            6 => Self::Boolean(Decode::decode(input)?),
            7 => Self::String(Decode::decode(input)?),
            // Without knowing the type nobody knows where the next parameter begins.
            other => return Err(input.invalid("typed parameter type", i64::from(other))),
        })
    }
}

wire_struct! {
    /// A named value.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TypedParam {
        /// Its name.
        pub field: String,
        /// Its value.
        pub value: Value,
    }
}

/// Named values with the limit the protocol gives the list. The first of two equal names counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Params<const MAX: usize>(pub List<TypedParam, MAX>);

impl<const MAX: usize> Default for Params<MAX> {
    fn default() -> Self {
        Self(List::default())
    }
}

impl<const MAX: usize> Params<MAX> {
    /// The value of this name.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|param| param.field == field)
            .map(|param| &param.value)
    }

    /// The value of this name as a number.
    pub fn u64(&self, field: &str) -> Option<u64> {
        self.get(field).and_then(Value::as_u64)
    }

    /// The value of this name as a signed number.
    pub fn i64(&self, field: &str) -> Option<i64> {
        self.get(field).and_then(Value::as_i64)
    }

    /// The value of this name as text.
    pub fn str(&self, field: &str) -> Option<&str> {
        self.get(field).and_then(Value::as_str)
    }

    /// Adds a value and gives the list back.
    pub fn with(mut self, field: impl Into<String>, value: Value) -> Self {
        self.0.push(TypedParam {
            field: field.into(),
            value,
        });
        self
    }

    /// All names and values in the order they were sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|param| (param.field.as_str(), &param.value))
    }
}

impl<const MAX: usize> Encode for Params<MAX> {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        self.0.encode(out)
    }
}

impl<const MAX: usize> Decode for Params<MAX> {
    const MIN_WIRE: usize = 4;
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        List::decode(input).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{from_bytes, to_bytes};

    #[test]
    fn node_info_takes_four_bytes_per_character_of_its_model() {
        let info = NodeInfo {
            model: "x86_64".into(),
            memory_kib: 1,
            cpus: 2,
            ..NodeInfo::default()
        };
        let wire = to_bytes(&info).unwrap_or_default();
        assert_eq!(wire.len(), 128 + 8 + 24);
        assert_eq!(from_bytes(&wire), Ok(info));
    }

    #[test]
    fn a_model_name_that_is_too_long_is_cut_like_a_c_string() {
        let info = NodeInfo {
            model: "m".repeat(40),
            ..NodeInfo::default()
        };
        let wire = to_bytes(&info).unwrap_or_default();
        let back: Result<NodeInfo, _> = from_bytes(&wire);
        assert_eq!(back.map(|info| info.model), Ok("m".repeat(31)));
    }

    #[test]
    fn domain_info_and_job_info_have_their_verified_sizes() {
        assert_eq!(to_bytes(&DomainInfo::default()).map(|wire| wire.len()), Ok(32));
        assert_eq!(to_bytes(&JobInfo::default()).map(|wire| wire.len()), Ok(92));
    }

    #[test]
    fn numbers_are_read_by_the_type_that_was_sent() {
        let params = Params::<8>::default()
            .with("operation", Value::Int(5))
            .with("time_elapsed", Value::ULLong(u64::MAX))
            .with("success", Value::Boolean(true))
            .with("ratio", Value::Double(0.5))
            .with("errmsg", Value::String("no".into()))
            .with("negative", Value::Int(-1));
        let wire = to_bytes(&params).unwrap_or_default();
        let params: Params<8> = from_bytes(&wire).unwrap_or_default();
        assert_eq!(params.u64("operation"), Some(5));
        assert_eq!(params.u64("time_elapsed"), Some(u64::MAX));
        assert_eq!(params.i64("time_elapsed"), None);
        assert_eq!(params.u64("success"), Some(1));
        assert_eq!(params.u64("ratio"), None);
        assert_eq!(params.str("errmsg"), Some("no"));
        assert_eq!((params.u64("negative"), params.i64("negative")), (None, Some(-1)));
    }

    #[test]
    fn an_unknown_parameter_type_is_an_error_not_a_guess() {
        let wire = [0, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0];
        assert!(matches!(
            from_bytes::<TypedParam>(&wire),
            Err(XdrError::Invalid { value: 8, .. })
        ));
    }
}
