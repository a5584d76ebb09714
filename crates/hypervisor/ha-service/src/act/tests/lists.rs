// SPDX-License-Identifier: Apache-2.0
//! Lists of guests that are complete, lists that prove nothing, and what is remembered of the things around guests.

use std::collections::BTreeSet;
use std::time::Duration;

use cobaltcore_api::names::ServerId;
use cobaltcore_ha_engine::{Answer, Effect, ServerFacts, Trouble};
use cobaltcore_sim::cloud::Service;
use cobaltcore_sim::world::{ApiEffect, ApiFault, ServerGroup, VmState};
use uuid::Uuid;

use super::{ONE, Rig, TWO, name, uuid};

/// How many guests are listed, and whether those are all.
async fn listed(rig: &Rig) -> (usize, bool) {
    match rig.act(Effect::ListServers { host: name(ONE) }).await.unwrap() {
        Answer::Servers {
            servers, complete, ..
        } => (servers.len(), complete),
        other => panic!("{other:?}"),
    }
}

fn cell_down(rig: &Rig, down: bool) {
    rig.world.change(|state| {
        let host = state.hosts.get_mut(ONE).unwrap();
        host.service.as_mut().unwrap().cell_down = down;
    });
}

fn slow(rig: &Rig, part: &str) {
    let late = ApiFault::all(ApiEffect::Delay(Duration::from_millis(500)));
    rig.world.break_api(late.part(part));
}

