//! [`CmId`] and [`CmChannel`]: identifiers of librdmacm, and the channel of their events.
//!
//! An identifier is known by a number, its context in C: an event that is late finds that its number is gone. Events
//! are acknowledged as soon as they are copied, so that an identifier can be destroyed at any time.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_abi::cma::*;
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_qp_attr;
use verbs::{Error, Result};

use super::check;
use super::context::{Context, name_behind, set_nonblocking};
use super::qp::no_attributes;

/// A channel of events.
pub(crate) struct CmChannel {
    context: Arc<Context>,
    at: NonNull<rdma_event_channel>,
}

// SAFETY: functions of librdmacm may be called by any thread, at the same time. Test: the group `threads` of the suite
// in crates/abi-verbs/tests/hw_on_shm.rs.
unsafe impl Send for CmChannel {}
// SAFETY: as above.
unsafe impl Sync for CmChannel {}

impl CmChannel {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        let refused = "cannot create a channel of connection events (is the kernel module rdma_ucm loaded, and may this user \
                       read and write /dev/infiniband/rdma_cm?)";
        // SAFETY: the function has no arguments. Test: crates/abi-verbs/tests/hw_on_shm.rs, as for all blocks of
        // this file.
        let at = unsafe { (context.calls.cm.rdma_create_event_channel)() };
        let at = NonNull::new(at).ok_or_else(|| Error::system(refused, io::Error::last_os_error()))?;
        let channel = Self { context: context.clone(), at };
        set_nonblocking(channel.fd()).map_err(|why| Error::system(refused, why))?;
        Ok(Arc::new(channel))
    }

    /// The descriptor that is readable while an event is pending.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its descriptor open, and the borrow lasts no longer than the channel.
        unsafe { BorrowedFd::borrow_raw(self.at.as_ref().fd) }
    }

    /// Takes the next event, if there is any.
    pub(crate) fn next(self: &Arc<Self>) -> Option<HwCmEvent> {
        let cm = &self.context.calls.cm;
        let mut event = null_mut();
        // SAFETY: the channel exists and does not block. The event and its private data are valid until it is
        // acknowledged, which ends the block. A request comes with a new identifier, which is owned from here on.
        unsafe {
            check((cm.rdma_get_cm_event)(self.at.as_ptr(), &raw mut event)).ok()?;
            let seen = NonNull::new(event)?.as_ref();
            let kind = seen.event.cast_unsigned();
            let is_request = kind == n::RDMA_CM_EVENT_CONNECT_REQUEST;
            let of = if is_request { seen.listen_id } else { seen.id };
            let request = NonNull::new(seen.id).filter(|_| is_request);
            let copied = HwCmEvent {
                kind,
                status: seen.status,
                number: NonNull::new(of).map_or(0, |id| id.as_ref().context.addr() as u64),
                request: request.map(|at| CmId { at, channel: self.clone() }),
                param: if Self::has_param(kind) {
                    PeerParam::copy(&seen.param.conn)
                } else {
                    PeerParam::default()
                },
            };
            (cm.rdma_ack_cm_event)(event);
            Some(copied)
        }
    }

    /// Whether an event carries parameters of the peer.
    fn has_param(kind: u32) -> bool {
        matches!(
            kind,
            n::RDMA_CM_EVENT_CONNECT_REQUEST
                | n::RDMA_CM_EVENT_CONNECT_RESPONSE
                | n::RDMA_CM_EVENT_ESTABLISHED
                | n::RDMA_CM_EVENT_REJECTED
        )
    }
}

impl Drop for CmChannel {
    fn drop(&mut self) {
        if !self.context.is_forked() {
            // SAFETY: its identifiers hold a reference to it, so none is left.
            unsafe { (self.context.calls.cm.rdma_destroy_event_channel)(self.at.as_ptr()) };
        }
    }
}

/// A copied event.
pub(crate) struct HwCmEvent {
    /// `RDMA_CM_EVENT_...`.
    pub(crate) kind: u32,
    /// 0, a negative error number, or the reason of a rejection.
    pub(crate) status: i32,
    /// The number of its identifier; of the listener for a connect request.
    pub(crate) number: u64,
    /// The identifier of a connect request.
    pub(crate) request: Option<CmId>,
    /// What the peer has sent.
    pub(crate) param: PeerParam,
}

