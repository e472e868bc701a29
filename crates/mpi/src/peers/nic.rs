//! [`Nic`]: one device and the resources that its connections share: queues, a listener, and message memory in slabs.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use transport::{NicConfig, QueueSizes, Registration, WriteRing};
use verbs::{Access, AtomicCap, Buf, Device, DeviceAttr, Mr, Screen, WriteOrder};

use crate::error::{Class, Error, Result};
use crate::memory::{register, register_all_memory};
use crate::p2p::wire::HEAD_MAX;

/// A device by which this process reaches peers.
#[derive(Clone, Debug)]
pub struct Port {
    /// The opened device.
    pub device: Device,
    /// The address to listen at: one of the device, or of the host where the device has none of its own. `0.0.0.0` and `::` mean
    /// all addresses of their kind in [`Config::addresses`](crate::Config::addresses), or of the host if that has none.
    pub address: IpAddr,
    /// Ports with the same text reach each other: `shm/HOST`, `iwarp`. 1 to 100 printable characters without blank, comma,
    /// semicolon and backslash.
    pub fabric: String,
}

/// How many messages a peer may send before it receives credits, and how long each may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of the ring into which a peer may store messages, where the device maps peers' memory.
    pub(crate) ring: usize,
    /// Slots of each direction of a connection.
    pub(crate) slots: u32,
    /// Bytes of a slot.
    pub(crate) slot_bytes: usize,
    /// Bytes of the longest message in the ring.
    pub(crate) record_bytes: usize,
}

/// Receives in addition to the slots, for messages that need no credit: two credit messages, and the peer's last message.
const SPARE: u32 = 3;
/// RDMA reads that a connection may have in flight in addition to its messages.
const READS: u32 = 16;
/// The longest message sent inline: two lines of a shared-memory receive ring with their header.
pub(crate) const INLINE: usize = 96;
/// Bytes of a cache line.
const LINE: usize = 64;
/// The longest message that is sent with its data although no receive may have matched it. What arrives before its receive is
/// copied twice; with longer messages asking first costs little.
pub(crate) const DIRECT_MAX: u64 = 4 << 20;

/// The longest message that any send stores in fragments.
pub(crate) const STORED_MAX: u64 = 256 << 10;
/// The shortest and the longest fragment that is stored: long enough that its header costs little, and so short that the receiver
/// has not long to wait for the first.
pub(crate) const STORED_FRAGMENT: RangeInclusive<usize> = 8 << 10..=16 << 10;

/// The longest message that is stored in fragments, where a record has room for this many bytes of payload; 0 if none is.
pub(crate) fn longest_stored(room: usize) -> u64 {
    if room < *STORED_FRAGMENT.start() { 0 } else { STORED_MAX }
}

/// The most connections that share a slab.
const SLAB_CONNECTIONS: u32 = 32;

impl Sizes {
    /// The sizes that a job of `size` can afford: at 64 processes 16 MiB for each, if all are connected to all.
    pub(crate) fn of_job(size: u32) -> Self {
        match size {
            0..=64 => {
                Self { ring: 64 << 10, slots: 16, slot_bytes: 8 << 10, record_bytes: HEAD_MAX + (16 << 10) }
            }
            65..=1024 => Self { ring: 16 << 10, slots: 8, slot_bytes: 2 << 10, record_bytes: 2 << 10 },
            _ => Self { ring: 4 << 10, slots: 4, slot_bytes: 256, record_bytes: 256 },
        }
    }

    /// The sizes that a job of `size` can afford on real devices that do not map peers' memory. With split receives only the
    /// beginning of a long message fills a slot. Without, a long message that is copied through a slot arrives earlier than by RTS and
    /// read. The number of slots is that of [`Sizes::of_job`], and no slot is shorter, so the sizes that jobs send each other are
    /// valid here, too.
    fn of_sent(splits: bool, size: u32) -> Self {
        let payload = match size {
            0..=8 if !splits => 64 << 10,
            0..=64 => 8 << 10,
            _ => return Self::of_job(size),
        };
        Self { slot_bytes: (HEAD_MAX + payload).next_multiple_of(LINE), ..Self::of_job(size) }
    }

    /// The sizes of a job of `size` on a device that maps peers' memory. A longer ring holds several long messages, whose lines have
    /// left the reader's caches before the next ones are stored there. The offer of a ring has its length, so jobs may differ.
    fn of_mapped(size: u32) -> Self {
        let sizes = Self::of_job(size);
        if size <= 8 { Self { ring: 512 << 10, ..sizes } } else { sizes }
    }

    /// The sizes of a job of `size` on a device. They do not depend on whether this process writes its messages or sends them, as
    /// its peers need not do the same.
    pub(crate) fn of_device(attr: &DeviceAttr, is_model: bool, size: u32) -> Self {
        match (attr.maps_peers, is_model) {
            (true, _) => Self::of_mapped(size),
            (false, true) => Self::of_job(size),
            (false, false) => Self::of_sent(attr.split_receives, size),
        }
    }

