//! Addresses that are reserved before a listener or a connection uses them (rdma_bind_addr(3)).

use std::net::SocketAddr;

use super::connect::{endpoints, failure, own_ip};
use crate::Env;
use crate::harness::conn::{Conn, Endpoint, Setup};
use verbs::{BoundAddr, Cm, CmEvent, CmFailure, ConnParam, Error};

/// An address of `a`, with any port.
fn own_addr(env: &Env) -> SocketAddr {
    SocketAddr::new(own_ip(env), 0)
}

/// Reserves an address of a device; `None` if the device does not support that and reports so.
#[track_caller]
fn bind(cm: &Cm, addr: SocketAddr) -> Option<BoundAddr> {
    match cm.bind(addr) {
        Ok(port) => Some(port),
        Err(Error::Unsupported { .. }) => None,
        Err(why) => panic!("binding to {addr}: {why}"),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: verbs::Result<T>) {
    assert!(matches!(result, Err(Error::Address { .. })), "{result:?}");
}

/// Answers the request that `b` gets, and waits until both ends are connected. Checks that `from` is the address of `a`
/// at both ends.
#[track_caller]
fn accepted(a: &Endpoint, b: &Endpoint, from: SocketAddr) {
    let request = b.waiter.request(&b.cm);
    assert_eq!(request.info.peer, from, "the peer sees where the connection comes from");
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    match a.waiter.event(&a.cm, "Established") {
        CmEvent::Established { info, .. } => assert_eq!(info.local, from),
        other => panic!("expected Established, got {other:?}"),
    }
    b.waiter.established(&b.cm, b.qp.num());
}

/// A reserved port cannot be reserved or listened on again, on this channel or another; for port 0 the device chooses
/// one.
pub(crate) fn a_bound_port_is_taken(env: &Env) {
    let (cm, other) = (env.b.create_cm().expect("a channel"), env.b.create_cm().expect("a channel"));
    let Some(port) = bind(&cm, env.addr()) else { return };
    let addr = port.addr();
    assert_ne!(addr.port(), 0);
    assert_ne!(bind(&cm, env.addr()).map(|other| other.addr()), Some(addr));
    for cm in [&cm, &other] {
        refused(cm.bind(addr));
        refused(cm.listen(addr, 1));
    }
    let listener = cm.listen_at(&port, 1).expect("it is held for this");
    refused(other.bind(addr));
    drop(listener);
    refused(other.bind(addr));
}

/// A connection to a listener on a reserved port works as with any listener; without the listener it is refused.
pub(crate) fn a_bound_port_can_be_listened_at(env: &Env) {
    let (a, b) = endpoints(env);
    let Some(port) = bind(&b.cm, env.addr()) else { return };
    a.cm.connect(&a.qp, port.addr(), &ConnParam::default()).expect("the answer comes as an event");
    assert_eq!(failure(&a), CmFailure::Refused(port.addr()));
    let listener = b.cm.listen_at(&port, 1).expect("a listener");
    assert_eq!(listener.addr(), port.addr());
    a.cm.connect(&a.qp, port.addr(), &ConnParam::default()).expect("connect");
    let request = b.waiter.request(&b.cm);
    assert_eq!(request.info.local, port.addr());
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
    drop((listener, port));
    Conn { a, b }.check_traffic();
}

/// A connection comes from the port reserved for it, which cannot be reserved again meanwhile.
pub(crate) fn a_connection_comes_from_its_bound_port(env: &Env) {
    for _ in 0..3 {
        let (a, b) = endpoints(env);
        let Some(port) = bind(&a.cm, own_addr(env)) else { return };
        let listener = b.cm.listen(env.addr(), 1).expect("a listener");
        a.cm.connect_from(&port, &a.qp, listener.addr(), &ConnParam::default()).expect("connect");
        accepted(&a, &b, port.addr());
        refused(a.cm.bind(port.addr()));
        drop(port);
        Conn { a, b }.check_traffic();
    }
}

/// A connection without a queue pair also comes from the port reserved for it.
pub(crate) fn connections_without_a_queue_pair_come_from_a_bound_port(env: &Env) {
    let (a, b) = endpoints(env);
    let Some(port) = bind(&a.cm, own_addr(env)) else { return };
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    let param = ConnParam::default();
    let id = a.cm.connect_without_qp_from(&port, listener.addr(), &param).expect("connect");
    let request = b.waiter.request(&b.cm);
    assert_eq!(request.info.peer, port.addr());
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, id.num());
}

