//! The objects that programs hold, with the state of each. A context finds its device's objects by number, and each object refers to
//! its context, so all are in one file. The calls are in modules above this one, as are objects to which no other object refers.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rdma_abi::cma::{rdma_cm_id, rdma_event_channel};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::host::{EventCount, Time};
use verbs::pairing::Pairing;
use verbs::{BoundAddr, Cm, ConnInfo, ConnParam, ConnectRequest, Listener, SrqInit, Wc};

use crate::answer::Answer;
use crate::cm::service::Service;
use crate::discovery::device::Device;
use crate::errno::errno;
use crate::event_queue::EventQueue;
use crate::qp::device_qp::{CurrentDeviceQp, DeviceQp};
use crate::qp::disconnect_hold::DelayedCompletions;
use crate::slab::{Handle, Held, Object, Slab};
use crate::ud::Datagrams;
use crate::usage::{EventAcks, UseCount};

/// A device opened by a program.
pub(crate) struct Context {
    pub(crate) engine: Arc<Engine>,
    pub(crate) device: Handle<Device>,
    /// Asynchronous events that the program has not taken.
    pub(crate) events: EventQueue<PendingAsyncEvent>,
}

impl Object for Context {
    type C = verbs_context;
    const NAME: &'static str = "ibv_context";
    const END: Option<&'static str> = Some("ibv_close_device");
    const HANDLE_AT: usize = std::mem::offset_of!(verbs_context, context);
    const PLACES: usize = 4096;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Context> = Slab::new();
        &SLAB
    }
}

impl Context {
    /// The address in the first field of other objects.
    pub(crate) fn address(handle: Handle<Self>) -> *mut ibv_context {
        handle.cast()
    }
}

/// An asynchronous event of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AsyncQpEvent {
    QpAccessError,
    QpFatal,
    LastWqeReached,
}

/// An asynchronous event that the program has not taken yet.
pub(crate) enum PendingAsyncEvent {
    Cq(Handle<Cq>),
    Qp(Handle<Qp>, AsyncQpEvent),
    Srq(Handle<Srq>),
    /// The link or a GID of a port came or went: an `IBV_EVENT_...`.
    Port {
        kind: u32,
        port: u8,
    },
    /// The device has failed.
    Device,
}

/// An opened device of this process, which all its contexts share.
pub(crate) struct Engine {
    pub(crate) device: verbs::Device,
    pub(crate) cm: Cm,
    pub(crate) pairing: Pairing,
    /// The device reaches this host only.
    pub(crate) is_local: bool,
    /// The GID table of its port.
    pub(crate) gids: Vec<ibv_gid>,
    /// Objects by number, for event delivery. Locked while an object is in use.
    pub(crate) objects: Mutex<Objects>,
    /// Its contexts, which get the events of ports and of the device.
    pub(crate) contexts: Mutex<Vec<Handle<Context>>>,
    /// The port has lost its link.
    pub(crate) is_port_down: AtomicBool,
    /// The last entry of the GID table, the one of the address, has vanished.
    pub(crate) is_gid_lost: AtomicBool,
    /// Opened for the first UD queue pair.
    pub(crate) datagrams: Mutex<Option<Arc<Datagrams>>>,
    /// Scheduled tasks of identifiers.
    pub(crate) delayed_tasks: Mutex<Vec<(Time, Handle<CmId>, DelayedTask)>>,
    /// Whether any shared receive queue has or had a limit that the thread must poll for.
    pub(crate) has_limits: AtomicBool,
    /// Counts additions to `delayed_tasks` and to the limits; `planned` wakes the thread after each.
    pub(crate) plans: AtomicU32,
    pub(crate) planned: EventCount,
}

/// Objects by number.
#[derive(Default)]
pub(crate) struct Objects {
    /// By the program's queue pair numbers, which completions carry.
    pub(crate) qps: HashMap<u32, Handle<Qp>>,
    /// By the device's queue pair numbers, which events carry.
    pub(crate) qps_by_device_number: HashMap<u32, Handle<Qp>>,
    pub(crate) cqs: HashMap<u32, Handle<Cq>>,
    pub(crate) srqs: HashMap<u32, Handle<Srq>>,
    /// Identifiers of librdmacm by queue pair number.
    pub(crate) ids: HashMap<u32, Handle<CmId>>,
    /// Listening identifiers, by address.
    pub(crate) listeners: Vec<(SocketAddr, Handle<CmId>)>,
}

impl Objects {
    /// The queue pair whose device number an event carries.
    pub(crate) fn of_event(&self, number: u32) -> Option<Held<Qp>> {
        self.qps_by_device_number.get(&number)?.lookup().ok()
    }
}

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) pd: verbs::Pd,
    pub(crate) context: Handle<Context>,
    pub(crate) users: UseCount,
    /// Set if it is a parent domain.
    pub(crate) parent: Option<ParentDomain>,
}

