// SPDX-License-Identifier: Apache-2.0
//! The limits of the libvirt protocol. A peer that exceeds one of them speaks another protocol or means harm,
//! so both the encoder and the decoder refuse.

/// Length of a frame including its own length field.
pub const FRAME: usize = 33_554_436;
/// Length of a frame without any payload.
pub const FRAME_MIN: usize = 28;
/// Bytes of a string.
pub const STRING: usize = 4_194_304;
/// Domains in one list.
pub const DOMAIN_LIST: usize = 16_384;
/// Bytes of a CPU map.
pub const CPU_MAP: usize = 2_048;
/// NUMA cells, and page sizes times cells in one answer.
pub const NODE_CELLS: usize = 1_024;
/// Host CPU statistics fields.
pub const NODE_CPU_STATS: usize = 16;
/// Host memory statistics fields.
pub const NODE_MEMORY_STATS: usize = 16;
/// Authentication types a daemon may offer.
pub const AUTH_TYPES: usize = 20;
/// Parameters of a job.
pub const JOB_STATS: usize = 64;
/// Parameters of a migration call.
pub const MIGRATE_PARAMS: usize = 64;
/// Bytes of a migration cookie.
pub const MIGRATE_COOKIE: usize = 4_194_304;
/// Statistics parameters of one domain.
pub const DOMAIN_STATS: usize = 262_144;
/// Parameters of a tunable event.
pub const TUNABLE: usize = 2_048;
/// Identities in a graphics event.
pub const GRAPHICS_IDENTITIES: usize = 20;
/// Guest interfaces in one answer.
pub const INTERFACES: usize = 2_048;
/// Addresses of one guest interface.
pub const ADDRESSES: usize = 2_048;
/// Elements of a `char model[32]` field; each takes four bytes on the wire.
pub const NODE_MODEL: usize = 32;
/// Domain ids or names in the answers of the oldest list calls.
pub const DOMAIN_ID_LIST: usize = 16_384;
