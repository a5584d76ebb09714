// SPDX-License-Identifier: Apache-2.0
//! A libvirt that answers, but slowly: what it announces is told at once, whatever else it was asked.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cobaltcore_libvirt::error::RpcError;
use cobaltcore_libvirt::event::EventBody;
use cobaltcore_libvirt::procedure::{Procedure, calls};
use cobaltcore_libvirt::server::{Client, Handler, Listener, Reply, Request, ServerOptions};
use cobaltcore_libvirt::types::{Domain, DomainState, JobStats, Params};
use cobaltcore_libvirt::xdr::List;
use parking_lot::Mutex;
use support::{Agent, Place, Service};
use uuid::Uuid;

/// So many that one question about each takes longer than anybody here waits.
const GUESTS: u32 = 200;

#[derive(Default)]
struct Slow {
    clients: Mutex<Vec<Client>>,
    asked: AtomicU32,
}

fn guest(number: u32) -> Domain {
    let id = Uuid::from_u128(u128::from(number) + 1);
    Domain::new(format!("instance-{number}"), id, number as i32 + 1)
}

impl Handler for Slow {
    async fn open(&self, client: &Client, _: &str, _: bool) -> Result<(), RpcError> {
        self.clients.lock().push(client.clone());
        Ok(())
    }

    async fn call(&self, _: &Client, request: Request) -> Result<Reply, RpcError> {
        match request.procedure {
            Procedure::CONNECT_LIST_ALL_DOMAINS => request.answer::<calls::ConnectListAllDomains>(|_| {
                Ok((List((0..GUESTS).map(guest).collect()), GUESTS))
            }),
            Procedure::DOMAIN_GET_STATE => {
                request.answer::<calls::DomainGetState>(|_| Ok(DomainState { state: 1, reason: 1 }))
            }
            Procedure::DOMAIN_GET_JOB_STATS => {
                self.asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                request.answer::<calls::DomainGetJobStats>(|_| {
                    Ok(JobStats {
                        kind: 0,
                        params: Params::default(),
                    })
                })
            }
            other => Err(RpcError::unsupported(other)),
        }
    }
}

/// A guest that crashed may be started for eight seconds; an agent that asks for the jobs of all the others first would
/// always be too late.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_told_while_libvirt_still_answers_what_it_was_asked_before() {
    let (service, place) = (Service::start().await, Place::new());
    let socket = place.path("libvirt-sock");
    let (host, listener) = (Arc::new(Slow::default()), Listener::unix(&socket).unwrap());
    let handler = Arc::clone(&host);
    tokio::spawn(async move { listener.run(handler, ServerOptions::default(), |_| {}).await });
    place.configure(&[service.url()], "");
    let uri = format!("qemu+unix:///system?socket={}", socket.display());
    let agent = Agent::start(place.start(&uri));
    while host.asked.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Stopped, failed.
    let crash = EventBody::Lifecycle { event: 5, detail: 5 };
    for client in host.clients.lock().iter() {
        client.publish(&guest(7), &crash);
    }
    let told = service.event("stopped", "failed").await;
    assert_eq!(told.domain.unwrap().name, "instance-7");
    assert!(!told.synthetic);
    let asked = host.asked.load(Ordering::Relaxed);
    assert!(asked < GUESTS, "the look at the guests was over by then");
    agent.stop().await;
}
