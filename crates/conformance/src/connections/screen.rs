//! Screened listeners: the NIC checks connect requests before it queues them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::connect::{endpoints, rejected};
use crate::Env;
use crate::harness::check::{pattern, readable};
use crate::harness::conn::{Conn, Endpoint, Setup};
use verbs::{ConnInfo, ConnParam, QpState, Screen, ScreenRequest, Verdict};

/// The first byte of requests that pass.
const FRIEND: u8 = 0xf1;

/// A screen that passes requests whose first byte is [`FRIEND`], with the second byte as the value. Rejects others with
/// `words`.
struct FriendScreen {
    words: Vec<u8>,
    seen: Mutex<Vec<(Vec<u8>, ConnInfo)>>,
}

impl FriendScreen {
    fn new(words: &[u8]) -> Arc<Self> {
        Arc::new(Self { words: words.to_vec(), seen: Mutex::default() })
    }

    fn screened_requests(&self) -> Vec<(Vec<u8>, ConnInfo)> {
        self.seen.lock().expect("no test panics here").clone()
    }
}

impl Screen for FriendScreen {
    fn screen(&self, request: &ScreenRequest<'_>) -> Verdict {
        self.seen.lock().expect("no test panics here").push((request.private_data.to_vec(), request.info));
        match request.private_data {
            [FRIEND, value, ..] => Verdict::Pass(Box::new(*value)),
            _ => Verdict::Reject(self.words.clone()),
        }
    }
}

fn connect_with(a: &Endpoint, addr: SocketAddr, private_data: &[u8]) {
    a.cm.connect(&a.qp, addr, &ConnParam::with_private_data(private_data)).expect("connect");
}

/// A request that passes arrives at the program, with its private data and the screen's value, which can be taken once.
pub(crate) fn passing_request_carries_screen_value(env: &Env) {
    let (a, b) = endpoints(env);
    let screen = FriendScreen::new(b"no");
    let listener = b.cm.listen_screened(env.addr(), 1, screen.clone()).expect("a listener");
    connect_with(&a, listener.addr(), &[FRIEND, 7, 1, 2, 3]);
    let mut request = b.waiter.request(&b.cm);
    assert!(request.private_data.starts_with(&[FRIEND, 7, 1, 2, 3]));
    let seen = screen.screened_requests();
    assert_eq!(seen.len(), 1, "a request is screened once");
    assert_eq!((&seen[0].0, seen[0].1), (&request.private_data, request.info));
    assert_eq!((request.take_screened::<u8>(), request.take_screened::<u8>()), (Some(7), None));
    b.cm.accept(request, &b.qp, &ConnParam::with_private_data(*b"yes")).expect("accept");
    assert!(a.waiter.established(&a.cm, a.qp.num()).starts_with(b"yes"));
    b.waiter.established(&b.cm, b.qp.num());
    Conn { a, b }.check_traffic();
}

/// A listener without a screen gives no value.
pub(crate) fn without_a_screen_there_is_no_value(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen(env.addr(), 1).expect("a listener");
    connect_with(&a, listener.addr(), &[FRIEND, 7]);
    assert_eq!(b.waiter.request(&b.cm).take_screened::<u8>(), None);
}

/// A request that does not pass is rejected with the screen's private data. The program gets no event, and the same
/// queue pair can connect again.
pub(crate) fn failing_request_is_rejected_without_event(env: &Env) {
    let max = env.b.attr().max_private_data as usize;
    for words in [0, 1, 20, max] {
        let (a, b) = endpoints(env);
        let screen = FriendScreen::new(&pattern(4, words));
        let listener = b.cm.listen_screened(env.addr(), 1, screen.clone()).expect("a listener");
        for said in [&b""[..], b"stranger", &[0; 9]] {
            connect_with(&a, listener.addr(), said);
            assert_eq!(rejected(&a), pattern(4, words));
            assert_eq!(a.qp.state(), QpState::Init);
        }
        assert_eq!(screen.screened_requests().len(), 3);
        b.waiter.no_event(&b.cm, "the screen rejected all of them");
        assert!(readable(b.cm.fd()).is_none_or(|is| !is), "the channel is readable without an event");
        connect_with(&a, listener.addr(), &[FRIEND, 1]);
        b.cm.accept(b.waiter.request(&b.cm), &b.qp, &ConnParam::default()).expect("accept");
        a.waiter.established(&a.cm, a.qp.num());
        b.waiter.established(&b.cm, b.qp.num());
        Conn { a, b }.check_traffic();
    }
}

/// Private data that are too long are not sent; the request is rejected nevertheless.
pub(crate) fn too_long_reject_data_is_not_sent(env: &Env) {
    let (a, b) = endpoints(env);
    let screen = FriendScreen::new(&vec![1; env.b.attr().max_private_data as usize + 1]);
    let listener = b.cm.listen_screened(env.addr(), 1, screen).expect("a listener");
    connect_with(&a, listener.addr(), b"stranger");
    assert_eq!(rejected(&a), [0; 0]);
}

/// Requests that do not pass occupy no entry of the backlog. Method: a backlog of 1, in which a passing request waits;
/// all failing requests before and after it get the screen's private data, and the passing one is still accepted.
pub(crate) fn rejected_requests_occupy_no_backlog(env: &Env) {
    let (a, b) = endpoints(env);
    let listener = b.cm.listen_screened(env.addr(), 1, FriendScreen::new(b"stranger")).expect("a listener");
    let strangers: Vec<Endpoint> = (0..32).map(|_| Endpoint::new(env, &env.a, &Setup::default())).collect();
    let refused = |some: &[Endpoint]| {
        some.iter().for_each(|one| connect_with(one, listener.addr(), b"let me in"));
        some.iter().for_each(|one| assert_eq!(rejected(one), b"stranger"));
    };
    refused(&strangers[..16]);
    connect_with(&a, listener.addr(), &[FRIEND, 1]);
    let request = b.waiter.request(&b.cm);
    refused(&strangers[16..]);
    b.waiter.no_event(&b.cm, "only the friend passes");
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("accept");
    a.waiter.established(&a.cm, a.qp.num());
    b.waiter.established(&b.cm, b.qp.num());
    Conn { a, b }.check_traffic();
}