    /// Payload bytes that a message may have in a slot, and in a record of a ring.
    pub(crate) fn slot_payload(self) -> usize {
        self.slot_bytes - HEAD_MAX
    }

    pub(crate) fn record_payload(self) -> usize {
        self.record_bytes - HEAD_MAX
    }

    /// The encoding, which two jobs exchange when they meet: connections between them need equal sizes.
    pub(crate) fn to_bytes(self) -> [u8; 12] {
        let [ring, slots, slot] =
            [self.ring as u32, self.slots, self.slot_bytes as u32].map(u32::to_le_bytes);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&ring);
        bytes[4..8].copy_from_slice(&slots);
        bytes[8..].copy_from_slice(&slot);
        bytes
    }

    /// The sizes of queues and buffers.
    pub(crate) fn queues(self) -> QueueSizes {
        let Self { ring: ring_bytes, slots, slot_bytes, .. } = self;
        QueueSizes { slots, spare: SPARE, accesses: READS, slot_bytes, ring_bytes }
    }
}

/// An opened device, and how it carries messages.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) device: Device,
    /// The resources that all connections share.
    pub(crate) shared: transport::Nic,
    pub(crate) sizes: Sizes,
    addr: SocketAddr,
    /// Messages are written to peers' memory by RDMA.
    writes: bool,
    /// See [`Nic::sends_direct`].
    sends_direct: bool,
    /// The number of processes of the job.
    size: u32,
}

/// The addresses to listen at for a port: its address, or the list for "all addresses".
fn listening_at(address: IpAddr, addresses: &[IpAddr]) -> Vec<IpAddr> {
    let all = addresses.iter().copied().filter(|own| own.is_ipv4() == address.is_ipv4());
    let all: Vec<IpAddr> = all.filter(|_| address.is_unspecified()).collect();
    if all.is_empty() { vec![address] } else { all }
}

impl Nic {
    /// Sets a device up for a job of `size` that may connect to up to `strangers` processes of other jobs, and listens for requests
    /// that pass the `screen`, at the port's address; if that is all addresses, at each of `addresses`. With `fast_path` messages
    /// are written to peers' memory, if the device supports that.
    pub(crate) fn open(
        port: &Port,
        addresses: &[IpAddr],
        (size, strangers): (u32, u32),
        fast_path: bool,
        screen: Arc<dyn Screen>,
    ) -> Result<Self> {
        let (device, attr) = (port.device.clone(), port.device.attr());
        if (attr.max_inline as usize) < INLINE {
            let text =
                format!("{} sends {} bytes inline, but {INLINE} are needed", device.name(), attr.max_inline);
            return Err(Error::new(Class::OTHER, text));
        }
        // In virtual time a waiting process polls whenever memory changes; elsewhere a write must notify a process that sleeps.
        let is_model = device.host().node().is_some();
        let (heard, in_order) = (is_model || attr.write_notify, attr.write_order == WriteOrder::LastByteLast);
        let writes = fast_path && heard && in_order && !attr.maps_peers;
        let sizes = Sizes::of_device(attr, is_model, size);
        let peers = size.saturating_sub(1).max(1);
        let config = NicConfig {
            sizes: sizes.queues(),
            inline: INLINE as u32,
            // While two connect requests cross, a peer has two connections.
            cqe: (peers + 1 + strangers).saturating_mul(sizes.queues().completions()),
            slab_connections: peers.min(SLAB_CONNECTIONS),
            listen_at: (&listening_at(port.address, addresses), 0),
            backlog: size.max(16),
            register_all: register_all_memory,
            // The libraries of modelled cards cache registrations. Real devices have a region of all memory, or register for each
            // operation.
            caches: is_model,
            // Also where this process writes its messages: a peer may send them.
            split_receives: attr.split_receives,
        };
        let shared = transport::Nic::open(&device, &config, &screen)?;
        let addr = SocketAddr::new(port.address, shared.addr().port());
        let sends_direct = shared.registrations.has_all() && shared.splits_receives() && !is_model && !writes;
        Ok(Self { device, shared, sizes, addr, writes, sends_direct, size })
    }

    /// Its listening address. The address is unspecified if it listens at several.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Allocates the memory into which a new connection's peer writes messages; `None` where the peer sends them.
    pub(crate) fn write_ring(&self) -> Option<WriteRing> {
        self.writes
            .then(|| WriteRing::new(self.shared.pd(), self.sizes.ring, self.sizes.slot_bytes).ok())
            .flatten()
    }

    /// Payload bytes that a message to a process may have in a slot. For a process of another job, only the sizes common to all
    /// jobs are known.
    pub(crate) fn slot_payload_to(&self, process: u32) -> usize {
        let sizes = if process < self.size { self.sizes } else { Sizes::of_job(self.size) };
        sizes.slot_payload()
    }

    /// Whether messages arrive without a completion.
    pub(crate) fn maps_peers(&self) -> bool {
        self.shared.maps_peers()
    }

    /// Payload bytes of the longest message that carries its data.
    pub(crate) fn payload_max(&self) -> usize {
        let whole = if self.maps_peers() { self.sizes.record_payload() } else { self.sizes.slot_payload() };
        whole.max(self.parts_max())
    }

