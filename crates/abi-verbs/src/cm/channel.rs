//! Event channels, which queue the events of identifiers.

use std::collections::VecDeque;

use rdma_abi::cma::rdma_event_channel;

use crate::answer::Answer;
use crate::mailbox::Mailbox;
use crate::objects::{CmId, EventChannel, News};
use crate::slab::{Handle, Object};

pub(crate) fn rdma_create_event_channel() -> Answer<Handle<EventChannel>> {
    let news = Mailbox::new()?;
    let seen = rdma_event_channel { fd: news.fd() };
    EventChannel::slab().insert(seen, EventChannel { news })
}

pub(crate) fn rdma_destroy_event_channel(channel: Handle<EventChannel>) -> Answer {
    channel.look()?.remove().map(drop)
}

/// Queues an event on a channel, if the channel still exists.
pub(crate) fn tell(channel: Handle<EventChannel>, news: News) {
    if let Ok(channel) = channel.look() {
        channel.news.put(news);
    }
}

/// Removes the events of an identifier that the program has not taken yet.
pub(crate) fn withdraw(channel: Handle<EventChannel>, id: Handle<CmId>) -> VecDeque<News> {
    let of_id = |news: &News| news.id == id;
    let Ok(channel) = channel.look() else { return VecDeque::new() };
    channel.news.change(|all| {
        let (withdrawn, kept) = std::mem::take(all).into_iter().partition(of_id);
        *all = kept;
        withdrawn
    })
}
