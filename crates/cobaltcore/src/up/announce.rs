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
    fleet: Option<(&Fleet, &Path)>,
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
    if let Some((fleet, _)) = fleet {
        simulated(fleet);
    } else {
        say!("  cloud           {auth_url}");
    }
    say!();
    say!("Try, in another terminal:");
    if let Some(path) = &kubeconfig {
        say!("  KUBECONFIG={path} kubectl get hypervisors --watch");
    }
    if let Some((fleet, folder)) = fleet {
        attempts(fleet, folder);
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

/// How to call this program: by its name where a shell finds it, by its path elsewhere.
fn program() -> String {
    const NAME: &str = "cobaltcore";
    let Ok(own) = std::env::current_exe() else {
        return NAME.into();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(NAME))
        .find(|file| file.is_file());
    if found.and_then(|file| file.canonicalize().ok()).as_deref() == Some(&*own) {
        return NAME.into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    own.strip_prefix(&here).unwrap_or(&own).display().to_string()
}

/// What has to be said to reach this `up`, if it is not where everybody looks first.
fn elsewhere(folder: &Path) -> String {
    if folder == crate::run::state_dir("up") {
        String::new()
    } else {
        format!(" --data-dir {}", folder.display())
    }
}

fn attempts(fleet: &Fleet, folder: &Path) {
    let program = program();
    say!(
        "  OS_CLIENT_CONFIG_FILE={} openstack --os-cloud sim server list --all-projects",
        fleet.simulated.clouds_yaml.display()
    );
    if let Some((host, uri)) = fleet.simulated.a_host() {
        say!("  virsh -c '{uri}' list");
        if let Some(rundir) = fleet.simulated.a_switch() {
            say!("  OVS_RUNDIR={} ovs-vsctl show", rundir.display());
        }
        say!("  {program} sim kill {host}{}", elsewhere(folder));
    }
    say!(
        "  KVM_HA_SERVICE_URL={} KVM_HA_TOKEN_FILE={} {program} incidents list --watch",
        fleet.ha.url(),
        fleet.ha.operator_file().display()
    );
}
