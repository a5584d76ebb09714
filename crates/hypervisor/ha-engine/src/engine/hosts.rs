// SPDX-License-Identifier: Apache-2.0
//! The hosts that are known, in the order of their names. They are asked for by name with every heartbeat and come or go
//! next to never, so each is found by one look at an index, and a host that comes moves the others.

use std::collections::HashMap;

use cobaltcore_api::names::HostName;

use super::Host;

/// Hosts by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Sorted by name.
    list: Vec<(HostName, Host)>,
    /// Where in the list each is.
    places: HashMap<HostName, usize>,
}

impl Hosts {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, name: &HostName) -> Option<&Host> {
        let place = *self.places.get(name)?;
        Some(&self.list.get(place)?.1)
    }

    pub(crate) fn get_mut(&mut self, name: &HostName) -> Option<&mut Host> {
        let place = *self.places.get(name)?;
        Some(&mut self.list.get_mut(place)?.1)
    }

    /// The host of that name, which is new if nobody knew it.
    pub(crate) fn meet(&mut self, name: &HostName) -> &mut Host {
        let place = match self.list.binary_search_by(|(known, _)| known.cmp(name)) {
            Ok(place) => place,
            Err(place) => {
                self.list.insert(place, (name.clone(), Host::default()));
                self.index_from(place);
                place
            }
        };
        &mut self.list[place].1
    }

    pub(crate) fn remove(&mut self, name: &HostName) {
        if let Some(place) = self.places.remove(name) {
            self.list.remove(place);
            self.index_from(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HostName, &Host)> {
        self.list.iter().map(|(name, host)| (name, host))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&HostName, &mut Host)> {
        self.list.iter_mut().map(|(name, host)| (&*name, host))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Host> {
        self.list.iter().map(|(_, host)| host)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Host> {
        self.list.iter_mut().map(|(_, host)| host)
    }

    /// Does something with every host that is named. Lists mostly come in the order of names, as hosts are kept; then
    /// nobody need be looked for.
    pub(crate) fn for_each_known<T>(&mut self, named: &[(HostName, T)], mut with: impl FnMut(&mut Host, &T)) {
        let mut here = 0;
        for (name, what) in named {
            let place = match self.list.get(here) {
                Some((at, _)) if at == name => Some(here),
                _ => self.places.get(name).copied(),
            };
            if let Some(place) = place
                && let Some((_, host)) = self.list.get_mut(place)
            {
                with(host, what);
                here = place + 1;
            }
        }
    }

    fn index_from(&mut self, first: usize) {
        for (place, (name, _)) in self.list.iter().enumerate().skip(first) {
            self.places.insert(name.clone(), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    fn names(hosts: &Hosts) -> Vec<&str> {
        hosts.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn each_is_found_under_its_own_name_whoever_comes_and_goes() {
        let mut hosts = Hosts::default();
        for name in ["n3", "n1", "n2", "n1"] {
            hosts.meet(&host(name)).calm = true;
        }
        assert_eq!(names(&hosts), ["n1", "n2", "n3"]);
        hosts.get_mut(&host("n2")).unwrap().calm = false;
        hosts.remove(&host("n1"));
        hosts.remove(&host("n1"));
        hosts.meet(&host("n0"));
        assert_eq!(names(&hosts), ["n0", "n2", "n3"]);
        assert!(hosts.get(&host("n1")).is_none());
        let calm = |name: &str| hosts.get(&host(name)).unwrap().calm;
        assert_eq!((calm("n2"), calm("n3")), (false, true));
    }

    #[test]
    fn lists_in_any_order_reach_everybody_they_name() {
        let mut hosts = Hosts::default();
        for name in ["n1", "n2", "n3"] {
            hosts.meet(&host(name));
        }
        let named = ["n3", "nobody", "n1", "n2"].map(|name| (host(name), ()));
        let mut reached = 0;
        hosts.for_each_known(&named, |known, ()| {
            known.calm = true;
            reached += 1;
        });
        assert_eq!(reached, 3);
        assert!(hosts.values().all(|known| known.calm));
    }
}
