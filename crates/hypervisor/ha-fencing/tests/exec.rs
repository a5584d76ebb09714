// SPDX-License-Identifier: Apache-2.0
//! Programs as fencing devices: real processes, as a fence agent or a script would be.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use cobaltcore_ha_fencing::{Config, Error, Fences, Level, Purpose, Target};
use support::install;

struct Rig {
    folder: tempfile::TempDir,
    fences: Fences,
}

impl Rig {
    fn new(script: &str, options: &str, rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("fence_test");
        install(
            &program,
            &format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display()),
        );
        let secret = folder.path().join("bmc.yaml");
        std::fs::write(&secret, "username: root\npassword: hunter2\n").unwrap();
        let text = format!(
            "levels: [[{{driver: exec, command: {}, credentials_file: {}{options}}}]]\n{rest}",
            program.display(),
            secret.display()
        );
        let config: Config = cobaltcore_kit::config::Config::new()
            .text("t.yaml", &text)
            .load()
            .unwrap();
        Self {
            folder,
            fences: Fences::new(config, None).unwrap(),
        }
    }

    fn device(&self) -> Level {
        let host = HostName::new("n1").unwrap();
        self.fences.level(&Target::new(host), 0).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    /// Waits until so many programs have said that they run.
    async fn until_begun(&self, programs: usize) {
        let begun = || std::fs::read_to_string(self.file("begun")).map_or(0, |text| text.lines().count());
        while begun() < programs {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// A fence agent with a machine behind it: its power is a file.
const AGENT: &str = r#"
input=$(cat); echo "$input" >>seen; echo "$*" >>arguments; env >>environment
case $(echo "$input" | sed -n 's/^action=//p') in
  status) [ -e off ] && { echo 'Status: OFF'; exit 2; }; echo 'Status: ON' ;;
  off) touch off ;;
  on) rm -f off ;;
  *) exit 1 ;;
esac"#;

#[tokio::test]
async fn a_fence_agent_is_spoken_to_in_its_own_way() {
    let rig = Rig::new(
        AGENT,
        ", args: ['--for={host}'], options: {ip: '{bmc}', lanplus: '1'}",
        "hosts: {n1: {bmc: 10.0.0.7, machine: {serial: ABC}}}\n",
    );
    let device = rig.device();
    assert_eq!(device.power().await.unwrap(), Power::On);
    device.power_off().await.unwrap();
    assert_eq!(device.power().await.unwrap(), Power::Off);
    assert!(device.release().await.unwrap().is_none());
    assert_eq!(device.power().await.unwrap(), Power::On);
    let pinned = Identity {
        system_uuid: None,
        serial: Some("ABC".into()),
    };
    assert_eq!(device.identify().await.unwrap(), pinned, "a person recorded it");
    let seen = rig.read("seen");
    for line in [
        "action=off",
        "ip=10.0.0.7",
        "lanplus=1",
        "username=root",
        "password=hunter2",
    ] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    assert!(rig.read("arguments").contains("--for=n1"));
    assert!(!rig.read("arguments").contains("hunter2") && !rig.read("environment").contains("hunter2"));
    let inherited = rig
        .read("environment")
        .lines()
        .any(|line| line.starts_with("CARGO"));
    assert!(!inherited, "nothing of our own environment reaches it");
}

#[tokio::test]
async fn a_fence_agent_that_nobody_vouches_for_identifies_nothing() {
    let rig = Rig::new(AGENT, "", "");
    let told = rig.device().identify().await.unwrap();
    assert_eq!(told, Identity::default());
}

#[tokio::test]
async fn a_program_may_answer_in_json() {
    let rig = Rig::new(
        r#"echo "$FENCE_HOST $FENCE_USERNAME $FENCE_PASSWORD $MODE" >>seen
case $1 in
  status) echo '{"power": "off"}' ;;
  identify) echo '{"system_uuid": "u-1", "serial": "s-1"}' ;;
  off) : ;;
  on) exit 3 ;;
esac"#,
        ", protocol: json, options: {MODE: lan}",
        "",
    );
    let device = rig.device();
    assert_eq!(device.power().await.unwrap(), Power::Off);
    let told = device.identify().await.unwrap();
    assert_eq!(
        (told.system_uuid.as_deref(), told.serial.as_deref()),
        (Some("u-1"), Some("s-1"))
    );
    device.power_off().await.unwrap();
    let error = device.release().await.unwrap().unwrap().to_string();
    assert!(error.contains("ended with 3"), "{error}");
    assert!(rig.read("seen").contains("n1 root hunter2 lan"));
}

