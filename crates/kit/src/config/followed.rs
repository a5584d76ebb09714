// SPDX-License-Identifier: Apache-2.0
//! A file that is read again when it changes. Kubernetes swaps mounted files by changing a link, so
//! what counts is the file behind all links, and now and then its content. What the content means,
//! and whether it is good, is the caller's matter.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::LARGEST_FILE;

const LOOK: Duration = Duration::from_secs(1);
/// Whatever the file system says, the content is compared this often.
const COMPARE: Duration = Duration::from_secs(30);

type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let data = std::fs::metadata(path).ok()?;
    Some((
        data.dev(),
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
    ))
}

/// A file whose changes matter.
#[derive(Debug)]
pub struct Followed {
    path: PathBuf,
    content: Vec<u8>,
    seen: Stamp,
    compared: Instant,
}

impl Followed {
    /// Follows the file at `path`, of which `content` is known.
    pub fn new(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            content: content.into(),
            // The first look compares the content: the file may have changed since it was read.
            seen: None,
            compared: Instant::now(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file has another content and returns that. Nothing is lost if the wait is
    /// given up.
    pub async fn changed(&mut self) -> Vec<u8> {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = stamp(&self.path);
            if now == self.seen && self.compared.elapsed() < COMPARE {
                continue;
            }
            self.compared = Instant::now();
            let small = now.is_some_and(|(_, _, size, ..)| size <= LARGEST_FILE);
            let content = tokio::fs::read(&self.path).await;
            // In the middle of a swap, or not ours to read at once; the next look finds it.
            let Some(content) = content.ok().filter(|_| small) else {
                continue;
            };
            self.seen = now;
            if content != self.content {
                self.content.clone_from(&content);
                return content;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_swapped_link_and_a_rewritten_file_are_noticed_once_each() {
        let folder = std::env::temp_dir().join(format!("followed-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let (one, two, link) = (folder.join("one"), folder.join("two"), folder.join("link"));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&two, "2").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut followed = Followed::new(&link, "1");
        let patient = Duration::from_millis(2500);
        assert!(tokio::time::timeout(patient, followed.changed()).await.is_err());
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        assert_eq!(followed.changed().await, b"2");
        std::fs::write(&two, "three").unwrap();
        assert_eq!(followed.changed().await, b"three");
        std::fs::write(&two, "three").unwrap();
        assert!(tokio::time::timeout(patient, followed.changed()).await.is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