/// What a parent domain was made of.
pub(crate) struct ParentDomain {
    pub(crate) pd: Held<Pd>,
    pub(crate) td: Option<Held<Td>>,
}

/// A thread domain.
pub(crate) struct Td {
    pub(crate) users: UseCount,
}

impl Object for Td {
    type C = ibv_td;
    const NAME: &'static str = "ibv_td";
    const END: Option<&'static str> = Some("ibv_dealloc_td");
    const PLACES: usize = 1 << 14;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Td> = Slab::new();
        &SLAB
    }
}

impl Object for Pd {
    type C = ibv_pd;
    const NAME: &'static str = "ibv_pd";
    const END: Option<&'static str> = Some("ibv_dealloc_pd");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Pd> = Slab::new();
        &SLAB
    }
}

impl Held<Pd> {
    /// The context that it belongs to.
    pub(crate) fn context(self) -> Handle<Context> {
        self.context
    }
}

/// A completion channel.
pub(crate) struct Channel {
    pub(crate) channel: verbs::CompChannel,
    pub(crate) fd: OwnedFd,
    /// Its completion queues, by the device's numbers.
    pub(crate) cqs: Mutex<HashMap<u32, Handle<Cq>>>,
    pub(crate) users: UseCount,
}

impl Object for Channel {
    type C = ibv_comp_channel;
    const NAME: &'static str = "ibv_comp_channel";
    const END: Option<&'static str> = Some("ibv_destroy_comp_channel");
    const PLACES: usize = 1 << 14;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Channel> = Slab::new();
        &SLAB
    }
}

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) cq: verbs::Cq,
    pub(crate) context: Handle<Context>,
    pub(crate) channel: Option<Held<Channel>>,
    /// The parent domain that it was created with.
    pub(crate) parent: Option<Held<Pd>>,
    pub(crate) users: UseCount,
    /// Completion notifications, counted until the program acknowledges them.
    pub(crate) notified: EventAcks,
    /// Asynchronous events, likewise.
    pub(crate) events: EventAcks,
    pub(crate) delayed: DelayedCompletions,
    /// Set when UD queue pairs complete here; each poll of the queue then moves datagrams.
    pub(crate) datagrams: OnceLock<Arc<Datagrams>>,
    /// The completion that `ibv_start_poll(3)` or `ibv_next_poll(3)` took last, and the sender's queue pair number.
    pub(crate) current: Mutex<(Wc, Option<u32>)>,
}

impl Object for Cq {
    // The extended type, since every queue supports `ibv_start_poll(3)`.
    type C = ibv_cq_ex;
    const NAME: &'static str = "ibv_cq";
    const END: Option<&'static str> = Some("ibv_destroy_cq");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Cq> = Slab::new();
        &SLAB
    }
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) srq: verbs::Srq,
    pub(crate) context: Handle<Context>,
    pub(crate) pd: Held<Pd>,
    pub(crate) init: SrqInit,
    pub(crate) users: UseCount,
    pub(crate) events: EventAcks,
}

impl Object for Srq {
    type C = ibv_srq;
    const NAME: &'static str = "ibv_srq";
    const END: Option<&'static str> = Some("ibv_destroy_srq");
    const PLACES: usize = 1 << 14;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Srq> = Slab::new();
        &SLAB
    }
}

/// The attributes that a program has set, for `ibv_query_qp(3)`.
pub(crate) struct Settings(pub(crate) ibv_qp_attr);

impl Default for Settings {
    fn default() -> Self {
        // SAFETY: only numbers, which may be zero. Test: `perftest_measures_each_operation` in tests/programs.rs.
        Self(unsafe { std::mem::zeroed() })
    }
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) current: CurrentDeviceQp,
    pub(crate) context: Handle<Context>,
    pub(crate) pd: Held<Pd>,
    pub(crate) send_cq: Held<Cq>,
    pub(crate) recv_cq: Held<Cq>,
    pub(crate) srq: Option<Held<Srq>>,
    /// The state that the program has moved it to.
    pub(crate) state: AtomicI32,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) init: ibv_qp_init_attr,
    pub(crate) events: EventAcks,
    /// Whether the builder calls (`ibv_wr_start(3)`) are enabled.
    pub(crate) has_send_ops: bool,
}

// SAFETY: of the creation attributes, only numbers are used and pointers returned to C. Test: `perftest_measures_each_operation`.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Object for Qp {
    type C = ibv_qp_ex;
    const NAME: &'static str = "ibv_qp";
    const END: Option<&'static str> = Some("ibv_destroy_qp");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Qp> = Slab::new();
        &SLAB
    }
}