#[tokio::test]
async fn how_a_fence_agent_ends_says_nothing_without_its_words() {
    let off = "cat >/dev/null; printf 'Delay 0 second(s)\\nStatus: OFF\\n'; exit 2";
    assert_eq!(Rig::new(off, "", "").device().power().await.unwrap(), Power::Off);
    for script in [
        // What a shell, an interpreter and a parser of arguments make of a program that is not there or not understood.
        "exec sh /mnt/gone/fence_agent",
        "if then",
        "echo 'usage: fence_agent [-h]' >&2; exit 2",
        "exit 0",
        "exit 2",
        "echo 'Status: ON'; exit 2",
        "echo 'Status: OFF'; exit 0",
        "echo 'Status: OFF' >&2; exit 2",
        "echo 'no Status: OFF here'; exit 2",
        "echo 'Status: ON'; echo 'Status: OFF'; exit 2",
        "echo 'Status: ON'; echo 'Status: OFF'; exit 0",
    ] {
        let read = Rig::new(&format!("cat >/dev/null; {script}"), "", "")
            .device()
            .power()
            .await;
        let error = read.expect_err(script).to_string();
        assert!(error.contains("`Status: OFF`"), "{script}: {error}");
    }
    let rig = Rig::new("cat >/dev/null; echo 'power is off, hunter2'; exit 2", "", "");
    let error = rig.device().power().await.unwrap_err().to_string();
    assert!(error.contains("ended with 2"), "{error}");
    assert!(error.contains("`power is off, ***`"), "{error}");
}

#[tokio::test]
async fn what_is_no_answer_is_no_power_state() {
    for (script, protocol) in [
        ("exit 1", "fence-agent"),
        ("exit 127", "fence-agent"),
        ("kill -9 $$", "fence-agent"),
        ("echo '{\"power\": \"unknown\"}'", "json"),
        ("echo '{}'", "json"),
        ("echo off", "json"),
        (":", "json"),
        ("echo '[]'", "json"),
        ("echo '{\"power\": [\"off\"]}'", "json"),
        ("echo '{\"power\": \"off\"} {\"power\": \"on\"}'", "json"),
        ("echo '{\"power\": \"off\"}'; exit 1", "json"),
    ] {
        let rig = Rig::new(script, &format!(", protocol: {protocol}"), "");
        let read = rig.device().power().await;
        assert!(matches!(read, Err(Error::Command { .. })), "{script}: {read:?}");
    }
}

/// Waits until the process whose number is in the file `child` is gone.
async fn child_ends(rig: &Rig) {
    let child = rig.read("child").trim().to_owned();
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // What was killed and waits for its parent is gone.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    for _ in 0..600 {
        if !alive() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the child {child} outlived the program");
}

#[tokio::test]
async fn a_program_that_hangs_ends_with_all_its_children() {
    let rig = Rig::new("sleep 1000 & echo $! >child; wait", ", timeout: 8s", "");
    let error = rig.device().power().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    child_ends(&rig).await;
}

#[tokio::test]
async fn a_program_that_ends_well_leaves_nothing_behind() {
    let rig = Rig::new(
        "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >child; echo '{\"power\": \"on\"}'",
        ", protocol: json",
        "",
    );
    assert_eq!(rig.device().power().await.unwrap(), Power::On);
    child_ends(&rig).await;
}

/// The BMCs of many hosts hang, and all of them are being checked. A dead host is not switched off later for that.
#[tokio::test]
async fn nobody_in_an_incident_waits_for_programs_that_check() {
    let rig = Rig::new(
        "case $FENCE_HOST in ill*) echo >>begun; exec sleep 1000 ;; esac; echo '{\"power\": \"on\"}'",
        ", protocol: json, timeout: 10s",
        "",
    );
    let level = |name: String, purpose| {
        let mut target = Target::new(HostName::new(name).unwrap());
        target.purpose = purpose;
        rig.fences.level(&target, 0).unwrap()
    };
    let mut checks = tokio::task::JoinSet::new();
    for n in 0..16 {
        let ill = level(format!("ill{n}"), Purpose::Check);
        checks.spawn(async move { ill.power().await });
    }
    rig.until_begun(4).await;
    let dead = level("n1".to_owned(), Purpose::Incident);
    let answered = tokio::select! {
        power = dead.power() => power,
        // None of them answers, and none gives its place up before its time is over.
        check = checks.join_next() => panic!("a check was over first: {check:?}"),
    };
    assert_eq!(answered.unwrap(), Power::On);
}

