// SPDX-License-Identifier: Apache-2.0
//! Every call against the real Keystone, Nova, Placement, Glance and Neutron of the lab: what the
//! scripted suites assume about answers is checked here against those who give them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail them")]

mod records;
mod servers;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::future::Future;
use std::time::{Duration, Instant};

use cobaltcore_lab::{Host, Lab, Options, Skip};
use cobaltcore_openstack::nova::{ServerFilter, ServiceState, ServiceStatus, ServiceUpdate};
use cobaltcore_openstack::{
    ApplicationCredentialRef, CloudConfig, Credentials, Error, Kind, Microversion, Nova, Optional as _,
    Removal, Scope, Secret, Service, Session, Settings,
};

type Outcome = Result<(), Box<dyn StdError>>;

const PATIENCE: Duration = Duration::from_mins(3);

/// Runs a scenario in the lab, or says why not. A failed scenario panics while the lab is still
/// held, which makes the lab keep its logs.
fn in_the_lab<F: Future<Output = Outcome>>(scenario: impl FnOnce(Session, Vec<Host>) -> F) {
    let lab = match Lab::join_or_start(&Options::with_hosts(2)) {
        Err(skip) => return Skip::print(&skip),
        Ok(lab) => lab,
    };
    let control = lab.description().control.clone().expect("a control plane");
    let cloud = CloudConfig::from_file(control.clouds_yaml, &control.cloud).unwrap();
    let settings = Settings {
        proxy_from_environment: false,
        ..Settings::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let session = {
        let _inside = runtime.enter();
        Session::new(cloud, settings).unwrap()
    };
    if let Err(error) = runtime.block_on(scenario(session, lab.hosts().to_vec())) {
        panic!("{error}");
    }
}

/// Asks until there is an answer; errors count as "not yet" and are shown when patience ends.
async fn eventually<T, F>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T, Box<dyn StdError>>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    let begin = Instant::now();
    loop {
        let last = match attempt().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "not yet".to_owned(),
            Err(error) => error.to_string(),
        };
        if begin.elapsed() > PATIENCE {
            return Err(format!("gave up waiting for {what}: {last}").into());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn kind<T>(outcome: Result<T, Error>) -> Option<Kind> {
    outcome.err().map(|error| error.kind())
}

#[test]
fn keystone_knows_us_in_every_scope() {
    in_the_lab(async |session, _| {
        let me = session.identity().await?;
        assert!(me.has_role("admin") && me.project.as_ref().is_some_and(|project| project.name == "admin"));
        assert!(
            me.catalog
                .services()
                .is_superset(&["compute", "identity", "image", "network", "placement"].into())
        );
        assert_eq!(
            session.offer(Service::Nova).await?.newest,
            Microversion::new(2, 93)
        );
        assert_eq!(
            session.offer(Service::Placement).await?.newest,
            Microversion::new(1, 39)
        );

        let keystone = session.keystone();
        let default = keystone
            .domains()
            .await?
            .into_iter()
            .find(|domain| domain.name == "Default")
            .ok_or("no domain")?;
        let admin = keystone
            .users(Some(&default.id))
            .await?
            .into_iter()
            .find(|user| user.name == "admin")
            .ok_or("no user")?;
        let role = keystone
            .roles()
            .await?
            .into_iter()
            .find(|role| role.name == "admin")
            .ok_or("no role")?;
        for project in keystone.projects(Some(&default.id)).await? {
            if project.name == "real-openstack" {
                keystone.delete_project(&project.id).await?;
            }
        }
        let project = keystone.create_project("real-openstack", &default.id).await?;
        let other = session.with_scope(Scope::project("real-openstack", "Default"));
        assert_eq!(
            kind(other.identity().await),
            Some(Kind::Unauthorized),
            "no role, no token"
        );
        keystone.grant_role(&project.id, &admin.id, &role.id).await?;
        let id = eventually("a token for the other project", || async {
            other.identity().await.map(Some)
        })
        .await?;
        assert_eq!(
            id.project.as_ref().map(|project| project.name.as_str()),
            Some("real-openstack")
        );
        assert!(
            keystone
                .own_projects()
                .await?
                .iter()
                .any(|own| own.id == project.id)
        );
        assert_eq!(other.nova().servers(&ServerFilter::default()).await?, []);
        let system = session.with_scope(Scope::System).identity().await?;
        assert!(system.project.is_none() && system.system.is_some());

        let made = other
            .keystone()
            .create_application_credential("real-openstack")
            .await?;
        let cloud = with_credential(&session, &made.id, made.secret.clone());
        let app = cloud.identity().await?;
        assert_eq!(
            app.project.as_ref().map(|project| project.name.as_str()),
            Some("real-openstack")
        );
        assert_eq!(
            kind(
                with_credential(&session, &made.id, Secret::new("wrong"))
                    .identity()
                    .await
            ),
            Some(Kind::Unauthorized)
        );
        assert_eq!(
            other.keystone().delete_application_credential(&made.id).await?,
            Removal::Accepted
        );
        assert_eq!(keystone.delete_project(&project.id).await?, Removal::Accepted);
        assert_eq!(keystone.delete_project(&project.id).await?, Removal::WasGone);
        Ok(())
    });
}

fn with_credential(session: &Session, id: &str, secret: Secret) -> Session {
    let credential = ApplicationCredentialRef::Id(id.to_owned());
    let credentials = Credentials::ApplicationCredential { credential, secret };
    session.with_credentials(credentials, Scope::Inherent)
}

#[test]
fn services_hypervisors_and_aggregates_are_kept_in_novas_words() {
    in_the_lab(async |session, hosts| {
        let nova = session.nova();
        let host = hosts.first().ok_or("no host")?.name();
        let service = nova.compute_service(host).await?.ok_or("no service")?;
        assert_eq!(
            nova.compute_service("hv").await?,
            None,
            "a part of a name is no host"
        );
        assert_eq!(nova.compute_services().await?.len(), hosts.len());
        let reason = "Hypervisor CRD: spec.maintenance=manual";
        let disabled = nova
            .update_service(&service.id, &ServiceUpdate::disable(reason))
            .await?;
        assert_eq!(
            (disabled.status, disabled.disabled_reason.as_deref()),
            (ServiceStatus::Disabled, Some(reason))
        );
        let down = nova
            .update_service(&service.id, &ServiceUpdate::mark_forced_down(true))
            .await?;
        assert!(down.forced_down);
        let seen = nova.compute_service(host).await?.ok_or("no service")?;
        assert_eq!((seen.state, seen.forced_down), (ServiceState::Down, true));
        let enabled = nova
            .update_service(&service.id, &ServiceUpdate::enable().forced_down(false))
            .await?;
        assert_eq!(
            (enabled.status, enabled.forced_down, enabled.disabled_reason),
            (ServiceStatus::Enabled, false, None)
        );
        let unknown = "3f3c4e6e-0000-4000-8000-000000000000";
        assert_eq!(
            kind(
                nova.update_service(&unknown.into(), &ServiceUpdate::enable())
                    .await
            ),
            Some(Kind::NotFound)
        );
        assert_eq!(nova.delete_service(&unknown.into()).await?, Removal::WasGone);

        let all = nova.hypervisors().await?;
        assert_eq!(all.len(), hosts.len());
        let paged = session.with_page_size(1).nova().hypervisors().await?;
        assert_eq!(paged.len(), hosts.len(), "one hypervisor per page");
        let named = nova.hypervisors_named(host).await?;
        let [hypervisor] = named.as_slice() else {
            return Err(format!("{named:?}").into());
        };
        assert_eq!(
            (&hypervisor.service.id, hypervisor.service.host.as_str()),
            (&service.id, host)
        );
        assert_eq!(
            nova.hypervisors_named("hv").await?,
            [],
            "hv is a part of every name"
        );
        assert!(nova.hypervisors_matching("hv").await?.len() >= hosts.len());
        assert_eq!(nova.hypervisors_matching("nobody-has-this-name").await?, []);
        assert_eq!(nova.hypervisor(&hypervisor.id).await?.id, hypervisor.id);
        assert_eq!(nova.hypervisor(&unknown.into()).await.optional()?, None);
        let usage = nova.hypervisor_usage().await?;
        assert!(
            usage.iter().all(|usage| usage.memory_mb > 0 && usage.vcpus > 0),
            "{usage:?}"
        );

        aggregate_lifecycle(&nova, host).await
    });
}

async fn aggregate_lifecycle(nova: &Nova, host: &str) -> Outcome {
    for old in nova.aggregates().await? {
        if old.name == "real-openstack" {
            for host in &old.hosts {
                nova.remove_host(old.id, host).await?;
            }
            nova.delete_aggregate(old.id).await?;
        }
    }
    let made = nova.create_aggregate("real-openstack", None).await?;
    assert_eq!(
        kind(nova.create_aggregate("real-openstack", None).await),
        Some(Kind::Conflict)
    );
    assert_eq!(nova.add_host(made.id, host).await?.hosts, [host]);
    assert_eq!(
        kind(nova.add_host(made.id, host).await),
        Some(Kind::Conflict),
        "it is in there"
    );
    assert_eq!(kind(nova.add_host(made.id, "nobody").await), Some(Kind::NotFound));
    let filter = BTreeMap::from([("filter_tenant_id".to_owned(), Some("x".to_owned()))]);
    assert_eq!(
        nova.set_aggregate_metadata(made.id, &filter)
            .await?
            .metadata
            .len(),
        1
    );
    let nothing = BTreeMap::from([("filter_tenant_id".to_owned(), None)]);
    assert_eq!(
        nova.set_aggregate_metadata(made.id, &nothing)
            .await?
            .metadata
            .len(),
        0
    );
    let listed = nova.aggregates().await?;
    let found = listed
        .iter()
        .find(|aggregate| aggregate.id == made.id)
        .ok_or("not listed")?;
    assert_eq!(
        (found.hosts.as_slice(), found.uuid.len()),
        ([host.to_owned()].as_slice(), 36)
    );
    let refused = nova
        .delete_aggregate(made.id)
        .await
        .err()
        .map(|error| error.status());
    assert_eq!(refused, Some(Some(400)), "it has a host");
    assert!(nova.remove_host(made.id, host).await?.hosts.is_empty());
    assert_eq!(kind(nova.remove_host(made.id, host).await), Some(Kind::NotFound));
    assert_eq!(nova.delete_aggregate(made.id).await?, Removal::Accepted);
    assert_eq!(nova.delete_aggregate(made.id).await?, Removal::WasGone);
    Ok(())
}
