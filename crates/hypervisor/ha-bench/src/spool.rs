// SPDX-License-Identifier: Apache-2.0
//! Records per second that become durable, beside the same bytes written and flushed without a spool.

use std::io::Write as _;
use std::time::Instant;

use cobaltcore_ha_agent::draft::{Draft, Guest};
use cobaltcore_ha_agent::spool::{Limits, Place, Spool};
use cobaltcore_ha_wire::Kind;

use crate::{BenchError, Row, set_up};

const GROUP: usize = 500;

pub(crate) fn draft() -> Draft {
    let guest = Guest {
        uuid: uuid::Uuid::from_u128(0xa1),
        name: "instance-0000a1".to_owned(),
        id: 7,
    };
    Draft::now(Kind::Lifecycle, "stopped", "failed").about(guest)
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Row>, BenchError> {
    let groups = if quick { 20 } else { 400 };
    let folder = tempfile::tempdir().map_err(|error| set_up("a directory")(error.into()))?;
    let limits = Limits {
        max_bytes: 1 << 30,
        segment_bytes: 8 << 20,
    };
    let failed = |error: cobaltcore_ha_agent::spool::SpoolError| set_up("a spool")(error.into());
    let (mut spool, _) = Spool::open(&folder.path().join("spool"), limits).map_err(failed)?;
    let drafts = vec![draft(); GROUP];
    let began = Instant::now();
    for _ in 0..groups {
        spool.append(&drafts).map_err(failed)?;
        if let Some(file) = spool.to_flush().map_err(failed)? {
            file.sync_data()
                .map_err(|error| set_up("a flush")(error.into()))?;
        }
        spool.accept();
    }
    let took = began.elapsed().as_secs_f64();
    let records = (groups * GROUP) as f64;
    let bytes = spool.state("none").bytes as usize / groups;
    let began = Instant::now();
    let mut file =
        std::fs::File::create(folder.path().join("plain")).map_err(|error| set_up("a file")(error.into()))?;
    for _ in 0..groups {
        let write = file.write_all(&vec![0; bytes]).and_then(|()| file.sync_data());
        write.map_err(|error| set_up("a write")(error.into()))?;
    }
    let plain = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let (mut place, mut after, mut read) = (Place::default(), 0, 0);
    loop {
        let chunk = spool.read(after, 200, 256 * 1024, &mut place).map_err(failed)?;
        let Some(last) = chunk.events.last() else { break };
        after = last.seq;
        read += chunk.events.len();
    }
    let reading = began.elapsed().as_secs_f64();
    drop(spool);
    let began = Instant::now();
    Spool::open(&folder.path().join("spool"), limits).map_err(failed)?;
    Ok(vec![
        Row::new(
            "spool: append incl. flush, groups of 500",
            records / took,
            "records/s",
        )
        .at_least(20_000.0, 10_000.0)
        .beside("the same bytes written plainly", records / plain),
        Row::new("spool: read back for sending", read as f64 / reading, "records/s"),
        Row::new(
            format!("spool: opening one with {records} records"),
            began.elapsed().as_secs_f64(),
            "s",
        ),
    ])
}
