// SPDX-License-Identifier: Apache-2.0
//! The test server of a host: made in the test project on exactly that host, found again by what
//! is written on it, and removed. Names alone are never believed: `node1` is part of `node10`.

use std::collections::BTreeMap;
use std::time::Duration;

use cobaltcore_openstack::nova::{BootDisk, NewServer, NewServerNetworks, ServerFilter};
use cobaltcore_openstack::{FlavorId, ImageId, NetworkId};

use super::{Cloud, Error, Result};
use crate::config::Config;
use crate::onboarding::TestServer;

/// Every test server's name begins with this.
const PREFIX: &str = "ohooc-";
/// Whose test server it is, by name and by UID, in the server's metadata.
const HYPERVISOR: &str = "cobaltcore-hypervisor";
const UID: &str = "cobaltcore-uid";
/// How many lines of the console are read.
const LINES: u32 = 11;
/// The word for no network at all.
const NO_NETWORK: &str = "none";
/// For how long what test servers are made of is not looked up again: a fleet that comes in at once
/// asks once.
const FRESH: Duration = Duration::from_secs(30);

/// What every test server is made of.
#[derive(Clone, Debug)]
pub(super) struct Ingredients {
    image: ImageId,
    flavor: FlavorId,
    networks: NewServerNetworks,
}

/// A test of one host.
#[derive(Clone, Debug)]
pub(crate) struct SmokeTest {
    /// The Hypervisor.
    pub(crate) hypervisor: String,
    /// Its UID.
    pub(crate) uid: String,
    /// Its zone.
    pub(crate) zone: String,
    /// The name Nova knows it by.
    pub(crate) compute_host: String,
}

impl SmokeTest {
    /// The name of the server.
    pub(crate) fn name(&self) -> String {
        format!("{PREFIX}-{}-{}", self.hypervisor, self.uid)
    }

    /// The host name it is given, which its console has to show: short enough for every guest,
    /// and like no other host's.
    pub(crate) fn token(&self) -> String {
        let short: String = self
            .uid
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(16)
            .collect();
        format!("{PREFIX}{short}")
    }
}

impl Cloud {
    /// The test servers of a host, with what their consoles show. Servers that an operator before
    /// us left behind carry no metadata; those count by their exact name.
    pub(crate) async fn test_servers(&self, test: &SmokeTest) -> Result<Vec<TestServer>> {
        let filter = ServerFilter {
            name: Some(format!("^{PREFIX}-{}-", escape(&test.hypervisor))),
            ..ServerFilter::default()
        };
        let nova = self.test.nova();
        let mut found = Vec::new();
        for server in nova.servers(&filter).await? {
            let by_uid = server.metadata.get(UID) == Some(&test.uid);
            let by_name = server.metadata.get(HYPERVISOR) == Some(&test.hypervisor);
            let expected = server.name == test.name();
            if !(by_uid || by_name || expected) {
                continue;
            }
            let fault = server.fault.map(|fault| fault.message);
            let console = if server.status.as_str() == "ACTIVE" {
                let output = nova.console_output(&server.id, LINES).await;
                Some(output.map_err(|error| error.to_string()))
            } else {
                None
            };
            found.push(TestServer {
                id: server.id.into(),
                expected,
                status: server.status.as_str().to_owned(),
                fault,
                created: server.created,
                launched: server.launched_at,
                console,
            });
        }
        Ok(found)
    }

    /// Asks for the test server.
    pub(crate) async fn create_test_server(&self, test: &SmokeTest, config: &Config) -> Result<()> {
        let gather = || async {
            Ok::<_, Error>(Ingredients {
                image: self.test_image(&config.test_image).await?,
                flavor: self.test_flavor(&config.test_flavor).await?,
                networks: self.test_network(&config.test_network).await?,
            })
        };
        let found = self.ingredients.get(FRESH, gather).await?;
        let Ingredients {
            image,
            flavor,
            networks,
        } = Ingredients::clone(&found);
        let boot = match config.test_volume_size {
            0 => BootDisk::Image(image),
            size_gib => BootDisk::VolumeFromImage {
                image,
                size_gib,
                volume_type: Some(config.test_volume_type.clone()).filter(|kind| !kind.is_empty()),
                bus: Some("virtio".to_owned()),
            },
        };
        let server = NewServer {
            name: test.name(),
            flavor,
            boot,
            networks,
            availability_zone: Some(format!("{}:{}", test.zone, test.compute_host)),
            host: None,
            hostname: Some(test.token()),
            metadata: BTreeMap::from([
                (HYPERVISOR.to_owned(), test.hypervisor.clone()),
                (UID.to_owned(), test.uid.clone()),
            ]),
            group: None,
        };
        let created = self.test.nova().create_server(&server).await;
        if created.is_err() {
            // One of them may be gone.
            self.ingredients.forget();
        }
        created?;
        Ok(())
    }

    /// Asks for the end of a test server; one that is gone is fine.
    pub(crate) async fn delete_test_server(&self, id: &str) -> Result<()> {
        self.test.nova().delete_server(&id.into()).await?;
        Ok(())
    }

    async fn test_image(&self, name: &str) -> Result<ImageId> {
        let image = self.test.glance().image_by_name(name).await?;
        let missing = || Error::Missing(format!("there is no image {name} that the test project sees"));
        Ok(image.ok_or_else(missing)?.id)
    }

    async fn test_flavor(&self, wanted: &str) -> Result<FlavorId> {
        let id = FlavorId::from(wanted);
        match self.test.nova().flavor(&id).await {
            Ok(flavor) => return Ok(flavor.id),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        let flavors = self.admin.nova().flavors().await?;
        let named = flavors.into_iter().find(|flavor| flavor.name == wanted);
        let missing = || Error::Missing(format!("there is no flavor with the id or name {wanted}"));
        Ok(named.ok_or_else(missing)?.id)
    }

    async fn test_network(&self, wanted: &str) -> Result<NewServerNetworks> {
        if wanted == NO_NETWORK {
            return Ok(NewServerNetworks::None);
        }
        let own_only = wanted.is_empty().then_some(false);
        let networks = self.test.neutron().networks(own_only).await?;
        let found = networks.into_iter().find(|network| {
            if wanted.is_empty() {
                !network.shared
            } else {
                network.id.as_str() == wanted || network.name == wanted
            }
        });
        let missing = || {
            Error::Missing(if wanted.is_empty() {
                "the test project has no network of its own".to_owned()
            } else {
                format!("there is no network with the id or name {wanted}")
            })
        };
        Ok(NewServerNetworks::In(vec![NetworkId::from(
            found.ok_or_else(missing)?.id.as_str(),
        )]))
    }
}

/// A name inside a regular expression, which is how Nova searches.
fn escape(name: &str) -> String {
    name.replace('.', "\\.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_every_guest_and_every_host_has_its_own() {
        let test = |name: &str, uid: &str| SmokeTest {
            hypervisor: name.to_owned(),
            uid: uid.to_owned(),
            zone: "z".to_owned(),
            compute_host: name.to_owned(),
        };
        let long = "n".repeat(200);
        let one = test(&long, "6c1f2b9e-0000-4000-8000-00000000000a");
        assert!(one.token().len() <= 63);
        assert_ne!(
            one.token(),
            test(&long, "6c1f2b9e-0000-4001-8000-00000000000a").token()
        );
        assert_eq!(
            test("node1", "u").name(),
            "ohooc--node1-u",
            "the form of the running system"
        );
    }
}
