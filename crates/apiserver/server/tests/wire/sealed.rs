// SPDX-License-Identifier: Apache-2.0
//! Secrets in the file: sealed where the server has a key, in the present and in history, and written anew when the
//! keys change.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use cobaltcore_apiserver::testkit::TestServer;
use cobaltcore_apiserver::{Config, Keys, ServerError};
use serde_json::{Value, json};

use crate::words::create;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// As it is in an object.
const HUSH: &str = "bm9ib2R5LW1heS1yZWFkLXRoaXM=";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o700);
        Self { folder }
    }

    /// A file of keys, each of which is one byte over and over.
    fn keys(&self, lines: &[Option<u8>]) -> PathBuf {
        let path = self.folder.path().join("keys");
        let line = |key: &Option<u8>| {
            key.map_or("plain".to_owned(), |byte| {
                base64::engine::general_purpose::STANDARD.encode([byte; 32])
            })
        };
        let lines: Vec<String> = lines.iter().map(line).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        set_mode(&path, 0o600);
        path
    }

    async fn start(&self, keys: Option<PathBuf>) -> Result<TestServer, ServerError> {
        let data = self.folder.path().join("data");
        TestServer::try_with(Config {
            data_dir: Some(data),
            encryption_key_file: keys,
            ..Config::default()
        })
        .await
    }

    /// Whether the text lies anywhere in the files of the database.
    fn holds(&self, text: &str) -> bool {
        let files = std::fs::read_dir(self.folder.path().join("data")).unwrap();
        files
            .map(|file| file.unwrap().path())
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("state.db")
            })
            .any(|path| {
                let bytes = std::fs::read(path).unwrap();
                bytes.windows(text.len()).any(|part| part == text.as_bytes())
            })
    }

    fn check(&self, keys: Option<&Path>) -> cobaltcore_apiserver::Report {
        let keys = keys.map_or_else(Keys::default, |path| Keys::read(path).unwrap());
        cobaltcore_apiserver::check(&self.folder.path().join("data/state.db"), &keys).unwrap()
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"password": HUSH}})
}

#[tokio::test]
async fn what_a_secret_holds_is_not_in_the_file_and_comes_back_with_the_key() {
    let place = Place::new();
    let keys = place.keys(&[Some(1)]);
    let server = place.start(Some(keys.clone())).await.unwrap();
    let made = create(&server.admin(), SECRETS, &secret("s")).await;
    create(&server.admin(), SECRETS, &secret("gone")).await;
    server.admin().delete(&format!("{SECRETS}/gone")).await;
    assert!(!place.holds(HUSH), "not even in the log");
    server.stop().await;
    assert!(!place.holds(HUSH));

    let server = place.start(Some(keys.clone())).await.unwrap();
    let read = server.admin().get(&format!("{SECRETS}/s")).await;
    assert_eq!(read.body["data"], made["data"]);
    let before: u64 = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let path = format!("{SECRETS}?watch=true&resourceVersion={}", before - 1);
    let mut history = server.admin().watch(&path).await;
    for kind in ["ADDED", "ADDED", "DELETED"] {
        let event = history.expect().await;
        assert_eq!(
            (&event["type"], &event["object"]["data"]["password"]),
            (&json!(kind), &json!(HUSH))
        );
    }
    server.stop().await;

    let report = place.check(Some(&keys));
    assert_eq!((report.sealed, report.problems), (0, Vec::new()));
    let report = place.check(None);
    assert_eq!((report.sealed, report.problems), (1, Vec::new()));
}

#[tokio::test]
async fn without_its_key_a_database_is_not_served_and_not_touched() {
    let place = Place::new();
    let server = place.start(Some(place.keys(&[Some(1)]))).await.unwrap();
    create(&server.admin(), SECRETS, &secret("s")).await;
    server.stop().await;
    for keys in [None, Some(place.keys(&[Some(2)]))] {
        let refused = place.start(keys).await.unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{refused}");
        let told = refused.to_string();
        assert!(
            told.contains("Secret default/s") && told.contains("--encryption-key-file"),
            "{told}"
        );
    }
    let server = place.start(Some(place.keys(&[Some(1)]))).await.unwrap();
    let read = server.admin().get(&format!("{SECRETS}/s")).await;
    assert_eq!(read.body["data"]["password"], HUSH);
}

#[tokio::test]
async fn secrets_are_written_anew_when_the_keys_change() {
    let place = Place::new();
    let server = place.start(None).await.unwrap();
    create(&server.admin(), SECRETS, &secret("s")).await;
    server.stop().await;
    assert!(place.holds(HUSH), "in the clear without a key");
    let steps: [(&[Option<u8>], bool); 4] = [
        (&[Some(1)], false),
        (&[Some(2), Some(1)], false),
        (&[Some(2)], false),
        (&[None, Some(2)], true),
    ];
    for (lines, clear) in steps {
        let server = place.start(Some(place.keys(lines))).await.unwrap();
        let read = server.admin().get(&format!("{SECRETS}/s")).await;
        assert_eq!(read.body["data"]["password"], HUSH, "{lines:?}");
        server.stop().await;
        assert_eq!(place.holds(HUSH), clear, "{lines:?}");
    }
    let server = place.start(None).await.unwrap();
    let read = server.admin().get(&format!("{SECRETS}/s")).await;
    assert_eq!(read.body["data"]["password"], HUSH);
}

#[tokio::test]
async fn a_file_of_keys_that_cannot_be_used_is_told_and_nothing_is_made() {
    let place = Place::new();
    let open_to_all = place.keys(&[Some(1)]);
    set_mode(&open_to_all, 0o644);
    let missing = place.folder.path().join("missing");
    for (path, why) in [(open_to_all, "0600"), (missing, "head -c 32")] {
        let refused = place.start(Some(path)).await.unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
        assert!(!place.folder.path().join("data/state.db").exists());
    }
}
