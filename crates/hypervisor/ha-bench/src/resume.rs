// SPDX-License-Identifier: Apache-2.0
//! Recoveries that take their time: all guests of a host under a Nova that takes forty seconds for each, a service that
//! is killed in the middle and started again, and replicas of which the one that acts is killed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cobaltcore_api::Hypervisor;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Config, Durability};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fleet::Fleet;
use crate::service::{ALONE, Place, Service, free_address};
use crate::speaker::GUESTS;
use crate::{BenchError, Row, at, set_up};

const HOSTS: usize = 10;
const REPLICAS: usize = 3;
/// Guests that were asked for when the service is killed: the next call is due at once.
const ASKED: usize = 3;

/// After a kill, a call that was under way may still be heard; this long after it, none is.
const SETTLED: Duration = Duration::from_secs(1);

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn victim(fleet: &Fleet) -> Result<&str, BenchError> {
    let first = fleet.hosts.first().map(String::as_str);
    first.ok_or_else(|| set_up("a dead host")("there is none".into()))
}

/// Waits until so many evacuations were asked for; when each was.
async fn asked(fleet: &Fleet, host: &str, count: usize, service: &Service) -> Result<Vec<i64>, BenchError> {
    let began = Instant::now();
    loop {
        let times = fleet.asked(host);
        if times.len() >= count {
            return Ok(times);
        }
        // Forty seconds for each wave and the detection fit twice.
        if began.elapsed() > crate::service::PATIENCE * 2 {
            service.gives_up(began, "asked for the guests of a dead host")?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn known(fleet: &Fleet, service: &mut Service) -> Result<(), BenchError> {
    let hosts = fleet.hosts.len() as f64;
    service
        .until_figure("kvm_ha_hosts{state=\"healthy\"}", hosts, "knew every host")
        .await?;
    let heard = "kvm_ha_signals{group=\"A\",verdict=\"alive\"}";
    service.until_figure(heard, hosts, "heard every agent").await?;
    // Past the warm-up.
    tokio::time::sleep(Duration::from_secs(10)).await;
    Ok(())
}

/// All guests of a host, forty seconds each.
pub(crate) async fn whole_host(program: &Path) -> Result<Vec<Row>, BenchError> {
    let fleet = Fleet::start(HOSTS, |settings| settings.evacuate = Duration::from_secs(40)).await?;
    let config = format!("{ALONE}{}", fleet.config(false));
    let place = Place::new(&fleet.folder().join("service"), &fleet.hosts, &config, None)?;
    let (mut service, _) = place.start_ready(program).await?;
    fleet.report_to(&[service.address]);
    known(&fleet, &mut service).await?;
    let host = victim(&fleet)?;
    let died = fleet.lose(host, true)?;
    let times = asked(&fleet, host, GUESTS, &service).await?;
    let (first, last) = (
        times.first().copied().unwrap_or(died),
        times.last().copied().unwrap_or(died),
    );
    let seconds = |from: i64| (last - from) as f64 / 1000.0;
    Ok(vec![
        Row::new(
            "all 50 guests of a host requested, Nova 40 s each, from the first call",
            seconds(first),
            "s",
        )
        .at_most(150.0, 180.0)
        .beside("three waves of 40 s", 120.0),
        Row::new("the same from the death of the host", seconds(died), "s"),
    ])
}

/// A service that is alone is killed while it moves guests, and started again.
pub(crate) async fn restart(program: &Path) -> Result<Vec<Row>, BenchError> {
    let fleet = Fleet::start(HOSTS, |settings| settings.evacuate = Duration::from_secs(10)).await?;
    let config = format!("{ALONE}{}", fleet.config(false));
    let place = Place::new(&fleet.folder().join("service"), &fleet.hosts, &config, None)?;
    let (mut service, _) = place.start_ready(program).await?;
    fleet.report_to(&[service.address]);
    known(&fleet, &mut service).await?;
    let host = victim(&fleet)?;
    fleet.lose(host, true)?;
    asked(&fleet, host, ASKED, &service).await?;
    service.role.kill().await;
    tokio::time::sleep(SETTLED).await;
    let before = fleet.asked(host).len();
    let began = now_ms();
    let (service, ready) = place.start_ready(program).await?;
    let times = asked(&fleet, host, before + 1, &service).await?;
    let next = times.get(before).copied().unwrap_or(began);
    // To its end: nothing is asked for twice.
    let all = asked(&fleet, host, GUESTS, &service).await?;
    Ok(vec![
        Row::new("restart to the next effect", (next - began) as f64 / 1000.0, "s")
            .at_most(35.0, 35.0)
            .beside("to ready", ready.as_secs_f64()),
        Row::new(
            "restart: calls beyond one per guest",
            (all.len() - GUESTS) as f64,
            "",
        )
        .at_most(0.0, 0.0),
    ])
}

/// Three replicas; the one that acts is killed while it moves guests.
pub(crate) async fn failover(program: &Path, trials: usize) -> Result<Vec<Row>, BenchError> {
    let all = (0..trials).map(|_| one_failover(program));
    let mut times = futures::future::try_join_all(all).await?;
    times.sort_by(f64::total_cmp);
    Ok(vec![
        Row::new(
            format!("leader killed to the next effect, worst of {trials}"),
            at(&times, 1.0),
            "s",
        )
        .at_most(20.0, 35.0)
        .beside("the lease alone", 15.0),
    ])
}

async fn one_failover(program: &Path) -> Result<f64, BenchError> {
    let fleet = Fleet::start(HOSTS, |settings| settings.evacuate = Duration::from_secs(10)).await?;
    let cluster = Cluster::start(&fleet).await?;
    let mut addresses = Vec::new();
    for _ in 0..REPLICAS {
        addresses.push((free_address()?, free_address()?));
    }
    let token = fleet.folder().join("peer-token");
    std::fs::write(&token, "token-of-peers").map_err(|error| set_up("a token")(error.into()))?;
    let peers: Vec<String> = addresses
        .iter()
        .map(|(address, _)| format!("'http://{address}'"))
        .collect();
    let mut services = Vec::new();
    for (n, (address, metrics)) in addresses.iter().enumerate() {
        let config = format!(
            "leader: {{peers: [{}], ordinal: {n}, peer_token_file: '{}'}}\n{}",
            peers.join(", "),
            token.display(),
            fleet.config(false)
        );
        let folder = fleet.folder().join(format!("service-{n}"));
        let kubeconfig = Some(cluster.kubeconfig.as_path());
        let place = Place::at(&folder, *address, *metrics, &fleet.hosts, &config, kubeconfig)?;
        services.push(place.start_ready(program).await?.0);
    }
    let all: Vec<_> = services.iter().map(|service| service.address).collect();
    fleet.report_to(&all);
    for service in &mut services {
        known(&fleet, service).await?;
    }
    let mut leader = None;
    for (n, service) in services.iter_mut().enumerate() {
        if service.figure("kvm_ha_leader").await == Some(1.0) {
            leader = Some(n);
        }
    }
    let leader = leader.ok_or_else(|| set_up("a leader")("no replica leads".into()))?;
    let host = victim(&fleet)?;
    fleet.lose(host, true)?;
    let leader = services.swap_remove(leader);
    asked(&fleet, host, ASKED, &leader).await?;
    leader.role.kill().await;
    let killed = now_ms();
    tokio::time::sleep(SETTLED).await;
    let before = fleet.asked(host).len();
    let witness = services
        .first()
        .ok_or_else(|| set_up("replicas")("none is left".into()))?;
    let times = asked(&fleet, host, before + 1, witness).await?;
    Ok((times.get(before).copied().unwrap_or(killed) - killed) as f64 / 1000.0)
}

/// A cluster that knows the hosts of a fleet, onboarded.
struct Cluster {
    kubeconfig: PathBuf,
    _server: TestServer,
}

impl Cluster {
    async fn start(fleet: &Fleet) -> Result<Self, BenchError> {
        let kubeconfig = fleet.folder().join("kubeconfig");
        let server = TestServer::try_with(Config {
            data_dir: Some(fleet.folder().join("api")),
            listen: vec![([127, 0, 0, 1], 0).into()],
            port_given: true,
            kubeconfig: Some(kubeconfig.clone()),
            durability: Durability::Relaxed,
            ..Config::default()
        })
        .await
        .map_err(|error| set_up("the embedded API")(error.into()))?;
        let mut objects = cobaltcore_api::crds_yaml(None);
        objects.push_str("\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: kube-node-lease}\n");
        server
            .apply_yaml(&objects)
            .await
            .map_err(|error| set_up("the definitions")(error.into()))?;
        let client = server.client();
        for (n, host) in fleet.hosts.iter().enumerate() {
            let made = onboarded(&client, host, n).await;
            made.map_err(|error| set_up("a hypervisor")(error.into()))?;
        }
        Ok(Self {
            kubeconfig,
            _server: server,
        })
    }
}

async fn onboarded(client: &kube::Client, host: &str, n: usize) -> Result<(), kube::Error> {
    let mut node = Node::default();
    node.metadata.name = Some(host.to_owned());
    let block = ("kubernetes.metal.cloud.sap/bb".to_owned(), format!("bb{n}"));
    node.metadata.labels = Some([block].into());
    Api::<Node>::all(client.clone())
        .create(&PostParams::default(), &node)
        .await?;
    let api: Api<Hypervisor> = Api::all(client.clone());
    let params = PatchParams::apply("bench").force();
    let spec = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": host},
        "spec": {"highAvailability": true},
    });
    api.patch(host, &params, &Patch::Apply(spec)).await?;
    let status = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "status": {"internalIp": "127.0.0.1", "conditions": [{
            "type": "Onboarding", "status": "False", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    api.patch_status(host, &params, &Patch::Apply(status)).await?;
    Ok(())
}
