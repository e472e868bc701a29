//! Two ends of a connection that one thread drives, on any pair of devices.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use dapl::{
    Adapter, Buf, CompletionFlags, ConnectionKind, DtoEvent, Ep, EpAttr, EpConfig, Evd, EvdFlags, Event, Ia,
    Lmr, MemPriv, Psp, Pz, Sge,
};
use verbs::Device;
use verbs::host::{Host, Span};

/// The time limit for expected events.
pub(crate) const SOON: Option<Span> = Some(Span::from_secs(10));
/// Long enough to show that no event arrives.
pub(crate) const NEVER: Option<Span> = Some(Span::from_ms(20));
pub(crate) const NONE: CompletionFlags = CompletionFlags::empty();
/// The qualifier for tests in a world of their own.
pub(crate) const QUAL: u64 = 45_300;

/// A qualifier of its own for each test on a device that shares its host with other tests: below the ports that systems choose.
pub(crate) fn own_qual() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    20_000 + 10 * (NEXT.fetch_add(1, Ordering::Relaxed) + u64::from(std::process::id()) % 1_000)
}

/// One adapter with the objects that an endpoint needs.
pub(crate) struct Side {
    pub(crate) host: Host,
    pub(crate) adapter: Adapter,
    pub(crate) ia: Ia,
    pub(crate) async_evd: Evd,
    pub(crate) pz: Pz,
    pub(crate) recv: Evd,
    pub(crate) request: Evd,
    pub(crate) connect: Evd,
    pub(crate) cr: Evd,
    pub(crate) lmr: Lmr,
}

pub(crate) const BYTES: usize = 1 << 16;

impl Side {
    pub(crate) fn new(device: &Device) -> Self {
        let adapter = Adapter::new(device.clone());
        let (ia, async_evd) = Ia::open(&adapter, 8).expect("an adapter");
        let pz = Pz::create(&ia).expect("a zone");
        let evd = |flags| Evd::create(&ia, 64, None, flags).expect("a dispatcher");
        let buf = Buf::alloc(BYTES).expect("memory");
        let lmr = Lmr::create(&pz, &buf, MemPriv::all()).expect("a region");
        Self {
            recv: evd(EvdFlags::DTO),
            request: evd(EvdFlags::DTO | EvdFlags::RMR_BIND),
            connect: evd(EvdFlags::CONNECTION),
            cr: evd(EvdFlags::CR),
            async_evd: async_evd.expect("a dispatcher"),
            host: device.host().clone(),
            adapter,
            pz,
            lmr,
            ia,
        }
    }

    pub(crate) fn config(&self) -> EpConfig {
        EpConfig {
            pz: Some(self.pz.clone()),
            recv_evd: Some(self.recv.clone()),
            request_evd: Some(self.request.clone()),
            connect_evd: Some(self.connect.clone()),
            srq: None,
            attr: None,
        }
    }

    pub(crate) fn attr(&self) -> EpAttr {
        EpAttr::default_for(self.ia.attr())
    }

    pub(crate) fn ep(&self) -> Ep {
        Ep::create(&self.ia, self.config()).expect("an endpoint")
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.ia.attr().address
    }

    /// A segment of the region.
    pub(crate) fn piece(&self, offset: u64, length: u32) -> [Sge; 1] {
        [self.lmr.segment(offset, length)]
    }

    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.lmr.buf().write(offset, bytes).expect("inside");
    }

    pub(crate) fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        self.lmr.buf().to_vec(offset..offset + len).expect("inside")
    }
}

/// Two sides that can connect.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) qual: u64,
}

impl Pair {
    pub(crate) fn new(a: &Device, b: &Device, qual: u64) -> Self {
        Self { a: Side::new(a), b: Side::new(b), qual }
    }

    /// Two endpoints, connected.
    pub(crate) fn connected(&self) -> (Ep, Ep) {
        let (a, b) = (self.a.ep(), self.b.ep());
        self.connect(&a, &b);
        (a, b)
    }

    /// Connects `a` to `b`.
    pub(crate) fn connect(&self, a: &Ep, b: &Ep) {
        let _psp = Psp::create(&self.b.ia, self.qual, &self.b.cr, false).expect("a service point");
        a.connect(self.b.address(), self.qual, SOON, b"hello").expect("started");
        let request = request(&self.b.cr);
        assert_eq!(&request.cr.private_data()[..5], b"hello");
        request.cr.accept(Some(b), b"welcome").expect("accepted");
        let said = connection(&self.a.connect, a, ConnectionKind::Established);
        assert_eq!(&said[..7], b"welcome");
        connection(&self.b.connect, b, ConnectionKind::Established);
    }
}

/// The next connection request.
pub(crate) fn request(evd: &Evd) -> dapl::RequestEvent {
    match evd.wait(SOON, 1).expect("a request").0 {
        Event::ConnectionRequest(request) => *request,
        other => panic!("{other:?}"),
    }
}

/// Takes the next event of a connection, which must be of this kind; returns the peer's private data.
pub(crate) fn connection(evd: &Evd, of: &Ep, expected: ConnectionKind) -> Vec<u8> {
    match evd.wait(SOON, 1).expect("an event").0 {
        Event::Connection { ep, kind, private_data } => {
            assert_eq!((ep, kind), (of.label(), expected));
            private_data.to_vec()
        }
        other => panic!("{other:?}"),
    }
}

/// The next completion.
pub(crate) fn completion(evd: &Evd) -> DtoEvent {
    match evd.wait(SOON, 1).expect("a completion").0 {
        Event::Dto(event) => event,
        other => panic!("{other:?}"),
    }
}
