//! A connected queue pair with memory at both ends.

use std::net::{IpAddr, SocketAddr};

use host::{Host, Span};
use nic_iwarp::{IwarpConfig, open};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Mr, Qp, QpCap, QpInit, RemoteAddr, SendOp, SendWr, Sge,
};

use super::process::{LARGE, PINGS};

/// A connected queue pair. It has a host of its own: polling there drives only this connection.
pub(crate) struct Endpoint {
    pub(crate) host: Host,
    pub(crate) qp: Qp,
    cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) near: Mr,
    pub(crate) far: RemoteAddr,
    _cm: Cm,
}

impl Endpoint {
    /// Connects to the process at `peer` that makes the same call; `exchange` sends some bytes to it and receives as
    /// many.
    pub(crate) fn connect(
        config: &IwarpConfig,
        client: bool,
        at: SocketAddr,
        peer: IpAddr,
        mut exchange: impl FnMut([u8; 12]) -> [u8; 12],
    ) -> Self {
        let host = host::real::host();
        let device = open(&host, config).expect("a device");
        let pd = device.alloc_pd().expect("a domain");
        let [cq, recv_cq] = [(); 2].map(|()| device.create_cq(1024).expect("a queue"));
        let cap = QpCap { max_send_wr: 256, max_recv_wr: 256, ..QpCap::default() };
        let qp = pd.create_qp(&QpInit::new(&cq).recv_cq(&recv_cq).cap(cap)).expect("a queue pair");
        let buf = Buf::alloc(2 * LARGE as usize).expect("memory");
        buf.fill(0);
        let near = pd.reg_mr(&buf, Access::ALL).expect("a region");
        let cm = device.create_cm().expect("a manager");
        let listener = (!client).then(|| cm.listen(at, 1).expect("a port"));
        let mut place = [0; 12];
        let port = listener.as_ref().map_or(0, |listener| listener.addr().port());
        place[..2].copy_from_slice(&port.to_le_bytes());
        let theirs = exchange(place);
        if client {
            let addr = SocketAddr::new(peer, u16::from_le_bytes([theirs[0], theirs[1]]));
            cm.connect(&qp, addr, &ConnParam::default()).expect("connect");
        }
        loop {
            match cm.get_event(host.after(Span::from_secs(10))).expect("an event") {
                CmEvent::ConnectRequest(request) => {
                    cm.accept(request, &qp, &ConnParam::default()).expect("accept");
                }
                CmEvent::Established { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        let mine = near.remote(0);
        place[..8].copy_from_slice(&mine.addr.to_le_bytes());
        place[8..].copy_from_slice(&mine.rkey.to_le_bytes());
        let theirs = exchange(place);
        let addr = u64::from_le_bytes(theirs[..8].try_into().expect("eight"));
        let rkey = u32::from_le_bytes(theirs[8..].try_into().expect("four"));
        Self { host, qp, cq, recv_cq, near, far: RemoteAddr { addr, rkey }, _cm: cm }
    }

    /// Sends the number of the turn; one request in 16 is signaled, and its completion is polled 16 turns later.
    pub(crate) fn send_turn(&self, turn: u64, op: SendOp) {
        let bytes = turn.to_le_bytes();
        let wr = SendWr::inline(turn, op, &bytes);
        self.qp.post_send(&if turn.is_multiple_of(16) { wr } else { wr.unsignaled() }).expect("post");
        if turn.is_multiple_of(16) && turn > 16 {
            self.wait_for_completion();
        }
        if turn == PINGS {
            self.wait_for_completion();
        }
    }

    pub(crate) fn wait_for_completion(&self) {
        let wc = self.cq.spin(self.host.after(Span::from_secs(10))).expect("a completion");
        assert!(wc.is_ok(), "{wc:?}");
    }

    /// Posts `count` writes with at most `window` outstanding, one in `every` signaled.
    pub(crate) fn write_many(&self, count: u64, window: u64, every: u64, data: &[Sge]) {
        let mut done = 0;
        for number in 1..=count {
            let wr = SendWr::new(number, SendOp::Write(self.far), data);
            let signalled = number % every == 0 || number == count;
            self.qp.post_send(&if signalled { wr } else { wr.unsignaled() }).expect("post");
            while number - done >= window || number == count && done < count {
                let wc = self.cq.spin(self.host.after(Span::from_secs(10))).expect("a completion");
                assert!(wc.is_ok(), "{wc:?}");
                done = wc.wr_id;
            }
        }
    }
}
