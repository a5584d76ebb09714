// SPDX-License-Identifier: Apache-2.0
//! Lists that come in pages. A list is whole or it is an error: a part of it would be taken for the
//! whole. Services that never end are stopped.

use std::collections::HashSet;

use serde::de::DeserializeOwned;

use crate::call::Request;
use crate::error::{Error, Result};
use crate::json;
use crate::session::Session;

/// More pages than any cloud has.
const MOST_PAGES: usize = 10_000;

/// Something that a list can be continued after.
pub(crate) trait Marked {
    /// What the service wants to hear as `marker`.
    fn marker(&self) -> &str;
}

/// Most lists continue after an id.
macro_rules! marked_by_id {
    ($($kind:ty),*) => {$(
        impl $crate::pages::Marked for $kind {
            fn marker(&self) -> &str {
                self.id.as_str()
            }
        }
    )*};
}
pub(crate) use marked_by_id;

impl Session {
    /// The whole list, page after page; `name` is the list's member in the answer.
    pub(crate) async fn list<T>(&self, request: Request, name: &str) -> Result<Vec<T>>
    where
        T: DeserializeOwned + Marked,
    {
        let mut all: Vec<T> = Vec::new();
        self.each_page(request, name, |page| all.extend(page)).await?;
        Ok(all)
    }

    /// The same, each page handed to `take` and not kept. After an error, what was handed out is a
    /// part of the list.
    pub(crate) async fn each_page<T>(
        &self,
        mut request: Request,
        name: &str,
        mut take: impl FnMut(Vec<T>),
    ) -> Result<()>
    where
        T: DeserializeOwned + Marked,
    {
        let mut seen: HashSet<String> = HashSet::new();
        request.set_query("limit", self.page_size().to_string());
        for _ in 0..MOST_PAGES {
            let (mut page, more) = self
                .ask(&request, |answer| json::page::<T>(&answer.body, name))
                .await?;
            // an object that moved between two pages comes twice
            page.retain(|item| seen.insert(item.marker().to_owned()));
            let last = page.last().map(|item| item.marker().to_owned());
            take(page);
            if !more {
                return Ok(());
            }
            let Some(last) = last else {
                return Err(endless(&request, name));
            };
            request.set_query("marker", last);
        }
        Err(endless(&request, name))
    }
}

fn endless(request: &Request, name: &str) -> Error {
    Error::BadAnswer {
        of: Box::new(request.attempted()),
        status: None,
        detail: format!("the pages of {name} do not end"),
    }
}
