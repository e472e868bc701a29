//! [`Transport`]: ordered messages and RDMA between this process and each other one, over whichever device reaches it. The first
//! message to a process connects to it. The transport reports through [`Event`]s.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use auth::{Key as Secret, Nonce, Proved, Seed};
use host::{Host, SlotKey, Span};
use pmi::profile::Traffic;
use transport::{
    Answer, CROSSED, ConnEvent, ConnStage, ConnectTarget, Held, Links, Malformed, Outcome, Registration,
    Wireup, answer, of_completion,
};
use verbs::{Buf, CmEvent, ConnParam, ConnectRequest, RemoteAddr, SendOp, Sge, Wc, WcOpcode};

use crate::bootstrap::Bootstrap;
use crate::dpm::remote_jobs::{Identity, RemoteJobs};
use crate::error::{Class, Error, Result};
use crate::memory::Piece;
use crate::p2p::matching::TagCriteria;
use crate::p2p::proto::{
    Conditions, EndpointTraits, Proto, ProtocolLimits, Protocols, STORED_IF_NEAR, ShortPath,
};
use crate::p2p::shm_copy::{Copying, SharedMessage};
use crate::p2p::wire::{LEFT, MatchKey, Message, RemoteMemory, STRANGER};
use crate::peers::address::{ADDRESSES_MAX, Address, common_ports};
use crate::peers::connection::{Connection, Copied, Next, Payload, Received, Short, Taken};
use crate::peers::nic::{Nic, Port};
use crate::peers::trust::{ConnectAdmission, JobSecret, Keyring, Members, PROTOCOL};

/// How long a process may take to answer a connect request: it does so when it next calls MPI, which may take it hours. If it has
/// ended, the device reports that.
const AWAY: Span = Span::from_secs(24 * 60 * 60);

/// An event of the transport.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message has arrived. [`Transport::payload`] returns its payload until [`Transport::release`].
    Received {
        /// The sender.
        from: u32,
        /// The message.
        what: Received,
        /// The memory that holds it.
        place: MessagePlace,
    },
    /// A message has been sent, and its payload may be reused.
    Sent(SlotKey),
    /// The beginning of a message has arrived in a slot; the rest waits for [`Transport::post_rest`], and all later messages of the
    /// process behind it. Otherwise as [`Event::Received`].
    Began {
        /// The sender.
        from: u32,
        /// The message, with the payload that has arrived.
        what: Received,
        /// The memory that holds it.
        place: MessagePlace,
    },
    /// The rest of the message that a process has begun has arrived in the memory for it.
    RestArrived {
        /// The sender.
        from: u32,
        /// Bytes of the rest.
        len: u32,
    },
    /// A request that reads or changes a peer's memory has completed.
    Accessed(SlotKey),
    /// The connection to a process is lost, and no more messages are exchanged with it. Pending events of the process are dropped.
    Lost {
        /// The process.
        process: u32,
        /// The reason.
        error: Error,
    },
    /// A process has left in order. All its messages were received before.
    Left {
        /// The process.
        process: u32,
        /// The error of operations that wait for it.
        error: Error,
    },
}

/// The location of a message: its connection, and its memory there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessagePlace {
    connection: usize,
    held: Held,
}

impl MessagePlace {
    /// Whether a device wrote it to a slot; otherwise the peer stored it.
    pub(crate) fn is_slot(self) -> bool {
        matches!(self.held, Held::Slot(_))
    }
}

/// The state of the connection to a peer.
#[derive(Debug)]
enum PeerState {
    /// No connection.
    None,
    /// The number of the connection, or of the attempt to create one.
    Linked(usize),
    Gone(Gone),
}

/// Why a process can no longer be reached.
#[derive(Clone, Debug)]
struct Gone {
    error: Error,
    /// It has left in order.
    has_left: bool,
}

#[derive(Debug)]
struct Peer {
    process: u32,
    state: PeerState,
}

impl Peer {
    /// The number of the connection to it, or of the attempt to create one.
    fn number(&self) -> Option<usize> {
        if let PeerState::Linked(number) = self.state { Some(number) } else { None }
    }
}

/// The most stored messages that are taken from one peer before others get their turn.
pub(crate) const STORED_MAX: u32 = 256;
/// Of this many brief polls, one also polls the queues of devices whose messages arrive without completions.
const QUEUES_EVERY: u32 = 8;
/// The place of a process that is not known yet.
const UNKNOWN: u32 = u32::MAX;
/// Processes whose places are in one part.
const PART: usize = 64;

/// The index in `peers` of each process of the job, in parts that are allocated on first use: most processes of a large job never
/// communicate with each other.
struct PeerIndices(Vec<Option<Box<[u32; PART]>>>);

impl PeerIndices {
    fn new(size: u32) -> Self {
        Self((0..size.div_ceil(PART as u32)).map(|_| None).collect())
    }

    #[inline]
    fn get(&self, process: u32) -> usize {
        let part = &self.0[process as usize / PART];
        part.as_ref().map_or(UNKNOWN, |part| part[process as usize % PART]) as usize
    }

    /// Makes room for this many processes.
    fn grow(&mut self, size: u32) {
        let parts = size.div_ceil(PART as u32) as usize;
        self.0.resize_with(parts.max(self.0.len()), || None);
    }

    fn set(&mut self, process: u32, place: usize) {
        let part = self.0[process as usize / PART].get_or_insert_with(|| Box::new([UNKNOWN; PART]));
        part[process as usize % PART] = place as u32;
    }
}

/// The route to a peer: the local port, the peer's address, and the seed of its challenges.
#[derive(Debug)]
struct Route {
    port: usize,
    addr: SocketAddr,
    seed: Seed,
}

