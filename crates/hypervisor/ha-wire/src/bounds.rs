// SPDX-License-Identifier: Apache-2.0
//! How large things may be. The agent cuts what it sends to these, the service refuses what exceeds them; neither
//! allocates more because the other side said so.

/// Bytes of a request body, as sent and after decompression.
pub const BODY: usize = 1 << 20;
/// Records of one batch.
pub const EVENTS: usize = 1000;
/// Ranges of dropped records announced in one batch.
pub const DROPPED: usize = 1000;
/// Attributes of one record.
pub const ATTRS: usize = 16;
/// Bytes of a name: an event, a detail, a guest, an attribute's key, a version.
pub const NAME: usize = 256;
/// Bytes of a text: an attribute's value, the source of a disk, a message.
pub const TEXT: usize = 4096;
/// Bytes of an identifier.
pub const ID: usize = 64;
/// Guests of one inventory.
pub const DOMAINS: usize = 10_000;
/// Disks of one guest.
pub const DISKS: usize = 64;
/// Kinds of events a driver may lack.
pub const UNSUPPORTED: usize = 16;
/// Targets of one probe.
pub const TARGETS: usize = 8;
/// Milliseconds a probe may take.
pub const PROBE_MS: u64 = 3000;
/// Results of commands in one heartbeat.
pub const RESULTS: usize = 64;
/// Commands handed out at once.
pub const COMMANDS: usize = 64;
/// Peers an agent may ask whether they still reach the service.
pub const PEERS: usize = cobaltcore_ha_engine::NEIGHBOURS;
/// Seconds a poll for commands may wait.
pub const WAIT_S: u64 = 30;

/// The beginning of `text` that fits into `bytes`, cut between characters.
pub fn clip(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_never_splits_a_character() {
        assert_eq!(clip("abc", 5), "abc");
        assert_eq!(clip("abc", 2), "ab");
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("é", 1), "");
        assert_eq!(clip("", 0), "");
    }
}
