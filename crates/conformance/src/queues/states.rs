//! Allowed calls in each state of a queue pair (IBA 10.3.1).

use crate::Env;
use crate::connections::connect::endpoints;
use crate::harness::check::expect_success;
use crate::harness::conn::{Conn, Setup, connect};
use verbs::{ConnParam, Error, QpState, SendOp, SendWr, WcOpcode};

/// A new queue pair is in `Init`: receives may be posted, sends may not.
pub(crate) fn init_takes_receives_only(env: &Env) {
    let (a, b) = endpoints(env);
    assert_eq!(a.qp.state(), QpState::Init);
    a.post_recv(1, &[a.host.sge(0, 64)]);
    let refusal = a.qp.post_send(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
    assert!(matches!(refusal, Err(Error::WrongState { state: QpState::Init, .. })), "{refusal:?}");
    env.waiter.no_completion(&a.send_cq, "a refused request");
    connect(env, &a, &b, &Setup::default());
    b.post(&SendWr::new(3, SendOp::Send, &[b.host.sge(0, 8)]));
    expect_success(a.next_received(), 1, WcOpcode::Recv);
}

/// Nothing may be sent while the connection is being established.
pub(crate) fn send_while_connecting_is_refused(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let request = b.waiter.request(&b.cm);
    let refusal = a.qp.post_send(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
    assert!(matches!(refusal, Err(Error::WrongState { .. })), "{refusal:?}");
    let refusal = b.qp.post_send(&SendWr::new(2, SendOp::Send, &[b.host.sge(0, 8)]));
    assert!(matches!(refusal, Err(Error::WrongState { .. })), "{refusal:?}");
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
    Conn { a, b }.check_traffic();
}

/// A connected queue pair cannot be connected again, and the attempt has no effect.
pub(crate) fn connecting_twice_is_refused(env: &Env) {
    let c = Conn::new(env);
    let listener = c.b.cm.listen(env.addr(), 1).expect("a listener");
    let refusal = c.a.cm.connect(&c.a.qp, listener.addr(), &ConnParam::default());
    assert!(matches!(refusal, Err(Error::WrongState { .. })), "{refusal:?}");
    env.waiter.no_event(&c.b.cm, "a refused connect sends no request");
    c.check_traffic();
}

/// A queue pair that is connecting cannot be connected again. (Its state may still be `Init`, which would make a
/// confusing `WrongState`; an error with another text is allowed.)
pub(crate) fn connecting_while_connecting_is_refused(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 2).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let refusal = a.cm.connect(&a.qp, listener.addr(), &ConnParam::default());
    assert!(matches!(refusal, Err(Error::WrongState { .. } | Error::Invalid(_))), "{refusal:?}");
    b.cm.accept(b.waiter.request(&b.cm), &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
    env.waiter.no_event(&b.cm, "one connect asks once");
}

/// A connected queue pair cannot accept; the request is rejected.
pub(crate) fn accepting_twice_is_refused(env: &Env) {
    let c = Conn::new(env);
    let (late, _) = endpoints(env);
    let listener = c.b.cm.listen(env.addr(), 1).expect("a listener");
    late.cm.connect(&late.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let refusal = c.b.cm.accept(c.b.waiter.request(&c.b.cm), &c.b.qp, &ConnParam::default());
    assert!(matches!(refusal, Err(Error::WrongState { .. })), "{refusal:?}");
    let event = late.waiter.event(&late.cm, "Rejected");
    assert!(matches!(event, verbs::CmEvent::Rejected { .. }), "{event:?}");
    c.check_traffic();
}

/// A failed queue pair can neither connect nor accept.
pub(crate) fn failed_queue_pair_cannot_connect_or_accept(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    let failed = a.another_qp();
    failed.to_error();
    let refusal = a.cm.connect(&failed, listener.addr(), &ConnParam::default());
    assert!(matches!(refusal, Err(Error::WrongState { state: QpState::Error, .. })), "{refusal:?}");
    b.qp.to_error();
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("connect");
    let refusal = b.cm.accept(b.waiter.request(&b.cm), &b.qp, &ConnParam::default());
    assert!(matches!(refusal, Err(Error::WrongState { state: QpState::Error, .. })), "{refusal:?}");
}

/// Both ends report `ReadyToSend` when they are connected.
pub(crate) fn connected_is_ready_to_send(env: &Env) {
    let c = Conn::new(env);
    assert_eq!(c.a.qp.state(), QpState::ReadyToSend);
    assert_eq!(c.b.qp.state(), QpState::ReadyToSend);
    assert_ne!(c.a.qp.num(), c.a.another_qp().num(), "queue pairs of a device have distinct numbers");
}
