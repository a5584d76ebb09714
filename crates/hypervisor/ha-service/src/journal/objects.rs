// SPDX-License-Identifier: Apache-2.0
//! The journal of several replicas: a chain of ConfigMaps, its segments. Every append replaces the
//! last of them under the version that was read, so of two writers one is refused; a full one is
//! sealed, also under its version, before the next is made. etcd's consensus is the only one there
//! is. Sealed segments are cut: what the journal has forgotten leaves them, and one with nothing left
//! is joined to the next. Whoever only follows reads what was added since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cobaltcore_ha_engine::{Record, forgotten};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use tokio::sync::Mutex;

use super::cut::cut;
use super::{AppendError, News, continues, incomplete};

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

/// Up to where somebody who follows has read.
#[derive(Clone, Debug)]
pub struct Place {
    number: u64,
    version: String,
    sealed: bool,
    seq: u64,
}

/// One object.
#[derive(Clone, Debug)]
struct Segment {
    number: u64,
    version: String,
    sealed: bool,
    text: String,
    records: Vec<Record>,
}

/// All segments, and those whose records the next one stands for already.
struct Chain {
    segments: Vec<Segment>,
    covered: Vec<Segment>,
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

    // --- reading

    pub(super) async fn load(&self) -> Result<Vec<Record>, AppendError> {
        let mut end = self.end.lock().await;
        *end = None;
        let segments = self.chain().await?.segments;
        *end = segments.last().map(|segment| End {
            number: segment.number,
            version: segment.version.clone(),
            text: segment.text.clone(),
            sealed: segment.sealed,
            last: segment
                .records
                .last()
                .map_or((0, 0), |record| (record.until(), record.epoch.0)),
        });
        Ok(records_of(segments))
    }

    async fn chain(&self) -> Result<Chain, AppendError> {
        let chosen = ListParams::default().labels(&format!("{LABEL}={}", self.name));
        let mut all = Vec::new();
        for map in timed(self.maps.list(&chosen)).await?.items {
            all.push(Segment::read(&map)?);
        }
        all.sort_by_key(|segment| std::cmp::Reverse(segment.number));
        let (mut segments, mut covered): (Vec<Segment>, _) = (Vec::new(), Vec::new());
        for segment in all {
            let next = segments.last().and_then(Segment::first);
            match (segment.first(), next) {
                (Some(first), Some(next)) if first >= next => covered.push(segment),
                _ => segments.push(segment),
            }
        }
        segments.reverse();
        let mut after = 0;
        for segment in &segments {
            for record in &segment.records {
                if record.seq != after + 1 {
                    return Err(incomplete(format!(
                        "record {} follows record {after} in {}",
                        record.seq,
                        self.segment_name(segment.number)
                    )));
                }
                after = record.until();
            }
        }
        Ok(Chain { segments, covered })
    }

    /// What is new since `place`, which moves on.
    pub(super) async fn follow(&self, place: &mut Option<Place>) -> Result<News, AppendError> {
        if let Some(from) = place.clone() {
            if let Some((records, reached)) = self.since(from).await? {
                *place = Some(reached);
                return Ok(News::More(records));
            }
            // What was read last is gone: so is the place.
            *place = None;
        }
        let segments = self.chain().await?.segments;
        *place = segments.last().map(|segment| Place {
            number: segment.number,
            version: segment.version.clone(),
            sealed: segment.sealed,
            seq: segment.records.last().map_or(0, Record::until),
        });
        Ok(News::All(records_of(segments)))
    }

    /// What was added since, and up to where that is. Only a segment that changed is read.
    async fn since(&self, mut at: Place) -> Result<Option<(Vec<Record>, Place)>, AppendError> {
        let mut new = Vec::new();
        loop {
            let number = if at.sealed { at.number + 1 } else { at.number };
            let name = self.segment_name(number);
            let seen = timed(self.maps.get_metadata_opt(&name)).await?;
            match seen.and_then(|seen| seen.resource_version()) {
                None => return Ok(None),
                Some(version) if !at.sealed && version == at.version => return Ok(Some((new, at))),
                Some(_) => {}
            }
            let Some(map) = timed(self.maps.get_opt(&name)).await? else {
                return Ok(None);
            };
            let segment = Segment::read(&map)?;
            for record in segment.records {
                if record.until() <= at.seq {
                    continue;
                }
                if record.seq != at.seq + 1 {
                    return Ok(None);
                }
                at.seq = record.until();
                new.push(record);
            }
            at = Place {
                number,
                version: segment.version,
                sealed: segment.sealed,
                seq: at.seq,
            };
        }
    }

