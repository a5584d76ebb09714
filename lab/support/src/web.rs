// SPDX-License-Identifier: Apache-2.0
//! One blocking HTTP call with a deadline, shared by the OpenStack and the Redfish client.

use std::time::Duration;

use serde_json::Value;
use ureq::http;

use crate::{Error, Result};

/// Longer than any answer of a healthy lab on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);
/// Beyond this an answer is not one that a test asked for.
const BODY_LIMIT: u64 = 16 << 20;
const QUOTED_BODY: usize = 500;

/// An answer with whatever status it has.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The answer itself if its status is a success, else an error that quotes it.
    pub(crate) fn success(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        Err(Error::Status {
            method: self.method,
            url: self.url,
            status: self.status,
            body: self.text.chars().take(QUOTED_BODY).collect(),
        })
    }

    /// The body as JSON; an empty body is `null`.
    pub(crate) fn json(&self) -> Result<Value> {
        if self.text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.text).map_err(|error| Error::Shape {
            url: self.url.clone(),
            detail: error.to_string(),
        })
    }
}

/// Calls `url`. No connection is kept: half of the servers here close after each answer.
pub(crate) fn call(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Answer> {
    let transport = |detail: String| Error::Transport {
        method: method.to_owned(),
        url: url.to_owned(),
        detail,
    };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(DEADLINE))
        .http_status_as_error(false)
        .max_idle_connections(0)
        .build()
        .into();
    let mut request = http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = if let Some(body) = body {
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        agent.run(request.map_err(|error| transport(error.to_string()))?)
    } else {
        agent.run(request.body(()).map_err(|error| transport(error.to_string()))?)
    };
    let mut answer = answer.map_err(|error| transport(error.to_string()))?;
    let text = answer
        .body_mut()
        .with_config()
        .limit(BODY_LIMIT)
        .read_to_string()
        .map_err(|error| transport(error.to_string()))?;
    Ok(Answer {
        method: method.to_owned(),
        url: url.to_owned(),
        status: answer.status().as_u16(),
        headers: answer.headers().clone(),
        text,
    })
}
