// SPDX-License-Identifier: Apache-2.0
//! What is written down and taken away again: providers and their allocations, images, networks,
//! flavors and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;

use cobaltcore_openstack::glance::NewImage;
use cobaltcore_openstack::neutron::PortFilter;
use cobaltcore_openstack::nova::{GroupFilter, NewFlavor, NewServerGroup};
use cobaltcore_openstack::placement::{
    Allocation, CandidateFilter, Inventories, Inventory, NewAllocation, ProviderFilter, check_custom_trait,
};
use cobaltcore_openstack::{ConsumerId, Error, Kind, Optional as _, ProviderId, Removal, Session};

use super::{Outcome, in_the_lab, kind};

#[test]
fn placement_tells_who_came_second() {
    in_the_lab(async |session, hosts| {
        let placement = session.placement();
        let host = hosts.first().ok_or("no host")?.name();
        let by_name = ProviderFilter {
            name: Some(host.to_owned()),
            ..ProviderFilter::default()
        };
        let found = placement.providers(&by_name).await?;
        let [provider] = found.as_slice() else {
            return Err(format!("{found:?}").into());
        };
        let hypervisor = session
            .nova()
            .hypervisors_named(host)
            .await?
            .pop()
            .ok_or("no hypervisor")?;
        assert_eq!(provider.id, ProviderId::from(&hypervisor.id));
        assert_eq!(placement.provider(&provider.id).await?.name, host);
        assert!(
            placement
                .inventories(&provider.id)
                .await?
                .inventories
                .contains_key("VCPU")
        );
        assert!(
            placement
                .usages(&provider.id)
                .await?
                .usages
                .contains_key("MEMORY_MB")
        );
        placement.provider_aggregates(&provider.id).await?;
        placement.provider_allocations(&provider.id).await?;
        traits(&session).await?;
        allocations(&session).await
    });
}

/// A provider of our own, because nova-compute writes to its own.
async fn own_provider(session: &Session, name: &str) -> Result<ProviderId, Box<dyn StdError>> {
    let placement = session.placement();
    let by_name = ProviderFilter {
        name: Some(name.to_owned()),
        ..ProviderFilter::default()
    };
    for old in placement.providers(&by_name).await? {
        for consumer in placement.provider_allocations(&old.id).await?.keys() {
            placement.delete_allocations(consumer).await?;
        }
        placement.delete_provider(&old.id).await?;
    }
    Ok(placement.create_provider(name, None).await?.id)
}

async fn traits(session: &Session) -> Outcome {
    let placement = session.placement();
    let id = own_provider(session, "real-openstack-traits").await?;
    let ours = "CUSTOM_REAL_OPENSTACK";
    check_custom_trait(ours)?;
    placement.delete_trait(ours).await?;
    let add = |traits: &BTreeSet<String>| traits.iter().cloned().chain([ours.to_owned()]).collect();
    let unknown = placement.update_provider_traits(&id, add).await;
    assert_eq!(
        unknown.err().and_then(|error| error.status()),
        Some(400),
        "nobody made the trait"
    );
    placement.create_trait(ours).await?;
    placement.create_trait(ours).await?; // a second time is fine
    assert!(placement.traits().await?.contains(ours));
    assert_eq!(
        kind(placement.create_trait("NOT_CUSTOM").await),
        Some(Kind::Refused)
    );

    let stale = placement.provider_traits(&id).await?;
    let set = placement.update_provider_traits(&id, add).await?;
    assert!(set.traits.contains(ours) && set.generation > stale.generation);
    let late = placement.set_provider_traits(&id, &stale).await;
    let code = late
        .as_ref()
        .err()
        .and_then(Error::refusal)
        .and_then(|refusal| refusal.code.clone());
    assert_eq!(code.as_deref(), Some("placement.concurrent_update"));
    assert_eq!(kind(late), Some(Kind::GenerationConflict));
    let refused = placement.delete_trait(ours).await;
    assert_eq!(kind(refused), Some(Kind::Conflict), "a provider has it");
    placement.update_provider_traits(&id, |_| BTreeSet::new()).await?;
    assert_eq!(placement.delete_trait(ours).await?, Removal::Accepted);

    let mut aggregates = placement.provider_aggregates(&id).await?;
    let uuid = "9d2f6c0a-8a3e-4f63-9a8c-0e3b9f3a1c11";
    aggregates.aggregates.insert(uuid.to_owned());
    let newer = placement.set_provider_aggregates(&id, &aggregates).await?;
    assert!(newer.aggregates.contains(uuid));
    let again = placement.set_provider_aggregates(&id, &aggregates).await;
    assert_eq!(kind(again), Some(Kind::GenerationConflict));
    assert_eq!(placement.delete_provider(&id).await?, Removal::Accepted);
    assert_eq!(placement.delete_provider(&id).await?, Removal::WasGone);
    assert_eq!(placement.provider(&id).await.optional()?, None);
    Ok(())
}

