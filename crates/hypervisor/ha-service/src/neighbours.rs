// SPDX-License-Identifier: Apache-2.0
//! Whom an agent asks before its host takes itself out: one agent of its own rack and four in other racks, so that a host
//! whose rack is cut off does not find its own opinion there, and those in racks far apart, because what stands side by side
//! is cut off together. Where there are not as many, nobody: what the engine believes of silent hosts counts on it. Chosen
//! anew with every answer from those that were heard lately; the same host asks the same neighbours as long as they live.

use std::collections::{BTreeMap, VecDeque};

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{NEAR_NEIGHBOURS, NEIGHBOURS};

/// A host that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Which.
    pub host: HostName,
    /// Its innermost failure domain, if it is known.
    pub rack: Option<String>,
    /// Its address in the management network.
    pub address: std::net::IpAddr,
}

/// The agents that the one of `host` may ask, as base addresses; none where its rack is not known, or too few stand in others.
/// `all` are those that live, in the order of their names.
pub fn choose(host: &HostName, rack: Option<&str>, all: &[Neighbour], port: u16) -> Vec<String> {
    // Whose rack is not known may be cut off together with whoever asks it. They would find each other, go on, and be
    // taken for reset: nobody is better than one of those.
    let Some(rack) = rack else {
        return Vec::new();
    };
    let others = || all.iter().filter(|other| other.host != *host);
    let (near, far): (Vec<&Neighbour>, Vec<&Neighbour>) = others()
        .filter(|other| other.rack.is_some())
        .partition(|other| other.rack.as_deref() == Some(rack));
    // Everybody begins with whom comes after him in his rack, and with somebody else than the others elsewhere.
    let nth = near.partition_point(|other| other.host < *host);
    let after = near.iter().cycle().skip(nth).take(near.len());
    let mut chosen: Vec<&Neighbour> = after.take(NEAR_NEIGHBOURS).copied().collect();
    let left = NEIGHBOURS - chosen.len();
    chosen.extend(apart(far, rack, nth, left));
    if chosen.len() < NEIGHBOURS {
        return Vec::new();
    }
    chosen
        .into_iter()
        .map(|other| format!("http://{}", std::net::SocketAddr::new(other.address, port)))
        .collect()
}

/// So many of these, from racks as far apart as there are, seen from one's own, and the `nth` of each.
fn apart<'a>(far: Vec<&'a Neighbour>, own: &str, nth: usize, count: usize) -> Vec<&'a Neighbour> {
    let mut racks: BTreeMap<&str, VecDeque<&Neighbour>> = BTreeMap::new();
    for other in far {
        racks
            .entry(other.rack.as_deref().unwrap_or_default())
            .or_default()
            .push_back(other);
    }
    let mut racks: Vec<(&str, VecDeque<&Neighbour>)> = racks.into_iter().collect();
    let start = racks.partition_point(|(rack, _)| *rack < own);
    racks.rotate_left(start);
    for (_, hosts) in &mut racks {
        hosts.rotate_left(nth % hosts.len());
    }
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count && !racks.is_empty() {
        // The middle of each of so many parts of the ring.
        let (all, parts) = (racks.len(), (count - chosen.len()).min(racks.len()));
        for part in 0..parts {
            let place = (2 * part + 1) * all / (2 * parts);
            chosen.extend(racks.get_mut(place).and_then(|(_, hosts)| hosts.pop_front()));
        }
        racks.retain(|(_, hosts)| !hosts.is_empty());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(racks: &[usize]) -> Vec<Neighbour> {
        let mut all = Vec::new();
        for (rack, hosts) in racks.iter().enumerate() {
            for n in 0..*hosts {
                all.push(Neighbour {
                    host: HostName::new(format!("r{rack}n{n}")).unwrap(),
                    rack: Some(format!("bb={rack}")),
                    address: [10, 0, u8::try_from(rack).unwrap(), u8::try_from(n).unwrap()].into(),
                });
            }
        }
        all
    }

    fn asked(host: &str, rack: &str, all: &[Neighbour]) -> Vec<String> {
        choose(&HostName::new(host).unwrap(), Some(rack), all, 9184)
    }

    #[test]
    fn most_neighbours_are_in_other_racks_and_nobody_asks_himself() {
        let all = fleet(&[4, 4, 4]);
        for host in &all {
            let rack = host.rack.as_deref().unwrap();
            let found = asked(host.host.as_str(), rack, &all);
            assert_eq!(found.len(), NEIGHBOURS, "{host:?}");
            let own = format!("http://{}:9184", host.address);
            assert!(!found.contains(&own), "{found:?}");
            let third = format!("http://10.0.{}.", &rack[3..]);
            assert_eq!(
                found.iter().filter(|url| url.starts_with(&third)).count(),
                NEAR_NEIGHBOURS
            );
        }
    }

    #[test]
    fn too_few_in_other_racks_are_nobody() {
        let count = |host: &str, rack: &str, racks: &[usize]| asked(host, rack, &fleet(racks)).len();
        for (racks, wanted) in [
            (&[20][..], 0),
            (&[20, 3], 0),
            (&[20, 4], 5),
            (&[1, 4], 0),
            (&[1, 5], 5),
            (&[2, 2, 2], 5),
            (&[2, 2, 1], 0),
            (&[1], 0),
        ] {
            assert_eq!(count("r0n0", "bb=0", racks), wanted, "{racks:?}");
        }
        assert_eq!(count("new", "bb=9", &[3, 2]), 5, "one that is not listed yet");
    }

    #[test]
    fn the_racks_that_are_asked_stand_far_apart() {
        let all = fleet(&[10; 8]);
        let racks = |host: &str, rack: &str| -> Vec<String> {
            let found = asked(host, rack, &all);
            found
                .iter()
                .map(|url| url.split('.').nth(2).unwrap().to_owned())
                .collect()
        };
        assert_eq!(racks("r0n3", "bb=0"), ["0", "1", "3", "5", "7"]);
        assert_eq!(racks("r5n0", "bb=5"), ["5", "6", "0", "2", "4"]);
    }

    #[test]
    fn whose_rack_nobody_knows_asks_nobody_and_is_asked_by_nobody() {
        let mut all = fleet(&[4, 4, 4]);
        let own = HostName::new("r0n0").unwrap();
        assert_eq!(choose(&own, None, &all, 9184), Vec::<String>::new());
        for unknown in all
            .iter_mut()
            .filter(|other| other.host.as_str().starts_with("r1"))
        {
            unknown.rack = None;
        }
        let found = choose(&own, Some("bb=0"), &all, 9184);
        assert_eq!(found.len(), NEIGHBOURS);
        assert!(
            !found.iter().any(|url| url.contains("10.0.1.")),
            "they may stand in its rack: {found:?}"
        );
    }

    #[test]
    fn the_fleet_is_asked_evenly() {
        let all = fleet(&[5, 5, 5, 5]);
        let mut times = std::collections::BTreeMap::<String, usize>::new();
        for host in &all {
            for url in asked(host.host.as_str(), host.rack.as_deref().unwrap(), &all) {
                *times.entry(url).or_default() += 1;
            }
        }
        assert_eq!(times.len(), all.len(), "everybody is somebody's neighbour");
        assert!(times.values().all(|count| *count <= 2 * NEIGHBOURS), "{times:?}");
    }
}
