//! Data path: [`Stream`], one end of a connection. Calls never wait: they do what is possible now, and the caller polls, or sleeps
//! on the descriptors that [`Stream::arm`] prepares.
//!
//! A receiver exposes its ring in two halves. The sender writes behind its last bytes, by RDMA; each write carries a message with its
//! length. When the program has taken all bytes of a half, the receiver writes that half's address into the sender's table, with a
//! message that also grants credits, the number of data messages that find a receive. Control messages need none; receives in reserve take them.
//!
//! | lock | protects |
//! |---|---|
//! | `sender` | the order of the bytes that this end sends |
//! | `receiver` | the order of the bytes that this end takes |
//! | `progress` | completions, receives, and the grants to the peer; held briefly, and taken after either of the others |
//!
//! Values that two of them use are in [`crate::link::Counters`].

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ffi::lock;
use host::Host;
use verbs::{Mr, RemoteAddr};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::link::{Counters, Flags, Link};
use crate::mapping::OwnMapping;
use crate::memory::drain;
use crate::progress::Progress;
use crate::sender::Sender;
use crate::sleepers::{Sleep, Sleepers};
use crate::wire::{ConnData, IoMapping, Message, RemoteBuf};

/// One end of a connection.
pub struct Stream {
    pub(crate) link: Link,
    pub(crate) peer: ConnData,
    pub(crate) counters: Counters,
    pub(crate) sender: Mutex<Sender>,
    receiver: Mutex<()>,
    pub(crate) progress: Mutex<Progress>,
    sleepers: Arc<Sleepers>,
    pub(crate) mappings: Mutex<Vec<OwnMapping>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:?}, {:?})", self.link.qp, self.counters.flags())
    }
}

impl Stream {
    /// The stream of a connection whose peer has sent these data.
    pub(crate) fn new(mut link: Link, peer: ConnData, sleepers: Arc<Sleepers>) -> Self {
        link.big_endian_peer = peer.big_endian;
        let counters = Counters::default();
        counters.credit_limit.store(peer.credits, Ordering::Relaxed);
        counters.granted.store(u64::from(link.config.recv_buffer / 2), Ordering::Relaxed);
        Self {
            link,
            peer,
            counters,
            sender: Mutex::new(Sender::new(peer.buffer)),
            receiver: Mutex::default(),
            progress: Mutex::default(),
            sleepers,
            mappings: Mutex::default(),
        }
    }

    /// The sizes that it has.
    pub fn config(&self) -> &Config {
        &self.link.config
    }

    pub(crate) fn host(&self) -> &Host {
        self.link.cq.device().host()
    }

    /// Sends as many of the bytes as is possible now, and returns their number; `None` if the caller has to wait.
    ///
    /// # Errors
    /// [`Error::ShutDown`], [`Error::Reset`], [`Error::Protocol`], [`Error::Device`].
    pub fn send(&self, bytes: &[u8]) -> Result<Option<usize>> {
        self.check_sending()?;
        if bytes.is_empty() {
            return Ok(Some(0));
        }
        let mut sender = lock(&self.sender);
        if !self.can_send(&mut sender) {
            self.poll()?;
            self.check_sending()?;
        }
        if !self.announce_pending(&mut sender)? {
            return Ok(None);
        }
        let mut done = 0;
        while done < bytes.len() && self.can_send(&mut sender) {
            done += sender.send_piece(&self.link, &self.counters, &bytes[done..], done)?;
        }
        Ok((done > 0).then_some(done))
    }

    /// Announces mappings that the peer does not know; returns whether it knows all now.
    pub(crate) fn announce_pending(&self, sender: &mut Sender) -> Result<bool> {
        if !sender.has_unannounced {
            return Ok(true);
        }
        self.announce_mappings(sender, &mut lock(&self.mappings))
    }

    pub(crate) fn announce_mappings(&self, sender: &mut Sender, all: &mut [OwnMapping]) -> Result<bool> {
        for mapping in all.iter_mut().filter(|mapping| !mapping.is_announced) {
            let Some(index) = mapping.index else { continue };
            let (mr, key) = (&mapping.mr, self.peer.table.key);
            let length = u32::try_from(mr.buf().len()).unwrap_or(u32::MAX);
            let memory = RemoteBuf { addr: mr.addr(), key: mr.rkey(), length };
            let entry = IoMapping { offset: mapping.offset, memory }.encode(self.peer.big_endian);
            let to = RemoteAddr { addr: self.peer.iomap_entry(index), rkey: key };
            if !sender.send_mapping(&self.link, &self.counters, &entry, to, index)? {
                return Ok(false);
            }
            mapping.is_announced = true;
        }
        sender.has_unannounced = false;
        Ok(true)
    }

