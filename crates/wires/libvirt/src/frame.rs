// SPDX-License-Identifier: Apache-2.0
//! Frames: a four byte length that counts itself, a header of six numbers, and a payload.
//! Reading is safe to cancel at any point, and a frame that announces megabytes only costs memory as its bytes arrive.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::limits;
use crate::xdr::{Encode, Encoder, XdrError};

/// The program all domain and host calls belong to.
pub const PROGRAM_REMOTE: u32 = 0x2000_8086;
/// The QEMU-only extra calls.
pub const PROGRAM_QEMU: u32 = 0x2000_8087;
/// Keepalive messages.
pub const PROGRAM_KEEPALIVE: u32 = 0x6b65_6570;
/// The only version of every program.
pub const VERSION: u32 = 1;
/// Keepalive procedure: are you there?
pub const KEEPALIVE_PING: i32 = 1;
/// Keepalive procedure: I am.
pub const KEEPALIVE_PONG: i32 = 2;

const LENGTH: usize = 4;
/// How far the read buffer grows ahead of the bytes that are really there.
const READ_AHEAD: usize = 64 * 1024;
/// An idle buffer larger than this is given back.
const KEEP: usize = 256 * 1024;

/// What went wrong with a frame; after any of these the connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The transport failed.
    #[error("transport: {0}")]
    Io(#[from] std::io::Error),
    /// The length field is outside 28 .. 33554436.
    #[error("frame length {0} is outside {min}..={max}", min = limits::FRAME_MIN, max = limits::FRAME)]
    Length(u32),
    /// The message type is not one of the seven.
    #[error("unknown message type {0}")]
    Kind(i32),
    /// The status is not one of the three.
    #[error("unknown message status {0}")]
    Status(i32),
    /// The peer went away in the middle of a frame.
    #[error("connection ended inside a frame ({0} bytes of it were read)")]
    Cut(usize),
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Kind {
    /// A request that wants a reply.
    Call = 0,
    /// The answer to a call.
    Reply = 1,
    /// An event or a keepalive message; nobody answers it with a reply.
    Message = 2,
    /// Data of a stream.
    Stream = 3,
    /// A call with file descriptors attached.
    CallWithFds = 4,
    /// A reply with file descriptors attached.
    ReplyWithFds = 5,
    /// A hole in a stream.
    StreamHole = 6,
}

impl Kind {
    fn from_wire(raw: i32) -> Result<Self, FrameError> {
        Ok(match raw {
            0 => Self::Call,
            1 => Self::Reply,
            2 => Self::Message,
            3 => Self::Stream,
            4 => Self::CallWithFds,
            5 => Self::ReplyWithFds,
            6 => Self::StreamHole,
            other => return Err(FrameError::Kind(other)),
        })
    }
}

/// Whether a frame carries a result or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Status {
    /// The payload is what the procedure says.
    Ok = 0,
    /// The payload is an error structure.
    Error = 1,
    /// More stream data follows.
    Continue = 2,
}

impl Status {
    fn from_wire(raw: i32) -> Result<Self, FrameError> {
        Ok(match raw {
            0 => Self::Ok,
            1 => Self::Error,
            2 => Self::Continue,
            other => return Err(FrameError::Status(other)),
        })
    }
}

/// The six numbers in front of every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Which program the procedure belongs to.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// What is called, answered or announced.
    pub procedure: i32,
    /// What the frame is.
    pub kind: Kind,
    /// Ties a reply to its call; 0 in messages.
    pub serial: u32,
    /// Result or error.
    pub status: Status,
}

impl Header {
    /// The header of a call.
    pub const fn call(program: u32, procedure: i32, serial: u32) -> Self {
        Self {
            program,
            version: VERSION,
            procedure,
            kind: Kind::Call,
            serial,
            status: Status::Ok,
        }
    }