/// Without a listener the connection is refused, and the port can be used again.
pub(crate) fn a_refused_connect_keeps_its_port(env: &Env) {
    let (a, b) = endpoints(env);
    let Some(port) = bind(&a.cm, own_addr(env)) else { return };
    let dead = b.cm.listen(env.addr(), 1).expect("a listener").addr();
    for _ in 0..3 {
        a.cm.connect_from(&port, &a.qp, dead, &ConnParam::default()).expect("the answer comes as an event");
        assert_eq!(failure(&a), CmFailure::Refused(dead));
    }
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect_from(&port, &a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    accepted(&a, &b, port.addr());
    Conn { a, b }.check_traffic();
}

/// A port whose listener is dropped stays reserved, refuses connections, and can be connected from.
pub(crate) fn a_port_outlives_its_listener(env: &Env) {
    let (a, b) = endpoints(env);
    let Some(port) = bind(&a.cm, own_addr(env)) else { return };
    drop(a.cm.listen_at(&port, 4).expect("a listener"));
    let late = Endpoint::new(env, &env.b, &Setup::default());
    late.cm.connect(&late.qp, port.addr(), &ConnParam::default()).expect("the answer comes as an event");
    assert_eq!(failure(&late), CmFailure::Refused(port.addr()));
    refused(b.cm.bind(port.addr()));
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect_from(&port, &a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    accepted(&a, &b, port.addr());
    Conn { a, b }.check_traffic();
}

/// A port serves one listener at a time, and cannot be connected from meanwhile.
pub(crate) fn a_port_serves_one_at_a_time(env: &Env) {
    let (a, b) = endpoints(env);
    let Some(port) = bind(&b.cm, env.addr()) else { return };
    let listener = b.cm.listen_at(&port, 1).expect("a listener");
    let again = b.cm.listen_at(&port, 1);
    assert!(matches!(again, Err(Error::Busy { .. })), "{again:?}");
    let connects = b.cm.connect_from(&port, &b.qp, listener.addr(), &ConnParam::default());
    assert!(matches!(connects, Err(Error::Busy { .. })), "{connects:?}");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    b.cm.accept(b.waiter.request(&b.cm), &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
}

/// A port is free again when it has been dropped and its connection has ended, whichever side ended that.
pub(crate) fn port_is_free_after_drop(env: &Env) {
    let Some(mut port) = bind(&env.a.create_cm().expect("a channel"), own_addr(env)) else { return };
    let addr = port.addr();
    for active_ends in [true, false, true] {
        let (a, b) = endpoints(env);
        let listener = b.cm.listen(env.addr(), 1).expect("a listener");
        // A port belongs to a device, not to a channel.
        a.cm.connect_from(&port, &a.qp, listener.addr(), &ConnParam::default()).expect("connect");
        accepted(&a, &b, addr);
        let (first, second) = if active_ends { (&a, &b) } else { (&b, &a) };
        first.cm.disconnect(&first.qp).expect("connected");
        first.waiter.disconnected(&first.cm, first.qp.num());
        second.waiter.disconnected(&second.cm, second.qp.num());
        drop(port);
        port = env.waiter.until("free port", || a.cm.bind(addr).ok());
    }
    drop(port);
    let cm = env.a.create_cm().expect("a channel");
    cm.listen(addr, 1).expect("it is free for others, too");
}

/// A port of another device, even one of the same kind, is refused.
pub(crate) fn foreign_ports_are_refused(env: &Env) {
    let (a, b) = endpoints(env);
    let Some(port) = bind(&a.cm, own_addr(env)) else { return };
    let listens = b.cm.listen_at(&port, 1);
    assert!(matches!(listens, Err(Error::Foreign { .. })), "{listens:?}");
    let connects = b.cm.connect_from(&port, &b.qp, port.addr(), &ConnParam::default());
    assert!(matches!(connects, Err(Error::Foreign { .. })), "{connects:?}");
}
