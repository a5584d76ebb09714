// SPDX-License-Identifier: Apache-2.0
//! A socket in front of libvirt's that passes everything on and counts the calls that go through it, by reading the
//! frames themselves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

const HEADER: usize = 28;
const KEEPALIVE: u32 = 0x6b65_6570;
const CALL: u32 = 0;

/// A counting socket.
pub(crate) struct Proxy {
    calls: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(crate) fn start(real: &Path, counted: &Path) -> Self {
        let listener = UnixListener::bind(counted).unwrap();
        let (calls, real) = (Arc::new(AtomicU64::new(0)), real.to_owned());
        let counter = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let daemon = UnixStream::connect(&real).await.unwrap();
                tokio::spawn(pass_on(client, daemon, Arc::clone(&counter)));
            }
        });
        Self { calls, task }
    }

    /// Calls seen so far; keepalive is none.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

async fn pass_on(client: UnixStream, daemon: UnixStream, calls: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_daemon, mut to_daemon) = daemon.into_split();
    let requests = async {
        let mut header = [0; HEADER];
        loop {
            from_client.read_exact(&mut header).await?;
            let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            let mut rest = vec![0; word(0) as usize - HEADER];
            from_client.read_exact(&mut rest).await?;
            if word(4) != KEEPALIVE && word(16) == CALL {
                calls.fetch_add(1, Ordering::Relaxed);
            }
            to_daemon.write_all(&header).await?;
            to_daemon.write_all(&rest).await?;
        }
        #[allow(unreachable_code)]
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        _ = requests => {}
        _ = tokio::io::copy(&mut from_daemon, &mut to_client) => {}
    }
}
