// SPDX-License-Identifier: Apache-2.0
//! Where connections are served. One that answers requests has a task of its own. One that streams a watch shares a room
//! with others: an event rouses the room once, and one thread serves them all while everything they have in common is
//! warm. As tasks of their own, fifty watchers would rouse every thread there is for a few microseconds of work each.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::coop::unconstrained;
use tokio_util::task::TaskTracker;

use crate::in_place::in_place;

/// A room is filled up to here before the next one is used.
const SEATS: usize = 128;

/// Whether a connection is busy with a stream and nothing else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(Arc<AtomicBool>);

impl Streams {
    /// The answer that was just given is a stream.
    pub(crate) fn began(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The next request came. It is not served before the connection has left its room, where others would wait for it.
    pub(crate) async fn stopped(&self) {
        if self.0.swap(false, Ordering::AcqRel) {
            tokio::task::yield_now().await;
        }
    }

    fn running(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A connection, served by whoever has it.
pub(crate) struct Connection {
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
    streams: Streams,
}

impl Connection {
    pub(crate) fn new(serving: impl Future<Output = ()> + Send + 'static, streams: Streams) -> Self {
        Self {
            serving: Box::pin(serving),
            streams,
        }
    }

    /// Serves it until it ends, or until it begins (or stops) to stream; then it is given back.
    async fn while_streaming(mut self, streaming: bool) -> Option<Self> {
        let ended = poll_fn(|context| match self.serving.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if self.streams.running() != streaming => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        })
        .await;
        (!ended).then_some(self)
    }
}

/// The rooms of a listener. They close when it and the last connection are gone.
pub(crate) struct Rooms {
    doors: Vec<Door>,
    connections: TaskTracker,
}

/// The way into a room. Nobody waits in front of it for long, and never more than there are connections.
struct Door {
    enter: UnboundedSender<Connection>,
    inside: Arc<AtomicUsize>,
}

impl Rooms {
    /// One room for every two threads, because whoever reads the streams needs a processor too.
    pub(crate) fn open(connections: TaskTracker) -> Arc<Self> {
        let count = tokio::runtime::Handle::current()
            .metrics()
            .num_workers()
            .div_ceil(2);
        Arc::new_cyclic(|rooms: &std::sync::Weak<Self>| {
            let room = |_| {
                let (enter, door) = unbounded_channel();
                let inside = Arc::new(AtomicUsize::new(0));
                let (rooms, count) = (rooms.clone(), inside.clone());
                let leave = move |connection| {
                    count.fetch_sub(1, Ordering::Relaxed);
                    if let (Some(connection), Some(rooms)) = (connection, rooms.upgrade()) {
                        rooms.connections.spawn(rooms.clone().serve(connection));
                    }
                };
                connections.spawn(in_place(unconstrained(keep(door, leave))));
                Door { enter, inside }
            };
            Self {
                doors: (0..count).map(room).collect(),
                connections: connections.clone(),
            }
        })
    }

    /// Serves a connection until it ends or streams; from then on a room does.
    pub(crate) async fn serve(self: Arc<Self>, connection: Connection) {
        if let Some(connection) = in_place(connection.while_streaming(false)).await {
            self.enter(connection);
        }
    }

    /// Into the first room with an empty seat, or else the one with the fewest inside.
    fn enter(&self, connection: Connection) {
        let inside = |door: &Door| door.inside.load(Ordering::Relaxed);
        let free = self.doors.iter().find(|door| inside(door) < SEATS);
        if let Some(door) = free.or_else(|| self.doors.iter().min_by_key(|door| inside(door))) {
            door.inside.fetch_add(1, Ordering::Relaxed);
            // A room closes with the last listener, and what is inside ends with it.
            let _ = door.enter.send(connection);
        }
    }
}

/// Serves everybody in a room until its door is gone and it is empty.
async fn keep(mut door: UnboundedReceiver<Connection>, leave: impl Fn(Option<Connection>)) {
    let mut inside = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(left) = inside.next() => leave(left),
            entered = door.recv() => match entered {
                // Whoever panics goes alone.
                Some(connection) => inside.push(
                    AssertUnwindSafe(connection.while_streaming(true))
                        .catch_unwind()
                        .map(Result::unwrap_or_default),
                ),
                None => break,
            },
        }
    }
    while let Some(left) = inside.next().await {
        leave(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::Id;

    /// Tells which task serves it, whenever it is asked.
    struct Guest {
        asks: UnboundedSender<Order>,
        tells: UnboundedReceiver<Id>,
    }

    enum Order {
        Stream,
        Answer,
        Panic,
    }

    impl Guest {
        fn at(rooms: &Arc<Rooms>) -> Self {
            let (asks, mut asked) = unbounded_channel();
            let (tell, tells) = unbounded_channel();
            let streams = Streams::default();
            let inside = streams.clone();
            let serving = async move {
                while let Some(order) = asked.recv().await {
                    match order {
                        Order::Stream => inside.began(),
                        Order::Answer => inside.stopped().await,
                        Order::Panic => panic!("as ordered"),
                    }
                    // One step back, as a connection that has nothing to send.
                    tokio::task::yield_now().await;
                    let _ = tell.send(tokio::task::id());
                }
            };
            let connection = Connection::new(serving, streams);
            rooms.connections.spawn(rooms.clone().serve(connection));
            Self { asks, tells }
        }

        async fn task(&mut self, order: Order) -> Option<Id> {
            self.asks.send(order).ok()?;
            self.tells.recv().await
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_streams_shares_a_room_and_leaves_it_for_the_next_request() {
        let rooms = Rooms::open(TaskTracker::new());
        let (mut one, mut other) = (Guest::at(&rooms), Guest::at(&rooms));
        let alone = one.task(Order::Answer).await;
        assert!(alone.is_some());
        assert_ne!(alone, other.task(Order::Answer).await);
        let room = one.task(Order::Stream).await;
        assert_ne!(room, alone);
        assert_eq!(room, other.task(Order::Stream).await);
        assert_eq!(rooms.doors[0].inside.load(Ordering::Relaxed), 2);
        let again = one.task(Order::Answer).await;
        assert!(again.is_some() && again != room);
        assert_eq!(room, other.task(Order::Stream).await);
        assert_eq!(rooms.doors[0].inside.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn who_panics_in_a_room_goes_alone() {
        let rooms = Rooms::open(TaskTracker::new());
        let (mut one, mut other) = (Guest::at(&rooms), Guest::at(&rooms));
        let room = one.task(Order::Stream).await;
        assert_eq!(room, other.task(Order::Stream).await);
        assert_eq!(one.task(Order::Panic).await, None);
        assert_eq!(room, other.task(Order::Stream).await);
    }

    #[tokio::test]
    async fn rooms_close_when_the_last_connection_is_gone() {
        let connections = TaskTracker::new();
        let rooms = Rooms::open(connections.clone());
        let mut guest = Guest::at(&rooms);
        assert!(guest.task(Order::Stream).await.is_some());
        drop(rooms);
        connections.close();
        assert!(
            guest.task(Order::Stream).await.is_some(),
            "it is served to its end"
        );
        drop(guest);
        connections.wait().await;
    }
}