/// All connections of a process.
pub(crate) struct Transport {
    host: Host,
    bootstrap: Arc<dyn Bootstrap>,
    rank: u32,
    strangers: RemoteJobs,
    address: Address,
    nics: Vec<Nic>,
    indices: PeerIndices,
    peers: Vec<Peer>,
    connections: Links<Connection>,
    /// Connections that have ended, and whether their peers may still store in their memory. They are dropped when no event refers
    /// to their slots.
    ended: Vec<(usize, bool)>,
    /// The peer of each connection, in the order of creation, and whether this process sent the request.
    begun: Vec<(u32, bool)>,
    /// The traffic of connections that have ended.
    past: Vec<(u32, Traffic)>,
    /// Connect requests of this process, by the place of the connection, and the check of incoming ones.
    wireup: Wireup<Arc<Members>>,
    members: Arc<Members>,
    /// Connections whose peers may store messages in this process's memory.
    stored_to: Vec<usize>,
    /// The index of the next one in this poll.
    turn: usize,
    /// Polls until the next one that polls all queues.
    polls: u32,
    events: VecDeque<Event>,
    /// Cached results of [`Transport::is_near`].
    near: BTreeMap<u32, bool>,
    /// The size limits of protocols that the program has set.
    chosen: ProtocolLimits,
    /// How often memory was covered by the region of all memory (or the cache), and how often it was registered.
    pub(crate) reached: [u64; 2],
    /// A process is lost or has left.
    has_lost: bool,
    /// This process is leaving, and accepts no more connections.
    leaves: bool,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transport(process {}, {} connections)", self.rank, self.connections.values().count())
    }
}

fn note_of(process: u32) -> String {
    format!("mpi-{process}")
}

