// SPDX-License-Identifier: Apache-2.0
//! Redfish answers that are partial, contradictory or ill-meant: nothing of them is ever taken for "off", no password
//! leaves for another machine, and none comes back in an error.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::Power;
use cobaltcore_ha_fencing::{Config, Error, Fences, Level, Target};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What was asked: method, path, headers in lower case, body.
#[derive(Clone, Debug)]
struct Asked {
    line: String,
    headers: String,
    body: String,
}

type Answers = dyn Fn(&Asked) -> (u16, Value) + Send + Sync;

/// A BMC that says whatever a test wants it to, and remembers what it was asked.
struct Bmc {
    port: u16,
    asked: Arc<std::sync::Mutex<Vec<Asked>>>,
}

impl Bmc {
    async fn new(answers: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (answers, seen): (Arc<Answers>, _) = (Arc::new(answers), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, seen) = (Arc::clone(&answers), Arc::clone(&seen));
                tokio::spawn(async move {
                    let _ = serve(stream, &*answers, &seen).await;
                });
            }
        });
        Self { port, asked }
    }

    fn lines(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .map(|asked| asked.line.clone())
            .collect()
    }

    /// The fencing device of a host that leads here.
    fn device(&self, folder: &tempfile::TempDir, options: &str) -> Level {
        let file = folder.path().join("bmc.yaml");
        std::fs::write(&file, "username: admin\npassword: hunter2 hunter3\n").unwrap();
        let text = format!(
            "levels: [[{{driver: redfish, url: 'http://127.0.0.1:{}', timeout: 5s, credentials_file: {}{options}}}]]\n",
            self.port,
            file.display()
        );
        let config: Config = cobaltcore_kit::config::Config::new()
            .text("t.yaml", &text)
            .load()
            .unwrap();
        let target = Target::new(HostName::new("n1").unwrap());
        Fences::new(config, None).unwrap().level(&target, 0).unwrap()
    }
}

/// One connection: a request and its answer, again and again.
async fn serve(
    stream: TcpStream,
    answers: &Answers,
    seen: &std::sync::Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let (mut headers, mut length) = (String::new(), 0);
        loop {
            let mut header = String::new();
            read.read_line(&mut header).await?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            headers.push_str(&header);
            headers.push('\n');
        }
        let mut body = vec![0; length];
        read.read_exact(&mut body).await?;
        let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let body = String::from_utf8_lossy(&body).into_owned();
        let asked = Asked { line, headers, body };
        let (status, said) = answers(&asked);
        seen.lock().unwrap().push(asked);
        let body = said.to_string();
        let answer = format!(
            "HTTP/1.1 {status} Odd\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        write.write_all(answer.as_bytes()).await?;
    }
}

const SYSTEM: &str = "/redfish/v1/Systems/1";

fn one_system() -> Value {
    json!({"Members": [{"@odata.id": SYSTEM}]})
}

/// The collection with one system, and this about the system.
fn showing(system: Value) -> impl Fn(&Asked) -> (u16, Value) + Send + Sync {
    move |asked| match asked.line.as_str() {
        "GET /redfish/v1/Systems" => (200, one_system()),
        line if line.starts_with("GET") => (200, system.clone()),
        _ => (204, json!({})),
    }
}

#[tokio::test]
async fn what_is_not_said_is_not_off() {
    let folder = tempfile::tempdir().unwrap();
    for system in [
        json!({"PowerState": null}),
        json!({"PowerState": ["Off"]}),
        json!({"PowerState": "off"}),
        json!({"PowerState": " Off"}),
        json!({"powerState": "Off"}),
        json!({"Status": {"State": "Disabled"}}),
        json!([]),
        json!("Off"),
        json!(null),
    ] {
        let bmc = Bmc::new(showing(system.clone())).await;
        let read = bmc.device(&folder, "").power().await;
        assert!(matches!(read, Err(Error::BadAnswer { .. })), "{system}: {read:?}");
    }
}

#[tokio::test]
async fn a_bmc_that_cannot_tell_the_power_still_switches_off() {
    let folder = tempfile::tempdir().unwrap();
    let bmc = Bmc::new(showing(json!({"PowerState": null}))).await;
    let device = bmc.device(&folder, "");
    device.power_off().await.unwrap();
    let lines = bmc.lines();
    let pressed = format!("POST {SYSTEM}/Actions/ComputerSystem.Reset");
    assert_eq!(lines.last(), Some(&pressed), "{lines:?}");
    assert_eq!(
        bmc.asked.lock().unwrap().last().unwrap().body,
        r#"{"ResetType":"ForceOff"}"#
    );
    assert!(device.power().await.is_err(), "taken is not off");
}

