//! Peer devices: mapping them, choosing how to access their private memory, waking their NIC threads.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{Error, Result};

use crate::copy::copy_path::CopyState;
use crate::copy::place;
use crate::memory::layout::{Header, VERSION};
use crate::memory::segment::{FileId, SharedRef, map_peer, segment_file_id};
use crate::memory::table::{ProtectionTable, own_table};
use crate::protocol::wire::Hello;
use crate::wake::wake_socket::{is_wake_socket, signal};
use nic_util::fork::ForkSafeFd;
use nic_util::sync::ready::ReadySet;
use nic_util::sync::unpoisoned;

/// How this process accesses private memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMethod {
    /// Directly: it is this process.
    Direct {
        /// The process id.
        pid: i32,
    },
    /// By process_vm_readv/writev(2).
    Kernel {
        /// The peer's process.
        pid: i32,
    },
    /// Through its NIC thread, which copies.
    Service,
}

/// A peer device, shared by all connections to it.
pub(crate) struct PeerDevice {
    pub(crate) table: Arc<ProtectionTable>,
    pub(crate) copy_method: CopyMethod,
    /// The peer's pid according to the kernel; 0 if it is in a PID namespace that this process does not see.
    pid: i32,
    /// The peer's header: kicks, the reader registry, and other sets of its queue pairs and queues.
    pub(crate) header: SharedRef<Header>,
    /// A pidfd of the peer's process, where the kernel provides one, to check whether the process has ended.
    pidfd: Option<ForkSafeFd>,
    /// Wakes its NIC thread.
    kick: ForkSafeFd,
}

impl PeerDevice {
    /// The registry in which this side marks accesses to the peer's memory; see
    /// [`crate::memory::layout::Header`].
    #[inline]
    pub(crate) fn reader_registry(&self) -> &ReadySet {
        &self.header.visited
    }

    /// Wakes the peer's NIC thread, which then checks its queue pair `index`.
    pub(crate) fn kick(&self, index: usize) {
        self.header.kicked.add(index);
        signal(self.kick.as_fd());
    }

    /// Whether its process is known to have ended, and so accesses nothing any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| {
            let mut look = [PollFd::new(pidfd, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut look, Some(&now)).is_ok_and(|ready| ready > 0)
        })
    }
}

/// The devices at the other ends of a device's connections, each mapped once.
pub(crate) struct PeerDevices {
    copy: CopyState,
    mapped: Mutex<BTreeMap<FileId, Weak<PeerDevice>>>,
}

impl PeerDevices {
    /// No peers yet; `copy` is the configured way to access their private memory.
    pub(crate) fn new(copy: CopyState) -> Self {
        Self { copy, mapped: Mutex::default() }
    }

    /// The device that sent a hello, mapped once for all its connections. `pidfd` opens a pidfd of its
    /// process.
    pub(crate) fn get(
        &self,
        hello: &Hello,
        pid: i32,
        pidfd: impl FnOnce() -> Option<OwnedFd>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Arc<PeerDevice>> {
        if fds.len() < 2 {
            return Err(Error::Invalid("the peer sent too few descriptors".into()));
        }
        let (file, kick) = (fds.remove(0), fds.remove(0));
        if !is_wake_socket(&kick) || !fds.iter().all(is_wake_socket) {
            return Err(Error::Invalid("the peer sent a descriptor that is not a wake socket".into()));
        }
        let id = segment_file_id(&file)?;
        let other = || Error::Invalid("the peer claims to be another process's device".into());
        let mut peers = unpoisoned(&self.mapped);
        if let Some(known) = peers.get(&id).and_then(Weak::upgrade) {
            return if known.pid == pid { Ok(known) } else { Err(other()) };
        }
        let table = match own_table(id) {
            Some(table) if pid == std::process::id() as i32 => table,
            Some(_) => return Err(other()),
            None => ProtectionTable::of_peer(map_peer(file)?),
        };
        let header: SharedRef<Header> = SharedRef::new(&table.map, 0)?;
        if header.version.load(Ordering::Acquire) != VERSION
            || header.token.load(Ordering::Relaxed) != hello.token
        {
            return Err(Error::Invalid("the peer's segment is of another version; update both sides".into()));
        }
        let copy_method = self.choose_copy_method(hello, pid, table.is_own());
        let (pidfd, kick) = (pidfd().map(ForkSafeFd::from), ForkSafeFd::from(kick));
        let peer = Arc::new(PeerDevice { table, pid, copy_method, header, pidfd, kick });
        peers.retain(|_, p| p.strong_count() > 0);
        peers.insert(id, Arc::downgrade(&peer));
        Ok(peer)
    }

    fn choose_copy_method(&self, hello: &Hello, pid: i32, is_own: bool) -> CopyMethod {
        if is_own && !self.copy.is_forced() {
            return CopyMethod::Direct { pid };
        }
        // A pid of another PID namespace means nothing here; the probe decides whether this one is the
        // peer's.
        let reads = || place::probe_kernel_copy(pid, hello.probe_addr, hello.process);
        if pid > 0 && self.copy.may_copy_by_kernel(reads) {
            CopyMethod::Kernel { pid }
        } else {
            CopyMethod::Service
        }
    }
}
