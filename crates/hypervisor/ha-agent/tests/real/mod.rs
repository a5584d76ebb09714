// SPDX-License-Identifier: Apache-2.0
//! A private host with a real libvirtd: own namespaces, own configuration, gone with the test. The test binary runs
//! itself again inside of it, so that client, daemon and virsh share its loopback network.

use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cobaltcore_libvirt::client::{Connection, Options};
use tokio::process::{Child, Command as AsyncCommand};

const INSIDE: &str = "INSIDE_HOST";
pub(crate) const RW: &str = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock";
pub(crate) const TCP: &str = "qemu+tcp://127.0.0.1/system";

/// Why the real suite cannot run here, if it cannot.
fn obstacle() -> Option<String> {
    if std::env::var("COBALTCORE_REAL").as_deref() != Ok("1") {
        return Some("COBALTCORE_REAL=1 is not set".to_owned());
    }
    let missing = |tool: &&str| {
        !["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|place| Path::new(place).join(tool).exists())
    };
    if let Some(tool) = ["libvirtd", "virsh", "qemu-system-x86_64", "unshare", "ip"]
        .iter()
        .find(|tool| missing(tool))
    {
        return Some(format!("{tool} is not installed"));
    }
    let id = Command::new("id")
        .arg("-u")
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    (id != b"0\n").then(|| "not root".to_owned())
}

/// Runs `scene` inside a private host. `name` is the full name of the calling test.
pub(crate) fn in_private_host<F: Future<Output = ()>>(name: &str, scene: impl FnOnce() -> F) {
    if std::env::var(INSIDE).as_deref() == Ok("1") {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("runtime");
        runtime.block_on(scene());
        return;
    }
    if let Some(why) = obstacle() {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| {
            use std::io::Write as _;
            // Past the test harness, which hides what passing tests print.
            let _ = writeln!(std::io::stderr(), "SKIPPED: the real libvirt suite: {why}");
        });
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/host.sh");
    let status = Command::new(script)
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("HOST_DIR", directory.path())
        .status()
        .expect("host.sh");
    if !status.success() {
        let log = std::fs::read_to_string(directory.path().join("log/libvirtd.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        panic!(
            "{name} failed inside the host; the daemon's last words:\n{}",
            tail.join("\n")
        );
    }
}

/// A running daemon; dies with this value.
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    pub(crate) async fn start() -> Self {
        let daemon = Self::spawn();
        for _ in 0..600 {
            if Connection::connect(&RW.parse().expect("uri"), Options::default())
                .await
                .is_ok()
            {
                return daemon;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("libvirtd did not come up");
    }

    /// Without waiting until it answers.
    pub(crate) fn spawn() -> Self {
        let child = AsyncCommand::new("libvirtd")
            .arg("--listen")
            .kill_on_drop(true)
            .spawn()
            .expect("libvirtd");
        Self { child }
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("kill -9");
    }
}

/// What virsh prints.
pub(crate) async fn virsh(args: &[&str]) -> String {
    let output = AsyncCommand::new("virsh")
        .args(["-c", TCP])
        .args(args)
        .env("LC_ALL", "C")
        .output()
        .await
        .expect("virsh");
    assert!(
        output.status.success(),
        "virsh {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) async fn connect(uri: &str, options: Options) -> Connection {
    Connection::connect(&uri.parse().expect("uri"), options)
        .await
        .expect(uri)
}

/// A guest without disks: its firmware finds nothing to boot and waits.
pub(crate) fn guest_xml(name: &str) -> String {
    xml(name, "")
}

/// A guest that starts its watchdog two seconds before it is due and then does nothing: the whole of it is one sector
/// that writes to the port of the ib700 and halts.
pub(crate) fn hung_guest_xml(name: &str, disk: &Path) -> String {
    let mut sector = vec![0_u8; 1 << 20];
    let program = [0xba, 0x43, 0x04, 0xb0, 0x0e, 0xee, 0xfa, 0xf4, 0xeb, 0xfd];
    sector[..program.len()].copy_from_slice(&program);
    sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(disk, sector).expect("disk");
    let devices = format!(
        "<watchdog model='ib700' action='pause'/><disk type='file' device='disk'><driver name='qemu' type='raw'/>\
         <source file='{}'/><target dev='hda' bus='ide'/></disk>",
        disk.display()
    );
    xml(name, &devices)
}

fn xml(name: &str, devices: &str) -> String {
    let kind = if Path::new("/dev/kvm").exists() {
        "kvm"
    } else {
        "qemu"
    };
    format!(
        "<domain type='{kind}'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os><on_crash>destroy</on_crash>\
         <devices><memballoon model='none'/>{devices}</devices></domain>"
    )
}
