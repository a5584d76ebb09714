// SPDX-License-Identifier: Apache-2.0
//! A plain HTTP client with a token, for asking the simulated services what a test wants to know.
#![allow(dead_code, clippy::unwrap_used)]

use std::time::Duration;

use cobaltcore_sim::cloud::{Cloud, Service};
use cobaltcore_sim::world::{ADMIN_PASSWORD, Builder, World};
use serde_json::{Value, json};

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Got {
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// The message of a refusal by Nova.
    pub(crate) fn message(&self) -> &str {
        let fault = self.body.as_object().unwrap().values().next().unwrap();
        fault["message"].as_str().unwrap()
    }
}

pub(crate) struct Api {
    pub(crate) cloud: Cloud,
    http: reqwest::Client,
    token: String,
    /// Minor number of Nova's microversion.
    pub(crate) nova: u32,
}

pub(crate) fn http() -> reqwest::Client {
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder()
        .timeout(Duration::from_secs(120))
        .build()
        .unwrap()
}

/// Password authentication in a project.
pub(crate) fn password(user: &str, project: &str, domain: &str) -> Value {
    json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": {
            "name": user, "domain": {"name": "Default"}, "password": ADMIN_PASSWORD}}},
        "scope": {"project": {"name": project, "domain": {"name": domain}}},
    }})
}

impl Api {
    pub(crate) async fn of(builder: Builder) -> Self {
        Self::start(builder.build()).await
    }

    pub(crate) async fn start(world: World) -> Self {
        let cloud = Cloud::start(world).await.unwrap();
        let mut api = Self {
            cloud,
            http: http(),
            token: String::new(),
            nova: 90,
        };
        api.sign_in("admin", "admin", "Default").await;
        api
    }

    pub(crate) fn world(&self) -> &World {
        self.cloud.world()
    }

    pub(crate) async fn sign_in(&mut self, user: &str, project: &str, domain: &str) -> Value {
        let url = format!("{}/auth/tokens", self.cloud.auth_url());
        let answer = self
            .http
            .post(url)
            .json(&password(user, project, domain))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 201);
        answer.headers()["x-subject-token"]
            .to_str()
            .unwrap()
            .clone_into(&mut self.token);
        answer.json().await.unwrap()
    }

    pub(crate) async fn call(&self, service: Service, method: &str, path: &str, body: Option<Value>) -> Got {
        let version = match service {
            Service::Compute => "/v2.1",
            Service::Identity | Service::Volume => "/v3",
            Service::Image => "/v2",
            Service::Network => "/v2.0",
            Service::Placement => "",
        };
        let url = format!("{}{version}{path}", self.cloud.url(service));
        let api = match service {
            Service::Placement => "placement 1.39".to_owned(),
            _ => format!("compute 2.{}", self.nova),
        };
        let mut request = self
            .http
            .request(method.parse().unwrap(), url)
            .header("x-auth-token", &self.token)
            .header("openstack-api-version", api);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Got {
            status,
            headers,
            body,
            text,
        }
    }

    pub(crate) async fn nova(&self, method: &str, path: &str, body: Option<Value>) -> Got {
        self.call(Service::Compute, method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.nova("GET", path, None).await.expect(200)
    }

    pub(crate) async fn server(&self, id: &str) -> Value {
        self.get(&format!("/servers/{id}")).await["server"].clone()
    }

    pub(crate) async fn act(&self, id: &str, body: Value) -> Got {
        self.nova("POST", &format!("/servers/{id}/action"), Some(body))
            .await
    }

    pub(crate) async fn placement(&self, method: &str, path: &str, body: Option<Value>) -> Got {
        self.call(Service::Placement, method, path, body).await
    }

    /// Identifiers of the servers on a host.
    pub(crate) async fn on(&self, host: &str) -> Vec<String> {
        let found = self
            .get(&format!("/servers/detail?all_tenants=true&host={host}"))
            .await;
        let servers = found["servers"].as_array().unwrap().iter();
        servers
            .map(|server| server["id"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) async fn service(&self, host: &str) -> Value {
        let found = self
            .get(&format!("/os-services?binary=nova-compute&host={host}"))
            .await;
        found["services"][0].clone()
    }

    pub(crate) fn step(&self, seconds: u64) {
        self.world().step(Duration::from_secs(seconds));
    }
}
