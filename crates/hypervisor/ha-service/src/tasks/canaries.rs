// SPDX-License-Identifier: Apache-2.0
//! Places that must always answer. When too few of them do, it is probably we who are cut off, and
//! a service that is cut off fences nobody.

use std::time::Duration;

use cobaltcore_ha_engine::{Input, Observation};
use tokio_util::sync::CancellationToken;

use crate::brain::BrainHandle;
use crate::clock::Clock;
use crate::leadership::pause;
use crate::settings::InForce;
use crate::tasks::nova::LastAnswer;

const EVERY: Duration = Duration::from_secs(4);
const TIME: Duration = Duration::from_secs(3);
/// Nova counts as answering if it did within this time.
const NOVA_FRESH: Duration = Duration::from_secs(30);

/// What is asked.
pub struct Canaries {
    /// The cluster.
    pub kubernetes: Option<kube::Client>,
    /// Whether Nova is expected to answer, and when it last did.
    pub nova: Option<LastAnswer>,
    /// Names the addresses of others: `host:port`.
    pub in_force: InForce,
    /// The clock.
    pub clock: Clock,
    /// The loop.
    pub brain: BrainHandle,
}

impl Canaries {
    /// Asks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let (ok, total) = self.ask().await;
            self.brain
                .tell(Input::Saw(Observation::Canaries { ok, total }))
                .await;
            if pause(&stop, EVERY).await {
                return;
            }
        }
    }

    async fn ask(&self) -> (usize, usize) {
        let cluster = async {
            let client = self.kubernetes.as_ref()?;
            Some(
                tokio::time::timeout(TIME, client.apiserver_version())
                    .await
                    .is_ok_and(|answer| answer.is_ok()),
            )
        };
        let nova = self
            .nova
            .as_ref()
            .map(|answered| answered.within(&self.clock, NOVA_FRESH));
        let config = self.in_force.get();
        let addresses = config.self_check.canaries.iter();
        let others = futures::future::join_all(addresses.map(|address| async move {
            tokio::time::timeout(TIME, tokio::net::TcpStream::connect(address))
                .await
                .is_ok_and(|connected| connected.is_ok())
        }));
        let (cluster, others) = tokio::join!(cluster, others);
        let answers: Vec<bool> = cluster.into_iter().chain(nova).chain(others).collect();
        (answers.iter().filter(|ok| **ok).count(), answers.len())
    }
}
