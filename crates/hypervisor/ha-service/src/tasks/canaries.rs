// SPDX-License-Identifier: Apache-2.0
//! Places that must always answer. When too few of them do, it is probably we who are cut off, and
//! a service that is cut off fences nobody.

use std::time::Duration;

use cobaltcore_ha_engine::{Input, Observation};
use cobaltcore_openstack::{Kind, Session};
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
/// In one of so many rounds Keystone is asked while it answers: it has better things to do.
const KEYSTONE_ROUNDS: u32 = 5;

/// What is asked.
pub struct Canaries {
    /// The cluster.
    pub kubernetes: Option<kube::Client>,
    /// Whether Nova is expected to answer, and when it last did.
    pub nova: Option<LastAnswer>,
    /// Keystone.
    pub keystone: Option<Session>,
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
        let mut keystone = false;
        for round in (0..KEYSTONE_ROUNDS).cycle() {
            if round == 0 || !keystone {
                keystone = self.keystone_answers().await;
            }
            let (ok, total) = self.ask(keystone).await;
            self.brain
                .tell(Input::Saw(Observation::Canaries { ok, total }))
                .await;
            if pause(&stop, EVERY).await {
                return;
            }
        }
    }

    /// Whether Keystone says anything at all, be it a refusal.
    async fn keystone_answers(&self) -> bool {
        let Some(session) = &self.keystone else {
            return false;
        };
        let keystone = session.within(TIME).keystone();
        match keystone.own_projects().await {
            Ok(_) => true,
            Err(error) => !matches!(
                error.kind(),
                Kind::Overloaded
                    | Kind::Unreachable
                    | Kind::Deadline
                    | Kind::UnknownOutcome
                    | Kind::BadAnswer
            ),
        }
    }

    async fn ask(&self, keystone: bool) -> (usize, usize) {
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
        let keystone = self.keystone.as_ref().map(|_| keystone);
        let answers: Vec<bool> = cluster
            .into_iter()
            .chain(nova)
            .chain(keystone)
            .chain(others)
            .collect();
        (answers.iter().filter(|ok| **ok).count(), answers.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use cobaltcore_openstack::{CloudConfig, Settings};
    use cobaltcore_sim::cloud::Cloud;
    use cobaltcore_sim::world::{ADMIN_PASSWORD, World};

    fn canaries(auth_url: &str) -> Canaries {
        let lookup = |name: &str| {
            let value = match name {
                "OS_AUTH_URL" => auth_url,
                "OS_PASSWORD" => ADMIN_PASSWORD,
                "OS_USERNAME" | "OS_PROJECT_NAME" => "admin",
                "OS_USER_DOMAIN_NAME" | "OS_PROJECT_DOMAIN_NAME" => "Default",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let settings = Settings {
            proxy_from_environment: false,
            ..Settings::default()
        };
        let session = Session::new(CloudConfig::from_variables(lookup).unwrap(), settings).unwrap();
        Canaries {
            kubernetes: None,
            nova: Some(LastAnswer::default()),
            keystone: Some(session),
            in_force: InForce::new(Config::default()),
            clock: Clock::new(),
            brain: crate::brain::channels().0,
        }
    }

    #[tokio::test]
    async fn a_nova_that_is_gone_is_one_of_those_that_must_answer_and_not_all() {
        cobaltcore_kit::startup::install_tls_provider();
        let cloud = Cloud::start(World::builder().hosts(1).build()).await.unwrap();
        let here = canaries(&cloud.auth_url());
        assert!(here.keystone_answers().await);
        assert_eq!(here.ask(true).await, (1, 2), "Nova has never answered");
        let away = canaries("http://127.0.0.1:1/v3");
        assert!(!away.keystone_answers().await);
        assert_eq!(away.ask(false).await, (0, 2));
    }
}
