// SPDX-License-Identifier: Apache-2.0
//! What `up` says when it is ready: where things are, and what to try first.

use std::path::Path;
use std::time::Instant;

use cobaltcore_console::Console;

use super::Fleet;
use super::cluster::Cluster;

/// Says it.
pub(super) fn ready(
    cluster: &Cluster,
    fleet: Option<&Fleet>,
    auth_url: &str,
    console: &Console,
    code: Option<&str>,
    began: Instant,
) {
    say!("CobaltCore is up ({} ms)", began.elapsed().as_millis());
    say!();
    if let Some(code) = code {
        say!("  console         {}/sign-in#code={code}", console.url());
    } else {
        say!(
            "  console         {} (sign in with a bearer token of your cluster)",
            console.url()
        );
    }
    say!("  Kubernetes API  {}", cluster.url());
    let kubeconfig = cluster.kubeconfig().map(Path::display);
    if let Some(path) = &kubeconfig {
        say!("  kubeconfig      {path}");
    }
    if let Some(fleet) = fleet {
        simulated(fleet);
    } else {
        say!("  cloud           {auth_url}");
    }
    say!();
    say!("Try, in another terminal:");
    if let Some(path) = &kubeconfig {
        say!("  KUBECONFIG={path} kubectl get hypervisors --watch");
    }
    if let Some(fleet) = fleet {
        attempts(fleet);
    }
    say!();
    say!("Ctrl-C stops it; the state is kept.");
}

fn simulated(fleet: &Fleet) {
    let (hosts, guests) = fleet
        .simulated
        .world
        .read(|state| (state.hosts.len(), state.servers.len()));
    say!(
        "  cloud           {} (simulated: {hosts} hosts, {guests} servers)",
        fleet.simulated.cloud.auth_url()
    );
    say!("  clouds.yaml     {}", fleet.simulated.clouds_yaml.display());
    say!(
        "  HA service      {} (token: {})",
        fleet.ha.url(),
        fleet.ha.operator_file().display()
    );
}

fn attempts(fleet: &Fleet) {
    say!(
        "  OS_CLIENT_CONFIG_FILE={} openstack --os-cloud sim server list --all-projects",
        fleet.simulated.clouds_yaml.display()
    );
    if let Some((host, uri)) = fleet.simulated.a_host() {
        say!("  virsh -c '{uri}' list");
        say!("  cobaltcore sim kill {host}");
    }
    say!(
        "  KVM_HA_SERVICE_URL={} KVM_HA_TOKEN_FILE={} cobaltcore incidents list --watch",
        fleet.ha.url(),
        fleet.ha.operator_file().display()
    );
}
