// SPDX-License-Identifier: Apache-2.0
//! A real Chromium, driven by its own driver over the WebDriver protocol.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

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

/// How often a browser is started before it is given up.
const ATTEMPTS: usize = 5;
/// How often the page is asked for what must come sooner or later: a recovery takes its time, and machines that test are
/// slow.
const PATIENCE: usize = 2400;
const PAUSE: Duration = Duration::from_millis(100);
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
        // The driver looks for a free port before it takes it, and a browser may not come up on a machine that is busy;
        // neither says anything about the console.
        let mut why = Vec::new();
        while why.len() < ATTEMPTS {
            match Self::start(width, height).await {
                Ok(browser) => return Some(browser),
                Err(error) => why.push(error),
            }
        }
        panic!("no browser: {why:#?}");
    }

    /// One attempt, with a driver and a profile of its own.
    async fn start(width: u32, height: u32) -> Result<Self, String> {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let mut said = String::new();
        let port = loop {
            let Some(line) = lines.next_line().await.unwrap() else {
                return Err(format!("the driver ended without a port: {said}"));
            };
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
            said.push_str(&line);
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let http = reqwest::Client::new();
        let base = format!("http://127.0.0.1:{port}/session");
        let wanted = capabilities(profile.path(), width, height);
        let answer = async { http.post(&base).json(&wanted).send().await?.json::<Value>().await };
        let answer = answer.await.map_err(|error| error.to_string())?;
        let id = answer["value"]["sessionId"]
            .as_str()
            .ok_or_else(|| answer.to_string())?;
        let browser = Self {
            session: format!("{base}/{id}"),
            http,
            _driver: driver,
            _profile: profile,
        };
        // The window has a frame; what counts is the width of the page.
        let metrics = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}});
        browser.post("goog/cdp/execute", metrics).await;
        Ok(browser)
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

    /// Clicks on what the selector finds.
    pub(crate) async fn click(&self, selector: &str) {
        self.with_element(selector, "click", &json!({})).await;
    }

    /// Types into what the selector finds.
    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        self.with_element(selector, "value", &json!({"text": text})).await;
    }

    /// A page that keeps itself current may replace or move what was found, and one that is about to come does not have
    /// it yet; then again.
    async fn with_element(&self, selector: &str, deed: &str, body: &Value) {
        let find = json!({"using": "css selector", "value": selector});
        let mut last = Value::Null;
        for _ in 0..PATIENCE {
            let found = self.ask("element", &find).await;
            let answer = match found[ELEMENT].as_str() {
                Some(element) => self.ask(&format!("element/{element}/{deed}"), body).await,
                None => found,
            };
            match answer.get("error").and_then(Value::as_str) {
                None => return,
                Some(
                    "stale element reference"
                    | "no such element"
                    | "element not interactable"
                    | "element click intercepted",
                ) => last = answer,
                Some(_) => panic!("{deed} of {selector}: {answer}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{deed} of {selector}: {last}");
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

    /// Waits until a script returns something true.
    pub(crate) async fn until(&self, what: &str, condition: &str) {
        let mut last = Value::Null;
        for _ in 0..PATIENCE {
            last = self.holds(condition).await;
            if last == true {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("never seen: {what}; the last answer was {last}");
    }

    /// Whether a script returns something true on a page that is there as a whole. On one that is being left, what the
    /// script looks for may be gone already; whoever waits takes that for a "not yet".
    async fn holds(&self, condition: &str) -> Value {
        let script = format!("return document.readyState === 'complete' && Boolean({condition})");
        self.ask("execute/sync", &json!({"script": script, "args": []}))
            .await
    }

    /// Gives something the focus and presses Enter until that has led where it should. A page that keeps itself current
    /// may take the focus away in between.
    pub(crate) async fn enter(&self, element: &str, what: &str, condition: &str) {
        let focus = json!({"script": format!("{element}.focus()"), "args": []});
        for round in 0..PATIENCE {
            if self.holds(condition).await == true {
                return;
            }
            if round % 50 == 0 && self.ask("execute/sync", &focus).await.get("error").is_none() {
                self.press("\u{e007}").await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("never seen: {what}");
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
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = write!(
            stream,
            "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.read(&mut [0; 512]);
    }
}

/// A browser without a screen, whose profile is its own.
fn capabilities(profile: &Path, width: u32, height: u32) -> Value {
    let folder = format!("--user-data-dir={}", profile.display());
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
    json!({"capabilities": {"alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    }}})
}

fn installed(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}