    /// The header of an event or keepalive message.
    pub const fn message(program: u32, procedure: i32) -> Self {
        Self {
            program,
            version: VERSION,
            procedure,
            kind: Kind::Message,
            serial: 0,
            status: Status::Ok,
        }
    }

    /// The header that answers this call.
    pub const fn reply(&self, status: Status) -> Self {
        Self {
            kind: Kind::Reply,
            status,
            ..*self
        }
    }
}

/// One message of either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Who it is for and what it is.
    pub header: Header,
    /// What it carries.
    pub payload: Bytes,
}

impl Frame {
    /// A keepalive message: [`KEEPALIVE_PING`] or [`KEEPALIVE_PONG`].
    pub fn keepalive(procedure: i32) -> Self {
        Self {
            header: Header::message(PROGRAM_KEEPALIVE, procedure),
            payload: Bytes::new(),
        }
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> Result<Bytes, XdrError> {
        encode(&self.header, &RawPayload(&self.payload))
    }
}

struct RawPayload<'a>(&'a [u8]);

impl Encode for RawPayload<'_> {
    fn encode(&self, out: &mut Encoder) -> Result<(), XdrError> {
        // A payload is a sequence of padded values; whatever was given goes out unchanged.
        let mut buffer = std::mem::take(out).into_buffer();
        buffer.put_slice(self.0);
        *out = Encoder::with_buffer(buffer);
        Ok(())
    }
}

/// Writes a whole frame; fails when a field or the frame itself is above its limit.
pub fn encode<T: Encode + ?Sized>(header: &Header, payload: &T) -> Result<Bytes, XdrError> {
    let mut buffer = BytesMut::with_capacity(256);
    buffer.put_u32(0);
    buffer.put_u32(header.program);
    buffer.put_u32(header.version);
    buffer.put_i32(header.procedure);
    buffer.put_i32(header.kind as i32);
    buffer.put_u32(header.serial);
    buffer.put_i32(header.status as i32);
    let mut out = Encoder::with_buffer(buffer);
    payload.encode(&mut out)?;
    let mut buffer = out.into_buffer();
    let total = buffer.len();
    if total > limits::FRAME {
        return Err(XdrError::TooLong {
            offset: 0,
            length: total as u64,
            limit: limits::FRAME,
        });
    }
    if let Some(length) = buffer.first_chunk_mut::<LENGTH>() {
        *length = (total as u32).to_be_bytes();
    }
    Ok(buffer.freeze())
}

/// Takes the first whole frame out of `buffer`; `None` when its end has not arrived yet.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(length) = announced(buffer)? else {
        return Ok(None);
    };
    if buffer.len() < length {
        return Ok(None);
    }
    let mut frame = buffer.split_to(length).freeze();
    frame.advance(LENGTH);
    // `announced` made sure of 28 bytes, so none of these reads can run short.
    let header = Header {
        program: frame.get_u32(),
        version: frame.get_u32(),
        procedure: frame.get_i32(),
        kind: Kind::from_wire(frame.get_i32())?,
        serial: frame.get_u32(),
        status: Status::from_wire(frame.get_i32())?,
    };
    Ok(Some(Frame {
        header,
        payload: frame,
    }))
}

fn announced(buffer: &BytesMut) -> Result<Option<usize>, FrameError> {
    let Some(head) = buffer.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head);
    if !(limits::FRAME_MIN..=limits::FRAME).contains(&(length as usize)) {
        return Err(FrameError::Length(length));
    }
    Ok(Some(length as usize))
}

/// Reads frames from a transport.
#[derive(Debug)]
pub struct FrameReader<R> {
    inner: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Wraps the reading half of a transport.
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: BytesMut::new(),
        }
    }

    /// The next frame, or `None` when the peer closed between two frames. Safe to cancel: nothing read is lost.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(frame) = decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            self.make_room()?;
            if self.inner.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.len() {
                    0 => Ok(None),
                    read => Err(FrameError::Cut(read)),
                };
            }
        }
    }

    /// Doubles at most, so memory follows the bytes that arrived and not the length that was announced.
    fn make_room(&mut self) -> Result<(), FrameError> {
        let have = self.buffer.len();
        if have == 0 && self.buffer.capacity() > KEEP {
            self.buffer = BytesMut::new();
        }
        let missing = announced(&self.buffer)?.map_or(4096, |length| length.saturating_sub(have));
        self.buffer.reserve(missing.min(have.max(READ_AHEAD)).max(1));
        Ok(())
    }
}

