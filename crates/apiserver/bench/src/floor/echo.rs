// SPDX-License-Identifier: Apache-2.0
//! How many requests TLS and HTTP carry when nobody does anything with them.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{listen, request_length};
use crate::client::Request;
use crate::load::{self, Until};
use crate::{BenchError, kinds};

/// Requests per second with one and with eight clients.
pub(super) async fn rates(time: Duration) -> Result<(f64, f64), BenchError> {
    let (listener, acceptor, target) = listen("echo").await?;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(accept(listener, acceptor));
    let until = Until {
        time,
        requests: u64::MAX,
    };
    let make: load::Maker = Arc::new(|n| {
        let body = kinds::configmap(kinds::NAMESPACE, n, n);
        Request::new("POST", kinds::configmaps(kinds::NAMESPACE), 200).with(kinds::JSON, body)
    });
    let one = load::run(&target, 1, until, make.clone()).await?.rate();
    let eight = load::run(&target, 8, until, make).await?.rate();
    tasks.shutdown().await;
    Ok((one, eight))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor) {
    let mut clients = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        clients.spawn(async move {
            // A client that goes away ends its own loop only.
            let _ = answer_all(socket, acceptor).await;
        });
    }
}

/// Answers every request with a ConfigMap, having read no more of it than its length.
async fn answer_all(socket: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = acceptor.accept(socket).await?;
    let body = kinds::configmap(kinds::NAMESPACE, 0, 0);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut buffer = Vec::with_capacity(8 << 10);
    loop {
        while let Some(whole) = request_length(&buffer) {
            buffer.drain(..whole);
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
        }
        if stream.read_buf(&mut buffer).await? == 0 || buffer.len() > 1 << 20 {
            return Ok(());
        }
    }
}