impl Qp {
    #[inline]
    pub(crate) fn device_qp(&self) -> &DeviceQp {
        self.current.get()
    }

    #[inline]
    pub(crate) fn verbs(&self) -> &verbs::Qp {
        &self.device_qp().qp
    }

    /// Whether this is a UD queue pair.
    pub(crate) fn is_datagram(&self) -> bool {
        self.init.qp_type.cast_unsigned() == n::IBV_QPT_UD
    }

    /// The completion queues of its sends and its receives.
    pub(crate) fn cqs(&self) -> [Held<Cq>; 2] {
        [self.send_cq, self.recv_cq]
    }

    /// The connection is established: posts the requests that have waited, and lets later ones pass.
    pub(crate) fn established(&self) {
        let device_qp = self.device_qp();
        device_qp.gate.open(&device_qp.qp);
    }

    /// The connection has failed: current and later requests are flushed.
    pub(crate) fn failed(&self) {
        let device_qp = self.device_qp();
        device_qp.qp.to_error();
        device_qp.gate.open(&device_qp.qp);
    }

    /// Its current state, as a number of `enum ibv_qp_state`.
    pub(crate) fn state_now(&self) -> u32 {
        let device_qp = self.device_qp();
        let is_dead =
            device_qp.qp.state() == verbs::QpState::Error && !device_qp.disconnect_hold.hides_failure();
        if is_dead { n::IBV_QPS_ERR } else { self.state.load(Ordering::Relaxed).cast_unsigned() }
    }
}

/// An identifier of a connection, or of a listener.
pub(crate) struct CmId {
    pub(crate) state: Mutex<CmIdState>,
    /// Events that the program has not acknowledged.
    pub(crate) events: EventAcks,
}

/// The state of an identifier. Lock order: the engine's locks, this lock, the channel's lock.
pub(crate) struct CmIdState {
    pub(crate) channel: Handle<EventChannel>,
    /// The channel is its own, and calls wait for their event.
    pub(crate) is_sync: bool,
    /// In port space UDP.
    pub(crate) is_datagram: bool,
    /// A listener at an IPv6 address does not accept IPv4 (`RDMA_OPTION_ID_AFONLY`).
    pub(crate) is_of_one_family: bool,
    /// Shares its address with other identifiers that set this option, while none is listening (`RDMA_OPTION_ID_REUSEADDR`).
    pub(crate) reuses_address: bool,
    pub(crate) context: Handle<Context>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The acknowledgement timeout that the program has set; it is only reported back.
    pub(crate) ack_timeout: u8,
    /// The peer's RNR retry limit, if the protocol carries it.
    pub(crate) rnr_retry: Option<u8>,
    /// The queue pair that `rdma_create_qp` made for it.
    pub(crate) qp: Handle<Qp>,
    pub(crate) phase: CmPhase,
    /// The program has disconnected.
    pub(crate) is_leaving: bool,
    /// The local end of the connection, also while connecting.
    pub(crate) end: LocalEnd,
    /// The connection attempt, until it is answered.
    pub(crate) attempt: Option<ConnectAttempt>,
    /// The address that it reserves, on each device.
    pub(crate) ports: Vec<ReservedPort>,
    /// The path record that C sees.
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
    /// Connect requests that arrived before the program listens.
    pub(crate) early: Option<Vec<PendingCmEvent>>,
    /// For a listener: the limit on unanswered requests.
    pub(crate) backlog: Backlog,
    /// The connect request from which it was created, until the program answers.
    pub(crate) request: Option<UnansweredRequest>,
    /// For a listener: the template of queue pairs for its requests.
    pub(crate) template: Option<QpTemplate>,
}

/// The stage of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmPhase {
    Idle,
    /// It has an address.
    Bound,
    Listening,
    /// The peer's address and the device that reaches it are known.
    AddrResolved,
    /// It may connect.
    RouteResolved,
    /// This side is connecting.
    Connecting,
    /// This side has accepted; the peer has to confirm.
    Accepting,
    Connected,
    Closed,
}

impl CmPhase {
    /// The phase as the predicate of a sentence about the identifier.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Idle => "is new and has no address",
            Self::Bound => "is bound and has no peer",
            Self::Listening => "listens",
            Self::AddrResolved => "has an address and no route",
            Self::RouteResolved => "has a route and is not connected",
            Self::Connecting => "is connecting",
            Self::Accepting => "has accepted and is not connected yet",
            Self::Connected => "is connected",
            Self::Closed => "was connected before, or its attempt to connect failed",
        }
    }
}

