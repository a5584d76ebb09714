// SPDX-License-Identifier: Apache-2.0
//! Reads one member of a JSON answer straight into its type, without building a tree of the rest.
//! Pages come out with the word whether another one follows.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeSeed};

/// The whole answer.
pub(crate) fn whole<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// One member of the answer.
pub(crate) fn member<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<T, String> {
    let page = read(body, name)?;
    Ok(page.value)
}

/// One member that is a list, and whether the service has more of it.
pub(crate) fn page<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<(Vec<T>, bool), String> {
    let page = read(body, name)?;
    Ok((page.value, page.more))
}

fn read<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<Page<T>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let wanted = Wanted {
        name,
        kind: PhantomData,
    };
    let page = wanted
        .deserialize(&mut deserializer)
        .map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(page)
}

struct Page<T> {
    value: T,
    more: bool,
}

struct Wanted<'a, T> {
    name: &'a str,
    kind: PhantomData<T>,
}

/// Nova and Neutron: `servers_links` with a relation `next`; Keystone: `links` with a member `next`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Links {
    List(Vec<Link>),
    Members { next: Option<String> },
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct Link {
    rel: String,
}

impl Links {
    fn more(&self) -> bool {
        match self {
            Self::List(links) => links.iter().any(|link| link.rel == "next"),
            Self::Members { next } => next.is_some(),
            Self::Other(_) => false,
        }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Wanted<'_, T> {
    type Value = Page<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page<T>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Wanted<'_, T> {
    type Value = Page<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with a member {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page<T>, A::Error> {
        let mut value = None;
        let mut more = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.name {
                value = Some(map.next_value()?);
            } else if key == "links" || key.strip_suffix("_links") == Some(self.name) {
                more |= map.next_value::<Links>()?.more();
            } else if key == "next" {
                // Glance
                more |= map.next_value::<Option<String>>()?.is_some();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let missing = || A::Error::custom(format_args!("there is no member {}", self.name));
        Ok(Page {
            value: value.ok_or_else(missing)?,
            more,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_among_others() {
        let body = br#"{"a": {"deep": [1, 2]}, "server": "x", "links": 3}"#;
        assert_eq!(member::<String>(body, "server"), Ok("x".to_owned()));
    }

    #[test]
    fn every_service_says_in_its_own_way_that_there_is_more() {
        let cases: [(&str, bool); 7] = [
            (
                r#"{"s": [1], "s_links": [{"rel": "next", "href": "http://a"}]}"#,
                true,
            ),
            (
                r#"{"s_links": [{"rel": "previous", "href": "http://a"}], "s": [1]}"#,
                false,
            ),
            (r#"{"s": [1]}"#, false),
            (r#"{"s": [1], "next": "/v2/images?marker=1"}"#, true),
            (
                r#"{"s": [1], "links": {"next": null, "self": "x", "previous": null}}"#,
                false,
            ),
            (r#"{"s": [1], "links": {"next": "http://a", "self": "x"}}"#, true),
            (r#"{"s": [1], "t_links": [{"rel": "next"}]}"#, false),
        ];
        for (body, more) in cases {
            assert_eq!(page::<u8>(body.as_bytes(), "s"), Ok((vec![1], more)), "{body}");
        }
    }

    #[test]
    fn what_is_not_there_or_not_whole_is_said() {
        for body in [
            "",
            "{",
            "[]",
            "null",
            "<html>",
            r#"{"s": [1]"#,
            r#"{"s": [1]} x"#,
            r#"{"t": []}"#,
            r#"{"s": 1}"#,
        ] {
            assert!(page::<u8>(body.as_bytes(), "s").is_err(), "{body}");
        }
    }
}
