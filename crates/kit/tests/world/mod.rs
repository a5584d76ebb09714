// SPDX-License-Identifier: Apache-2.0
//! A real API server for one test, in this process, with our definitions installed.

use std::future::Future;
use std::time::Duration;

use cobaltcore_apiserver::{Config, Server, User};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, PostParams};

/// A server and an administrator's client.
pub(crate) struct World {
    pub(crate) client: Client,
    _server: Server,
}

/// Starts a world in which all our kinds are served.
pub(crate) async fn world() -> World {
    let server = Server::start(Config::default()).await.expect("the server starts");
    let client = Client::new(server.client_as(User::admin()), "default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in cobaltcore_api::crds() {
        let name = crd.metadata.name.clone().expect("a name");
        definitions
            .create(&PostParams::default(), &crd)
            .await
            .expect("the definition is accepted");
        until(&name, || async {
            let status = definitions.get(&name).await.expect("it was created").status?;
            let conditions = status.conditions.unwrap_or_default();
            conditions
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True")
                .then_some(())
        })
        .await;
    }
    World {
        client,
        _server: server,
    }
}

/// Waits for something to come true. The limit only keeps a failing test from hanging.
pub(crate) async fn until<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    for _ in 0..600 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited in vain: {what}");
}