    fn can_send(&self, sender: &mut Sender) -> bool {
        sender.can_send(&self.link, &self.counters)
    }

    /// Why nothing can be sent any more.
    pub(crate) fn check_sending(&self) -> Result<()> {
        let flags = self.counters.flags();
        if flags.contains(Flags::SHUT_WRITE) {
            return Err(Error::ShutDown);
        }
        self.check_peer(flags)?;
        if flags.contains(Flags::PEER_GONE) { Err(Error::Reset) } else { Ok(()) }
    }

    fn check_peer(&self, flags: Flags) -> Result<()> {
        if flags.contains(Flags::VIOLATED) {
            Err(Error::Protocol(lock(&self.progress).violation.clone().unwrap_or_default()))
        } else if flags.contains(Flags::BROKEN) {
            Err(Error::Reset)
        } else {
            Ok(())
        }
    }

    /// Takes as many bytes as have arrived and fit, and returns their number: 0 at the end of the stream, `None` if the caller has to
    /// wait. With `peek`, the bytes stay.
    ///
    /// # Errors
    /// [`Error::Reset`] and [`Error::Protocol`] once all bytes that arrived before have been taken; [`Error::Device`].
    pub fn recv(&self, bytes: &mut [u8], peek: bool) -> Result<Option<usize>> {
        if bytes.is_empty() || self.counters.flags().contains(Flags::SHUT_READ) {
            return Ok(Some(0));
        }
        let _order = lock(&self.receiver);
        let taken = self.counters.taken.load(Ordering::Relaxed);
        let mut flags = Flags::empty();
        let mut available = self.counters.arrived.load(Ordering::Acquire) - taken;
        if available == 0 {
            self.poll()?;
            // The flags first: what came before the end has arrived then.
            flags = self.counters.flags();
            available = self.counters.arrived.load(Ordering::Acquire) - taken;
        }
        if available == 0 {
            if flags.intersects(Flags::PEER_SHUT | Flags::PEER_GONE) {
                return Ok(Some(0));
            }
            return self.check_peer(flags).map(|()| None);
        }
        let len = usize::try_from(available).unwrap_or(usize::MAX).min(bytes.len());
        drain(&self.link.memory.recv, taken, &mut bytes[..len])?;
        if !peek {
            self.take(taken + len as u64)?;
        }
        Ok(Some(len))
    }

    /// The program has taken all bytes before this position: grants the peer the half that is free now, if there is one.
    fn take(&self, position: u64) -> Result<()> {
        self.counters.taken.store(position, Ordering::Release);
        let left = self.counters.granted.load(Ordering::Relaxed) - position;
        if left <= u64::from(self.link.config.recv_buffer / 2) {
            lock(&self.progress).grant(&self.link, &self.counters, &self.peer)?;
        }
        Ok(())
    }

