//! Completion channels: the numbers of completion queues that have reported, and a descriptor that says so.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use host::{Bell, Host, Wake};

use super::device::{Inner, unpoisoned};
use crate::Result;
use crate::provider::CompChannelOps;

/// A queue with a bell, and with a descriptor that is readable exactly while there is something in it. In virtual time
/// there is none.
pub(super) struct Announced<T> {
    queue: Mutex<VecDeque<T>>,
    bell: Bell,
    fd: Option<OwnedFd>,
    host: Host,
}

impl<T> Announced<T> {
    pub(super) fn new(device: &Inner) -> Result<Self> {
        let fd = super::service::counter(device.host.node().is_some())?;
        Ok(Self { queue: Mutex::default(), bell: Bell::new(), fd, host: device.host.clone() })
    }

    pub(super) fn push(&self, item: T) {
        let mut queue = unpoisoned(&self.queue);
        queue.push_back(item);
        if let Some(fd) = &self.fd {
            // The counter cannot fill up before memory does.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
        drop(queue);
        self.host.ring(&self.bell);
    }

    pub(super) fn pop(&self) -> Option<T> {
        let mut queue = unpoisoned(&self.queue);
        let item = queue.pop_front()?;
        self.lower();
        Some(item)
    }

    /// Takes out what `which` says.
    pub(super) fn take_all(&self, which: impl FnMut(&T) -> bool) -> VecDeque<T> {
        let mut queue = unpoisoned(&self.queue);
        let (taken, rest): (VecDeque<T>, _) = queue.drain(..).partition(which);
        *queue = rest;
        taken.iter().for_each(|_| self.lower());
        taken
    }

    fn lower(&self) {
        if let Some(fd) = &self.fd {
            // There is one count for each item.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }
}

pub(super) struct ChannelInner {
    device: Arc<Inner>,
    reports: Announced<u32>,
}

impl ChannelInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { device: device.clone(), reports: Announced::new(device)? }))
    }

    pub(super) fn report(&self, cq: u32) {
        self.reports.push(cq);
    }
}

impl CompChannelOps for ChannelInner {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reports.fd()
    }

    fn poll_event(&self) -> Option<u32> {
        self.device.progress_channels();
        self.reports.pop()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.reports.bell())
    }
}
