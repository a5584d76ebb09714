// SPDX-License-Identifier: Apache-2.0
//! A Prometheus is asked once for the whole fleet. A host that it does not know gets no verdict from it, and a
//! query that is not answered says nothing about anybody.

use std::collections::{BTreeMap, HashMap, HashSet};

use cobaltcore_api::names::HostName;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Fetched, Puller};
use crate::sources::expr::{Labels, Term};

impl Puller {
    pub(super) async fn ask_prometheus(&mut self) -> bool {
        let queries: Vec<String> = self
            .rules
            .iter()
            .flat_map(|compiled| compiled.expr.terms())
            .map(Term::query)
            .collect::<HashSet<_>>()
            .into_iter()
            .collect();
        let mut answers: HashMap<String, Vec<(Labels, f64)>> = HashMap::new();
        for query in queries {
            match self.query(&query).await {
                Ok(found) => {
                    answers.insert(query, found);
                }
                Err(why) => {
                    tracing::warn!(
                        source = self.pull.name,
                        query,
                        why,
                        "a query was not answered and says nothing"
                    );
                    return false;
                }
            }
        }
        let now = Instant::now();
        let hosts: Vec<HostName> = self
            .app
            .directory
            .all()
            .into_iter()
            .map(|(host, _)| host)
            .collect();
        let labels: HashMap<String, String> = self
            .rules
            .iter()
            .map(|compiled| (compiled.rule.name.clone(), compiled.rule.host_label.clone()))
            .collect();
        for host in hosts {
            // A host the monitoring system does not know gets no verdict from it.
            let known = answers
                .values()
                .flatten()
                .any(|(series, _)| labels.values().any(|label| names(series, label, &host)));
            if !known {
                continue;
            }
            let labels: Vec<String> = labels.values().cloned().collect();
            self.judge_all(&host, now, Fetched::Whole, |_, term| {
                let found = answers.get(&term.query()).map_or(&[][..], Vec::as_slice);
                let values: Vec<f64> = found
                    .iter()
                    .filter(|(series, _)| labels.iter().any(|label| names(series, label, &host)))
                    .map(|(_, value)| *value)
                    .collect();
                match term {
                    Term::Count(_) => vec![values.len() as f64],
                    _ => values,
                }
            });
        }
        true
    }

    async fn query(&self, query: &str) -> Result<Vec<(Labels, f64)>, String> {
        #[derive(Deserialize)]
        struct Reply {
            status: String,
            #[serde(default)]
            error: String,
            #[serde(default)]
            data: Data,
        }
        #[derive(Default, Deserialize)]
        struct Data {
            #[serde(default)]
            result: Vec<Series>,
        }
        #[derive(Deserialize)]
        struct Series {
            #[serde(default)]
            metric: BTreeMap<String, String>,
            value: (f64, String),
        }
        let base = self.pull.url.trim_end_matches('/');
        let mut url = url::Url::parse(&format!("{base}/api/v1/query")).map_err(|error| error.to_string())?;
        url.query_pairs_mut().append_pair("query", query);
        let text = self
            .fetcher
            .fetch(url.as_str())
            .await
            .map_err(|failure| failure.to_string())?;
        let reply: Reply = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if reply.status != "success" {
            return Err(reply.error);
        }
        Ok(reply
            .data
            .result
            .into_iter()
            .filter_map(|series| Some((series.metric, series.value.1.parse().ok()?)))
            .collect())
    }
}

/// Whether a series is about a host: its label is the host's name, perhaps with a domain or a port.
fn names(series: &Labels, label: &str, host: &HostName) -> bool {
    let label = if label.is_empty() { "instance" } else { label };
    series.get(label).is_some_and(|value| {
        let bare = value.split(':').next().unwrap_or_default().to_ascii_lowercase();
        bare == host.as_str() || bare.split('.').next() == Some(host.short())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_matched_to_hosts_by_whole_names() {
        let host = HostName::new("node1").unwrap();
        let series = |value: &str| Labels::from([("instance".to_owned(), value.to_owned())]);
        for (value, wanted) in [
            ("node1:9100", true),
            ("node1", true),
            ("node1.example.org:9100", true),
            ("node10:9100", false),
            ("xnode1", false),
        ] {
            assert_eq!(names(&series(value), "", &host), wanted, "{value}");
        }
    }
}
