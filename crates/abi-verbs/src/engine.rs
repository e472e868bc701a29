//! Engines, the opened devices of this process: their list, addresses, datagrams and tasks. `thread` opens them and serves their
//! events.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ffi::lock;
use rdma_abi::verbs::{ibv_ah_attr, ibv_gid};
use verbs::host::Time;
use verbs::host::real::remark;
use verbs::pairing::{PORTS, Pairing};

use crate::address::{self, AhDestination};
use crate::answer::Answer;
use crate::discovery::device::{self, DeviceKind};
use crate::discovery::interface;
use crate::errno::{Errno, errno};
use crate::objects::{CmId, DelayedTask, Engine};
use crate::slab::Handle;
use crate::ud::Datagrams;

/// Engines of this process, by device name. A child of fork(2) does not use its parent's.
pub(crate) static ENGINES: Mutex<Vec<(u32, String, Arc<Engine>)>> = Mutex::new(Vec::new());

impl Engine {
    /// The engine of the device with this name, if this process has opened it; `None` while any device is being opened.
    pub(crate) fn opened(name: &str) -> Option<Arc<Self>> {
        let own = std::process::id();
        // Opening a device may read the emulated files that call this function.
        let engines = ENGINES.try_lock().ok()?;
        let (.., engine) = engines.iter().find(|(pid, known, _)| *pid == own && known == name)?;
        Some(engine.clone())
    }

    /// Datagram counters by name; empty before the first datagram queue pair.
    pub(crate) fn datagram_counts(&self) -> Vec<(&'static str, u64)> {
        lock(&self.datagrams).as_ref().map(|datagrams| datagrams.counts.all().collect()).unwrap_or_default()
    }

    /// The first GID of this process's port, if it has one.
    pub(crate) fn gid(&self) -> Option<ibv_gid> {
        self.gids.first().copied()
    }

    /// The GID at this index of the table; zero if it has vanished.
    pub(crate) fn gid_at(&self, index: usize) -> Option<ibv_gid> {
        let is_lost = index + 1 == self.gids.len() && self.is_gid_lost.load(Ordering::Relaxed);
        self.gids.get(index).map(|gid| if is_lost { ibv_gid::default() } else { *gid })
    }

    /// The sender's GID in an address vector.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for an index outside of the table.
    pub(crate) fn source(&self, vector: &ibv_ah_attr) -> Answer<ibv_gid> {
        let index = if vector.is_global == 0 { 0 } else { vector.grh.sgid_index };
        self.gids.get(usize::from(index)).copied().ok_or_else(|| {
            errno!(
                INVAL,
                "ah_attr.grh.sgid_index is {index}, but the GID table has {} entries",
                self.gids.len()
            )
        })
    }

    /// The destination of an address vector, as seen from this device.
    ///
    /// # Errors
    /// As [`AhDestination::decode`] and [`Engine::source`]; [`Errno::INVAL`] for an address of the other family; `ENETUNREACH` for another host's
    /// address on a device that reaches only this host, which is also reported on standard error.
    pub(crate) fn target(&self, vector: &ibv_ah_attr) -> Answer<AhDestination> {
        self.source(vector)?;
        let own = self.pairing.addr().ip();
        match AhDestination::decode(vector)? {
            AhDestination::Host(ip) if ip.is_ipv4() != own.is_ipv4() => Err(errno!(
                INVAL,
                "ah_attr.grh.dgid is {ip}, but the device is bound to {own}, of the other family; name the device by an address of \
                 the peer's family (nicety run --device iwarp@ADDRESS)"
            )),
            AhDestination::Host(ip) if self.is_local => {
                if !ip.is_loopback() && interface::name_of(Some(ip)).is_none() {
                    return Err(Errno(libc::ENETUNREACH).remarked(format_args!(
                        "{} reaches this host alone, and {ip} is none of its addresses: name a device that reaches it, as by \
                         nicety run --device iwarp@ADDRESS",
                        self.device.name()
                    )));
                }
                Ok(AhDestination::Host(own))
            }
            target => Ok(target),
        }
    }

