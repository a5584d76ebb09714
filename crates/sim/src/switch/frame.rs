// SPDX-License-Identifier: Apache-2.0
//! JSON-RPC 1.0 as the daemons of Open vSwitch speak it: one object after the other on a stream, with nothing in between.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longer messages are not read.
const LONGEST: usize = 64 << 20;

/// Finds where messages end in a stream.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// How much of the buffer was looked at, and what was found there.
    seen: usize,
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// The stream ended, or what came on it is not a message.
#[derive(Debug)]
pub(crate) struct Ended;

impl Frames {
    /// The next message.
    pub(crate) async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<Value, Ended> {
        loop {
            if let Some(end) = self.end()? {
                let rest = self.buffer.split_off(end);
                let message = std::mem::replace(&mut self.buffer, rest);
                self.seen = 0;
                return serde_json::from_slice(&message).map_err(|_| Ended);
            }
            if self.buffer.len() > LONGEST {
                return Err(Ended);
            }
            let read = stream.read_buf(&mut self.buffer).await.map_err(|_| Ended)?;
            if read == 0 {
                return Err(Ended);
            }
        }
    }

    /// Where the first message in the buffer ends, if it does.
    fn end(&mut self) -> Result<Option<usize>, Ended> {
        while let Some(byte) = self.buffer.get(self.seen) {
            self.seen += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(Ended)?;
                    if self.depth == 0 {
                        return Ok(Some(self.seen));
                    }
                }
                byte if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(Ended),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// What a client wants.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Vec<Value>,
}

impl Request {
    /// Reads a message; nothing if it answers something, an error if it is no message at all.
    pub(crate) fn read(mut message: Value) -> Result<Option<Self>, Ended> {
        let body = message.as_object_mut().ok_or(Ended)?;
        let id = body.remove("id").unwrap_or(Value::Null);
        let params = body.remove("params");
        match (body.remove("method"), params) {
            (Some(Value::String(method)), Some(Value::Array(params))) => {
                Ok(Some(Self { id, method, params }))
            }
            (None, None) if body.contains_key("result") || body.contains_key("error") => Ok(None),
            _ => Err(Ended),
        }
    }
}

/// An answer; a refusal has no result.
pub(crate) fn answer(id: &Value, outcome: Result<Value, Value>) -> Value {
    match outcome {
        Ok(result) => json!({"id": id, "result": result, "error": null}),
        Err(error) => json!({"id": id, "error": error}),
    }
}

/// Word that nobody asked for.
pub(crate) fn notice(method: &str, params: Value) -> Value {
    json!({"id": null, "method": method, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_found_wherever_reads_cut_them() {
        let text = br#"{"a":"}\"{"}{"b":[{}]} {"c":1}"#;
        for size in 1..text.len() {
            let mut stream = tokio_util::io::StreamReader::new(futures::stream::iter(
                text.chunks(size)
                    .map(|piece| Ok::<_, std::io::Error>(bytes::Bytes::copy_from_slice(piece))),
            ));
            let mut frames = Frames::default();
            let mut found = Vec::new();
            while let Ok(message) = frames.next(&mut stream).await {
                found.push(message);
            }
            assert_eq!(found, [json!({"a": "}\"{"}), json!({"b": [{}]}), json!({"c": 1})]);
        }
    }

    #[tokio::test]
    async fn what_is_no_object_ends_the_conversation() {
        assert!(Frames::default().next(&mut &b"hello"[..]).await.is_err());
        assert!(Frames::default().next(&mut &b"}"[..]).await.is_err());
        assert!(Request::read(json!({"method": "echo", "params": {}, "id": 1})).is_err());
    }
}