impl Transport {
    /// Sets the devices up, and publishes their listening addresses. Collective.
    pub(crate) fn new(
        host: &Host,
        ports: &[Port],
        (node, addresses, fast_path): (&str, &[IpAddr], bool),
        bootstrap: Arc<dyn Bootstrap>,
    ) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let sizes = (size, bootstrap.remote_procs_max());
        let own = bootstrap.random_key()?;
        let wireup = Wireup::new(PROTOCOL, own.derive("nonces", &[]));
        let seed = Seed::from_key(own.derive("seed", &[]));
        let published = &addresses[..addresses.len().min(ADDRESSES_MAX)];
        let open = |port| Nic::open(port, published, sizes, fast_path, wireup.admission().clone());
        let nics: Vec<Nic> = ports.iter().map(open).collect::<Result<_>>()?;
        let listens = nics.iter().zip(ports).map(|(nic, port)| (nic.addr(), port.fabric.clone()));
        let ports = listens.collect();
        let addresses = published.to_vec();
        let address = Address { node: node.to_owned(), ports, addresses, seed: seed.clone() };
        bootstrap.put(&note_of(rank), &address.note()?)?;
        if rank == 0 {
            let secret = JobSecret::new(bootstrap.random_key()?, &bootstrap.random_key()?);
            bootstrap.put("mpi-job", &secret.note())?;
        }
        bootstrap.fence()?;
        let secret = JobSecret::parse(&bootstrap.get("mpi-job")?)?;
        let me = Identity { job: secret.job, rank };
        let members = Arc::new(Members::new(me, size, Keyring::new(secret)));
        wireup.admission().open(auth::Identity(me.bytes()), seed, members.clone());
        Ok(Self {
            host: host.clone(),
            rank,
            strangers: RemoteJobs::new(me, size),
            address,
            nics,
            indices: PeerIndices::new(size),
            peers: Vec::new(),
            connections: Links::default(),
            ended: Vec::new(),
            begun: Vec::new(),
            past: Vec::new(),
            wireup,
            members,
            stored_to: Vec::new(),
            turn: 0,
            polls: 0,
            events: VecDeque::new(),
            near: BTreeMap::new(),
            chosen: ProtocolLimits::default(),
            reached: [0; 2],
            has_lost: false,
            leaves: false,
            bootstrap,
        })
    }

    /// The devices, in the order of the ports.
    pub(crate) fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// The limits of protocols that were set.
    pub(crate) fn chosen(&self) -> ProtocolLimits {
        self.chosen
    }

    /// The published address of a process.
    pub(crate) fn address_of(&self, process: u32) -> Result<Address> {
        if process == self.rank {
            return Ok(self.address.clone());
        }
        match self.strangers.address(process) {
            Some(address) => Ok(address.clone()),
            None => Address::parse(&self.bootstrap.get(&note_of(process))?),
        }
    }

    /// Whether a process is on this host, and the first port of each reaches the other and maps its memory.
    ///
    /// # Errors
    /// The process manager's.
    pub(crate) fn is_near(&mut self, process: u32) -> Result<bool> {
        if let Some(known) = self.near.get(&process) {
            return Ok(*known);
        }
        let fabric = |address: &Address| address.ports.first().map(|(_, fabric)| fabric.clone());
        let theirs = self.address_of(process)?;
        let is_alike = theirs.node == self.address.node && fabric(&theirs) == fabric(&self.address);
        let is_near = is_alike && self.nics.first().is_some_and(Nic::maps_peers);
        self.near.insert(process, is_near);
        Ok(is_near)
    }

    /// Notifies a process that may sleep, after stores in memory that it polls.
    #[inline]
    pub(crate) fn ring(&mut self, process: u32) {
        if let Some(number) = self.open_number(process) {
            let notified = self.connections[number].endpoint.qp().notify();
            self.or_lose(number, notified);
        }
    }

    /// The processes of other jobs that this one knows.
    pub(crate) fn strangers(&self) -> &RemoteJobs {
        &self.strangers
    }

    /// The check of incoming connect requests.
    pub(crate) fn admission(&self) -> &ConnectAdmission {
        self.wireup.admission()
    }

    /// The processes that may connect to this one, and the keys that it shares with them.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Returns a number that is never used again.
    pub(crate) fn next_nonce(&mut self) -> Nonce {
        self.wireup.next_nonce()
    }

    /// The key that this process shares with another one.
    ///
    /// # Errors
    /// [`Class::INTERN`] for a process whose job was not introduced.
    pub(crate) fn shared_with(&self, process: u32) -> Result<Secret> {
        let job = self.strangers.identity(process).job;
        let none = || Error::new(Class::INTERN, format_args!("there is no key for process {process}"));
        self.members.shared_with(job).ok_or_else(none)
    }

    /// Registers a process, which may be of another job; returns its number. The job's guest key must be known by
    /// [`Members::learn`].
    ///
    /// # Errors
    /// As [`RemoteJobs::introduce`].
    pub(crate) fn introduce(&mut self, identity: Identity, address: Address) -> Result<u32> {
        let number = self.strangers.introduce(identity, address)?;
        self.indices.grow(number + 1);
        Ok(number)
    }

    /// Whether this process comes before another one, in an order that is the same at both.
    fn is_before(&self, process: u32) -> bool {
        self.strangers.identity(self.rank) < self.strangers.identity(process)
    }

    /// The memory and the range of a message's payload.
    pub(crate) fn payload(&self, what: &Received, place: MessagePlace) -> (&Buf, Range<usize>) {
        (self.connections[place.connection].endpoint.memory(0, place.held), what.at..what.at + what.len)
    }

    /// The protocol of a message of `len` bytes to a process.
    ///
    /// # Errors
    /// No device reaches the process.
    #[inline]
    pub(crate) fn protocol(&mut self, to: u32, len: u64, has: Conditions) -> Result<Proto> {
        let is_near = STORED_IF_NEAR.contains(&len)
            && self.open_to(to).is_some_and(|connection| connection.endpoint.is_near());
        self.protocols_to(to, |protocols| protocols.select(len, has.with_near(is_near)))
    }

    /// The most payload bytes of an eager message to a process.
    pub(crate) fn payload_max(&self, to: u32) -> Result<usize> {
        self.protocols_to(to, |protocols| protocols.eager_max() as usize)
    }

    /// Bytes of a fragment of a message of `len` bytes to a process.
    pub(crate) fn fragment_to(&self, to: u32, len: usize) -> Result<usize> {
        self.protocols_to(to, |protocols| protocols.fragment(len))
    }

    /// Reads the table of protocols to a process.
    #[inline]
    fn protocols_to<T>(&self, to: u32, read: impl FnOnce(&Protocols) -> T) -> Result<T> {
        let number = self.peers.get(self.indices.get(to)).and_then(Peer::number);
        match number.map(|number| &self.connections[number]) {
            Some(connection) if connection.is_connected() => Ok(read(&connection.protocols)),
            Some(connection) => Ok(read(&self.protocols_before(to, connection.port))),
            None => Ok(read(&self.protocols_before(to, self.route_to(to)?.port))),
        }
    }

    /// The protocols to a process that is not connected: short messages are sent to its slots, since it has offered no other memory
    /// yet.
    #[cold]
    fn protocols_before(&self, to: u32, port: usize) -> Protocols {
        let nic = &self.nics[port];
        let (short, room, direct) = (ShortPath::Sent, nic.slot_payload_to(to), nic.sends_direct());
        Protocols::new(EndpointTraits { short, room, direct, both: false }, &self.chosen)
    }

    /// Sets size limits of protocols, for existing and future connections.
    pub(crate) fn choose(&mut self, chosen: ProtocolLimits) {
        self.chosen = chosen;
        for connection in self.connections.values_mut() {
            connection.choose(self.nics[connection.port].reaches_both_ways(), &chosen);
        }
    }

    /// Counts a message to a process.
    pub(crate) fn count(&mut self, to: u32, proto: Proto, len: u64) {
        if let Some(connection) = self.open_to(to) {
            return connection.traffic.count(proto, len as usize);
        }
        let mut traffic = Traffic::default();
        traffic.count(proto, len as usize);
        self.past.push((to, traffic));
    }

    /// The device that reaches a process.
    pub(crate) fn nic_of(&mut self, process: u32) -> Result<&Nic> {
        let port = self.port_of(process)?;
        Ok(&self.nics[port])
    }

    /// Registers memory for the device that reaches a process, or with `remote` for the process.
    pub(crate) fn reach(
        &mut self,
        process: u32,
        address: usize,
        len: usize,
        remote: bool,
    ) -> Result<Registration> {
        self.register_in(process, (address, len), None, remote)
    }

    /// Registers memory as [`Transport::reach`] does, for bytes that may be part of memory whose registrations are cached.
    pub(crate) fn register_in(
        &mut self,
        process: u32,
        bytes: (usize, usize),
        memory: Option<&Buf>,
        remote: bool,
    ) -> Result<Registration> {
        let port = self.port_of(process)?;
        let (reach, is_new) = self.nics[port].reach(bytes, memory, remote)?;
        self.reached[usize::from(is_new)] += 1;
        Ok(reach)
    }

    /// The error of operations that name a process, if it is lost or has left.
    #[inline]
    pub(crate) fn lost(&self, process: u32) -> Option<&Error> {
        self.gone(process).map(|gone| &gone.error)
    }

    /// The error of [`Transport::lost`], but `None` for a process that has left in order: memory that a lost process has shared may
    /// be invalid.
    pub(crate) fn broken(&self, process: u32) -> Option<&Error> {
        self.gone(process).filter(|gone| !gone.has_left).map(|gone| &gone.error)
    }

    #[inline]
    fn gone(&self, process: u32) -> Option<&Gone> {
        if !self.has_lost {
            return None;
        }
        match &self.peers.get(self.indices.get(process))?.state {
            PeerState::Gone(gone) => Some(gone),
            _ => None,
        }
    }

    /// Sends an eager message, if it can be sent immediately: to a connected peer with an empty queue. Returns whether it was sent.
    #[inline]
    pub(crate) fn send_piece(&mut self, to: u32, match_key: MatchKey, piece: Piece) -> bool {
        let Some(number) = self.open_number(to) else { return false };
        let connection = &mut self.connections[number];
        if connection.endpoint.has_backlog() || piece.len() as u64 > connection.protocols.eager_max() {
            return false;
        }
        let sent = connection.send_piece(&self.host, match_key, piece);
        self.or_lose(number, sent).unwrap_or(false)
    }

    /// Sends a message, if it can be sent immediately: the payload may then be reused. Otherwise nothing has happened, except that
    /// a connection is being established.
    ///
    /// # Errors
    /// The process is lost, or cannot be reached.
    pub(crate) fn send_now(
        &mut self,
        to: u32,
        message: &Message,
        payload: &impl transport::Payload,
    ) -> Result<bool> {
        let (at, number) = self.peer(to)?;
        let sent = self.connections[number].try_send(&self.host, message, payload);
        sent.map_err(|error| self.lose(at, error))
    }

    /// Queues a message; [`Event::Sent`] with `sent_key` reports when it has been sent.
    ///
    /// # Errors
    /// As [`Transport::send_now`].
    pub(crate) fn send(
        &mut self,
        to: u32,
        message: Message,
        payload: Payload<'static>,
        sent_key: Option<SlotKey>,
    ) -> Result<()> {
        let (_, number) = self.peer(to)?;
        let key = payload.key();
        self.connections[number].endpoint.queue_message(message, payload, key, sent_key);
        self.pump(number);
        Ok(())
    }

    /// Names memory for the rest of the message that [`Event::Began`] has reported; [`Event::RestArrived`] reports its arrival.
    pub(crate) fn post_rest(&mut self, place: MessagePlace, rest: Sge) {
        let posted = self.connections[place.connection].endpoint.queue.post_rest(rest);
        self.or_lose(place.connection, posted);
    }

    /// Gives up a process that has sent a message that no process of this version sends.
    #[cold]
    pub(crate) fn refuse(&mut self, from: u32) {
        self.lose(self.indices.get(from), Malformed.into());
    }

    /// Reads a peer's memory; [`Event::Accessed`] with `key` reports completion.
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub(crate) fn read(&mut self, process: u32, from: RemoteMemory, into: Sge, key: SlotKey) -> Result<()> {
        self.access(process, SendOp::Read(RemoteAddr { addr: from.addr, rkey: from.rkey }), into, key)
    }

    /// Reads or changes a peer's memory, with a piece of local memory; [`Event::Accessed`] with `key` reports completion.
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub(crate) fn access(&mut self, process: u32, op: SendOp, piece: Sge, key: SlotKey) -> Result<()> {
        let (_, number) = self.peer(process)?;
        let posted = self.connections[number].endpoint.start_access(0, op, piece, key);
        if self.or_lose(number, posted) == Some(true) {
            self.polls = 0;
        }
        Ok(())
    }

    /// The ports that connect this process and a peer: its own, and the peer's.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when there are none.
    pub(crate) fn ports_to(&self, process: u32) -> Result<(usize, usize)> {
        self.ports_between(process, &self.address_of(process)?)
    }

    /// The ports as by [`Transport::ports_to`], for a peer with this address.
    fn ports_between(&self, process: u32, theirs: &Address) -> Result<(usize, usize)> {
        let common = if self.is_before(process) {
            common_ports(&self.address, theirs)
        } else {
            common_ports(theirs, &self.address).map(|(far, near)| (near, far))
        };
        common.ok_or_else(|| Error::lost(process, "no device of this process reaches it"))
    }

    /// Whether a process is connected.
    pub(crate) fn is_open(&self, process: u32) -> bool {
        self.open_number(process).is_some()
    }

    /// Maps a peer's NIC memory for load and store; `None` if it is not connected, or its memory cannot be mapped.
    pub(crate) fn map(&self, process: u32, at: RemoteAddr, len: usize) -> Option<Buf> {
        self.connections[self.open_number(process)?].endpoint.qp().map(at, len).ok()
    }

    /// Whether both processes can copy a message to this one.
    pub(crate) fn may_share(&self, from: u32, length: u64) -> bool {
        let Some(number) = self.open_number(from) else { return false };
        let connection = &self.connections[number];
        connection.protocols.select(length, Conditions::NONE) == Proto::RndvShm && connection.may_share()
    }

    /// Queues a message of this many bytes from a process until both can copy it.
    pub(crate) fn await_share(&mut self, from: u32, key: SlotKey, length: u64) {
        if let Some(connection) = self.open_to(from) {
            connection.await_share(key, length);
        }
    }

    /// The message from a process that has waited longest, and the claim word assigned to it; `None` while all words are in use.
    pub(crate) fn next_share(&mut self, from: u32) -> Option<(SlotKey, SharedMessage)> {
        self.open_to(from)?.next_share()
    }

    /// Frees the claim word of a message that was copied whole.
    pub(crate) fn end_share(&mut self, from: u32, share: &SharedMessage) {
        if let Some(connection) = self.open_to(from) {
            connection.end_share(share);
        }
    }

    /// The number of the open connection to a process.
    #[inline]
    fn open_number(&self, process: u32) -> Option<usize> {
        let number = self.peers.get(self.indices.get(process))?.number()?;
        self.connections[number].is_connected().then_some(number)
    }

    fn open_to(&mut self, process: u32) -> Option<&mut Connection> {
        let number = self.open_number(process)?;
        Some(&mut self.connections[number])
    }

    /// Copies pieces of a shared message, as long as unclaimed ones are left and there is room for requests. Returns the number of
    /// requests, each reported by [`Event::Accessed`] with `key`, and whether the room ran out.
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub(crate) fn copy(&mut self, with: u32, copying: &Copying, key: SlotKey) -> Result<(u32, bool)> {
        let (at, _) = self.peer(with)?;
        let Some(number) = self.open_number(with) else { return Ok((0, false)) };
        let mut count = 0;
        self.polls = 0;
        loop {
            match self.connections[number].copy(copying, key) {
                Ok(Copied::Piece) => count += 1,
                Ok(Copied::Nothing) => return Ok((count, false)),
                Ok(Copied::NoRoom) => return Ok((count, true)),
                Err(error) => return Err(self.lose(at, error)),
            }
        }
    }

    /// Connects to a process, if that has not started.
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub(crate) fn connect(&mut self, process: u32) -> Result<()> {
        self.peer(process).map(drop)
    }

    /// Counters of sent messages, for each connection that exists or existed; a process may occur more than once.
    pub(crate) fn traffic(&self) -> impl Iterator<Item = (u32, &Traffic)> {
        let present = self.connections.values().map(|connection| (connection.process, &connection.traffic));
        present.chain(self.past.iter().map(|(process, traffic)| (*process, traffic)))
    }

    /// The number of queued messages and accesses.
    pub(crate) fn waiting(&self) -> usize {
        self.connections.values().map(|connection| connection.endpoint.backlog_len()).sum()
    }

    /// All connections so far, in the order of creation: the peer, and whether this process sent the request.
    pub(crate) fn begun(&self) -> impl Iterator<Item = (u32, bool)> {
        self.begun.iter().copied()
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.peers.iter().filter(|peer| self.is_open(peer.process)).count()
    }

    /// Whether all messages and accesses were sent and have completed.
    pub(crate) fn is_drained(&self) -> bool {
        let is_drained = |Connection { endpoint, .. }: &Connection| {
            !endpoint.has_backlog() && (!endpoint.is_open || endpoint.is_idle())
        };
        self.connections.values().all(is_drained)
    }

    /// Announces to connected processes, or with `all` false to those of other jobs, that this process leaves; returns whether the
    /// announcement has arrived everywhere. From now on connect requests are rejected.
    pub(crate) fn leave(&mut self, all: bool) -> bool {
        self.leaves = true;
        let mut have_heard = true;
        for at in self.announced_to(all) {
            // An attempt does not last: the peer answers, or is lost.
            if let Some(number) = self.peers[at].number() {
                let has_heard = self.connections[number].endpoint.leave(&Message::Leave);
                have_heard &= self.or_lose(number, has_heard).unwrap_or(true);
            }
        }
        have_heard
    }

    /// Whether this process has started to leave.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves
    }

    /// Closes the connections that [`Transport::leave`] has used. Their memory remains.
    pub(crate) fn close(&mut self, all: bool) {
        for at in self.announced_to(all) {
            if let Some(number) = self.peers[at].number() {
                let error = Error::new(Class::OTHER, "this process has left the job");
                self.end(number);
                self.set_gone(at, Gone { error, has_left: true });
            }
        }
    }

    /// Whether this process has left, but its memory may hold messages that a peer has not read.
    pub(crate) fn is_needed(&mut self) -> bool {
        self.leaves && self.connections.values_mut().any(Connection::is_needed)
    }

    fn announced_to(&self, all: bool) -> Vec<usize> {
        let is_told = |process| all || !self.strangers.is_of_job(process);
        (0..self.peers.len()).filter(|at| is_told(self.peers[*at].process)).collect()
    }

    /// The next event from the devices' queues, or of a peer that is lost or has left.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next connection in this poll whose peer may have stored messages; the caller takes at most [`STORED_MAX`] messages.
    #[inline]
    pub(crate) fn next_stored_to(&mut self) -> Option<usize> {
        let number = *self.stored_to.get(self.turn)?;
        self.turn += 1;
        Some(number)
    }

    /// The next message that a peer has stored.
    #[inline(always)]
    pub(crate) fn next(&mut self, number: usize) -> Next {
        let next = self.connections[number].next();
        self.or_lose(number, next).unwrap_or(Next::Nothing)
    }

    /// Releases a short message that [`Transport::next`] has returned.
    #[inline]
    pub(crate) fn pass(&mut self, number: usize, short: &Short) {
        let passed = self.connections[number].pass(short);
        self.or_lose(number, passed);
    }

    /// The process at the other end of a connection, and the memory that holds a short message's payload.
    #[inline]
    pub(crate) fn origin(&self, number: usize, short: &Short) -> (u32, &Buf) {
        let connection = &self.connections[number];
        (connection.process, connection.memory_of(short))
    }

    /// Releases the memory of a message.
    pub(crate) fn release(&mut self, place: MessagePlace, message: &Message) {
        let connection = &mut self.connections[place.connection];
        if matches!(place.held, Held::Slot(_)) && connection.endpoint.has_failed() {
            return;
        }
        let released = connection.release(place.held, message);
        self.or_lose(place.connection, released);
    }

    /// Polls all queues for messages. With `brief`, queues of devices whose messages arrive without completions are polled only
    /// once in a while.
    pub(crate) fn poll(&mut self, brief: bool) {
        self.polls = if brief { self.polls.saturating_sub(1) } else { 0 };
        if self.polls == 0 && !self.ended.is_empty() && self.events.is_empty() {
            self.drop_ended();
        }
        for port in 0..self.nics.len() {
            if self.polls > 0 && self.nics[port].maps_peers() {
                continue;
            }
            self.poll_completions(port);
            while let Some(event) = self.nics[port].shared.cm.poll_event() {
                self.connection_event(port, event);
            }
        }
        if self.polls == 0 {
            self.polls = QUEUES_EVERY;
        }
        self.turn = 0;
    }

    /// The connection by which a process may store messages in this process's memory.
    #[inline]
    pub(crate) fn stored_by(&self, process: u32) -> Option<usize> {
        self.open_number(process).filter(|number| self.connections[*number].endpoint.is_mapped())
    }

    /// Whether a peer has stored another message, valid or not.
    #[inline]
    pub(crate) fn has_stored(&mut self, number: usize) -> bool {
        // The caller may have kept this number after the connection was destroyed.
        self.connections.get_mut(number).is_some_and(|connection| connection.endpoint.has_stored(0))
    }

    /// The next message that a peer has stored, in the form of [`Event::Received`].
    pub(crate) fn next_stored(&mut self, number: usize) -> Option<(u32, Received, MessagePlace)> {
        let connection = &mut self.connections[number];
        let (from, stored) = (connection.process, connection.stored());
        let (what, held) = self.or_lose(number, stored)??;
        if what.message == Message::Leave {
            self.leaves_now(self.indices.get(from), number);
            return None;
        }
        Some((from, what, MessagePlace { connection: number, held }))
    }

    /// Receives the next message that a peer has stored, if it matches and fits.
    #[inline]
    pub(crate) fn take_piece(&mut self, number: usize, wanted: &TagCriteria, into: Piece) -> Taken {
        let taken = self.connections[number].take_piece(wanted, into);
        self.or_lose(number, taken).unwrap_or(Taken::Unknown)
    }

    /// Calls `take` with a peer's connection to receive stored messages; an error is treated as the loss of the peer.
    #[inline(always)]
    pub(crate) fn take_from(&mut self, number: usize, take: impl FnOnce(&mut Connection) -> Result<()>) {
        let taken = take(&mut self.connections[number]);
        self.or_lose(number, taken);
    }

    /// Sends queued messages to a peer whose memory may have room again, since no event reports that.
    #[inline]
    pub(crate) fn pump_stored(&mut self, number: usize) {
        if self.connections[number].endpoint.has_backlog() {
            self.pump(number);
        }
    }

    fn poll_completions(&mut self, port: usize) {
        loop {
            match self.nics[port].shared.next_completion() {
                Ok(Some(wc)) => self.completed(&wc),
                Ok(None) => return,
                Err(error) => {
                    let here = |peer: &usize| self.connection_of(*peer).is_some_and(|c| c.port == port);
                    let lost: Vec<usize> = (0..self.peers.len()).filter(here).collect();
                    lost.into_iter().for_each(|at| drop(self.lose(at, error.clone().into())));
                    return;
                }
            }
        }
    }

    fn connection_of(&self, peer: usize) -> Option<&Connection> {
        self.peers[peer].number().map(|number| &self.connections[number])
    }

    fn completed(&mut self, wc: &Wc) {
        let (number, slot) = of_completion(wc);
        let Some(number) = self.connections.place_of(number) else { return };
        let connection = &mut self.connections[number];
        let (process, at) = (connection.process, self.indices.get(connection.process));
        if self.peers[at].number() != Some(number) {
            if !wc.is_ok() {
                self.retire(number);
            }
            return;
        }
        let connection = &mut self.connections[number];
        if !wc.is_ok() {
            let why = format!("a request on its connection ended with {:?}", wc.status);
            self.lose(at, Error::lost(process, why));
            return;
        }
        match slot {
            Some(_) if wc.opcode == WcOpcode::RecvRest => {
                self.events.push_back(Event::RestArrived { from: process, len: wc.byte_len });
            }
            Some(slot) => {
                let received = connection.received(slot, wc.byte_len);
                match self.or_lose(number, received) {
                    Some(what) if what.message == Message::Leave => return self.leaves_now(at, number),
                    Some(what) => {
                        let place = MessagePlace { connection: number, held: Held::Slot(slot) };
                        self.events.push_back(match wc.opcode {
                            WcOpcode::RecvBegin => Event::Began { from: process, what, place },
                            _ => Event::Received { from: process, what, place },
                        });
                    }
                    None => {}
                }
            }
            None => {
                let key = connection.endpoint.completed();
                let key = self.or_lose(number, key).flatten();
                self.events.extend(key.map(Event::Accessed));
            }
        }
        self.pump(number);
    }

    /// Sends queued messages on a connection, as many as possible.
    fn pump(&mut self, number: usize) {
        let (connection, events) = (&mut self.connections[number], &mut self.events);
        let pumped = connection.pump(&self.host, |key| events.push_back(Event::Sent(key)));
        if self.or_lose(number, pumped) == Some(true) {
            self.polls = 0;
        }
    }

    /// The result of what was done on a connection. An error is treated as the loss of the peer.
    #[inline(always)] // so that the value is not built in memory
    fn or_lose<T, E: Into<Error>>(&mut self, number: usize, done: Result<T, E>) -> Option<T> {
        done.map_err(|error| self.lose(self.indices.get(self.connections[number].process), error.into())).ok()
    }

    /// Gives a peer up; returns the error to report. A peer that has left in order is reported as such.
    #[cold]
    fn lose(&mut self, at: usize, error: Error) -> Error {
        let process = self.peers[at].process;
        let error = match error.class {
            Class::PROC_ABORTED => error,
            _ => Error::lost(process, error.text),
        };
        if let PeerState::Gone(_) = self.peers[at].state {
            return error;
        }
        let number = self.peers[at].number();
        if let Some(number) = number {
            // Messages that it stored before the loss are still delivered, however the loss was detected.
            while let Ok(Some((what, held))) = self.connections[number].stored() {
                if what.message == Message::Leave {
                    self.leaves_now(at, number);
                    self.retire(number);
                    return Error::left(process);
                }
                let place = MessagePlace { connection: number, held };
                self.events.push_back(Event::Received { from: process, what, place });
            }
        }
        self.events.push_back(Event::Lost { process, error: error.clone() });
        let gone = Gone { error: error.clone(), has_left: false };
        if let Some(number) = number {
            self.end(number);
            self.ended.push((number, true));
        }
        self.set_gone(at, gone);
        error
    }

    /// A peer has sent [`Message::Leave`]. The connection remains until the peer closes it: the peer's device may wait for an
    /// acknowledgement.
    fn leaves_now(&mut self, at: usize, number: usize) {
        let process = self.peers[at].process;
        let gone = Gone { error: Error::left(process), has_left: true };
        self.events.push_back(Event::Left { process, error: gone.error.clone() });
        self.connections[number].endpoint.left();
        self.stop_polling(number);
        self.connections[number].is_left_to_end = true;
        self.set_gone(at, gone);
    }

    /// Closes a connection.
    fn end(&mut self, number: usize) {
        self.wireup.forget(number);
        self.connections[number].endpoint.close();
        self.stop_polling(number);
    }

    /// Removes a connection from those whose memory is polled. The others keep their turns, so that a poll before sleeping checks
    /// every connection.
    fn stop_polling(&mut self, number: usize) {
        if let Some(place) = self.stored_to.iter().position(|other| *other == number) {
            self.stored_to.remove(place);
            self.turn -= usize::from(place < self.turn);
        }
    }

    fn set_gone(&mut self, at: usize, gone: Gone) {
        self.peers[at].state = PeerState::Gone(gone);
        self.has_lost = true;
    }

    /// Something has happened to a connection that is not the peer's any more: if it was left to end, it has ended.
    fn retire(&mut self, number: usize) {
        if std::mem::take(&mut self.connections[number].is_left_to_end) {
            self.ended.push((number, false));
        }
    }

    /// Drops connections that have ended. Completions still in a queue are ignored from now on.
    fn drop_ended(&mut self) {
        for (number, may_store) in std::mem::take(&mut self.ended) {
            let Some(connection) = self.connections.remove(number) else { continue };
            if connection.traffic != Traffic::default() {
                self.past.push((connection.process, connection.traffic));
            }
            connection.endpoint.destroy(&mut self.nics[connection.port].shared, may_store);
        }
    }

    /// The index of a process in `peers`, and the number of its connection; connects to it if that has not started.
    fn peer(&mut self, process: u32) -> Result<(usize, usize)> {
        let at = self.peer_index(process);
        match &self.peers[at] {
            Peer { state: PeerState::None, .. } => {
                let number = self.connect_to(at).map_err(|error| self.lose(at, error))?;
                Ok((at, number))
            }
            Peer { state: PeerState::Gone(gone), .. } => Err(gone.error.clone()),
            Peer { state: PeerState::Linked(number), .. } => Ok((at, *number)),
        }
    }

    fn peer_index(&mut self, process: u32) -> usize {
        let known = self.indices.get(process);
        if known < self.peers.len() {
            return known;
        }
        self.indices.set(process, self.peers.len());
        self.peers.push(Peer { process, state: PeerState::None });
        self.peers.len() - 1
    }

    fn port_of(&mut self, process: u32) -> Result<usize> {
        let known = self.indices.get(process);
        if known < self.peers.len()
            && let Some(connection) = self.connection_of(known)
        {
            return Ok(connection.port);
        }
        self.route_to(process).map(|route| route.port)
    }

    /// The route to a peer.
    fn route_to(&self, process: u32) -> Result<Route> {
        let theirs = self.address_of(process)?;
        let (port, far) = self.ports_between(process, &theirs)?;
        let reached = theirs.reached_from(&self.address, far);
        let addr = reached.ok_or_else(|| Error::new(Class::INTERN, "a port of the peer does not exist"))?;
        Ok(Route { port, addr, seed: theirs.seed })
    }

    /// Starts to connect to a peer; returns the number of the attempt.
    fn connect_to(&mut self, at: usize) -> Result<usize> {
        let process = self.peers[at].process;
        let route = self.route_to(process)?;
        let connection = self.new_connection(route.port, process, true)?;
        let number = self.connect_by(connection);
        self.peers[at].state = PeerState::Linked(number);
        self.send_request(number, &route)?;
        Ok(number)
    }

    /// Creates a connection for the next free place.
    fn new_connection(&mut self, port: usize, process: u32, is_initiator: bool) -> Result<Connection> {
        let is_lower = self.is_before(process);
        let full = || Error::new(Class::OTHER, "this process has the most connections that are possible");
        let number = self.connections.vacancy().ok_or_else(full)?;
        Connection::new(&mut self.nics[port], port, number, (process, is_lower, is_initiator))
    }

    /// Adds a new connection; returns its place.
    fn connect_by(&mut self, connection: Connection) -> usize {
        self.begun.push((connection.process, connection.endpoint.stage() == ConnStage::Connecting));
        let (process, is_stored_to) = (connection.process, connection.endpoint.is_stored_to());
        let number = self.connections.insert(connection);
        debug_assert!(self.connections[number].process == process);
        if is_stored_to {
            self.stored_to.push(number);
        }
        number
    }

    fn retry_request(&mut self, number: usize) -> Result<()> {
        let route = self.route_to(self.connections[number].process)?;
        self.send_request(number, &route)
    }

    /// Sends a connect request. Its first challenge derives from the peer's seed: this process has not connected to it before.
    fn send_request(&mut self, number: usize, route: &Route) -> Result<()> {
        let process = self.connections[number].process;
        let key = self.shared_with(process)?;
        let [from, to] = [self.rank, process].map(|end| auth::Identity(self.strangers.identity(end).bytes()));
        let target = ConnectTarget { key, from, to, challenge: route.seed.challenge(PROTOCOL, from, 0) };
        let Connection { port, endpoint, .. } = &self.connections[number];
        let param = ConnParam { timeout: AWAY, ..ConnParam::default() };
        let (nic, peer) = (&self.nics[*port].shared, (route.addr, target));
        Ok(self.wireup.connect(nic, (number, endpoint), peer, param)?)
    }

    fn connection_event(&mut self, port: usize, event: CmEvent) {
        let (qp_num, event) = match ConnEvent::of(event) {
            Ok(event) => event,
            Err(request) => return self.handle_connect_request(port, *request),
        };
        let is_it = |(_, connection): &(usize, &Connection)| {
            connection.port == port && connection.endpoint.qp().num() == qp_num
        };
        let found = self.connections.iter().find(is_it);
        let Some((number, process)) = found.map(|(number, connection)| (number, connection.process)) else {
            return;
        };
        let at = self.indices.get(process);
        if self.peers[at].number() != Some(number) {
            return self.retire(number);
        }
        let error = match self.wireup.outcome(number, &mut self.connections[number].endpoint, event) {
            Outcome::Established => return self.opened(number),
            Outcome::Again => match self.retry_request(number) {
                Ok(()) => return,
                Err(error) => error,
            },
            Outcome::Unproved => Error::lost(process, self.unproved(process)),
            Outcome::Refused(said) if said.starts_with(LEFT) => {
                self.wireup.forget(number);
                self.leaves_now(at, number);
                return self.retire(number);
            }
            Outcome::Refused(_) => Error::lost(process, "it refused the connection"),
            Outcome::Ended(why) => Error::lost(process, why),
        };
        // Messages that it sent before are still delivered.
        self.poll_completions(port);
        self.lose(at, error);
    }

    /// The error text for a peer without a valid proof.
    fn unproved(&self, process: u32) -> String {
        let at =
            self.route_to(process).map_or_else(|_| "there".to_owned(), |route| format!("at {}", route.addr));
        format!(
            "what listens {at} does not know the key of this job: another program has that port now, or the two jobs were not introduced; \
             start all processes of a job by one command of one launcher"
        )
    }

    fn opened(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let both = self.nics[connection.port].reaches_both_ways();
        let opened = connection.opened(both, &self.chosen);
        self.or_lose(number, opened);
        self.pump(number);
    }

    /// Handles a connect request that has passed the screen.
    fn handle_connect_request(&mut self, port: usize, mut request: ConnectRequest) {
        let me = self.strangers.identity(self.rank);
        let proved: Option<Proved> = request.take_screened();
        let from = |proved: &Proved| self.strangers.number(Identity::parse(&proved.from().0)?);
        let known = proved.and_then(|proved| Some((from(&proved)?, proved)));
        // If the rejection cannot be sent, the connection has ended, and the peer learns of that.
        let Some((from, proved)) = known else { return drop(request.reject(STRANGER)) };
        if self.leaves {
            return drop(request.reject(LEFT));
        }
        let at = self.peer_index(from);
        let stage = match self.peers[at].state {
            PeerState::None => ConnStage::None,
            PeerState::Linked(number) => self.connections[number].endpoint.stage(),
            PeerState::Gone(_) => ConnStage::Connected,
        };
        match answer(stage, me, self.strangers.identity(from)) {
            Answer::Crossed => drop(request.reject(CROSSED)),
            Answer::Refuse => drop(request.reject(STRANGER)),
            Answer::Accept => {
                if let Err(error) = self.accept(at, port, request, &proved) {
                    self.lose(at, error);
                }
            }
        }
    }

    fn accept(&mut self, at: usize, port: usize, request: ConnectRequest, proved: &Proved) -> Result<()> {
        let process = self.peers[at].process;
        let mut connection = self.new_connection(port, process, false)?;
        // A peer that was accepted before is at another stage and was refused there, so no request is sent twice.
        let nic = &self.nics[port].shared;
        let accepted = self.wireup.accept(nic, (request, proved), &mut connection.endpoint);
        if let Some(number) = self.peers[at].number() {
            let given_up = &mut self.connections[number];
            connection.endpoint.inherit(&mut given_up.endpoint);
            given_up.is_left_to_end = true;
            given_up.endpoint.give_room_back(&mut self.nics[given_up.port].shared);
            self.wireup.forget(number);
            self.stop_polling(number);
        }
        self.peers[at].state = PeerState::Linked(self.connect_by(connection));
        Ok(accepted?)
    }
}