/// Parameters that the peer has sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerParam {
    pub(crate) private_data: Vec<u8>,
    /// Reads and atomics that the peer will have outstanding here.
    pub(crate) responder_resources: u8,
    /// Reads and atomics that the peer serves.
    pub(crate) initiator_depth: u8,
    pub(crate) rnr_retry: u8,
}

impl PeerParam {
    fn copy(seen: &rdma_conn_param) -> Self {
        let len = usize::from(seen.private_data_len);
        let private_data = if seen.private_data.is_null() || len == 0 {
            Vec::new()
        } else {
            // SAFETY: an event that is not acknowledged has as many bytes as it states.
            unsafe { std::slice::from_raw_parts(seen.private_data.cast::<u8>(), len) }.to_vec()
        };
        Self {
            private_data,
            responder_resources: seen.responder_resources,
            initiator_depth: seen.initiator_depth,
            rnr_retry: seen.rnr_retry_count,
        }
    }
}

/// An identifier: a listener, a connection, or a request for one.
pub(crate) struct CmId {
    at: NonNull<rdma_cm_id>,
    channel: Arc<CmChannel>,
}

// SAFETY: as for `CmChannel`.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

/// An address in C's layout.
#[repr(C)]
union CAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl CAddr {
    fn new(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(addr) => Self {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(addr) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                },
            },
        }
    }

    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }
}

