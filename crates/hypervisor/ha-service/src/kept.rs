// SPDX-License-Identifier: Apache-2.0
//! Small things that every replica must see, each as JSON in a ConfigMap of its own. It is changed under the version that
//! was read, so that two who change it at once both count.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

const CALL_TIME: Duration = Duration::from_secs(5);
const CONFLICT: &str = "somebody else changed it";

/// Something that is kept in the cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Kept<T> {
    maps: Api<ConfigMap>,
    name: String,
    /// What it is, which is also its key.
    what: &'static str,
    kind: PhantomData<fn() -> T>,
}

impl<T: Default + Serialize + DeserializeOwned> Kept<T> {
    /// In the ConfigMap `<lease>-<what>`.
    pub(crate) fn new(client: kube::Client, namespace: &str, lease: &str, what: &'static str) -> Self {
        Self {
            maps: Api::namespaced(client, namespace),
            name: format!("{lease}-{what}"),
            what,
            kind: PhantomData,
        }
    }

    /// As it is now.
    pub(crate) async fn read(&self) -> Result<T, String> {
        let found = timed(self.maps.get_opt(&self.name)).await?;
        found
            .as_ref()
            .map_or_else(|| Ok(T::default()), |map| self.inside(map))
    }

    /// Changes it.
    pub(crate) async fn edit(&self, change: impl Fn(&mut T) -> Result<(), String>) -> Result<(), String> {
        for _ in 0..10 {
            let found = timed(self.maps.get_opt(&self.name)).await?;
            let mut value = match &found {
                Some(map) => self.inside(map)?,
                None => T::default(),
            };
            change(&mut value)?;
            let text = serde_json::to_string(&value).map_err(|error| error.to_string())?;
            let fresh = found.is_none();
            let mut map = found.unwrap_or_else(|| ConfigMap {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                ..ConfigMap::default()
            });
            map.data = Some(BTreeMap::from([(self.what.to_owned(), text)]));
            let params = PostParams::default();
            let written = if fresh {
                timed(self.maps.create(&params, &map)).await
            } else {
                timed(self.maps.replace(&self.name, &params, &map)).await
            };
            match written {
                Err(why) if why == CONFLICT => {}
                Err(why) => return Err(why),
                Ok(_) => return Ok(()),
            }
        }
        Err(format!("others keep changing the {}; try again", self.what))
    }

    fn inside(&self, map: &ConfigMap) -> Result<T, String> {
        let text = map.data.as_ref().and_then(|data| data.get(self.what));
        let Some(text) = text else {
            return Ok(T::default());
        };
        serde_json::from_str(text)
            .map_err(|error| format!("the stored {} are not readable: {error}", self.what))
    }
}

async fn timed<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(CALL_TIME, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(CONFLICT.into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {CALL_TIME:?}")),
    }
}
