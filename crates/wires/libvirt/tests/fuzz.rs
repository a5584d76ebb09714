// SPDX-License-Identifier: Apache-2.0
//! Any bytes at all: every decoder gives a value or an error, never a panic, and what it accepts it can write again.
//! The corpus under `corpus/` holds real messages and inputs that once looked dangerous; it is run first.
//! `PROPTEST_CASES=10000000` makes it as long as wanted.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cobaltcore_libvirt::client::{Connection, Deadlines, Options};
use cobaltcore_libvirt::error::{RpcError, code};
use cobaltcore_libvirt::event::{self, Event, EventBody, EventId};
use cobaltcore_libvirt::frame::{self, Frame, Header, PROGRAM_REMOTE};
use cobaltcore_libvirt::procedure::Procedure;
use cobaltcore_libvirt::server::{ServerOptions, serve};
use cobaltcore_libvirt::transport::Stream;
use cobaltcore_libvirt::types::{Domain, Params, Value};
use cobaltcore_libvirt::uri::Uri;
use cobaltcore_libvirt::xdr;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Everything that reads bytes from a peer.
fn feed(bytes: &[u8]) {
    let shared = Bytes::copy_from_slice(bytes);
    for procedure in Procedure::ALL {
        for recode in [Procedure::recode_args, Procedure::recode_reply] {
            if let Some(Ok(again)) = recode(*procedure, bytes) {
                // Text that was not UTF-8, odd padding and truth values above one are normalised once, then stable.
                assert_eq!(recode(*procedure, &again).unwrap().unwrap(), again, "{procedure}");
            }
        }
    }
    for id in EventId::ALL {
        for message in [id.procedure(), id.legacy_procedure()].into_iter().flatten() {
            if let Ok(again) = event::recode(message, &shared) {
                assert_eq!(event::recode(message, &again).unwrap(), again, "{id:?}");
            }
        }
    }
    if let Ok(error) = xdr::from_bytes::<RpcError>(bytes) {
        let again = xdr::to_bytes(&error).unwrap();
        assert_eq!(xdr::from_bytes::<RpcError>(&again).unwrap(), error);
    }
    feed_frames(bytes);
}

/// Frames in a row, the payloads of which go where their header says.
fn feed_frames(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(Frame { header, payload })) = frame::decode(&mut buffer) {
        let encoded = Frame {
            header,
            payload: payload.clone(),
        }
        .to_bytes()
        .unwrap();
        assert_eq!(
            frame::decode(&mut BytesMut::from(&encoded[..]))
                .unwrap()
                .unwrap()
                .header,
            header
        );
        let procedure = Procedure(header.procedure);
        let _ = (procedure.recode_args(&payload), procedure.recode_reply(&payload));
        let _ = event::recode(header.procedure, &payload);
    }
}

fn domain() -> impl Strategy<Value = Domain> {
    (".{0,20}", any::<u128>(), any::<i32>())
        .prop_map(|(name, uuid, id)| Domain::new(name, uuid::Uuid::from_u128(uuid), id))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(Value::Int),
        any::<u32>().prop_map(Value::UInt),
        any::<i64>().prop_map(Value::LLong),
        any::<u64>().prop_map(Value::ULLong),
        (-1e9..1e9_f64).prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        ".{0,30}".prop_map(Value::String),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let params = prop::collection::vec((".{0,10}", value()), 0..8);
    let body = prop_oneof![
        (any::<i32>(), any::<i32>()).prop_map(|(event, detail)| EventBody::Lifecycle { event, detail }),
        params.prop_map(|list| {
            let params = list
                .into_iter()
                .fold(Params::default(), |all, (field, value)| all.with(field, value));
            EventBody::JobCompleted { params }
        }),
        (".*", ".*", any::<i32>(), ".*").prop_map(|(path, alias, action, reason)| EventBody::IoErrorReason {
            path,
            alias,
            action,
            reason
        }),
        (any::<i32>(), prop::option::of(".*"))
            .prop_map(|(kind, uri)| EventBody::MetadataChange { kind, uri }),
    ];
    (any::<i32>(), domain(), body).prop_map(|(callback, domain, body)| Event {
        callback: Some(callback),
        domain,
        body,
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        feed(&bytes);
    }

    /// Small numbers make lengths and counts that nearly fit.
    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(prop_oneof![0..20_u32, any::<u32>()], 0..128)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        feed(&bytes);
    }

    #[test]
    fn events_survive_the_wire(event in event()) {
        let wire = xdr::to_bytes(&event).unwrap();
        prop_assert_eq!(Event::decode(event.procedure().unwrap(), &wire).unwrap(), event);
    }

    #[test]
    fn damaged_events_are_read_or_refused(event in event(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut wire = xdr::to_bytes(&event).unwrap().to_vec();
        let index = at.index(wire.len());
        wire[index] = byte;
        feed(&wire);
        feed(&wire[..cut.index(wire.len())]);
    }

    #[test]
    fn any_text_is_a_uri_or_not(text in prop_oneof![".*", "(qemu|ch)(\\+(unix|tcp|tls|ssh))?://[a-z0-9:.\\[\\]]{0,12}/[a-z]{0,8}(\\?[a-z]{1,8}=[%/a-z0-9]{0,12})?"]) {
        if let Ok(uri) = text.parse::<Uri>() {
            let _ = (uri.open_name(), uri.endpoint(), uri.sockets(true), uri.to_string());
        }
    }
}

#[test]
fn the_corpus_is_read_or_refused() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus is missing: {}", place.display());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        feed(&bytes);
        for cut in (0..bytes.len()).step_by(7) {
            feed_frames(&bytes[..cut]);
        }
        // Real frames: their payload is also fed to every other decoder.
        feed(bytes.get(28..).unwrap_or_default());
    }
}

