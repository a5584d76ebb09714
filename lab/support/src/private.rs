// SPDX-License-Identifier: Apache-2.0
//! A private host with a real libvirtd and nothing else: own namespaces, own configuration, gone with the test. The test
//! binary runs itself again inside of it, so that client, daemon and virsh share its loopback network. Suites that need
//! one or two hosts without a cloud use this and leave the lab alone.

use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::process::{Child, Command as AsyncCommand};

const INSIDE: &str = "INSIDE_HOST";
/// The socket of the daemon, with all rights.
pub const RW: &str = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock";
/// The second host of the machine.
pub const SECOND: &str = "qemu+tcp://127.0.0.1:16510/system";
/// The daemon over the loopback network.
pub const TCP: &str = "qemu+tcp://127.0.0.1/system";

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
pub fn in_private_host<F: Future<Output = ()>>(name: &str, scene: impl FnOnce() -> F) {
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
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inside/private-host.sh");
    let status = Command::new(script)
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("HOST_DIR", directory.path())
        .status()
        .expect("private-host.sh");
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
pub struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts it and waits until it answers.
    pub async fn start() -> Self {
        let daemon = Self::spawn();
        daemon.until_it_answers(RW).await
    }

    async fn until_it_answers(self, uri: &str) -> Self {
        for _ in 0..600 {
            let asked = AsyncCommand::new("virsh")
                .args(["-q", "-c", uri, "uri"])
                .output()
                .await;
            if asked.is_ok_and(|answer| answer.status.success()) {
                return self;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the libvirtd at {uri} did not come up");
    }

    /// Without waiting until it answers.
    pub fn spawn() -> Self {
        let child = AsyncCommand::new("libvirtd")
            .arg("--listen")
            .kill_on_drop(true)
            .spawn()
            .expect("libvirtd");
        Self { child }
    }

    /// A second host on the same machine: own files and identity, TCP on port 16510.
    pub async fn start_second() -> Self {
        let script =
            "set -e; hostname second-host; etc=$HOST_DIR/etc2; mkdir -p $etc; cp /etc/libvirt/qemu.conf $etc
            sed -e /^host_uuid/d -e s/libvirtd.log/second.log/ /etc/libvirt/libvirtd.conf >$etc/libvirtd.conf
            echo \"host_uuid = \\\"$(cat /proc/sys/kernel/random/uuid)\\\"\" >>$etc/libvirtd.conf
            echo 'tcp_port = \"16510\"' >>$etc/libvirtd.conf
            mount --bind $etc /etc/libvirt
            for place in /run /var/lib/libvirt /var/cache/libvirt; do mount -t tmpfs tmpfs $place; done
            mkdir -p /run/libvirt /var/lib/libvirt/qemu
            exec libvirtd --listen";
        let child = AsyncCommand::new("unshare")
            .args(["--mount", "--uts", "sh", "-c", script])
            .kill_on_drop(true)
            .spawn()
            .expect("second libvirtd");
        let daemon = Self { child };
        daemon.until_it_answers(SECOND).await
    }

    /// Sends it a signal such as `-STOP`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("running").to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .expect("kill")
                .success()
        );
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("kill -9");
    }
}

/// What virsh prints.
pub async fn virsh(args: &[&str]) -> String {
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

/// The value after `key:` in virsh output.
pub fn field<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .map_or_else(|| panic!("no {key} in {text}"), str::trim)
}

/// A guest without disks: its firmware finds nothing to boot and waits.
pub fn guest_xml(name: &str) -> String {
    xml(name, "")
}

/// A guest that starts its watchdog two seconds before it is due and then does nothing: the whole of it is one sector
/// that writes to the port of the ib700 and halts.
pub fn hung_guest_xml(name: &str, disk: &Path) -> String {
    boot_disk(
        disk,
        &[0xba, 0x43, 0x04, 0xb0, 0x0e, 0xee, 0xfa, 0xf4, 0xeb, 0xfd],
    );
    let devices = format!(
        "<watchdog model='ib700' action='pause'/><disk type='file' device='disk'><driver name='qemu' type='raw'/>\
         <source file='{}'/><target dev='hda' bus='ide'/></disk>",
        disk.display()
    );
    xml(name, &devices)
}

/// A guest that writes to 8 MiB of its memory at every tick of its clock, once it [has booted](until_busy): a slow live
/// migration of it does not end before it is allowed to be fast.
pub fn busy_guest_xml(name: &str, disk: &Path) -> String {
    boot_disk(disk, &BUSY);
    let devices = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>\
         <target dev='vda' bus='virtio'/><readonly/></disk>",
        disk.display()
    );
    xml(name, &devices)
}

/// Waits until the firmware of such a guest has read its disk.
pub async fn until_busy(name: &str) {
    for _ in 0..600 {
        let stats = virsh(&["domblkstat", name, "vda"]).await;
        if !stats.contains("rd_req 0") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} did not boot");
}

/// Segments without a limit, then one number per page from 1 MiB to 9 MiB, a higher one each time; sleep until the clock
/// ticks; again.
#[rustfmt::skip]
const BUSY: [u8; 82] = [
    0xfa, 0x31, 0xc0, 0x8e, 0xd8,             // cli; ds = 0
    0x0f, 0x01, 0x16, 0x3c, 0x7c,             // lgdt [0x7c3c]
    0x0f, 0x20, 0xc0, 0x0c, 0x01,             // cr0.pe on
    0x0f, 0x22, 0xc0,
    0xbb, 0x08, 0x00, 0x8e, 0xdb,             // ds = 4 GiB of memory
    0x24, 0xfe, 0x0f, 0x22, 0xc0,             // cr0.pe off
    0x66, 0x45,                               // inc ebp
    0x66, 0xbf, 0x00, 0x00, 0x10, 0x00,       // edi = 1 MiB
    0x67, 0x66, 0x89, 0x2f,                   // [edi] = ebp
    0x66, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, // edi += 4096
    0x66, 0x81, 0xff, 0x00, 0x00, 0x90, 0x00, // until edi = 9 MiB
    0x72, 0xec,
    0xfb, 0xf4, 0xeb, 0xc4,                   // sti; hlt; from the start
    0x0f, 0x00, 0x42, 0x7c, 0x00, 0x00,       // the table of segments: 16 bytes at 0x7c42
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x92, 0xcf, 0x00,
];

/// A disk whose first sector is this program.
fn boot_disk(disk: &Path, program: &[u8]) {
    let mut image = vec![0_u8; 1 << 20];
    image[..program.len()].copy_from_slice(program);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(disk, image).expect("disk");
}

fn xml(name: &str, devices: &str) -> String {
    let kind = if Path::new("/dev/kvm").exists() {
        "kvm"
    } else {
        "qemu"
    };
    format!(
        "<domain type='{kind}'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
         <metadata><n:instance xmlns:n='http://example.org/meta/1'><n:flavor>tiny</n:flavor></n:instance></metadata>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os><on_crash>destroy</on_crash>\
         <devices><memballoon model='none'/>{devices}</devices></domain>"
    )
}