async fn allocations(session: &Session) -> Outcome {
    let placement = session.placement();
    let id = own_provider(session, "real-openstack-allocations").await?;
    let generation = placement.provider(&id).await?.generation;
    let inventory = Inventory {
        total: 1000,
        reserved: 0,
        min_unit: 1,
        max_unit: 1000,
        step_size: 1,
        allocation_ratio: 1.0,
    };
    // a class that no compute host has, so that the scheduler never looks here
    let inventories = Inventories {
        inventories: BTreeMap::from([("SRIOV_NET_VF".to_owned(), inventory)]),
        generation,
    };
    placement.set_inventories(&id, &inventories).await?;
    let resources = BTreeMap::from([("SRIOV_NET_VF".to_owned(), 7)]);
    let filter = CandidateFilter {
        resources: resources.clone(),
        limit: Some(5),
        ..CandidateFilter::default()
    };
    let candidates = placement.allocation_candidates(&filter).await?;
    assert!(
        candidates
            .iter()
            .any(|candidate| candidate.allocations.contains_key(&id)),
        "{candidates:?}"
    );
    let consumer: ConsumerId = "5b0f2a52-3f53-4b6d-8f6b-1f6f0c2e7a01".into();
    placement.delete_allocations(&consumer).await?;
    assert!(
        placement.allocations(&consumer).await?.allocations.is_empty(),
        "unknown means nothing held"
    );
    let me = session.identity().await?;
    let new = NewAllocation {
        allocations: BTreeMap::from([(id.clone(), Allocation { resources })]),
        generation: None,
        project_id: me.project.as_ref().ok_or("no project")?.id.as_str().into(),
        user_id: me.user.id.as_str().into(),
        consumer_type: "INSTANCE".to_owned(),
    };
    placement.set_allocations(&consumer, &new).await?;
    assert_eq!(
        kind(placement.set_allocations(&consumer, &new).await),
        Some(Kind::GenerationConflict)
    );
    let held = placement.allocations(&consumer).await?;
    assert_eq!((held.allocations.len(), held.generation.is_some()), (1, true));
    assert!(placement.provider_allocations(&id).await?.contains_key(&consumer));
    assert_eq!(placement.usages(&id).await?.usages.get("SRIOV_NET_VF"), Some(&7));
    assert_eq!(
        kind(placement.delete_provider(&id).await),
        Some(Kind::Conflict),
        "something is allocated"
    );
    assert_eq!(placement.delete_allocations(&consumer).await?, Removal::Accepted);
    assert_eq!(placement.delete_allocations(&consumer).await?, Removal::WasGone);
    assert_eq!(placement.delete_provider(&id).await?, Removal::Accepted);
    Ok(())
}