impl CmId {
    /// A new identifier, whose events carry `number`.
    pub(crate) fn new(channel: &Arc<CmChannel>, number: u64) -> io::Result<Self> {
        let mut id = null_mut();
        let mark: *mut c_void = std::ptr::without_provenance_mut(number as usize);
        // SAFETY: the channel exists; the mark is only a number.
        check(unsafe {
            let create = channel.context.calls.cm.rdma_create_id;
            create(channel.at.as_ptr(), &raw mut id, mark, n::RDMA_PS_TCP.cast_signed())
        })?;
        let at = NonNull::new(id).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { at, channel: channel.clone() })
    }

    fn functions(&self) -> &super::library::CmFunctions {
        &self.channel.context.calls.cm
    }

    /// Sets the number that its events carry from now on.
    pub(crate) fn set_number(&self, number: u64) {
        // SAFETY: the identifier exists; its context belongs to its owner, and no other thread knows it yet.
        unsafe { (*self.at.as_ptr()).context = std::ptr::without_provenance_mut(number as usize) };
    }

    /// The name of the card that it is bound to, if it is bound to one.
    pub(crate) fn card(&self) -> Option<String> {
        // SAFETY: the identifier exists; the library sets this field before it reports the event that binds it.
        NonNull::new(unsafe { (*self.at.as_ptr()).verbs }).map(name_behind)
    }

    /// The address of this end.
    pub(crate) fn local(&self) -> SocketAddr {
        // SAFETY: as in `card`.
        address(unsafe { &(*self.at.as_ptr()).route.addr.src_storage })
    }

    /// The address of the peer.
    pub(crate) fn peer(&self) -> SocketAddr {
        // SAFETY: as in `card`.
        address(unsafe { &(*self.at.as_ptr()).route.addr.dst_storage })
    }

    pub(crate) fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let mut addr = CAddr::new(addr);
        // SAFETY: the identifier exists, and the address is read during the call.
        check(unsafe { (self.functions().rdma_bind_addr)(self.at.as_ptr(), addr.as_mut_ptr()) })
    }

    pub(crate) fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier exists.
        check(unsafe { (self.functions().rdma_listen)(self.at.as_ptr(), backlog) })
    }

    /// Starts to find the card and the address of the peer, from `own` or from any address; an event follows.
    pub(crate) fn resolve_addr(
        &self,
        own: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: i32,
    ) -> io::Result<()> {
        let (mut own, mut peer) = (own.map(CAddr::new), CAddr::new(peer));
        let own = own.as_mut().map_or(null_mut(), CAddr::as_mut_ptr);
        let resolve = self.functions().rdma_resolve_addr;
        // SAFETY: as in `bind`.
        check(unsafe { resolve(self.at.as_ptr(), own, peer.as_mut_ptr(), timeout_ms) })
    }

    /// Starts to find the path to the peer; an event follows.
    pub(crate) fn resolve_route(&self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: the identifier exists.
        check(unsafe { (self.functions().rdma_resolve_route)(self.at.as_ptr(), timeout_ms) })
    }

    pub(crate) fn connect(&self, own: &OwnParam<'_>) -> io::Result<()> {
        let mut param = own.to_c();
        // SAFETY: the identifier exists, and the parameters are read during the call.
        check(unsafe { (self.functions().rdma_connect)(self.at.as_ptr(), &raw mut param) })
    }

    pub(crate) fn accept(&self, own: &OwnParam<'_>) -> io::Result<()> {
        let mut param = own.to_c();
        // SAFETY: as in `connect`.
        check(unsafe { (self.functions().rdma_accept)(self.at.as_ptr(), &raw mut param) })
    }

    /// Confirms the peer's answer: the peer's side is established then.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier exists, and has no queue pair of the library.
        check(unsafe { (self.functions().rdma_establish)(self.at.as_ptr()) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = private_data.len().try_into().unwrap_or(u8::MAX);
        // SAFETY: the identifier exists, and the bytes are read during the call.
        check(unsafe { (self.functions().rdma_reject)(self.at.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier exists, and has no queue pair of the library.
        check(unsafe { (self.functions().rdma_disconnect)(self.at.as_ptr()) })
    }

    /// The attributes, with their mask, that move a queue pair of this connection to a state.
    pub(crate) fn qp_attr(&self, state: u32) -> io::Result<(ibv_qp_attr, u32)> {
        let (mut attr, mut mask) = (no_attributes(), 0);
        attr.qp_state = state.cast_signed();
        // SAFETY: the identifier exists; the function fills both values in.
        check(unsafe {
            (self.functions().rdma_init_qp_attr)(self.at.as_ptr(), &raw mut attr, &raw mut mask)
        })?;
        Ok((attr, mask.cast_unsigned()))
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if !self.channel.context.is_forked() {
            // SAFETY: the identifier exists and is owned. The call waits for events that are not acknowledged: only
            // `CmChannel::next` has any, which waits for nothing.
            unsafe { (self.functions().rdma_destroy_id)(self.at.as_ptr()) };
        }
    }
}

/// Parameters of this side.
pub(crate) struct OwnParam<'a> {
    pub(crate) private_data: &'a [u8],
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) qp_num: u32,
    pub(crate) has_srq: bool,
}

/// Retries of messages that are not acknowledged: the most.
const RETRY_COUNT: u8 = 7;

impl OwnParam<'_> {
    fn to_c(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len().try_into().unwrap_or(u8::MAX),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 0,
            retry_count: RETRY_COUNT,
            rnr_retry_count: self.rnr_retry,
            srq: self.has_srq.into(),
            qp_num: self.qp_num,
        }
    }
}

/// An address of ours; that of no host if it is of another family.
fn address(storage: &libc::sockaddr_storage) -> SocketAddr {
    let at: *const libc::sockaddr_storage = storage;
    // SAFETY: the storage is larger than both kinds of addresses, and aligned for both; the family says which it is.
    unsafe {
        match c_int::from(storage.ss_family) {
            libc::AF_INET => {
                let v4 = at.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into()
            }
            libc::AF_INET6 => {
                let v6 = at.cast::<libc::sockaddr_in6>().read();
                let (port, ip) = (u16::from_be(v6.sin6_port), v6.sin6_addr.s6_addr.into());
                SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into()
            }
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn addresses_survive_the_layout_of_c() {
        for text in ["10.1.2.3:45", "[fe80::1%3]:4791", "[::1]:0"] {
            let addr: SocketAddr = text.parse().expect("an address");
            let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
            // SAFETY: the storage has room for both kinds, and zeros are valid for it.
            let storage = unsafe {
                storage.as_mut_ptr().cast::<CAddr>().write(CAddr::new(addr));
                storage.assume_init()
            };
            assert_eq!(address(&storage), addr);
        }
    }
}
