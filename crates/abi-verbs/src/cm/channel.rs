//! [`EventChannel`]: where identifiers tell what has become of them.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use rdma_abi::cma::rdma_event_channel;
use verbs::{ConnInfo, ConnectRequest};

use crate::answer::Answer;
use crate::cm::id::CmId;
use crate::cm::service::Service;
use crate::context::Context;
use crate::mailbox::Mailbox;
use crate::slab::{Handle, Object, Slab};

/// An event channel.
pub(crate) struct EventChannel {
    pub(crate) news: Mailbox<News>,
}

/// Something that a program has not been told yet.
pub(crate) struct News {
    /// Whom it is of: a listener, if it is a request.
    pub(crate) id: Handle<CmId>,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) private_data: Vec<u8>,
    /// The peer's address and parameters.
    pub(crate) info: Option<ConnInfo>,
    /// Of a service of datagrams, what is known of it.
    pub(crate) service: Option<Service>,
    /// The program gets an identifier for it with the event; if it never does, it is refused.
    pub(crate) request: Option<Request>,
}

/// A wish to connect, and the context of the device by which it came.
pub(crate) struct Request {
    pub(crate) asked: Asked,
    pub(crate) context: Handle<Context>,
}

/// A wish to connect that has not been answered, with its place in the listener's [`Backlog`].
pub(crate) struct Asked {
    pub(crate) request: ConnectRequest,
    pub(crate) _place: Arc<()>,
}

/// How many wishes to connect may wait for the program's answer, and those that do.
pub(crate) struct Backlog {
    pub(crate) most: usize,
    places: Arc<()>,
}

impl Backlog {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, places: Arc::default() }
    }

    /// A place for one more, until it is dropped; nothing if there is none.
    pub(crate) fn place(&self) -> Option<Arc<()>> {
        let waiting = Arc::strong_count(&self.places) - 1;
        (waiting < self.most).then(|| self.places.clone())
    }
}

impl News {
    /// News of this kind, without more.
    pub(crate) fn new(id: Handle<CmId>, kind: u32, status: c_int) -> Self {
        Self { id, kind, status, private_data: Vec::new(), info: None, service: None, request: None }
    }
}

impl Object for EventChannel {
    type C = rdma_event_channel;
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<EventChannel> = Slab::new();
        &SLAB
    }
}

pub(crate) fn rdma_create_event_channel() -> Answer<Handle<EventChannel>> {
    let news = Mailbox::new()?;
    let seen = rdma_event_channel { fd: news.fd() };
    EventChannel::slab().insert(seen, EventChannel { news })
}

pub(crate) fn rdma_destroy_event_channel(channel: Handle<EventChannel>) -> Answer {
    channel.look()?.remove().map(drop)
}

/// Puts news into a channel, if it is there.
pub(crate) fn tell(channel: Handle<EventChannel>, news: News) {
    if let Ok(channel) = channel.look() {
        channel.news.put(news);
    }
}

/// Takes out what an identifier has not told yet.
pub(crate) fn withdraw(channel: Handle<EventChannel>, id: Handle<CmId>) -> VecDeque<News> {
    let of_id = |news: &News| news.id == id;
    let Ok(channel) = channel.look() else { return VecDeque::new() };
    channel.news.change(|all| {
        let (withdrawn, kept) = std::mem::take(all).into_iter().partition(of_id);
        *all = kept;
        withdrawn
    })
}