/// Writes frames to a transport.
#[derive(Debug)]
pub struct FrameWriter<W> {
    inner: W,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Wraps the writing half of a transport.
    pub fn new(inner: W) -> Self {
        Self { inner }
    }

    /// Hands an encoded frame to the transport. Not safe to cancel: half a frame spoils the connection.
    pub async fn write(&mut self, frame: &[u8]) -> std::io::Result<()> {
        self.inner.write_all(frame).await
    }

    /// Pushes everything out.
    pub async fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush().await
    }

    /// Says that nothing more will come.
    pub async fn shutdown(&mut self) -> std::io::Result<()> {
        self.inner.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping() -> Vec<u8> {
        Frame::keepalive(KEEPALIVE_PING)
            .to_bytes()
            .map(|bytes| bytes.to_vec())
            .unwrap_or_default()
    }

    #[test]
    fn a_ping_is_the_28_bytes_libvirt_sends() {
        let wire = [
            0, 0, 0, 28, 0x6b, 0x65, 0x65, 0x70, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(ping(), wire);
        let mut buffer = BytesMut::from(&wire[..]);
        let frame = decode(&mut buffer).ok().flatten();
        assert_eq!(frame, Some(Frame::keepalive(KEEPALIVE_PING)));
        assert!(buffer.is_empty());
    }

    #[test]
    fn half_a_frame_waits_for_the_rest() {
        let wire = ping();
        for cut in 0..wire.len() {
            let mut buffer = BytesMut::from(&wire[..cut]);
            assert!(matches!(decode(&mut buffer), Ok(None)), "cut at {cut}");
            assert_eq!(buffer.len(), cut, "nothing is consumed");
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_any_byte_is_awaited() {
        for length in [0_u32, 27, 33_554_437, u32::MAX] {
            let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
            assert!(matches!(decode(&mut buffer), Err(FrameError::Length(seen)) if seen == length));
        }
    }

    #[test]
    fn unknown_types_and_states_are_refused() {
        let mut wire = ping();
        wire[19] = 7;
        assert!(matches!(
            decode(&mut BytesMut::from(&wire[..])),
            Err(FrameError::Kind(7))
        ));
        let mut wire = ping();
        wire[27] = 3;
        assert!(matches!(
            decode(&mut BytesMut::from(&wire[..])),
            Err(FrameError::Status(3))
        ));
    }

    #[tokio::test]
    async fn frames_that_arrive_byte_by_byte_are_put_together() {
        let (mut here, there) = tokio::io::duplex(1);
        let sender = tokio::spawn(async move {
            for _ in 0..3 {
                here.write_all(&ping()).await.ok();
            }
        });
        let mut reader = FrameReader::new(there);
        for _ in 0..3 {
            assert!(matches!(reader.next().await, Ok(Some(_))));
        }
        assert!(matches!(reader.next().await, Ok(None)));
        assert!(sender.await.is_ok());
    }

    #[tokio::test]
    async fn an_announced_giant_costs_no_memory_until_it_arrives() {
        let (mut here, there) = tokio::io::duplex(64);
        here.write_all(&33_554_436_u32.to_be_bytes()).await.ok();
        drop(here);
        let mut reader = FrameReader::new(there);
        assert!(matches!(reader.next().await, Err(FrameError::Cut(4))));
        assert!(
            reader.buffer.capacity() <= 2 * READ_AHEAD,
            "{}",
            reader.buffer.capacity()
        );
    }
}