/// Whole connections, not only decoders: a daemon that answers with noise, and a client that calls with it.
#[test]
fn noise_on_a_live_connection_ends_it_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    runner
        .run(
            &(noise, any::<bool>(), any::<i32>()),
            |(noise, framed, procedure)| {
                runtime.block_on(async {
                    let bytes = if framed {
                        let header = Header::call(PROGRAM_REMOTE, procedure % 500, 1);
                        Frame {
                            header,
                            payload: Bytes::from(noise),
                        }
                        .to_bytes()
                        .unwrap()
                        .to_vec()
                    } else {
                        noise
                    };
                    noise_to_server(&bytes).await;
                    noise_to_client(&bytes).await;
                });
                Ok(())
            },
        )
        .unwrap();
}

async fn noise_to_server(bytes: &[u8]) {
    let (mut here, there) = tokio::io::duplex(4096);
    let client = serve(
        Stream::new(there, "pipe"),
        Arc::new(support::TestHost::default()),
        ServerOptions::default(),
    );
    here.write_all(bytes).await.unwrap();
    here.shutdown().await.unwrap();
    let mut answer = Vec::new();
    here.read_to_end(&mut answer).await.unwrap();
    client.closed().await;
}

async fn noise_to_client(bytes: &[u8]) {
    let (here, mut there) = tokio::io::duplex(4096);
    let options = Options {
        deadlines: Deadlines {
            handshake: std::time::Duration::from_millis(5),
            ..Deadlines::default()
        },
        ..Options::default()
    };
    there.write_all(bytes).await.unwrap();
    let result = Connection::over(Stream::new(here, "pipe"), "qemu:///system", options).await;
    let error = result.expect_err("noise is no daemon");
    assert_ne!(error.code(), Some(code::NO_DOMAIN + 1_000_000));
}

/// Damaged copies of the corpus, many of them: `FRAMES=10000000 cargo test --test fuzz -- --ignored ten_million`.
#[test]
#[ignore = "takes minutes; `just fuzz` runs it"]
fn ten_million_damaged_frames_cost_no_panic_and_little_memory() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let corpus: Vec<Vec<u8>> = std::fs::read_dir(place)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let wanted: u64 = std::env::var("FRAMES").map_or(10_000_000, |text| text.parse().unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for _ in 0..wanted {
        let mut bytes = corpus[random(corpus.len())].clone();
        for _ in 0..=random(4) {
            // The length stays right most of the time, so that the damage reaches the payload.
            let from = if random(8) == 0 { 0 } else { 4.min(bytes.len() - 1) };
            let at = from + random(bytes.len() - from);
            bytes[at] = random(256) as u8;
        }
        if random(4) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        feed_frames(&bytes);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim();
    let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap();
    println!("{wanted} frames, peak {peak} KiB");
    assert!(peak < 64 * 1024, "{peak} KiB");
}