    // --- writing

    /// What does not fit into one object goes into several, one after the other: of an append that fails, a beginning may
    /// have been written.
    pub(super) async fn append(&self, records: Vec<Record>) -> Result<(), AppendError> {
        let mut end = self.end.lock().await;
        continues(end.as_ref().map_or((0, 0), |end| end.last), &records)?;
        for (text, last) in portions(&records)? {
            *end = Some(self.append_text(&mut end, text, last).await?);
        }
        Ok(())
    }

    async fn append_text(
        &self,
        end: &mut Option<End>,
        more: String,
        last: (u64, u64),
    ) -> Result<End, AppendError> {
        let Some(known) = end.clone() else {
            return self.create(1, more, last).await;
        };
        if !known.sealed && known.text.len() + more.len() <= SEGMENT {
            let text = known.text.clone() + &more;
            return self.replace(&known, text, false, last).await;
        }
        if !known.sealed {
            *end = Some(self.replace(&known, known.text.clone(), true, known.last).await?);
        }
        self.create(known.number + 1, more, last).await
    }

    /// Removes from sealed segments what is forgotten, the oldest first; says how many records left. The segment that is
    /// written to is left alone.
    pub(super) async fn cut(&self, before: Timestamp) -> Result<usize, AppendError> {
        let Chain { segments, covered } = self.chain().await?;
        for segment in covered {
            self.delete(segment.number).await?;
        }
        let gone = forgotten(&records_of(segments.clone()));
        let full: Vec<Segment> = segments.into_iter().filter(|segment| segment.sealed).collect();
        let (last, mut total) = (full.len().saturating_sub(1), 0);
        let mut mark: Option<Record> = None;
        let mut joined: Vec<u64> = Vec::new();
        for (n, segment) in full.into_iter().enumerate() {
            let longer = mark.is_some();
            let had = segment.records.len();
            let mut after = cut(mark.take().into_iter().chain(segment.records), &gone, before);
            total += after.left;
            if after.empty() && n < last {
                // The next one stands for it as well; until then it stays.
                mark = after.records.pop();
                joined.push(segment.number);
                continue;
            }
            if longer || after.left > 0 || (after.empty() && had > 1) {
                let text = text_of_records(&after.records)?;
                let map = self.map(segment.number, &text, true, Some(&segment.version));
                let name = self.segment_name(segment.number);
                timed(self.maps.replace(&name, &PostParams::default(), &map)).await?;
            }
            for number in joined.drain(..) {
                self.delete(number).await?;
            }
        }
        Ok(total)
    }

    async fn delete(&self, number: u64) -> Result<(), AppendError> {
        let name = self.segment_name(number);
        let call = async {
            match self.maps.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop),
            }
        };
        timed(call).await
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

impl Segment {
    fn read(map: &ConfigMap) -> Result<Self, AppendError> {
        let name = map.name_any();
        let number = name.rsplit('-').next().and_then(|digits| digits.parse().ok());
        let Some(number) = number else {
            return Err(incomplete(format!("{name} has no number")));
        };
        let text = text_of(map);
        let read = text.lines().map(serde_json::from_str);
        let records: Result<Vec<Record>, _> = read.collect();
        Ok(Self {
            number,
            version: map.resource_version().unwrap_or_default(),
            sealed: sealed(map),
            text: text.to_owned(),
            records: records.map_err(|error| incomplete(format!("{name}: {error}")))?,
        })
    }

    fn first(&self) -> Option<u64> {
        self.records.first().map(|record| record.seq)
    }
}

fn records_of(segments: Vec<Segment>) -> Vec<Record> {
    segments.into_iter().flat_map(|segment| segment.records).collect()
}

fn text_of_records(records: &[Record]) -> Result<String, AppendError> {
    let mut text = String::new();
    for record in records {
        let line =
            serde_json::to_string(record).map_err(|error| AppendError::Unavailable(error.to_string()))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// A text of records, and the number and term of the last of them.
type Portion = (String, (u64, u64));

/// Records as texts that fit into an object, each with the number and term of its last record. One that fits into none is
/// alone.
fn portions(records: &[Record]) -> Result<Vec<Portion>, AppendError> {
    let mut portions: Vec<Portion> = Vec::new();
    for record in records {
        let line = text_of_records(std::slice::from_ref(record))?;
        let last = (record.seq, record.epoch.0);
        match portions.last_mut() {
            Some((text, until)) if text.len() + line.len() <= SEGMENT => {
                text.push_str(&line);
                *until = last;
            }
            _ => portions.push((line, last)),
        }
    }
    Ok(portions)
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