#[tokio::test]
async fn the_only_system_is_taken_only_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    for (all, word) in [
        (json!({"Members": []}), "no system"),
        (json!({}), "no system"),
        (
            json!({"Members": [{"@odata.id": SYSTEM}, {"@odata.id": "/redfish/v1/Systems/2"}]}),
            "several",
        ),
        (json!({"Members": [{"@odata.id": SYSTEM}, {}]}), "several"),
        (
            json!({"Members@odata.count": 2, "Members": [{"@odata.id": SYSTEM}]}),
            "several",
        ),
        (
            json!({"Members": [{"@odata.id": SYSTEM}], "Members@odata.nextLink": "/x"}),
            "several",
        ),
        (json!({"Members": [{"Name": "one"}]}), "where its system is"),
    ] {
        let said = all.clone();
        let bmc = Bmc::new(move |asked| match asked.line.as_str() {
            "GET /redfish/v1/Systems" => (200, said.clone()),
            _ => (200, json!({"PowerState": "Off"})),
        })
        .await;
        let error = bmc.device(&folder, "").power().await.unwrap_err().to_string();
        assert!(error.contains(word), "{all}: {error}");
    }
}

#[tokio::test]
async fn a_system_that_moved_is_looked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let moved = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = Arc::clone(&moved);
    let bmc = Bmc::new(move |asked| {
        let path = if now.load(std::sync::atomic::Ordering::SeqCst) {
            "/redfish/v1/Systems/System.Embedded.1"
        } else {
            SYSTEM
        };
        match asked.line.strip_prefix("GET ") {
            Some("/redfish/v1/Systems") => (200, json!({"Members": [{"@odata.id": path}]})),
            Some(at) if at == path => (200, json!({"PowerState": "On"})),
            _ => (404, json!({})),
        }
    })
    .await;
    let device = bmc.device(&folder, "");
    assert_eq!(device.power().await.unwrap(), Power::On);
    moved.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(device.power().await.is_err(), "it is not where it was");
    assert_eq!(device.power().await.unwrap(), Power::On);
}

#[tokio::test]
async fn no_way_of_writing_an_address_sends_the_password_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Bmc::new(|_| (200, json!({}))).await;
    let place = format!("127.0.0.1:{}", collector.port);
    for target in [
        format!("//{place}/x"),
        format!("/\\{place}/x"),
        format!("\\\\{place}/x"),
        format!("/\t/{place}/x"),
        format!("/\n/{place}/x"),
        format!("/\r\\{place}/x"),
        format!("\t//{place}/x"),
        format!("http://{place}/x"),
        format!("http:/{place}/x"),
    ] {
        let reset = json!({"target": target, "ResetType@Redfish.AllowableValues": ["ForceOff"]});
        let on = json!({"PowerState": "On", "Actions": {"#ComputerSystem.Reset": reset}});
        let bmc = Bmc::new(showing(on)).await;
        let error = bmc.device(&folder, "").power_off().await.unwrap_err();
        assert!(matches!(error, Error::BadAnswer { .. }), "{target:?}: {error}");
        // The same as the place of the system.
        let member = target.clone();
        let bmc = Bmc::new(move |_| (200, json!({"Members": [{"@odata.id": member}]}))).await;
        assert!(bmc.device(&folder, "").power().await.is_err(), "{target:?}");
    }
    let elsewhere = Bmc::new(move |asked| match asked.line.as_str() {
        "GET /redfish/v1/Systems" => (200, one_system()),
        _ => (307, json!({})),
    })
    .await;
    assert!(
        elsewhere.device(&folder, "").power().await.is_err(),
        "nor a redirect"
    );
    assert_eq!(collector.lines(), [""; 0]);
}

#[tokio::test]
async fn what_a_bmc_repeats_of_a_password_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let words = "The value 'hunter2 hunter3' (or hunter2\nhunter3, or token-77) is no Password.";
    for (options, signs_in) in [("", false), (", auth: session", true), (", auth: session", false)] {
        let bmc = Bmc::new(move |asked| {
            if asked.line.contains("Sessions") && !signs_in {
                return (400, json!({"error": {"message": words}}));
            }
            (
                400,
                json!({"error": {"@Message.ExtendedInfo": [{"Message": words}]}}),
            )
        })
        .await;
        let error = bmc.device(&folder, options).power().await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("is no Password"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
    let asked = Bmc::new(move |_| (400, json!({"error": {"message": words}}))).await;
    let _ = asked.device(&folder, "").power().await;
    let seen = asked.asked.lock().unwrap().clone();
    assert!(
        seen.iter()
            .all(|asked| asked.headers.contains("authorization: basic")),
        "it was told, and only there: {seen:?}"
    );
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let bmc = Bmc::new(|_| (200, json!({"PowerState": "Off", "Oem": "x".repeat(2 << 20)}))).await;
    let error = bmc
        .device(&folder, ", system: /redfish/v1/Systems/1")
        .power()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}