/// Waits until Nova was asked this.
async fn asked(rig: &Rig, route: &str) {
    while rig.far.calls().count(Service::Compute, "GET", route) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The cell of the host is away while its guests are listed, and there before and after.
async fn listed_while_the_cell_is_away(rig: &Rig) -> (usize, bool) {
    rig.far.calls().reset();
    slow(rig, "servers/detail");
    slow(rig, "os-migrations");
    let goes_and_comes = async {
        asked(rig, "/os-services").await;
        cell_down(rig, true);
        asked(rig, "/servers/detail").await;
        cell_down(rig, false);
    };
    let (found, ()) = tokio::join!(listed(rig), goes_and_comes);
    rig.world.heal();
    found
}

/// Nova answers 200 and leaves out the guests of a cell that is down: nobody may take that for a host without guests.
#[tokio::test]
async fn a_list_of_guests_is_not_complete_while_the_cell_of_the_host_is_down() {
    let rig = Rig::new().await;
    cell_down(&rig, true);
    assert_eq!(listed(&rig).await, (0, false));
    let unknown = rig.act(Effect::ReadService { host: name(ONE) }).await;
    assert_eq!(unknown.unwrap_err(), Trouble::Unknown);
    cell_down(&rig, false);
    assert_eq!(listed(&rig).await, (2, true));
}

#[tokio::test]
async fn a_cell_that_is_back_after_the_list_has_hidden_guests_from_it() {
    let rig = Rig::new().await;
    cell_down(&rig, true);
    slow(&rig, "os-migrations");
    let comes_back = async {
        asked(&rig, "/servers/detail").await;
        cell_down(&rig, false);
    };
    let (found, ()) = tokio::join!(listed(&rig), comes_back);
    assert_eq!(found, (0, false));
}

#[tokio::test]
async fn a_guest_that_was_there_and_is_not_listed_is_asked_for_by_its_name() {
    let rig = Rig::new().await;
    let guest = uuid(&rig.server_on(ONE));
    rig.deps.directory.change(&name(ONE), |entry| {
        entry.guests = [guest, Uuid::from_u128(7)].into();
    });
    assert_eq!(listed_while_the_cell_is_away(&rig).await, (0, false));
    assert_eq!(
        listed(&rig).await,
        (2, true),
        "one that Nova does not know is gone"
    );
    rig.fence(ONE).await;
    let guests: BTreeSet<Uuid> = rig.world.read(|state| {
        let there = state.servers_on(ONE).map(|server| server.id);
        there.collect()
    });
    for guest in guests {
        rig.world.evacuate(guest).unwrap();
    }
    rig.world.step(Duration::from_secs(300));
    assert_eq!(listed(&rig).await, (0, true), "they are elsewhere");
}

/// Nova lists none that may still be reclaimed, and names its host all the same when it is asked for by its name.
#[tokio::test]
async fn a_guest_that_its_owner_deleted_is_not_missing_from_a_list() {
    let rig = Rig::new().await;
    let guest = uuid(&rig.server_on(ONE));
    rig.world.change(|state| {
        state.servers.get_mut(&guest).unwrap().vm_state = VmState::SoftDeleted;
    });
    rig.deps
        .directory
        .change(&name(ONE), |entry| entry.guests = [guest].into());
    assert_eq!(listed(&rig).await, (1, true));
}

#[tokio::test]
async fn an_empty_list_of_a_host_that_had_guests_is_asked_for_again() {
    let rig = Rig::new().await;
    rig.deps.directory.change(&name(ONE), |entry| entry.instances = 2);
    assert_eq!(listed_while_the_cell_is_away(&rig).await, (2, true));
}

/// With a slow Nova, whoever began anew each time would never come to an end.
#[tokio::test]
async fn what_was_read_for_a_list_that_failed_is_not_read_again_for_the_next() {
    let rig = Rig::new().await;
    rig.world.change(|state| {
        for (n, server) in state.servers.values_mut().enumerate() {
            server.image = Some(Uuid::from_u128(n as u128 + 1));
        }
    });
    let read = || {
        let calls = rig.far.calls();
        let of = |service, route| calls.count(service, "GET", route);
        let images = calls.latest(|call| call.path.contains("/images/")).len();
        (images, of(Service::Compute, "/os-aggregates"))
    };
    rig.world
        .break_api(ApiFault::all(ApiEffect::Refuse(500)).part("os-migrations"));
    let cut = rig.act(Effect::ListServers { host: name(ONE) }).await;
    assert_eq!(cut.unwrap_err(), Trouble::Unknown);
    assert_eq!(read(), (2, 1));
    rig.world.heal();
    assert_eq!(listed(&rig).await, (2, true));
    assert_eq!(read(), (2, 1), "nothing of it was asked for again");
}

/// A guest may be left alone because of what its image says. The 404 of a gateway says nothing of any image.
#[tokio::test]
async fn a_glance_that_is_not_there_is_no_image_that_is_gone() {
    let rig = Rig::new().await;
    let guest = uuid(&rig.server_on(ONE));
    rig.world.change(|state| {
        state.servers.get_mut(&guest).unwrap().image = Some(Uuid::from_u128(1));
    });
    let nobody_there = ApiFault::all(ApiEffect::Gateway(404)).service("image");
    rig.world.break_api(nobody_there);
    let unknown = rig.act(Effect::ListServers { host: name(ONE) }).await;
    assert_eq!(unknown.unwrap_err(), Trouble::Unknown);
    rig.world.heal();
    assert_eq!(
        listed(&rig).await,
        (2, true),
        "Glance says itself that it has no such image"
    );
}

async fn group_of(rig: &Rig, server: &ServerId) -> Option<String> {
    let effect = Effect::ReadServer {
        server: server.clone(),
    };
    match rig.act(effect).await.unwrap() {
        Answer::Server {
            server: Some(ServerFacts { anti_affinity, .. }),
            ..
        } => anti_affinity,
        other => panic!("{other:?}"),
    }
}

fn put_into_a_group(rig: &Rig, server: &ServerId, policy: &str) -> Uuid {
    let server = uuid(server);
    rig.world.change(|state| {
        let member = state.servers.get_mut(&server).unwrap();
        let group = ServerGroup {
            id: Uuid::from_u128(0xa0 + u128::from(member.number)),
            name: policy.to_owned(),
            policy: policy.to_owned(),
            project: member.project,
            user: member.user,
            members: BTreeSet::from([server]),
        };
        member.group = Some(group.id);
        let id = group.id;
        state.groups.insert(id, group);
        id
    })
}

#[tokio::test]
async fn the_group_of_a_guest_is_asked_for_once_and_alone() {
    let rig = Rig::new().await;
    let (hard, soft) = (rig.server_on(ONE), rig.server_on(TWO));
    let group = put_into_a_group(&rig, &hard, "anti-affinity");
    put_into_a_group(&rig, &soft, "soft-anti-affinity");
    for _ in 0..2 {
        assert_eq!(group_of(&rig, &hard).await, Some(group.to_string()));
        assert_eq!(group_of(&rig, &soft).await, None);
    }
    let asked = |route| rig.far.calls().count(Service::Compute, "GET", route);
    assert_eq!(asked("/os-server-groups/{id}"), 2, "its policy never changes");
    assert_eq!(asked("/os-server-groups"), 0, "those of a whole region are many");
}
