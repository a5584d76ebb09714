// SPDX-License-Identifier: Apache-2.0
//! A real Chromium, driven by its own driver over the WebDriver protocol.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A browser window. It ends with the test.
pub(crate) struct Browser {
    http: reqwest::Client,
    session: String,
    _driver: Child,
    _profile: tempfile::TempDir,
}

const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    /// A window of this size, or nothing where the machine has no Chromium.
    pub(crate) async fn open(width: u32, height: u32) -> Option<Self> {
        let missing = ["chromium", "chromedriver"]
            .into_iter()
            .find(|name| !installed(name));
        if let Some(name) = missing {
            assert!(
                std::env::var_os("COBALTCORE_NEED_BROWSER").is_none(),
                "{name} is missing, and this run needs it"
            );
            // Past the test harness, which keeps what a passing test prints.
            use std::io::Write as _;
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: the console in a browser: {name} is not installed; apt install chromium chromium-driver"
            );
            return None;
        }
        crate::world::choose_crypto();
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("the driver says its port");
            let said = line
                .split_once("successfully on port ")
                .map(|(_, port)| port.trim_end_matches('.').to_owned());
            if let Some(port) = said {
                break port;
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let folder = format!("--user-data-dir={}", profile.path().display());
        let size = format!("--window-size={width},{height}");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            &folder,
            &size,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let http = reqwest::Client::new();
        let base = format!("http://127.0.0.1:{port}/session");
        let answer: Value = http
            .post(&base)
            .json(&wanted)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let id = answer["value"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("no browser: {answer}"));
        let browser = Self {
            http,
            session: format!("{base}/{id}"),
            _driver: driver,
            _profile: profile,
        };
        // The window has a frame; what counts is the width of the page.
        let metrics = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}});
        browser.post("goog/cdp/execute", metrics).await;
        Some(browser)
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.ask(path, &body).await;
        let failure = answer.get("error");
        assert!(failure.is_none(), "{path} {body}: {answer}");
        answer
    }

    async fn ask(&self, path: &str, body: &Value) -> Value {
        let request = self.http.post(format!("{}/{path}", self.session)).json(body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["value"].clone()
    }

    /// Goes to an address.
    pub(crate) async fn go(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    /// Runs a script in the page; what it returns is the answer.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({"script": script, "args": []}))
            .await
    }

    /// Clicks on what the selector finds. A page that keeps itself current may replace it in between; then again.
    pub(crate) async fn click(&self, selector: &str) {
        crate::world::eventually(selector, async || {
            let element = self.find(selector).await;
            let answer = self.ask(&format!("element/{element}/click"), &json!({})).await;
            match answer.get("error").and_then(Value::as_str) {
                None => Some(()),
                Some("stale element reference") => None,
                Some(_) => panic!("{selector} cannot be clicked: {answer}"),
            }
        })
        .await;
    }

    /// Types into what the selector finds.
    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        self.post(&format!("element/{element}/value"), json!({"text": text}))
            .await;
    }

    /// Presses a key wherever the focus is.
    pub(crate) async fn press(&self, key: &str) {
        let strokes = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.post(
            "actions",
            json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}),
        )
        .await;
    }

    async fn find(&self, selector: &str) -> String {
        let found = self
            .post("element", json!({"using": "css selector", "value": selector}))
            .await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Waits until a script returns something true.
    pub(crate) async fn until(&self, what: &str, condition: &str) {
        let script = format!("return Boolean({condition})");
        crate::world::eventually(what, async || {
            self.run(&script).await.as_bool().filter(|seen| *seen)
        })
        .await;
    }

    /// Light or dark, as the system would wish.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.post(
            "goog/cdp/execute",
            json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}),
        )
        .await;
    }

    /// Keeps a picture of the page among the build's output.
    pub(crate) async fn picture(&self, name: &str) -> PathBuf {
        let request = self.http.get(format!("{}/screenshot", self.session));
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(answer["value"].as_str().unwrap())
            .unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{name}.png"));
        std::fs::write(&file, bytes).unwrap();
        file
    }

    /// Errors the page wrote to its console, such as something the policy refused.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let entries = self.post("se/log", json!({"type": "browser"})).await;
        let severe = entries
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }

    /// Closes the window.
    pub(crate) async fn close(self) {
        let _ = self.http.delete(&self.session).send().await;
    }
}

/// A test that fails must not leave its browser behind: only the driver can close it.
impl Drop for Browser {
    fn drop(&mut self) {
        use std::io::{Read as _, Write as _};
        let Some((host, path)) = self
            .session
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('/'))
        else {
            return;
        };
        let Ok(mut stream) = std::net::TcpStream::connect(host) else {
            return;
        };
        let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(5)));
        let _ = write!(
            stream,
            "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.read(&mut [0; 512]);
    }
}

fn installed(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}
