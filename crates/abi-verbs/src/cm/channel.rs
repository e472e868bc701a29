//! Event channels, which queue the events of identifiers.

use std::collections::VecDeque;

use rdma_abi::cma::rdma_event_channel;

use crate::answer::Answer;
use crate::event_queue::EventQueue;
use crate::objects::{CmId, EventChannel, PendingCmEvent};
use crate::slab::{Handle, Object};

pub(crate) fn rdma_create_event_channel() -> Answer<Handle<EventChannel>> {
    let events = EventQueue::new()?;
    let seen = rdma_event_channel { fd: events.fd() };
    EventChannel::slab().insert(seen, EventChannel { events })
}

/// The channel of one identifier, which is destroyed with it.
pub(crate) fn of_one_id() -> Answer<Handle<EventChannel>> {
    let channel = rdma_create_event_channel()?;
    channel.keep_from_program();
    Ok(channel)
}

pub(crate) fn rdma_destroy_event_channel(channel: Handle<EventChannel>) -> Answer {
    channel.lookup()?.remove().map(drop)
}

/// Queues an event on a channel, if the channel still exists.
pub(crate) fn queue_event(channel: Handle<EventChannel>, pending: PendingCmEvent) {
    if let Ok(channel) = channel.lookup() {
        channel.events.push(pending);
    }
}

/// Removes the events of an identifier that the program has not taken yet.
pub(crate) fn remove_events(channel: Handle<EventChannel>, id: Handle<CmId>) -> VecDeque<PendingCmEvent> {
    let of_id = |pending: &PendingCmEvent| pending.id == id;
    let Ok(channel) = channel.lookup() else { return VecDeque::new() };
    channel.events.change(|all| {
        let (withdrawn, kept) = std::mem::take(all).into_iter().partition(of_id);
        *all = kept;
        withdrawn
    })
}
