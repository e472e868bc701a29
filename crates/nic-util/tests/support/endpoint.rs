//! A connection endpoint: a device with a queue pair and memory of both kinds.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use host::{Span, Time};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, ConnectRequest, Cq, Device, Listener, MemoryKind, Mr, Pd, Qp, QpCap,
    QpInit, RecvWr, RemoteAddr, SendOp, SendWr, Wc,
};

use super::PATIENCE;

/// Guard bytes before and after each region, which must not change.
pub(crate) const MARGIN: usize = 4096;
/// The value of the guard bytes.
const CANARY: u8 = 0xc5;
/// Capacities that are enough for the stress tests.
pub(crate) const CAP: QpCap =
    QpCap { max_send_wr: 256, max_recv_wr: 256, max_send_sge: 4, max_recv_sge: 4, max_inline: 64 };

/// The deadline of every wait, [`PATIENCE`] from now.
pub(crate) fn deadline() -> Option<Time> {
    within(PATIENCE)
}

/// A deadline `limit` from now.
pub(crate) fn within(limit: Duration) -> Option<Time> {
    host::real::host().after(Span::from_ms(limit.as_millis() as u64))
}

/// The loopback address with this port.
pub(crate) fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Addresses and keys of the peer's regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remote {
    /// Host memory.
    pub(crate) host: RemoteAddr,
    /// NIC memory.
    pub(crate) nic: RemoteAddr,
}

impl Remote {
    fn pack(&self) -> Vec<u8> {
        let words = [self.host.addr, self.host.rkey.into(), self.nic.addr, self.nic.rkey.into()];
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn unpack(bytes: &[u8]) -> Self {
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
        let place = |i| RemoteAddr { addr: word(i), rkey: word(i + 1) as u32 };
        Self { host: place(0), nic: place(2) }
    }

    /// The region of this memory kind.
    pub(crate) fn of(&self, kind: MemoryKind) -> RemoteAddr {
        if kind == MemoryKind::Nic { self.nic } else { self.host }
    }
}

/// A connection endpoint.
pub(crate) struct Endpoint {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) qp: Qp,
    pub(crate) cm: Cm,
    pub(crate) host: Mr,
    pub(crate) nic: Mr,
    pub(crate) peer: Remote,
    /// The regions that the peer is given; its own unless changed.
    pub(crate) shown: Remote,
    buffers: [Buf; 2],
}

