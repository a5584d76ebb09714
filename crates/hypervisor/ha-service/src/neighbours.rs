// SPDX-License-Identifier: Apache-2.0
//! Whom an agent asks before its host takes itself out: agents of other hosts, most of them in
//! other racks, so that a host whose rack is cut off does not find its own opinion there. Chosen
//! anew with every answer from those that were heard lately; the same host asks the same neighbours
//! as long as they live.

use cobaltcore_api::names::HostName;
use cobaltcore_ha_wire::bounds::PEERS;

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

/// How many of the neighbours may share the rack of the one who asks.
const NEAR: usize = 2;

/// The agents that the one of `host` may ask, as base addresses; none where its rack is not known. `all` are those
/// that live, in the order of their names.
pub fn choose(host: &HostName, rack: Option<&str>, all: &[Neighbour], port: u16) -> Vec<String> {
    // Everybody begins with whom comes after him, so that nobody is asked by all.
    let start = all.partition_point(|other| other.host <= *host);
    let ring = || all.iter().cycle().skip(start).take(all.len());
    // Whose rack is not known may be cut off together with whoever asks it. They would find each other, go on, and be
    // taken for reset: nobody is better than one of those.
    let Some(rack) = rack else {
        return Vec::new();
    };
    let others = || ring().filter(|other| other.host != *host && other.rack.is_some());
    let near = |other: &&Neighbour| other.rack.as_deref() == Some(rack);
    let far: Vec<&Neighbour> = others().filter(|other| !near(other)).take(PEERS).collect();
    // Few racks: then from one's own.
    let from_here = PEERS.saturating_sub(far.len()).max(NEAR);
    let mut chosen: Vec<&Neighbour> = others().filter(near).take(from_here).collect();
    let left = PEERS - chosen.len();
    chosen.extend(far.into_iter().take(left));
    chosen
        .into_iter()
        .map(|other| format!("http://{}", std::net::SocketAddr::new(other.address, port)))
        .collect()
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
            assert_eq!(found.len(), PEERS, "{host:?}");
            let own = format!("http://{}:9184", host.address);
            assert!(!found.contains(&own), "{found:?}");
            let third = format!("http://10.0.{}.", &rack[3..]);
            assert_eq!(found.iter().filter(|url| url.starts_with(&third)).count(), NEAR);
        }
    }

    #[test]
    fn few_racks_and_few_hosts_are_better_than_nobody() {
        assert_eq!(asked("r0n0", "bb=0", &fleet(&[6])).len(), PEERS);
        assert_eq!(asked("r0n0", "bb=0", &fleet(&[2, 1])).len(), 2);
        assert_eq!(asked("r0n0", "bb=0", &fleet(&[1])), Vec::<String>::new());
        assert_eq!(
            asked("new", "bb=9", &fleet(&[2, 2])).len(),
            4,
            "one that is not listed yet"
        );
    }

    #[test]
    fn whose_rack_nobody_knows_asks_nobody_and_is_asked_by_nobody() {
        let mut all = fleet(&[4, 4]);
        let own = HostName::new("r0n0").unwrap();
        assert_eq!(choose(&own, None, &all, 9184), Vec::<String>::new());
        for unknown in all.iter_mut().filter(|other| other.host.as_str() != "r1n2") {
            unknown.rack = None;
        }
        assert_eq!(
            choose(&own, None, &all, 9184),
            Vec::<String>::new(),
            "no labels at all"
        );
        assert_eq!(
            choose(&own, Some("bb=0"), &all, 9184),
            ["http://10.0.1.2:9184"],
            "the others may stand in its rack"
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
        assert!(times.values().all(|count| *count <= 2 * PEERS), "{times:?}");
    }
}