    /// The longest message whose data follow its header in parts, in bytes; 0 if none do.
    pub(crate) fn parts_max(&self) -> usize {
        match (self.maps_peers(), self.sends_direct) {
            (true, _) => longest_stored(self.sizes.record_payload()) as usize,
            (false, true) => DIRECT_MAX as usize,
            (false, false) => 0,
        }
    }

    /// Whether long messages are sent from the program's memory as one message, and the receiver names memory for the data when it has
    /// the header: on devices that can send from all memory and split receives, if a peer's memory cannot be mapped.
    pub(crate) fn sends_direct(&self) -> bool {
        self.sends_direct
    }

    /// Registers `len` bytes at an address: for the own NIC, or with `remote` for the peer to read. If they are part of `memory`,
    /// the registration may be cached. Also returns whether it is new.
    pub(crate) fn reach(
        &mut self,
        (address, len): (usize, usize),
        memory: Option<&Buf>,
        remote: bool,
    ) -> Result<(Registration, bool)> {
        let access = if remote { Access::REMOTE_READ } else { Access::LOCAL_WRITE };
        let (pd, bytes) = (self.shared.pd().clone(), address..address.saturating_add(len));
        let register = |access, owner| register(&pd, (address, len), access, owner);
        self.shared.registrations.get(bytes, access, memory, register)
    }

    /// Registers memory of the program, or of this library, for peers' reads, writes and atomics. The caller keeps it mapped until
    /// the region is dropped.
    pub(crate) fn expose(&self, address: usize, len: usize) -> Result<Mr> {
        register(self.shared.pd(), (address, len), self.device.attr().all_access(), Arc::new(()))
    }

    /// Allocates memory of this NIC, registered as by [`Nic::expose`]; `None` if peers cannot map it, or there is not enough.
    pub(crate) fn mapped(&self, len: usize) -> Option<Mr> {
        let memory = self.maps_peers().then(|| self.device.alloc_dm(len).ok())??;
        self.shared.pd().reg_mr(&memory, self.device.attr().all_access()).ok()
    }

    /// Whether peers can change words of this process's memory by atomics.
    pub(crate) fn has_atomics(&self) -> bool {
        self.device.attr().atomic_cap != AtomicCap::None
    }

    /// Whether the region of all memory lets peers read and write it.
    pub(crate) fn reaches_both_ways(&self) -> bool {
        let wanted = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.shared.registrations.all(wanted).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::trust::{ConnectAdmission, PROTOCOL};

    #[test]
    fn memory_of_a_rank_is_bounded() {
        let small = Sizes::of_job(64);
        assert!(small.queues().slab_bytes() * 63 <= 20 << 20);
        assert!(Sizes::of_job(65).queues().slab_bytes() * 1023 <= 48 << 20);
        assert!(Sizes::of_job(4096).slot_bytes > crate::p2p::wire::HEAD_MAX);
        assert!(
            [2, 8, 9, 64].iter().all(|size| Sizes::of_mapped(*size).ring * (*size as usize - 1) <= 4 << 20)
        );
        for (splits, size) in [true, false]
            .into_iter()
            .flat_map(|splits| [1, 8, 9, 64, 65, 1024, 1025].map(|size| (splits, size)))
        {
            let (sent, told) = (Sizes::of_sent(splits, size), Sizes::of_job(size));
            let of_job = |sizes: Sizes| sizes.queues().slab_bytes() * (size as usize - 1);
            assert!(of_job(sent) <= (20 << 20).max(of_job(told)));
            assert!(sent.slots == told.slots && sent.slot_bytes >= told.slot_bytes);
        }
        let payload = |(splits, size)| Sizes::of_sent(splits, size).slot_payload();
        let short = (8 << 10) + 16;
        assert_eq!(
            [(false, 8), (false, 64), (true, 8), (true, 64)].map(payload),
            [(64 << 10) + 16, short, short, short]
        );
    }

    /// Goal: a port that stands for several addresses is reachable at each listed address, and at no other. Method: addresses of
    /// the loopback.
    #[test]
    fn a_port_of_all_addresses_listens_at_those_that_are_told() {
        let device = fabric::open("iwarp", &host::real::host()).expect("a device");
        let port = Port { device, address: [0, 0, 0, 0].into(), fabric: "iwarp".into() };
        let told = ["127.0.0.2", "127.0.0.3", "::1"].map(|text| text.parse().expect("an address"));
        let admission = Arc::new(ConnectAdmission::new(PROTOCOL));
        let nic = Nic::open(&port, &told, (2, 0), false, admission).expect("a device that listens");
        assert!(nic.addr().ip().is_unspecified() && nic.addr().port() != 0);
        let is_heard = |address: &str| std::net::TcpStream::connect((address, nic.addr().port())).is_ok();
        assert_eq!(
            ["127.0.0.2", "127.0.0.3", "127.0.0.1", "127.0.0.4"].map(is_heard),
            [true, true, false, false]
        );
    }
}
