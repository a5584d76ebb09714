// SPDX-License-Identifier: Apache-2.0
//! What reading the wire costs a service, before it stores anything: batches of 200 records, and signs of life.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cobaltcore_ha_wire::{
    AgentId, Batch, BootId, DomainState, Envelope, Heartbeat, HostName, Libvirt, Machine, SCHEMA, SelfFence,
    SpoolState,
};

use crate::spool::draft;
use crate::{BenchError, Row, set_up};

fn envelope() -> Result<Envelope, BenchError> {
    Ok(Envelope {
        schema: SCHEMA,
        host: HostName::new("node001").map_err(|error| set_up("a name")(error.into()))?,
        agent_id: AgentId("5c2c0000-0000-4000-8000-000000000001".into()),
        boot_id: BootId("9b1e0000-0000-4000-8000-000000000001".into()),
        epoch: 1,
        sent_at: jiff::Timestamp::now(),
        mono_ns: 1,
    })
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        uptime_s: 86_400,
        boot_id: BootId("9b1e0000-0000-4000-8000-000000000001".into()),
        agent_version: "0.1.0".into(),
        config_hash: "0123456789abcdef".into(),
        libvirt: Libvirt {
            connected: true,
            version: "11.3.0".into(),
            last_ok_ms: Some(12),
            unsupported: Vec::new(),
        },
        domains: BTreeMap::from([(DomainState::Running, 50)]),
        spool: SpoolState::default(),
        machine: Machine {
            system_uuid: Some("4c4c4544-0000-4000-8000-000000000001".into()),
            serial: Some("J1000001".into()),
        },
        self_fence: SelfFence::default(),
        planned_shutdown: false,
        pressure: None,
        probes: Vec::new(),
        results: Vec::new(),
    }
}

/// Decodes for a while; how often per second.
fn rate(body: &[u8], time: Duration) -> Result<f64, BenchError> {
    let began = Instant::now();
    let mut count = 0_u64;
    while began.elapsed() < time {
        let batch = Batch::decode(body).map_err(|error| set_up("a batch")(error.into()))?;
        std::hint::black_box(batch.admit(0));
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Row>, BenchError> {
    let time = if quick {
        Duration::from_millis(200)
    } else {
        Duration::from_secs(3)
    };
    let encoded = |batch: Batch| batch.encode().map_err(|error| set_up("a batch")(error.into()));
    let records = Batch {
        events: (1..=200).map(|seq| draft().numbered(seq)).collect(),
        ..Batch::empty(envelope()?)
    };
    let beat = Batch {
        heartbeat: Some(heartbeat()),
        ..Batch::empty(envelope()?)
    };
    let (records, beat) = (encoded(records)?, encoded(beat)?);
    let (batches, beats) = (rate(&records, time)?, rate(&beat, time)?);
    Ok(vec![
        Row::new(
            "wire: batches of 200 decoded and checked, one core",
            batches * 200.0,
            "events/s",
        )
        .at_least(50_000.0),
        Row::new("wire: bytes per record", records.len() as f64 / 200.0, "bytes"),
        Row::new("wire: heartbeats decoded, one core", beats, "1/s"),
        Row::new(
            "wire: share of a core for 600 heartbeats/s",
            60_000.0 / beats,
            "% of a core",
        )
        .at_most(5.0),
    ])
}
