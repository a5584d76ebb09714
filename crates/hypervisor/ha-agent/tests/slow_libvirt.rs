// SPDX-License-Identifier: Apache-2.0
//! A libvirt that answers slowly, or not at all: what it announces is told at once, whatever else it was asked, and what it
//! does not say is not made up.
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

/// How it is about the questions that wait for a guest.
#[derive(Clone, Copy, Default, PartialEq)]
enum Manner {
    /// A second for each of them.
    #[default]
    Slow,
    /// The first guest hangs.
    OneHangs,
    /// It answers nothing at all.
    Hangs,
}

#[derive(Default)]
struct Slow {
    clients: Mutex<Vec<Client>>,
    asked: AtomicU32,
    manner: Mutex<Manner>,
}

impl Slow {
    async fn take_time(&self, asked: u32) {
        let manner = *self.manner.lock();
        match manner {
            Manner::Slow => tokio::time::sleep(Duration::from_secs(1)).await,
            Manner::OneHangs if asked > 0 => {}
            Manner::OneHangs | Manner::Hangs => std::future::pending().await,
        }
    }
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
        if *self.manner.lock() == Manner::Hangs {
            std::future::pending::<()>().await;
        }
        match request.procedure {
            Procedure::CONNECT_LIST_ALL_DOMAINS => request.answer::<calls::ConnectListAllDomains>(|_| {
                Ok((List((0..GUESTS).map(guest).collect()), GUESTS))
            }),
            Procedure::DOMAIN_GET_STATE => {
                request.answer::<calls::DomainGetState>(|_| Ok(DomainState { state: 1, reason: 1 }))
            }
            Procedure::DOMAIN_GET_JOB_STATS => {
                let before = self.asked.fetch_add(1, Ordering::Relaxed);
                self.take_time(before % GUESTS).await;
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

/// Starts it, and an agent beside it.
fn begin(host: &Arc<Slow>, service: &Service, place: &Place, more: &str) -> Agent {
    let socket = place.path("libvirt-sock");
    let listener = Listener::unix(&socket).unwrap();
    let handler = Arc::clone(host);
    tokio::spawn(async move { listener.run(handler, ServerOptions::default(), |_| {}).await });
    place.configure(&[service.url()], more);
    let uri = format!("qemu+unix:///system?socket={}", socket.display());
    Agent::start(place.start(&uri))
}

/// How many lists of guests the service was told.
fn lists(service: &Service) -> usize {
    service.known.lock().inventories.len()
}

async fn beats(service: &Service, count: usize) {
    let before = service.known.lock().heartbeats.len();
    service
        .until("heartbeats", move |known| {
            (known.heartbeats.len() >= before + count).then_some(())
        })
        .await;
}

/// One QEMU that hangs must not hide where all the other guests of its host run.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_hangs_keeps_no_list_from_being_told() {
    let (service, place) = (Service::start().await, Place::new());
    let host = Arc::new(Slow::default());
    *host.manner.lock() = Manner::OneHangs;
    let agent = begin(&host, &service, &place, "");
    let guests = service
        .until("a list", |known| {
            known.inventories.last().map(|list| list.domains.len())
        })
        .await;
    assert_eq!(guests, GUESTS as usize);
    agent.stop().await;
}

/// The service takes every list for one that was made just now, and goes by it when guests are to be started elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_not_told_again_while_libvirt_does_not_answer() {
    let (service, place) = (Service::start().await, Place::new());
    let host = Arc::new(Slow::default());
    *host.manner.lock() = Manner::OneHangs;
    let agent = begin(&host, &service, &place, "inventory: {interval: 20s}");
    service
        .until("a list", |known| known.inventories.last().map(|_| ()))
        .await;
    *host.manner.lock() = Manner::Hangs;
    beats(&service, 3).await;
    let before = lists(&service);
    beats(&service, 24).await;
    assert_eq!(lists(&service), before, "more than the interval later");
    agent.stop().await;
}

/// A guest that crashed may be started for eight seconds; an agent that asks for the jobs of all the others first would
/// always be too late.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_told_while_libvirt_still_answers_what_it_was_asked_before() {
    let (service, place) = (Service::start().await, Place::new());
    let host = Arc::new(Slow::default());
    let agent = begin(&host, &service, &place, "");
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