impl Endpoint {
    /// Creates an endpoint on a device with regions of `len` bytes, between guard bytes.
    #[track_caller]
    pub(crate) fn on(device: &Device, len: usize) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        let queue = || device.create_cq(1024).expect("a completion queue");
        Self::with(device, pd, queue(), queue(), len)
    }

    /// Creates an endpoint with these completion queues.
    #[track_caller]
    pub(crate) fn with(device: &Device, pd: Pd, send_cq: Cq, recv_cq: Cq, len: usize) -> Self {
        let qp = pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(CAP)).expect("a queue pair");
        let buffers = [
            Buf::alloc(len + 2 * MARGIN).expect("memory"),
            device.alloc_dm(len + 2 * MARGIN).expect("NIC memory"),
        ];
        let [host, nic] = buffers.each_ref().map(|buf| {
            buf.slice(0..MARGIN).expect("inside").fill(CANARY);
            buf.slice(MARGIN + len..2 * MARGIN + len).expect("inside").fill(CANARY);
            pd.reg_mr_range(buf, MARGIN..MARGIN + len, Access::ALL).expect("a region")
        });
        let cm = device.create_cm().expect("a channel");
        let shown = Remote { host: host.remote(0), nic: nic.remote(0) };
        let peer = Remote::default();
        Self { device: device.clone(), pd, send_cq, recv_cq, qp, cm, host, nic, peer, shown, buffers }
    }

    /// The region of this memory kind.
    pub(crate) fn region(&self, kind: MemoryKind) -> &Mr {
        if kind == MemoryKind::Nic { &self.nic } else { &self.host }
    }

    /// Connection parameters that carry the regions in their private data.
    pub(crate) fn param(&self) -> ConnParam {
        ConnParam::with_private_data(self.shown.pack())
    }

    /// Listens on a free port.
    #[track_caller]
    pub(crate) fn listen(&self) -> Listener {
        self.cm.listen(at(0), 64).expect("a listener")
    }

    /// The next event, except that an earlier queue pair was disconnected.
    fn event(&self) -> verbs::Result<CmEvent> {
        loop {
            match self.cm.get_event(deadline()) {
                Ok(CmEvent::Disconnected { qp_num }) if qp_num != self.qp.num() => {}
                other => return other,
            }
        }
    }

    /// Connects to a port.
    #[track_caller]
    pub(crate) fn connect(&mut self, port: u16) {
        self.cm.connect(&self.qp, at(port), &self.param()).expect("connecting");
        match self.event() {
            Ok(CmEvent::Established { private_data, .. }) => self.peer = Remote::unpack(&private_data),
            other => panic!("expected Established, got {other:?}"),
        }
    }

    /// Replaces the queue pair by a new one.
    #[track_caller]
    pub(crate) fn renew(&mut self) {
        self.qp = self.pd.create_qp(self.qp.init()).expect("another queue pair");
    }

    /// Accepts the next connection.
    #[track_caller]
    pub(crate) fn accept(&mut self) {
        let request = match self.event() {
            Ok(CmEvent::ConnectRequest(request)) => request,
            other => panic!("expected a request, got {other:?}"),
        };
        self.accept_request(&request);
        self.cm.accept(request, &self.qp, &self.param()).expect("accepted");
        match self.event() {
            Ok(CmEvent::Established { .. }) => {}
            other => panic!("expected Established, got {other:?}"),
        }
    }

    /// Stores the peer's regions from its connection request.
    pub(crate) fn accept_request(&mut self, request: &ConnectRequest) {
        self.peer = Remote::unpack(&request.private_data);
    }

    /// Stores the peer's regions from the private data of its acceptance.
    pub(crate) fn set_peer_regions(&mut self, private_data: &[u8]) {
        self.peer = Remote::unpack(private_data);
    }

    /// Waits until the peer has disconnected.
    #[track_caller]
    pub(crate) fn disconnected(&self) {
        match self.event() {
            Ok(CmEvent::Disconnected { qp_num }) if qp_num == self.qp.num() => {}
            other => panic!("expected Disconnected, got {other:?}"),
        }
    }

    /// Posts a send request on `len` bytes at `offset` of the local region of `kind`.
    #[track_caller]
    pub(crate) fn post(&self, wr_id: u64, op: SendOp, kind: MemoryKind, offset: u64, len: u32) {
        let sge = [self.region(kind).sge(offset, len)];
        self.qp.post_send(&SendWr::new(wr_id, op, &sge)).unwrap_or_else(|e| panic!("{op:?}: {e}"));
    }

    /// Posts a receive.
    #[track_caller]
    pub(crate) fn post_recv(&self, wr_id: u64, kind: MemoryKind, offset: u64, len: u32) {
        self.qp.post_recv(&RecvWr::new(wr_id, &[self.region(kind).sge(offset, len)])).expect("room");
    }

    /// The next completion of the send queue.
    #[track_caller]
    pub(crate) fn sent(&self) -> Wc {
        self.send_cq.wait(deadline()).expect("a send completion")
    }

    /// The next completion of the send queue, which must be a success of `wr_id`.
    #[track_caller]
    pub(crate) fn sent_ok(&self, wr_id: u64) -> Wc {
        let wc = self.sent();
        assert!(wc.is_ok() && wc.wr_id == wr_id, "expected success of {wr_id}: {wc:?}");
        wc
    }

    /// The next completion of the receive queue.
    #[track_caller]
    pub(crate) fn received(&self) -> Wc {
        self.recv_cq.wait(deadline()).expect("a receive completion")
    }

    /// Checks that the guard bytes are unchanged.
    #[track_caller]
    pub(crate) fn check_canaries(&self) {
        for buf in &self.buffers {
            for range in [0..MARGIN, buf.len() - MARGIN..buf.len()] {
                let bytes = buf.to_vec(range).expect("inside");
                assert!(bytes.iter().all(|&b| b == CANARY), "memory outside of the region was written");
            }
        }
    }
}
