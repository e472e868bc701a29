//! Completion channels and their events.
//!
//! The program gets an epoll descriptor that contains the device's own: poll(2), select(2) and epoll work on it. The program can set
//! its blocking mode, which it must not do on the device's descriptor, shared with peers.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Mutex;

use ffi::{Out, lock};
use rdma_abi::verbs::ibv_comp_channel;
use rustix::event::epoll;

use crate::answer::{Answer, fd_to_wait_for};
use crate::errno::{errno, missing};
use crate::objects::{Channel, Context, Cq};
use crate::slab::{Handle, Object};
use crate::usage::UseCount;

pub(crate) fn ibv_create_comp_channel(context: Handle<Context>) -> Answer<Handle<Channel>> {
    let channel = context.lookup()?.engine.device.create_comp_channel()?;
    let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let device_fd = channel.fd().ok_or_else(|| {
        errno!(OPNOTSUPP, "the device has no descriptor for completion events; poll instead")
    })?;
    epoll::add(&fd, device_fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let c_part = ibv_comp_channel { context: Context::address(context), fd: fd.as_raw_fd(), refcnt: 0 };
    Channel::slab().insert(c_part, Channel { channel, fd, cqs: Mutex::default(), users: UseCount::default() })
}

pub(crate) fn ibv_destroy_comp_channel(channel: Handle<Channel>) -> Answer {
    let channel = channel.lookup()?;
    channel.users.check_none("completion queues")?;
    channel.remove().map(drop)
}

/// Polls for an event; returns what to wait for if there is none.
pub(crate) fn ibv_get_cq_event(
    channel: Handle<Channel>,
    cq: Out<Handle<Cq>>,
    cq_context: Out<*mut std::ffi::c_void>,
) -> Answer<Option<RawFd>> {
    let channel = channel.lookup()?;
    let place = cq.required_or(|| missing("cq"))?;
    while let Some(number) = channel.channel.poll_event() {
        // Skips events of queues destroyed in the meantime.
        let Some(found) = lock(&channel.cqs).get(&number).and_then(|cq| cq.lookup().ok()) else { continue };
        found.notified.deliver();
        place.set(found.handle());
        cq_context.set(found.c_part().cq_context);
        return Ok(None);
    }
    let waits = fd_to_wait_for(&channel.fd)?;
    if fabric::is_checked() {
        fabric::check_wait(&channel.channel);
    }
    Ok(waits)
}
