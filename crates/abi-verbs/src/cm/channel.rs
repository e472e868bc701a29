//! [`EventChannel`]: where connections tell what has become of them, readable as often as there are events.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Mutex;

use cface::{Loan, Out};
use rdma_abi::cma::*;
use rustix::event::{EventfdFlags, eventfd};
use verbs::Depths;

use crate::answer::Answer;
use crate::cm::id::CmId;
use crate::engine::lock;
use crate::errno::Errno;
use crate::slab::{Handle, Object, Slab};

/// An event channel.
pub(crate) struct EventChannel {
    news: OwnedFd,
    events: Mutex<VecDeque<News>>,
}

/// Something that a program has not been told yet.
pub(crate) struct News {
    pub(crate) id: Handle<CmId>,
    /// The listener that a new identifier is of.
    pub(crate) listener: Handle<CmId>,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) private_data: Vec<u8>,
    pub(crate) depths: Option<Depths>,
}

/// An event that a program holds.
pub(crate) struct CmEvent {
    /// Whose acknowledgement counts.
    owner: Handle<CmId>,
    /// The private data, which go with the event.
    _lent: Loan,
}

impl Object for EventChannel {
    type C = rdma_event_channel;
    const PLACES: usize = 1 << 14;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<EventChannel> = Slab::new();
        &SLAB
    }
}

impl Object for CmEvent {
    type C = rdma_cm_event;
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<CmEvent> = Slab::new();
        &SLAB
    }
}

pub(crate) fn rdma_create_event_channel() -> Answer<Handle<EventChannel>> {
    let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
    let seen = rdma_event_channel { fd: news.as_raw_fd() };
    EventChannel::slab().insert(seen, EventChannel { news, events: Mutex::default() })
}

pub(crate) fn rdma_destroy_event_channel(channel: Handle<EventChannel>) -> Answer {
    channel.look()?.remove().map(drop)
}

/// Puts news into a channel.
pub(crate) fn tell(channel: Handle<EventChannel>, news: News) {
    if let Ok(channel) = channel.look() {
        lock(&channel.events).push_back(news);
        // It cannot be full.
        let _ = rustix::io::write(&channel.news, &1_u64.to_ne_bytes());
    }
}

/// Moves what an identifier has not told yet to another channel.
pub(crate) fn migrate(id: Handle<CmId>, from: Handle<EventChannel>, to: Handle<EventChannel>) -> Answer {
    let from = from.look()?;
    let (moved, kept): (VecDeque<_>, VecDeque<_>) =
        lock(&from.events).drain(..).partition(|news| news.id == id);
    *lock(&from.events) = kept;
    for news in moved {
        // Its count goes along; what is read here is there, as the event was.
        rustix::io::read(&from.news, &mut [0_u8; 8])?;
        tell(to, news);
    }
    Ok(())
}

/// Forgets what an identifier has not told yet.
pub(crate) fn forget(id: Handle<CmId>, channel: Handle<EventChannel>) {
    if let Ok(channel) = channel.look() {
        lock(&channel.events).retain(|news| news.id != id && news.listener != id);
    }
}

/// Waits for an event, unless the program has said that its descriptor does not block; a signal ends it.
pub(crate) fn rdma_get_cm_event(channel: Handle<EventChannel>, place: Out<Handle<CmEvent>>) -> Answer {
    let channel = channel.look()?;
    let place = place.required(Errno::INVAL)?;
    loop {
        rustix::io::read(&channel.news, &mut [0_u8; 8])?;
        let news = lock(&channel.events).pop_front();
        // What was forgotten has left its count.
        let Some(news) = news else { continue };
        place.set(hand_out(news)?);
        return Ok(());
    }
}

fn hand_out(news: News) -> Answer<Handle<CmEvent>> {
    let lent = Loan::new(&news.private_data);
    let depths = news.depths;
    let conn = rdma_conn_param {
        private_data: if lent.is_empty() { std::ptr::null() } else { lent.as_ptr() },
        private_data_len: lent.len().try_into().unwrap_or(u8::MAX),
        // What the other side will use is what this one has to serve.
        responder_resources: depths.map_or(0, |depths| depths.initiator_depth),
        initiator_depth: depths.map_or(0, |depths| depths.responder_resources),
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    };
    let seen = rdma_cm_event {
        id: news.id.cast(),
        listen_id: news.listener.cast(),
        event: news.kind as c_int,
        status: news.status,
        param: rdma_event_param { conn },
    };
    let owner = if news.listener.is_null() { news.id } else { news.listener };
    if let Ok(owner) = owner.look() {
        owner.events.deliver();
    }
    CmEvent::slab().insert(seen, CmEvent { owner, _lent: lent })
}

pub(crate) fn rdma_ack_cm_event(event: Handle<CmEvent>) -> Answer {
    let CmEvent { owner, .. } = event.look()?.remove()?;
    if let Ok(owner) = owner.look() {
        owner.events.acknowledge(1);
    }
    Ok(())
}

pub(crate) fn rdma_event_str(event: i32) -> Answer<*const c_char> {
    let names = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = usize::try_from(event).ok().and_then(|event| names.get(event)).copied();
    Ok(name.unwrap_or(c"UNKNOWN EVENT").as_ptr())
}
