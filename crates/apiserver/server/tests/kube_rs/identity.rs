// SPDX-License-Identifier: Apache-2.0
//! Tokens, impersonation and leases: who a client is, and who leads.

use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::world::{over_tls, refusal, world};

async fn name_of(client: &Client) -> String {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    review.status.unwrap().user_info.unwrap().username.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_token_is_an_identity() {
    let world = world().await;
    let [_, (_, admin)] = world.both_ways().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "tls");
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("robot".into()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(3_600),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let token = accounts
        .create_token_request("robot", &PostParams::default(), &request)
        .await
        .unwrap()
        .status
        .unwrap()
        .token
        .unwrap();
    let reviews: Api<TokenReview> = Api::all(admin.clone());
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.clone(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let status = reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        (status.authenticated, status.user.unwrap().username.as_deref()),
        (Some(true), Some("system:serviceaccount:tls:robot"))
    );

    let robot = over_tls(&world.home, |config| {
        config.auth_info = serde_json::from_value(json!({"token": token})).unwrap();
    })
    .await;
    assert_eq!(name_of(&robot).await, "system:serviceaccount:tls:robot");
    let maps: Api<ConfigMap> = Api::namespaced(robot, "tls");
    assert_eq!(refusal(maps.list(&ListParams::default()).await).0, 403);
    let bindings: Api<RoleBinding> = Api::namespaced(admin, "tls");
    let binding = serde_json::from_value(json!({"metadata": {"name": "robot"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "tls"}]}))
    .unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    assert!(
        !maps.list(&ListParams::default()).await.unwrap().items.is_empty(),
        "a new right holds at once"
    );
    let stranger = over_tls(&world.home, |config| {
        config.auth_info = serde_json::from_value(json!({"token": "nonsense"})).unwrap();
    })
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(stranger, "tls");
    assert_eq!(refusal(maps.list(&ListParams::default()).await).0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn impersonation_takes_the_others_rights() {
    let world = world().await;
    let jane = over_tls(&world.home, |config| {
        config.auth_info.impersonate = Some("jane".into());
        config.auth_info.impersonate_groups = Some(vec!["ops".into()]);
    })
    .await;
    assert_eq!(name_of(&jane).await, "jane");
    let maps: Api<ConfigMap> = Api::namespaced(jane, "default");
    let (code, _, message) = refusal(maps.get("x").await);
    assert_eq!(
        (code, message.as_str()),
        (
            403,
            "configmaps \"x\" is forbidden: User \"jane\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\""
        )
    );
}

fn held_by(holder: &str, before: Option<&Lease>) -> Lease {
    let now = jiff::Timestamp::now();
    let transitions = before
        .and_then(|l| l.spec.as_ref()?.lease_transitions)
        .map_or(0, |n| n + 1);
    Lease {
        metadata: ObjectMeta {
            name: Some("leader".into()),
            resource_version: before.and_then(ResourceExt::resource_version),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_gets_the_lease() {
    let world = world().await;
    for (way, client) in world.both_ways().await {
        let leases: Api<Lease> = Api::namespaced(client, way);
        let candidates = (0..8).map(|n| {
            let leases = leases.clone();
            tokio::spawn(async move {
                leases
                    .create(&PostParams::default(), &held_by(&format!("c{n}"), None))
                    .await
                    .is_ok()
            })
        });
        let won = futures::future::join_all(candidates)
            .await
            .into_iter()
            .filter(|won| *won.as_ref().unwrap())
            .count();
        assert_eq!(won, 1);
        // Everybody saw the same expired lease; one of them takes it over.
        let seen = leases.get("leader").await.unwrap();
        let takers = (0..8).map(|n| {
            let (leases, next) = (leases.clone(), held_by(&format!("t{n}"), Some(&seen)));
            tokio::spawn(async move { leases.replace("leader", &PostParams::default(), &next).await })
        });
        let results: Vec<_> = futures::future::join_all(takers)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let winners: Vec<&Lease> = results.iter().filter_map(|r| r.as_ref().ok()).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        for lost in results.iter().filter_map(|r| r.as_ref().err()) {
            assert!(
                matches!(lost, kube::Error::Api(status) if status.code == 409),
                "{lost}"
            );
        }
        let now = leases.get("leader").await.unwrap();
        assert_eq!(now.spec, winners[0].spec, "microseconds are kept");
        assert_eq!(now.spec.unwrap().lease_transitions, Some(1));
    }
}
