// SPDX-License-Identifier: Apache-2.0
//! What the machine allows for the way from a write to those who watch: one thread that makes the
//! write safe in a bare SQLite and then sends it to one connection after the other. It checks
//! nothing, keeps nothing else, and never hands work to another thread.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::disk::Journal;
use super::{listen, request_length};
use crate::BenchError;
use crate::client::Target;
use crate::kinds;

/// The thread, for as long as this value lives.
pub(crate) struct Fanout {
    pub(crate) target: Target,
    /// Dropped, it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Fanout {
    /// Starts it, with its database in `dir`.
    pub(crate) async fn start(dir: &Path) -> Result<Self, BenchError> {
        let (started, starts) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let path = dir.join("fanout.db");
        std::thread::spawn(move || run(path, started, stopped));
        let target = starts
            .await
            .map_err(|e| BenchError::Ended("the floor of watches".into(), e.to_string()))??;
        Ok(Self { target, _stop: stop })
    }
}

fn run(path: PathBuf, started: oneshot::Sender<Result<Target, BenchError>>, stopped: oneshot::Receiver<()>) {
    let begin = async {
        let journal = Journal::open(&path)?;
        let (listener, acceptor, mut target) = listen("floor").await?;
        target.tasks = vec![rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()];
        Ok((journal, listener, acceptor, target))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::io("start", "a thread for the floor of watches"));
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    match runtime.block_on(begin) {
        Err(error) => drop(started.send(Err(error))),
        Ok((journal, listener, acceptor, target)) => {
            let _ = started.send(Ok(target));
            let serve = accept(listener, acceptor, Rc::new(RefCell::new(Board::new(journal))));
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        }
    }
}

/// Where writes are kept, and who watches them.
struct Board {
    journal: Journal,
    watchers: Vec<TlsStream<TcpStream>>,
}

impl Board {
    fn new(journal: Journal) -> Self {
        Self {
            journal,
            watchers: Vec::new(),
        }
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, board: Rc<RefCell<Board>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, board) = (acceptor.clone(), board.clone());
        tokio::task::spawn_local(async move {
            // A client that goes away ends its own loop only.
            let _ = serve(socket, acceptor, &board).await;
        });
    }
}

/// Serves a connection: who reads becomes a watcher, who writes is answered when everybody has it.
async fn serve(socket: TcpStream, acceptor: TlsAcceptor, board: &RefCell<Board>) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = acceptor.accept(socket).await?;
    let mut buffer = Vec::with_capacity(8 << 10);
    loop {
        while let Some(whole) = request_length(&buffer) {
            let request: Vec<u8> = buffer.drain(..whole).collect();
            if request.starts_with(b"GET") {
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
                let state = event("ADDED", &kinds::configmap(kinds::NAMESPACE, 0, 0));
                stream.write_all(format!("{head}{state}").as_bytes()).await?;
                stream.flush().await?;
                board.borrow_mut().watchers.push(stream);
                return Ok(());
            }
            let text = String::from_utf8_lossy(&request);
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let object = (kinds::name(0), body.to_owned());
            let kept = board.borrow_mut().journal.commit([object]);
            kept.map_err(std::io::Error::other)?;
            tell(board, &event("MODIFIED", body)).await;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
        }
        if stream.read_buf(&mut buffer).await? == 0 || buffer.len() > 1 << 20 {
            return Ok(());
        }
    }
}

/// Sends an event to everybody; who is gone is forgotten.
async fn tell(board: &RefCell<Board>, event: &str) {
    let watchers = std::mem::take(&mut board.borrow_mut().watchers);
    let mut left = Vec::with_capacity(watchers.len());
    for mut watcher in watchers {
        let sent = watcher.write_all(event.as_bytes()).await;
        if sent.is_ok() && watcher.flush().await.is_ok() {
            left.push(watcher);
        }
    }
    board.borrow_mut().watchers.append(&mut left);
}

/// A line of a watch, as a piece of a streamed answer.
fn event(kind: &str, object: &str) -> String {
    let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    format!("{:x}\r\n{line}\r\n", line.len())
}