/// The local end of a connection.
pub(crate) enum LocalEnd {
    None,
    Qp(Handle<Qp>),
    /// The connection has no queue pair of the program.
    Bare(Box<verbs::CmId>),
}

impl Object for CmId {
    type C = rdma_cm_id;
    const NAME: &'static str = "rdma_cm_id";
    const END: Option<&'static str> = Some("rdma_destroy_id");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<CmId> = Slab::new();
        &SLAB
    }
}

impl CmIdState {
    /// The engine of its device.
    ///
    /// # Errors
    /// [`crate::errno::Errno::INVAL`] if no device has been found yet.
    pub(crate) fn engine(&self) -> Answer<Arc<Engine>> {
        if self.context.is_null() {
            return Err(errno!(
                INVAL,
                "the id {}, and no device; call rdma_resolve_addr and rdma_resolve_route first, and wait for their events",
                self.phase.text()
            ));
        }
        Ok(self.context.lookup()?.engine.clone())
    }
}

/// An event channel.
pub(crate) struct EventChannel {
    pub(crate) events: EventQueue<PendingCmEvent>,
}

/// An event of librdmacm that the program has not taken yet.
pub(crate) struct PendingCmEvent {
    /// The identifier that it concerns: the listener, for a connect request.
    pub(crate) id: Handle<CmId>,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) private_data: Vec<u8>,
    /// The peer's address and parameters.
    pub(crate) info: Option<ConnInfo>,
    /// The datagram service, for events of port space UDP.
    pub(crate) service: Option<Service>,
    /// A connect request, which gets an identifier when the program takes the event. Dropping it rejects it.
    pub(crate) request: Option<Request>,
}

/// A connect request, and the context of the device that received it.
pub(crate) struct Request {
    pub(crate) asked: UnansweredRequest,
    pub(crate) context: Handle<Context>,
}

/// An unanswered connect request, with its place in the listener's [`Backlog`].
pub(crate) struct UnansweredRequest {
    pub(crate) request: ConnectRequest,
    pub(crate) _place: Arc<()>,
}

/// The backlog of a listener for which the program passes none.
pub(crate) const BACKLOG: usize = 1024;

/// Counts the unanswered connect requests of a listener, up to a limit.
pub(crate) struct Backlog {
    pub(crate) most: usize,
    pub(crate) places: Arc<()>,
}

impl Backlog {
    pub(crate) fn new() -> Self {
        Self { most: BACKLOG, places: Arc::default() }
    }

    /// Reserves a place for one more request until the place is dropped; `None` at the limit.
    pub(crate) fn place(&self) -> Option<Arc<()>> {
        let waiting = Arc::strong_count(&self.places) - 1;
        (waiting < self.most).then(|| self.places.clone())
    }
}

impl PendingCmEvent {
    /// An event of this kind, without data.
    pub(crate) fn new(id: Handle<CmId>, kind: u32, status: c_int) -> Self {
        Self { id, kind, status, private_data: Vec::new(), info: None, service: None, request: None }
    }
}

impl Object for EventChannel {
    type C = rdma_event_channel;
    const NAME: &'static str = "rdma_event_channel";
    const END: Option<&'static str> = Some("rdma_destroy_event_channel");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<EventChannel> = Slab::new();
        &SLAB
    }
}

/// The parameters of queue pairs for a listener's requests.
#[derive(Clone, Copy)]
pub(crate) struct QpTemplate {
    pub(crate) pd: Handle<Pd>,
    pub(crate) send_cq: Handle<Cq>,
    pub(crate) recv_cq: Handle<Cq>,
    pub(crate) srq: Handle<Srq>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sq_sig_all: i32,
}

/// An address that an identifier reserves on a device.
pub(crate) struct ReservedPort {
    /// The device's index in the list.
    pub(crate) device: usize,
    /// The listener, until the identifier connects from this address.
    pub(crate) listener: Option<Listener>,
    /// `None` on devices that cannot reserve an address; there the listener holds it.
    pub(crate) port: Option<BoundAddr>,
}

/// A connection attempt, retried for a while when nobody listens yet. Programs agree out of band which side listens. On a card,
/// resolving takes longer than starting to listen; here it takes no time, so a program may connect too early.
pub(crate) struct ConnectAttempt {
    pub(crate) addr: SocketAddr,
    pub(crate) param: ConnParam,
    pub(crate) until: Time,
}

/// A scheduled task of an identifier.
pub(crate) enum DelayedTask {
    /// Try to connect again.
    Connect,
    /// Report the end of the connection when the program has polled earlier completions, or at this time.
    End(Time),
    /// Report the end of time-wait: the queue pair may be reused.
    TimeWait,
}