/// That it was never asked says nothing of a device.
#[tokio::test]
async fn a_check_that_never_has_its_turn_is_no_device_that_does_not_answer() {
    let well = "{driver: exec, command: 'true', protocol: json, timeout: 300ms}";
    let rig = Rig::new(
        "echo >>begun; exec sleep 1000",
        ", protocol: json, timeout: 10s",
        &format!("hosts: {{well: {{levels: [[{well}]]}}}}"),
    );
    let level = |name: String| {
        let mut target = Target::new(HostName::new(name).unwrap());
        target.purpose = Purpose::Check;
        rig.fences.level(&target, 0).unwrap()
    };
    let mut checks = tokio::task::JoinSet::new();
    for n in 0..4 {
        let ill = level(format!("ill{n}"));
        checks.spawn(async move { ill.power().await });
    }
    rig.until_begun(4).await;
    let error = level("well".to_owned()).power().await.unwrap_err();
    assert!(matches!(error, Error::NoTurn { .. }), "{error}");
}

#[tokio::test]
async fn a_program_that_never_stops_talking_is_not_listened_to() {
    let rig = Rig::new("exec cat /dev/zero", ", protocol: json, timeout: 10s", "");
    let error = rig.device().power().await.unwrap_err().to_string();
    assert!(error.contains("prints more than"), "{error}");
}

#[tokio::test]
async fn what_a_program_complains_about_is_told_without_the_password() {
    let rig = Rig::new(
        "cat >/dev/null; echo 'login root/hunter2 failed' >&2; exit 1",
        "",
        "",
    );
    let error = rig.device().power_off().await.unwrap_err().to_string();
    assert!(error.contains("login root/*** failed"), "{error}");
    // Cut off in the middle of it, or printed where JSON belongs.
    let filler = "x".repeat(295);
    let rig = Rig::new(
        &format!("cat >/dev/null; echo '{filler} hunter2' >&2; exit 1"),
        "",
        "",
    );
    let error = rig.device().power_off().await.unwrap_err().to_string();
    assert!(!error.contains("hun"), "{error}");
    let rig = Rig::new("echo '\"hunter2\"'", ", protocol: json", "");
    let error = rig.device().power().await.unwrap_err().to_string();
    assert!(error.contains("line 1") && !error.contains("hunter2"), "{error}");
    let rig = Rig::new("", "", "");
    std::fs::remove_file(rig.file("fence_test")).unwrap();
    let error = rig.device().power().await.unwrap_err().to_string();
    assert!(error.contains("cannot be started"), "{error}");
}

#[tokio::test]
async fn a_level_is_off_when_all_its_devices_are() {
    let folder = tempfile::tempdir().unwrap();
    let feed = |name: &str| {
        let path = folder.path().join(name);
        let script = format!(
            "#!/bin/sh\ncd {}\ncase $1 in status) cat {name}.state ;; *) echo '{{\"power\": \"off\"}}' >{name}.state ;; esac\n",
            folder.path().display()
        );
        install(&path, &script);
        path.display().to_string()
    };
    let text = format!(
        "levels: [[{{driver: exec, command: {}, protocol: json}}, {{driver: exec, command: {}, protocol: json}}]]\n",
        feed("a"),
        feed("b")
    );
    let set = |name: &str, state: &str| {
        std::fs::write(folder.path().join(format!("{name}.state")), state).unwrap();
    };
    let config: Config = cobaltcore_kit::config::Config::new()
        .text("t.yaml", &text)
        .load()
        .unwrap();
    let fences = Fences::new(config, None).unwrap();
    let level = fences
        .level(&Target::new(HostName::new("n1").unwrap()), 0)
        .unwrap();
    let (on, off, odd) = ("{\"power\": \"on\"}", "{\"power\": \"off\"}", "nothing");
    for (a, b, wanted) in [
        (on, on, Some(Power::On)),
        (off, on, Some(Power::On)),
        (odd, on, Some(Power::On)),
        (off, odd, None),
        (off, off, Some(Power::Off)),
    ] {
        set("a", a);
        set("b", b);
        assert_eq!(level.power().await.ok(), wanted, "{a} and {b}");
    }
    set("a", on);
    set("b", on);
    level.power_off().await.unwrap();
    assert_eq!(level.power().await.unwrap(), Power::Off);
}

#[tokio::test]
async fn a_program_is_not_begun_that_would_be_led_out_of_the_allowed_networks() {
    let options = ", options: {ip: '{bmc}', plug: '3'}";
    let rest = |bmc: &str| format!("allowed_networks: [10.0.0.0/8]\nhosts: {{n1: {{bmc: '{bmc}'}}}}\n");
    for bmc in ["192.0.2.1", "192.0.2.1:623", "localhost"] {
        let rig = Rig::new(AGENT, options, &rest(bmc));
        let error = rig.device().power().await.unwrap_err().to_string();
        assert!(error.contains("allowed_networks"), "{error}");
        assert!(!rig.file("seen").exists(), "{bmc}: its password was told");
    }
    let rig = Rig::new(AGENT, options, &rest("10.1.0.1"));
    rig.device().power().await.unwrap();
    assert!(rig.read("seen").contains("ip=10.1.0.1"));
}
