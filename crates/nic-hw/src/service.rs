//! The device's thread: serves events of connections, their deadlines, and asynchronous events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdma_abi::numbers as n;
use rustix::event::epoll::EventFlags;
use verbs::{AsyncEvent, ConnectRequest, Error, Result};

use crate::connect::registry::Arrived;
use crate::port_watch::PortWatch;
use crate::raw::context::HwEvent;
use crate::shared::Shared;

/// Descriptors that report something at the same time.
const READY_MAX: usize = 4;

/// Makes the thread wake for the card's descriptors; their numbers are of no use, as it checks both each time.
pub(crate) fn watch(shared: &Shared) -> Result<()> {
    for fd in [shared.registry.channel.fd(), shared.context.async_fd()] {
        let watched = shared.epoll_set.watch(fd, shared.epoll_set.fresh_id(), EventFlags::IN);
        watched.map_err(|why| Error::system("cannot watch the card's events", why))?;
    }
    Ok(())
}

/// Serves the device until it is closed. `offer` makes the request of the API that answers an arrived one.
pub(crate) fn run(shared: &Arc<Shared>, offer: fn(&Arc<Shared>, Arrived) -> ConnectRequest) {
    let mut ready = Vec::with_capacity(READY_MAX);
    let mut port_watch = PortWatch::default();
    loop {
        while let Some(event) = shared.registry.channel.next() {
            shared.registry.handle(event, |arrived| offer(shared, arrived));
        }
        while let Some(event) = shared.context.async_event() {
            handle(shared, &mut port_watch, event);
        }
        if shared.epoll_set.is_stopping() {
            return;
        }
        let now = shared.host.now();
        let port_deadline = port_watch.expire(shared, now);
        let next = shared.registry.expire(now).into_iter().chain(port_deadline).min();
        let pause = next.map(|next| next.since(now));
        shared.epoll_set.sleep(&mut ready, pause);
    }
}

/// The card has failed or was removed: all its queue pairs have failed.
fn fail_all(shared: &Shared) {
    shared.is_gone.store(true, Ordering::Release);
    // It stays readable from now on, without an event.
    shared.epoll_set.unwatch(shared.context.async_fd());
    shared.async_events.push(AsyncEvent::DeviceFatal);
    let why = "the card has failed or was removed (IBV_EVENT_DEVICE_FATAL); open it again when ls /sys/class/infiniband shows it";
    for qp_num in shared.registry.pair_numbers() {
        shared.registry.set_cause(qp_num, why);
        shared.pair_failed(qp_num);
        shared.async_events.push(AsyncEvent::QpFatal { qp_num, why });
    }
}

/// Reports an asynchronous event.
fn handle(shared: &Shared, port_watch: &mut PortWatch, event: HwEvent) {
    let number = event.object;
    let ours = match event.kind {
        n::IBV_EVENT_CQ_ERR => AsyncEvent::CqError { cq: number },
        n::IBV_EVENT_QP_REQ_ERR | n::IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QpAccessError { qp_num: number },
        n::IBV_EVENT_QP_FATAL => AsyncEvent::QpFatal {
            qp_num: number,
            why: "the card or its driver reports a fatal error of the queue pair (IBV_EVENT_QP_FATAL)",
        },
        n::IBV_EVENT_DEVICE_FATAL => return fail_all(shared),
        n::IBV_EVENT_PORT_ERR | n::IBV_EVENT_PORT_ACTIVE | n::IBV_EVENT_GID_CHANGE => {
            return port_watch.handle(shared, event);
        }
        n::IBV_EVENT_SRQ_LIMIT_REACHED => AsyncEvent::SrqLimitReached { srq: number },
        n::IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastWqeReached { qp_num: number },
        _ => return,
    };
    match ours {
        AsyncEvent::QpAccessError { qp_num } | AsyncEvent::QpFatal { qp_num, .. } => {
            shared.pair_failed(qp_num);
            shared.async_events.push(ours);
        }
        // A queue pair that is destroyed first reports nothing.
        AsyncEvent::LastWqeReached { qp_num } => {
            shared.registry.with_pair(qp_num, || shared.async_events.push(ours));
        }
        _ => shared.async_events.push(ours),
    }
}