#[test]
fn images_and_networks_come_and_go() {
    in_the_lab(async |session, _| {
        let glance = session.glance();
        let tiny = glance.image_by_name("tiny").await?.ok_or("no image")?;
        assert_eq!(glance.image(&tiny.id).await?.status, "active");
        assert_eq!(
            glance.image_by_name("tin").await?,
            None,
            "a part of a name is no image"
        );
        let new = NewImage {
            name: "real-openstack".to_owned(),
            disk_format: "raw".to_owned(),
            public: false,
        };
        let image = glance.create_image(&new).await?;
        assert_eq!(
            glance.image_by_name("real-openstack").await?,
            None,
            "an image without content is not ready"
        );
        glance.upload_image(&image.id, vec![7; 100_000].into()).await?;
        assert_eq!(glance.image(&image.id).await?.size, Some(100_000));
        let paged = session.with_page_size(1).glance().images().await?;
        assert_eq!(paged.len(), glance.images().await?.len());
        assert_eq!(glance.delete_image(&image.id).await?, Removal::Accepted);
        assert_eq!(glance.delete_image(&image.id).await?, Removal::WasGone);

        let neutron = session.neutron();
        let network = neutron.create_network("real-openstack").await?;
        assert!(
            neutron
                .networks(Some(false))
                .await?
                .iter()
                .any(|known| known.id == network.id)
        );
        assert!(
            !neutron
                .networks(Some(true))
                .await?
                .iter()
                .any(|known| known.id == network.id)
        );
        let subnet = neutron
            .create_subnet(&network.id, "real-openstack", "192.0.2.0/24")
            .await?;
        let subnets = neutron.subnets(Some(&network.id)).await?;
        assert_eq!(subnets.as_slice(), std::slice::from_ref(&subnet));
        let port = neutron.create_port(&network.id, "real-openstack").await?;
        let of_network = PortFilter {
            network: Some(network.id.clone()),
            ..PortFilter::default()
        };
        assert_eq!(neutron.ports(&of_network).await?.len(), 1);
        assert_eq!(
            kind(neutron.delete_network(&network.id).await),
            Some(Kind::Conflict),
            "it has a port"
        );
        assert_eq!(neutron.delete_port(&port.id).await?, Removal::Accepted);
        assert_eq!(neutron.delete_subnet(&subnet.id).await?, Removal::Accepted);
        assert_eq!(neutron.delete_network(&network.id).await?, Removal::Accepted);
        assert_eq!(neutron.delete_network(&network.id).await?, Removal::WasGone);
        neutron.agents(None).await?;
        assert_eq!(
            neutron
                .delete_agent(&"3f3c4e6e-0000-4000-8000-000000000000".into())
                .await?,
            Removal::WasGone
        );
        Ok(())
    });
}

#[test]
fn flavors_and_server_groups_come_and_go() {
    in_the_lab(async |session, _| {
        let nova = session.nova();
        let new = NewFlavor {
            id: Some("real-openstack".into()),
            name: "real-openstack".to_owned(),
            vcpus: 1,
            ram: 64,
            disk: 0,
        };
        nova.delete_flavor(&"real-openstack".into()).await?;
        let flavor = nova.create_flavor(&new).await?;
        assert_eq!(kind(nova.create_flavor(&new).await), Some(Kind::Conflict));
        let specs = BTreeMap::from([("trait:CUSTOM_X".to_owned(), "required".to_owned())]);
        assert_eq!(nova.set_flavor_extra_specs(&flavor.id, &specs).await?, specs);
        assert_eq!(nova.flavor(&flavor.id).await?.extra_specs, specs);
        let paged = session.with_page_size(1).nova().flavors().await?;
        assert_eq!(paged.len(), nova.flavors().await?.len());
        assert!(paged.iter().any(|known| known.id == flavor.id));
        assert_eq!(nova.delete_flavor(&flavor.id).await?, Removal::Accepted);
        assert_eq!(nova.delete_flavor(&flavor.id).await?, Removal::WasGone);

        let make = |name: &str| NewServerGroup {
            name: name.to_owned(),
            policy: "anti-affinity".to_owned(),
        };
        let first = nova.create_server_group(&make("real-openstack-1")).await?;
        let second = nova.create_server_group(&make("real-openstack-2")).await?;
        let all = session
            .with_page_size(1)
            .nova()
            .server_groups(GroupFilter::AllProjects)
            .await?;
        assert!(
            all.iter().any(|group| group.id == first.id) && all.iter().any(|group| group.id == second.id)
        );
        assert_eq!(
            nova.server_groups(GroupFilter::OwnProject).await?.len(),
            all.len()
        );
        assert_eq!(nova.server_group(&first.id).await?.policy, "anti-affinity");
        for group in [first, second] {
            assert_eq!(nova.delete_server_group(&group.id).await?, Removal::Accepted);
            assert_eq!(nova.delete_server_group(&group.id).await?, Removal::WasGone);
        }
        Ok(())
    });
}
