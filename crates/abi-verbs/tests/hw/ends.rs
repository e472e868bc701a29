//! The two ends of a connection, on devices of the NIC `hw`.

use std::net::SocketAddr;

use host::{Span, Time};
use verbs::{
    Access, AsyncEvent, Buf, Cm, CmEvent, ConnInfo, ConnParam, Cq, Device, Mr, Pd, Qp, QpInit, RecvWr,
    Result, SendOp, SendWr, Wc,
};

/// Long enough for whatever has to happen; no result depends on it.
const PATIENCE: Span = Span::from_secs(20);

/// One end.
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) cm: Cm,
    pub(crate) qp: Qp,
    mr: Mr,
}

impl End {
    pub(crate) fn new(device: &Device) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        let cq = device.create_cq(64).expect("a queue");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        let mr = pd.reg_mr(&Buf::alloc(4096).expect("memory"), Access::ALL).expect("a region");
        let cm = device.create_cm().expect("a channel");
        Self { device: device.clone(), pd, cq, cm, qp, mr }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.device.host().after(PATIENCE)
    }

    pub(crate) fn event(&self) -> CmEvent {
        self.cm.get_event(self.deadline()).expect("an event of a connection")
    }

    /// The next asynchronous event.
    pub(crate) fn async_event(&self) -> AsyncEvent {
        self.device.get_async_event(self.deadline()).expect("an asynchronous event")
    }

    /// The next completion; the waiting thread sleeps.
    pub(crate) fn completion(&self) -> Result<Wc> {
        self.cq.wait(self.deadline())
    }

    pub(crate) fn post_recv(&self, wr_id: u64) {
        self.qp.post_recv(&RecvWr::new(wr_id, &[self.mr.sge(0, 64)])).expect("a receive");
    }

    pub(crate) fn send(&self, wr_id: u64) {
        self.qp.post_send(&SendWr::new(wr_id, SendOp::Send, &[self.mr.sge(0, 8)])).expect("a request");
    }

    pub(crate) fn until_disconnected(&self) {
        let event = self.event();
        assert!(matches!(event, CmEvent::Disconnected { .. }), "{event:?}");
    }

    fn until_established(&self) -> ConnInfo {
        match self.event() {
            CmEvent::Established { info, .. } => info,
            other => panic!("expected Established, got {other:?}"),
        }
    }
}

/// Connects `a` to `b`, which listens at `addr`; the ends of the connection as `a` sees them.
pub(crate) fn connect(a: &End, b: &End, addr: SocketAddr) -> ConnInfo {
    let listener = b.cm.listen(addr, 8).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("a connect");
    let CmEvent::ConnectRequest(request) = b.event() else { panic!("expected a connect request") };
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("an accept");
    b.until_established();
    a.until_established()
}
