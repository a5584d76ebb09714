// SPDX-License-Identifier: Apache-2.0
//! The journal of several replicas: a chain of ConfigMaps. Every append replaces the last of them
//! under the version that was read, so of two writers one is refused; a full one is sealed, also
//! under its version, before the next is made. etcd's consensus is the only one there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_engine::Record;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use tokio::sync::Mutex;

use super::{AppendError, continues};

/// Bytes of one object; etcd takes a megabyte and a half, and each append sends one whole.
const SEGMENT: usize = 256 << 10;
const CALL_TIME: Duration = Duration::from_secs(5);
const LABEL: &str = "kvm.cloud.sap/ha-journal";
const RECORDS: &str = "records";
const SEALED: &str = "sealed";

/// A journal in Kubernetes objects.
#[derive(Clone)]
pub struct ObjectJournal {
    maps: Api<ConfigMap>,
    name: String,
    end: Arc<Mutex<Option<End>>>,
}

/// The last segment as this replica knows it.
#[derive(Clone, Debug)]
struct End {
    number: u64,
    version: String,
    text: String,
    sealed: bool,
    /// Number and term of the last record.
    last: (u64, u64),
}

impl ObjectJournal {
    /// The journal called `name` in a namespace.
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self {
            maps: Api::namespaced(client, namespace),
            name: name.to_owned(),
            end: Arc::default(),
        }
    }

    fn segment_name(&self, number: u64) -> String {
        format!("{}-journal-{number:08}", self.name)
    }

    pub(super) async fn load(&self) -> Result<Vec<Record>, AppendError> {
        let mut end = self.end.lock().await;
        *end = None;
        let chosen = ListParams::default().labels(&format!("{LABEL}={}", self.name));
        let list = timed(self.maps.list(&chosen)).await?;
        let mut segments: BTreeMap<u64, ConfigMap> = BTreeMap::new();
        for map in list.items {
            let number = map
                .name_any()
                .rsplit('-')
                .next()
                .and_then(|digits| digits.parse().ok());
            let Some(number) = number else {
                return Err(broken(format!("{} has no number", map.name_any())));
            };
            segments.insert(number, map);
        }
        let mut records: Vec<Record> = Vec::new();
        for (expected, (number, map)) in (1_u64..).zip(&segments) {
            if *number != expected {
                return Err(broken(format!("segment {expected} is missing")));
            }
            for line in text_of(map).lines() {
                let record: Record = serde_json::from_str(line)
                    .map_err(|error| broken(format!("{}: {error}", map.name_any())))?;
                records.push(record);
            }
        }
        if let Some((number, map)) = segments.into_iter().next_back() {
            let last = records
                .last()
                .map_or((0, 0), |record| (record.seq, record.epoch.0));
            *end = Some(End {
                number,
                version: map.resource_version().unwrap_or_default(),
                text: text_of(&map).to_owned(),
                sealed: sealed(&map),
                last,
            });
        }
        Ok(records)
    }

    pub(super) async fn append(&self, records: Vec<Record>) -> Result<(), AppendError> {
        let mut end = self.end.lock().await;
        let last = end.as_ref().map_or((0, 0), |end| end.last);
        continues(last, &records)?;
        let mut more = String::new();
        for record in &records {
            more.push_str(
                &serde_json::to_string(record)
                    .map_err(|error| AppendError::Unavailable(error.to_string()))?,
            );
            more.push('\n');
        }
        let new_last = records.last().map_or(last, |record| (record.seq, record.epoch.0));
        let next = match end.clone() {
            None => self.create(1, more, new_last).await?,
            Some(known) if known.sealed || known.text.len() + more.len() > SEGMENT => {
                let number = known.number;
                if !known.sealed {
                    *end = Some(self.replace(&known, known.text.clone(), true, known.last).await?);
                }
                self.create(number + 1, more, new_last).await?
            }
            Some(known) => {
                let text = known.text.clone() + &more;
                self.replace(&known, text, false, new_last).await?
            }
        };
        *end = Some(next);
        Ok(())
    }

    fn map(&self, number: u64, text: &str, is_sealed: bool, version: Option<&str>) -> ConfigMap {
        let mut data = BTreeMap::from([(RECORDS.to_owned(), text.to_owned())]);
        if is_sealed {
            data.insert(SEALED.to_owned(), "true".to_owned());
        }
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.segment_name(number)),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), self.name.clone())])),
                resource_version: version.map(str::to_owned),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    async fn create(&self, number: u64, text: String, last: (u64, u64)) -> Result<End, AppendError> {
        let map = self.map(number, &text, false, None);
        let made = timed(self.maps.create(&PostParams::default(), &map)).await;
        self.settle(number, made, text, false, last).await
    }

    async fn replace(
        &self,
        known: &End,
        text: String,
        is_sealed: bool,
        last: (u64, u64),
    ) -> Result<End, AppendError> {
        let map = self.map(known.number, &text, is_sealed, Some(&known.version));
        let name = self.segment_name(known.number);
        let made = timed(self.maps.replace(&name, &PostParams::default(), &map)).await;
        self.settle(known.number, made, text, is_sealed, last).await
    }

    /// A refused or lost write may be one of our own that arrived: what is stored decides.
    async fn settle(
        &self,
        number: u64,
        made: Result<ConfigMap, AppendError>,
        text: String,
        is_sealed: bool,
        last: (u64, u64),
    ) -> Result<End, AppendError> {
        let map = match made {
            Ok(map) => map,
            Err(error) => {
                let Some(found) = timed(self.maps.get_opt(&self.segment_name(number))).await? else {
                    return Err(error);
                };
                if text_of(&found) != text || sealed(&found) != is_sealed {
                    return Err(error);
                }
                found
            }
        };
        Ok(End {
            number,
            version: map.resource_version().unwrap_or_default(),
            text,
            sealed: is_sealed,
            last,
        })
    }
}

fn text_of(map: &ConfigMap) -> &str {
    map.data
        .as_ref()
        .and_then(|data| data.get(RECORDS))
        .map_or("", String::as_str)
}

fn sealed(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key(SEALED))
}

fn broken(why: String) -> AppendError {
    AppendError::Unavailable(format!(
        "the journal is incomplete: {why}; restore it before going on"
    ))
}

async fn timed<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, AppendError> {
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(AppendError::Replaced(status.message)),
        Ok(Err(error)) => Err(AppendError::Unavailable(error.to_string())),
        Err(_) => Err(AppendError::Unavailable(format!(
            "no answer within {CALL_TIME:?}"
        ))),
    }
}
