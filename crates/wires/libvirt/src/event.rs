// SPDX-License-Identifier: Apache-2.0
//! Events: what the daemon tells without being asked. Every event id of libvirt 12.6 has its type here, in both wire
//! forms (with a callback id, and the older form without); an event nobody knows yet is passed on as raw bytes.

use bytes::Bytes;

use crate::limits;
use crate::types::{Domain, Params};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder, List, XdrError, wire_struct};

/// Procedure of the message that the daemon lost its driver backend.
pub const CONNECTION_CLOSED: i32 = 362;

/// Which events a registration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub i32);

wire_struct! {
    /// One end of a graphics connection.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GraphicsAddress {
        /// 0 IPv4, 1 IPv6, 2 unix.
        pub family: i32,
        /// Address or path.
        pub node: String,
        /// Port.
        pub service: String,
    }
}

wire_struct! {
    /// Who uses a graphics connection.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GraphicsIdentity {
        /// Kind of name.
        pub kind: String,
        /// The name.
        pub name: String,
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The registration it came through; `None` in the older wire form.
    pub callback: Option<i32>,
    /// The guest, with the id it had at that moment (-1 in the stop events).
    pub domain: Domain,
    /// What happened.
    pub body: EventBody,
}

macro_rules! events {
    ($($(#[$meta:meta])* $id:literal $constant:ident $name:literal $procedure:literal / $legacy:expr, $reason_first:literal,
        $variant:ident { $($(#[$fmeta:meta])* $field:ident : $type:ty),* };)*) => {
        impl EventId {
            $($(#[$meta])* pub const $constant: EventId = EventId($id);)*

            /// Every event id this crate knows.
            pub const ALL: &'static [EventId] = &[$(EventId($id)),*];

            /// Short name; `None` when the id is not in the table.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($id => Some($name),)* _ => None }
            }

            /// Procedure of its messages with a callback id.
            pub const fn procedure(self) -> Option<i32> {
                match self.0 { $($id => Some($procedure),)* _ => None }
            }

            /// Procedure of its messages in the older form, which newer events do not have.
            pub const fn legacy_procedure(self) -> Option<i32> {
                match self.0 { $($id => $legacy,)* _ => None }
            }

            /// The id whose messages carry this procedure, and whether it is the older form.
            pub fn of_procedure(procedure: i32) -> Option<(EventId, bool)> {
                $(
                    if procedure == $procedure { return Some((EventId($id), false)); }
                    if $legacy == Some(procedure) { return Some((EventId($id), true)); }
                )*
                None
            }
        }

        /// What happened to a guest.
        #[derive(Debug, Clone, PartialEq)]
        pub enum EventBody {
            $($(#[$meta])* $variant { $($(#[$fmeta])* $field: $type),* },)*
            /// A message this crate has no type for.
            Unknown {
                /// Its procedure.
                procedure: i32,
                /// Everything it carried, the callback id and the guest included.
                payload: Bytes,
            },
        }

        impl EventBody {
            /// Which registration such an event belongs to; `None` for an unknown one.
            pub const fn id(&self) -> Option<EventId> {
                match self { $(Self::$variant { .. } => Some(EventId($id)),)* Self::Unknown { .. } => None }
            }
        }

        impl Event {
            /// Reads a message of this procedure.
            pub fn decode(procedure: i32, payload: &Bytes) -> Result<Self, XdrError> {
                let mut input = Decoder::new(payload);
                let event = match EventId::of_procedure(procedure) {
                    $(Some((EventId($id), legacy)) => {
                        let callback = if legacy { None } else { Some(i32::decode(&mut input)?) };
                        if !legacy && $reason_first { i32::decode(&mut input)?; }
                        let domain = Domain::decode(&mut input)?;
                        let body = EventBody::$variant { $($field: <$type as Decode>::decode(&mut input)?),* };
                        Self { callback, domain, body }
                    })*
                    _ => return Ok(Self {
                        callback: None,
                        domain: Domain::by_uuid(uuid::Uuid::nil()),
                        body: EventBody::Unknown { procedure, payload: payload.clone() },
                    }),
                };
                input.finish()?;
                Ok(event)
            }

            fn encode_body(&self, out: &mut Encoder) -> Result<(), XdrError> {
                match &self.body {
                    $(EventBody::$variant { $($field),* } => {
                        if self.callback.is_some() && $reason_first { 0_i32.encode(out)?; }
                        self.domain.encode(out)?;
                        $($field.encode(out)?;)*
                        Ok(())
                    })*
                    EventBody::Unknown { .. } => Ok(()),
                }
            }
        }
    };
}

events! {
    /// The life of a guest changed.
    0 LIFECYCLE "lifecycle" 318 / Some(107), false, Lifecycle {
        /// See [`crate::names::lifecycle_event`].
        event: i32,
        /// See [`crate::names::lifecycle_detail`].
        detail: i32 };
    /// The guest rebooted or was reset.
    1 REBOOT "reboot" 319 / Some(169), false, Reboot {};
    /// The guest set its clock.
    2 RTC_CHANGE "rtc_change" 320 / Some(170), false, RtcChange {
        /// Seconds from the host's clock.
        offset: i64 };
    /// The virtual watchdog fired.
    3 WATCHDOG "watchdog" 321 / Some(171), false, Watchdog {
        /// What was done about it.
        action: i32 };
    /// A disk failed.
    4 IO_ERROR "io_error" 322 / Some(172), false, IoError {
        /// Path of the image.
        path: String,
        /// Alias of the device.
        alias: String,
        /// What was done about it.
        action: i32 };
    /// Somebody connected to the guest's display.
    5 GRAPHICS "graphics" 323 / Some(173), false, Graphics {
        /// 0 connect, 1 initialize, 2 disconnect.
        phase: i32,
        /// This end.
        local: Box<GraphicsAddress>,
        /// The other end.
        remote: Box<GraphicsAddress>,
        /// How it authenticated.
        auth_scheme: String,
        /// As whom.
        subject: List<GraphicsIdentity, { limits::GRAPHICS_IDENTITIES }> };
    /// A disk failed, and why.
    6 IO_ERROR_REASON "io_error_reason" 324 / Some(195), false, IoErrorReason {
        /// Path of the image.
        path: String,
        /// Alias of the device.
        alias: String,
        /// What was done about it.
        action: i32,
        /// `enospc` or empty.
        reason: String };
    /// The monitor of the guest is broken.
    7 CONTROL_ERROR "control_error" 325 / Some(224), false, ControlError {};
    /// A block job changed its state; the disk by its source.
    8 BLOCK_JOB "block_job" 326 / Some(241), false, BlockJob {
        /// Path of the image.
        path: String,
        /// 1 pull, 2 copy, 3 commit, 4 active commit, 5 backup.
        kind: i32,
        /// 0 completed, 1 failed, 2 cancelled, 3 ready.
        status: i32 };
    /// A removable medium changed.
    9 DISK_CHANGE "disk_change" 327 / Some(248), false, DiskChange {
        /// Before.
        old_path: Option<String>,
        /// After.
        new_path: Option<String>,
        /// Alias of the device.
        alias: String,
        /// Why.
        reason: i32 };
    /// A tray moved.
    10 TRAY_CHANGE "tray_change" 328 / Some(268), false, TrayChange {
        /// Alias of the device.
        alias: String,
        /// 0 open, 1 close.
        reason: i32 };
    /// The guest woke up.
    11 PMWAKEUP "pmwakeup" 329 / Some(269), true, PmWakeup {};
    /// The guest went to sleep in memory.
    12 PMSUSPEND "pmsuspend" 330 / Some(270), true, PmSuspend {};
    /// The balloon has another size.
    13 BALLOON_CHANGE "balloon_change" 331 / Some(276), false, BalloonChange {
        /// KiB.
        actual_kib: u64 };
    /// The guest went to sleep on disk.
    14 PMSUSPEND_DISK "pmsuspend_disk" 332 / Some(292), true, PmSuspendDisk {};
    /// A device is gone.
    15 DEVICE_REMOVED "device_removed" 333 / Some(311), false, DeviceRemoved {
        /// Its alias.
        alias: String };
    /// A block job changed its state; the disk by its target.
    16 BLOCK_JOB_2 "block_job_2" 339 / None, false, BlockJob2 {
        /// Target name of the disk.
        disk: String,
        /// As in [`EventBody::BlockJob`].
        kind: i32,
        /// As in [`EventBody::BlockJob`].
        status: i32 };
    /// Pinning, shares or limits changed.
    17 TUNABLE "tunable" 346 / None, false, Tunable {
        /// What changed, after the change.
        params: Params<{ limits::TUNABLE }> };
    /// The guest agent came or went.
    18 AGENT_LIFECYCLE "agent_lifecycle" 348 / None, false, AgentLifecycle {
        /// 1 connected, 2 disconnected.
        state: i32,
        /// 0 unknown, 1 domain started, 2 channel.
        reason: i32 };
    /// A device was added.
    19 DEVICE_ADDED "device_added" 354 / None, false, DeviceAdded {
        /// Its alias.
        alias: String };
    /// A migration (or save) began another pass over memory.
    20 MIGRATION_ITERATION "migration_iteration" 359 / None, false, MigrationIteration {
        /// Number of the pass.
        iteration: i32 };
    /// A job finished.
    21 JOB_COMPLETED "job_completed" 363 / None, false, JobCompleted {
        /// Its final figures.
        params: Params<{ limits::JOB_STATS }> };
    /// A device could not be removed.
    22 DEVICE_REMOVAL_FAILED "device_removal_failed" 367 / None, false, DeviceRemovalFailed {
        /// Its alias.
        alias: String };
    /// Title, description or metadata changed.
    23 METADATA_CHANGE "metadata_change" 379 / None, false, MetadataChange {
        /// 0 description, 1 title, 2 element.
        kind: i32,
        /// Namespace of the element.
        uri: Option<String> };
    /// A disk grew past a threshold.
    24 BLOCK_THRESHOLD "block_threshold" 385 / None, false, BlockThreshold {
        /// Target name of the disk.
        device: String,
        /// Path of the image.
        path: Option<String>,
        /// The threshold, bytes.
        threshold: u64,
        /// How far beyond, bytes.
        excess: u64 };
    /// The hardware reported a memory failure.
    25 MEMORY_FAILURE "memory_failure" 423 / None, false, MemoryFailure {
        /// 0 hypervisor, 1 guest.
        recipient: i32,
        /// 0 ignore, 1 inject, 2 fatal, 3 reset.
        action: i32,
        /// Bit 0 action required, bit 1 recursive.
        flags: u32 };
    /// A memory device has another size.
    26 MEMORY_DEVICE_SIZE_CHANGE "memory_device_size_change" 438 / None, false, MemoryDeviceSizeChange {
        /// Its alias.
        alias: String,
        /// KiB.
        size: u64 };
    /// The guest changed a hardware address.
    27 NIC_MAC_CHANGE "nic_mac_change" 453 / None, false, NicMacChange {
        /// Alias of the device.
        alias: String,
        /// Before.
        old_mac: String,
        /// After.
        new_mac: String };
    /// A virtual CPU was removed.
    28 VCPU_REMOVED "vcpu_removed" 454 / None, false, VcpuRemoved {
        /// Which one.
        vcpu: u32 };
    /// A channel of the guest came or went.
    29 CHANNEL_LIFECYCLE "channel_lifecycle" 455 / None, false, ChannelLifecycle {
        /// Name of the channel.
        channel: String,
        /// 1 connected, 2 disconnected.
        state: i32,
        /// 0 unknown, 1 domain started, 2 channel.
        reason: i32 };
}

impl Event {
    /// The procedure its message carries; `None` when the older form is asked of an event that has none.
    pub fn procedure(&self) -> Option<i32> {
        match (&self.body, self.callback) {
            (EventBody::Unknown { procedure, .. }, _) => Some(*procedure),
            (body, Some(_)) => body.id().and_then(EventId::procedure),
            (body, None) => body.id().and_then(EventId::legacy_procedure),
        }
    }
}

impl Encode for Event {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        if let EventBody::Unknown { payload, .. } = &self.body {
            out.fixed(payload);
            return Ok(());
        }
        if let Some(callback) = self.callback {
            callback.encode(out)?;
        }
        self.encode_body(out)
    }
}

/// Decodes an event message and encodes it again, for tests of both directions.
pub fn recode(procedure: i32, payload: &Bytes) -> Result<Bytes, XdrError> {
    Event::decode(procedure, payload).and_then(|event| xdr::to_bytes(&event))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Domain {
        Domain::new("instance-0000a1b2", uuid::Uuid::from_u128(0x1234), 7)
    }

    #[test]
    fn every_id_has_its_own_procedure() {
        let mut seen = std::collections::HashSet::new();
        for id in EventId::ALL {
            assert!(seen.insert(id.procedure()), "{id:?}");
            if let Some(legacy) = id.legacy_procedure() {
                assert!(seen.insert(Some(legacy)), "{id:?}");
                assert_eq!(EventId::of_procedure(legacy), Some((*id, true)));
            }
            assert_eq!(id.procedure().and_then(EventId::of_procedure), Some((*id, false)));
        }
        assert_eq!(EventId::ALL.len(), 30);
    }

    #[test]
    fn both_wire_forms_of_a_lifecycle_event_say_the_same() {
        for callback in [Some(3), None] {
            let event = Event {
                callback,
                domain: guest(),
                body: EventBody::Lifecycle { event: 5, detail: 1 },
            };
            let procedure = event.procedure().unwrap_or_default();
            assert_eq!(procedure, if callback.is_some() { 318 } else { 107 });
            let wire = xdr::to_bytes(&event).unwrap_or_default();
            assert_eq!(Event::decode(procedure, &wire), Ok(event));
        }
    }

    #[test]
    fn power_events_carry_an_unused_reason_before_the_guest() {
        let event = Event {
            callback: Some(1),
            domain: guest(),
            body: EventBody::PmWakeup {},
        };
        let wire = xdr::to_bytes(&event).unwrap_or_default();
        assert_eq!(&wire[..12], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 17]);
        assert_eq!(Event::decode(329, &wire), Ok(event));
    }

    #[test]
    fn an_event_from_the_future_is_passed_on() {
        let payload = Bytes::from_static(&[1, 2, 3, 4]);
        let event = Event::decode(9999, &payload);
        assert_eq!(
            event.map(|event| event.body),
            Ok(EventBody::Unknown {
                procedure: 9999,
                payload
            })
        );
    }

    #[test]
    fn a_damaged_event_is_an_error() {
        assert!(Event::decode(318, &Bytes::from_static(&[0, 0, 0, 1])).is_err());
    }
}