    /// Takes completions, and does what they ask for.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn poll(&self) -> Result<()> {
        Ok(lock(&self.progress).poll(&self.link, &self.counters, &self.peer)?)
    }

    /// Whether [`Stream::recv`] would not return `None`.
    pub fn is_readable(&self) -> bool {
        let done = Flags::PEER_SHUT | Flags::PEER_GONE | Flags::BROKEN | Flags::SHUT_READ;
        self.counters.flags().intersects(done) || self.unread() > 0
    }

    /// Bytes that have arrived and were not taken.
    pub fn unread(&self) -> u64 {
        let taken = self.counters.taken.load(Ordering::Acquire);
        self.counters.arrived.load(Ordering::Acquire).saturating_sub(taken)
    }

    /// Whether [`Stream::send`] would not return `None`, and whether enough would be sent to be worth a call.
    pub fn is_writable(&self) -> bool {
        let done = Flags::SHUT_WRITE | Flags::PEER_GONE | Flags::BROKEN;
        if self.counters.flags().intersects(done) {
            return true;
        }
        lock(&self.sender).is_ready(&self.link, &self.counters)
    }

    /// Whether no bytes will be exchanged in either direction any more.
    pub fn is_ended(&self) -> bool {
        let flags = self.counters.flags();
        flags.intersects(Flags::PEER_GONE | Flags::BROKEN)
            || flags.contains(Flags::PEER_SHUT | Flags::SHUT_WRITE)
    }

    /// Whether the peer has ended its direction.
    pub fn is_peer_shut(&self) -> bool {
        self.counters.flags().intersects(Flags::PEER_SHUT | Flags::PEER_GONE)
    }

    /// Whether the connection has failed: the peer is gone without a word, or has violated the protocol.
    pub fn is_broken(&self) -> bool {
        let flags = self.counters.flags();
        flags.contains(Flags::BROKEN) && !flags.contains(Flags::PEER_GONE)
    }

    /// Polls until `is_done`, for the time of [`Config::polling`].
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn spin(&self, mut is_done: impl FnMut() -> bool) -> Result<()> {
        let host = self.host();
        let deadline = host.after(self.link.config.polling);
        let result = host.poll("rsocket", deadline, || match self.poll() {
            Ok(()) => is_done().then_some(Ok(())),
            Err(why) => Some(Err(why)),
        });
        result.unwrap_or(Ok(()))
    }

    /// Prepares a sleep: from now on, any change makes one of the two descriptors of [`Stream::fds`] readable. The caller checks once
    /// more what it waits for, sleeps in poll(2) unless it has come, and calls [`Stream::awake`].
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn arm(&self) -> Result<Sleep> {
        let mut progress = lock(&self.progress);
        while self.link.channel.poll_event().is_some() {
            progress.is_armed = false;
            // The event may have been meant for other threads as well.
            self.sleepers.wake();
        }
        let sleep = self.sleepers.enter();
        if !progress.is_armed {
            if let Err(why) = self.link.cq.req_notify(false) {
                self.sleepers.leave(sleep);
                return Err(why.into());
            }
            progress.is_armed = true;
        }
        if let Err(why) = progress.poll(&self.link, &self.counters, &self.peer) {
            self.sleepers.leave(sleep);
            return Err(why.into());
        }
        Ok(sleep)
    }

    /// Ends the sleep that [`Stream::arm`] has prepared.
    pub fn awake(&self, sleep: Sleep) {
        self.sleepers.leave(sleep);
    }

    /// The descriptors of [`Stream::arm`]; the first is missing in virtual time.
    pub fn fds(&self) -> (Option<BorrowedFd<'_>>, BorrowedFd<'_>) {
        (self.link.channel.fd(), self.sleepers.fd())
    }

    /// Ends the direction from this end to the peer: what was sent arrives, then the end of the stream.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn shut_write(&self) -> Result<()> {
        // No bytes of another thread may follow.
        let _order = lock(&self.sender);
        let before = self.counters.set(Flags::SHUT_WRITE);
        if before.contains(Flags::SHUT_WRITE) {
            return Ok(());
        }
        self.sleepers.wake();
        let both = before.intersects(Flags::SHUT_READ | Flags::PEER_SHUT);
        self.announce(if both { Message::Disconnect } else { Message::Shutdown })
    }

    /// Takes nothing more: the program reads the end of the stream.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn shut_read(&self) -> Result<()> {
        let _order = lock(&self.sender);
        let before = self.counters.set(Flags::SHUT_READ);
        self.sleepers.wake();
        let is_last = before.contains(Flags::SHUT_WRITE) && !before.contains(Flags::SHUT_READ);
        if is_last { self.announce(Message::Disconnect) } else { Ok(()) }
    }

    /// Announces the end of a direction, or of both.
    fn announce(&self, message: Message) -> Result<()> {
        if message == Message::Disconnect
            && self.counters.set(Flags::DISCONNECTING).contains(Flags::DISCONNECTING)
        {
            return Ok(());
        }
        if self.counters.flags().intersects(Flags::PEER_GONE | Flags::BROKEN) {
            return Ok(());
        }
        Ok(lock(&self.progress).post_end(&self.link, &self.counters, message)?)
    }

    /// Ends both directions, and waits until the peer has all that was sent, but not beyond `deadline`.
    pub fn close(&self, deadline: Option<host::Time>) {
        let _ = self.shut_write();
        let _ = self.shut_read();
        // A connection that the peer, or an error, has ended does not wait for anything.
        self.host().wait("rclose", &self.link.cq, deadline, || {
            let failed = self.poll().is_err();
            let flags = self.counters.flags();
            let is_over = flags.intersects(Flags::PEER_GONE | Flags::BROKEN);
            (failed || is_over || self.is_drained()).then_some(())
        });
    }

    /// Whether all requests have completed.
    fn is_drained(&self) -> bool {
        let Counters { control_posted, control_done, data_done, .. } = &self.counters;
        control_posted.load(Ordering::Acquire) == control_done.load(Ordering::Acquire)
            && lock(&self.sender).posted() == data_done.load(Ordering::Acquire)
    }

    /// The memory that the peer writes, for tests of hostile peers.
    #[doc(hidden)]
    pub fn recv_memory(&self) -> &Mr {
        &self.link.memory.recv
    }
}
