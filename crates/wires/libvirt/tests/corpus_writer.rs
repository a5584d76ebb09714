// SPDX-License-Identifier: Apache-2.0
//! Writes the corpus anew: `cargo test -p cobaltcore-libvirt --test corpus_writer -- --ignored`. Kept so that the files
//! can be understood and extended; ordinary runs only read them.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use bytes::Bytes;
use cobaltcore_libvirt::error::{RpcError, domain};
use cobaltcore_libvirt::event::{Event, EventBody};
use cobaltcore_libvirt::frame::{self, Frame, Header, KEEPALIVE_PING, PROGRAM_REMOTE, Status};
use cobaltcore_libvirt::procedure::{Call, calls};
use cobaltcore_libvirt::types::{DomainInfo, DomainStats, JobStats, NodeInfo, Params, Value};
use cobaltcore_libvirt::xdr::List;
use support::{alpha, beta};

fn call<C: Call>(args: &C::Args) -> Bytes {
    frame::encode(&Header::call(PROGRAM_REMOTE, C::PROCEDURE.0, 7), args).unwrap()
}

fn reply<C: Call>(value: &C::Reply) -> Bytes {
    frame::encode(
        &Header::call(PROGRAM_REMOTE, C::PROCEDURE.0, 7).reply(Status::Ok),
        value,
    )
    .unwrap()
}

fn event(callback: Option<i32>, body: EventBody) -> Bytes {
    let event = Event {
        callback,
        domain: alpha(),
        body,
    };
    frame::encode(
        &Header::message(PROGRAM_REMOTE, event.procedure().unwrap()),
        &event,
    )
    .unwrap()
}

fn raw(words: &[u32]) -> Bytes {
    words
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect::<Vec<u8>>()
        .into()
}

#[test]
#[ignore = "writes the corpus anew; `just corpus` runs it"]
fn write_the_corpus() {
    let params = || {
        Params::default()
            .with("operation", Value::Int(5))
            .with("errmsg", Value::String("é".into()))
    };
    let mut error = RpcError::new(42, domain::QEMU, "Domain not found");
    error.extra.dom = Some(alpha());
    let error_header = Header::call(PROGRAM_REMOTE, 24, 9).reply(Status::Error);
    let stats = DomainStats {
        domain: alpha(),
        params: Params::default().with("cpu.time", Value::ULLong(u64::MAX)),
    };
    let files: Vec<(&str, Bytes)> = vec![
        ("ping", Frame::keepalive(KEEPALIVE_PING).to_bytes().unwrap()),
        (
            "open",
            call::<calls::ConnectOpen>(&(Some("qemu:///system".into()), 1)),
        ),
        ("open-without-uri", call::<calls::ConnectOpen>(&(None, 0))),
        ("list-call", call::<calls::ConnectListAllDomains>(&(1, 3))),
        (
            "list-reply",
            reply::<calls::ConnectListAllDomains>(&(List(vec![alpha(), beta()]), 2)),
        ),
        (
            "node-info-reply",
            reply::<calls::NodeGetInfo>(&NodeInfo {
                model: "x86_64".into(),
                ..NodeInfo::default()
            }),
        ),
        (
            "domain-info-reply",
            reply::<calls::DomainGetInfo>(&DomainInfo::default()),
        ),
        (
            "job-stats-reply",
            reply::<calls::DomainGetJobStats>(&JobStats {
                kind: 2,
                params: params(),
            }),
        ),
        (
            "all-stats-reply",
            reply::<calls::ConnectGetAllDomainStats>(&List(vec![stats])),
        ),
        (
            "register-call",
            call::<calls::ConnectDomainEventCallbackRegisterAny>(&(0, Some(alpha()))),
        ),
        ("error-reply", frame::encode(&error_header, &error).unwrap()),
        (
            "event-lifecycle",
            event(Some(3), EventBody::Lifecycle { event: 5, detail: 1 }),
        ),
        (
            "event-lifecycle-old",
            event(None, EventBody::Lifecycle { event: 5, detail: 1 }),
        ),
        (
            "event-job-completed",
            event(Some(4), EventBody::JobCompleted { params: params() }),
        ),
        ("event-pmwakeup", event(Some(5), EventBody::PmWakeup {})),
        (
            "event-metadata",
            event(
                Some(6),
                EventBody::MetadataChange {
                    kind: 2,
                    uri: Some("http://x".into()),
                },
            ),
        ),
        ("bad-length-zero", raw(&[0])),
        ("bad-length-27", raw(&[27, PROGRAM_REMOTE, 1, 1, 0, 1, 0])),
        (
            "bad-length-huge",
            raw(&[33_554_437, PROGRAM_REMOTE, 1, 1, 0, 1, 0]),
        ),
        ("bad-type", raw(&[28, PROGRAM_REMOTE, 1, 1, 7, 1, 0])),
        ("bad-status", raw(&[28, PROGRAM_REMOTE, 1, 1, 1, 1, 3])),
        (
            "bad-list-count",
            raw(&[32, PROGRAM_REMOTE, 1, 273, 1, 1, 0, 16_384]),
        ),
        (
            "bad-list-count-max",
            raw(&[32, PROGRAM_REMOTE, 1, 344, 1, 1, 0, u32::MAX]),
        ),
        (
            "bad-string-length",
            raw(&[36, PROGRAM_REMOTE, 1, 59, 1, 1, 0, 4_194_304, 0]),
        ),
        (
            "bad-presence-mark",
            raw(&[36, PROGRAM_REMOTE, 1, 1, 0, 1, 0, 2, 0]),
        ),
        (
            "bad-parameter-type",
            raw(&[48, PROGRAM_REMOTE, 1, 298, 1, 1, 0, 2, 1, 0, 9, 0]),
        ),
        ("bad-trailing", raw(&[36, PROGRAM_REMOTE, 1, 4, 1, 1, 0, 0, 1, 2])),
        ("bad-half-header", raw(&[64, PROGRAM_REMOTE, 1])),
        (
            "other-protocol-http",
            Bytes::from_static(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ),
        (
            "other-protocol-tls",
            Bytes::from_static(&[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3]),
        ),
    ];
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, bytes) in files {
        std::fs::write(place.join(name), &bytes).unwrap();
    }
}
