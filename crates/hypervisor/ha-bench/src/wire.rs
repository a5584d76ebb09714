// SPDX-License-Identifier: Apache-2.0
//! What reading the wire costs a service, before it stores anything: batches of 200 records, and signs of life.

use std::time::{Duration, Instant};

use cobaltcore_ha_wire::Batch;

use crate::speaker::{Speaker, encoded};
use crate::{BenchError, Row, set_up};

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
    let mut speaker = Speaker::new("node001", 1)?;
    let (records, beat) = (encoded(&speaker.records(200))?, encoded(&speaker.beat())?);
    let (batches, beats) = (rate(&records, time)?, rate(&beat, time)?);
    Ok(vec![
        Row::new(
            "wire: batches of 200 decoded and checked, one core",
            batches * 200.0,
            "events/s",
        ),
        Row::new("wire: bytes per record", records.len() as f64 / 200.0, "bytes"),
        Row::new("wire: heartbeats decoded, one core", beats, "1/s"),
    ])
}