    /// The listening address of the process that an address vector and a queue pair number identify.
    ///
    /// # Errors
    /// As [`Engine::target`] and [`AhDestination::process_of`]; the latter is also reported on standard error.
    pub(crate) fn process_of(&self, vector: &ibv_ah_attr, qp_num: u32) -> Answer<SocketAddr> {
        let target = self.target(vector)?;
        target.process_of(qp_num).map_err(|why| {
            why.remarked(format_args!(
                "queue pair {qp_num:#x} of {target} names no process there: exchange ibv_qp.qp_num as it is, of a process \
                 whose port shows a GID of this kind, or GID 0, which leads to the process by itself"
            ))
        })
    }

    /// The datagram transport, opened on first use.
    pub(crate) fn datagrams(&self) -> Answer<Arc<Datagrams>> {
        let mut datagrams = lock(&self.datagrams);
        if let Some(datagrams) = &*datagrams {
            return Ok(datagrams.clone());
        }
        if self.gids.is_empty() {
            return Err(errno!(
                OPNOTSUPP,
                "the port has no GID, which datagrams need; end what listens at the ports of its address"
            ));
        }
        let opened = Datagrams::open(&self.device, self.is_local, self.pairing.addr(), self.gids.clone())?;
        Ok(datagrams.insert(opened).clone())
    }

    /// A shared receive queue has a limit now. On shm, peers take receives without notifying this side, and a program that waits for
    /// the event does not poll, so the thread must.
    pub(crate) fn expect_limits(&self) {
        if self.is_local && !self.has_limits.swap(true, Ordering::AcqRel) {
            self.plan();
        }
    }

    /// Schedules a task of an identifier. Callers hold the lock of the objects, so that no task runs after the identifier is destroyed.
    pub(crate) fn schedule(&self, at: Time, id: Handle<CmId>, what: DelayedTask) {
        lock(&self.delayed_tasks).push((at, id, what));
        self.plan();
    }

    /// Wakes the thread, which then reads its tasks again.
    fn plan(&self) {
        self.plans.fetch_add(1, Ordering::AcqRel);
        self.planned.notify();
    }
}

/// The GID table of a port. A missing entry is reported on standard error.
pub(crate) fn gids(name: &str, pairing: &Pairing) -> Vec<ibv_gid> {
    let addr = pairing.addr();
    if !pairing.encodes_port() {
        let Range { start, end } = PORTS;
        remark(format_args!(
            "{name} has no GID of its address {}, as all ports from {start} to {} of it are taken: exchange GID 0, or end \
             what listens there",
            addr.ip(),
            end - 1
        ));
    }
    limit_gids(address::gids(addr, std::process::id() as u16, pairing.encodes_port()))
}

/// The GID table of a port whose device this process has not opened: its first entry identifies no process.
pub(crate) fn gids_before(name: &str) -> Vec<ibv_gid> {
    limit_gids(address::gids(SocketAddr::new(own_ip(name), 0), 0, true))
}

/// A device shown as an RNIC has only the first entry, as real RNICs do.
fn limit_gids(mut gids: Vec<ibv_gid>) -> Vec<ibv_gid> {
    gids.truncate(if device::device_kind() == DeviceKind::Rnic { 1 } else { usize::MAX });
    gids
}

/// The address at which a device of this name is reached.
pub(crate) fn own_ip(name: &str) -> IpAddr {
    side(name).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The address of this host that a device name binds to, if any.
pub(crate) fn side(name: &str) -> Option<IpAddr> {
    let name = fabric::below(name);
    let side = name.split(['@', '(']).nth(1).filter(|_| name.contains('@'));
    side.and_then(|side| side.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_to_its_side() {
        let side_of = |name| side(name).map(|side| side.to_string());
        for name in ["shm", "shm(dm=1M)", "iwarp"] {
            assert_eq!(side_of(name), None, "{name}");
        }
        for name in ["iwarp@10.0.0.1(crc=on)", "faults(iwarp@10.0.0.1(crc=on),seed=3)"] {
            assert_eq!(side_of(name).as_deref(), Some("10.0.0.1"), "{name}");
        }
    }
}
