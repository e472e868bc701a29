//! Completion channels: sleeping until a completion (ibv_req_notify_cq(3), ibv_get_cq_event(3)).

use crate::Env;
use crate::harness::check::readable;
use crate::harness::conn::{Conn, Endpoint, Setup, connect};
use verbs::{CompChannel, Cq, Error, QpInit, SendFlags, SendOp, SendWr};

/// A connection whose receive queue at `b` reports to a channel.
struct NotifiedConn {
    c: Conn,
    channel: CompChannel,
}

fn connect_with_channel(env: &Env) -> Option<NotifiedConn> {
    let setup = Setup::default();
    let channel = channel(env)?;
    let (a, mut b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
    b.recv_cq = env.b.create_cq_with(512, &channel).expect("a queue that reports");
    let init = QpInit::new(&b.send_cq).recv_cq(&b.recv_cq).cap(b.qp.init().cap);
    b.qp = b.pd.create_qp(&init).expect("a queue pair");
    connect(env, &a, &b, &setup);
    for i in 0..64 {
        b.post_recv(i, &[b.host.sge(0, 64)]);
    }
    Some(NotifiedConn { c: Conn { a, b }, channel })
}

/// A channel of device `b`, or `None` if the device reports that it has none.
fn channel(env: &Env) -> Option<CompChannel> {
    match env.b.create_comp_channel() {
        Ok(channel) => Some(channel),
        Err(e) => {
            assert!(matches!(e, Error::Unsupported { .. }), "{e:?}");
            None
        }
    }
}

impl NotifiedConn {
    fn send(&self, flags: SendFlags) {
        let a = &self.c.a;
        a.post(&SendWr::new(1, SendOp::Send, &[a.host.sge(0, 8)]).with(flags));
        assert!(a.next_sent().is_ok());
    }

    /// Arms the receive queue for its next completion.
    fn arm(&self) {
        self.c.b.recv_cq.req_notify(false).expect("armed");
    }

    /// Arms the receive queue for its next solicited or failed completion.
    fn arm_solicited(&self) {
        self.c.b.recv_cq.req_notify(true).expect("armed");
    }

    /// The next event must come from the receive queue.
    #[track_caller]
    fn event(&self) {
        let event = self.channel.get_event(self.c.b.waiter.deadline());
        assert_eq!(event, Ok(self.c.b.recv_cq.id()));
    }

    #[track_caller]
    fn no_event(&self, why: &str) {
        let event = self.channel.get_event(self.c.b.waiter.short_time());
        assert_eq!(event, Err(Error::TimedOut { call: "CompChannel::get_event" }), "{why}");
    }

    #[track_caller]
    fn expect_received(&self, count: usize) {
        for _ in 0..count {
            self.c.b.next_received();
        }
    }

    /// Whether the descriptor is readable now.
    fn readable(&self) -> Option<bool> {
        crate::harness::check::readable(self.channel.fd())
    }
}

/// Arming once yields one event, however many completions arrive.
pub(crate) fn one_event_per_arming(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    for _ in 0..3 {
        w.arm();
        (0..5).for_each(|_| w.send(SendFlags::empty()));
        w.event();
        w.expect_received(5);
        w.no_event("armed once");
    }
}

/// Without arming there is no event.
pub(crate) fn no_event_without_arming(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    w.send(SendFlags::SOLICITED);
    w.expect_received(1);
    w.no_event("never armed");
}

/// Completions pending when the queue is armed cause no event; the next one does.
pub(crate) fn pending_completions_cause_no_event(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    w.send(SendFlags::empty());
    // The receive completes independently of the send: waits until it has.
    env.waiter.no_completion(&w.c.b.send_cq, "nothing was sent from here");
    w.arm();
    w.no_event("the completion came before the arming");
    w.send(SendFlags::empty());
    w.event();
    w.expect_received(2);
}

/// Armed for solicited completions, others cause no event (IBA 11.4.2.2).
pub(crate) fn arm_solicited_ignores_other_completions(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    w.arm_solicited();
    w.send(SendFlags::empty());
    w.send(SendFlags::empty());
    w.no_event("not solicited");
    w.send(SendFlags::SOLICITED);
    w.event();
    w.expect_received(3);
    w.no_event("armed once");
}

/// Arming for any completion includes solicited ones, and overrides earlier arming for solicited ones only.
pub(crate) fn arm_any_overrides_arm_solicited(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    w.arm();
    w.send(SendFlags::SOLICITED);
    w.event();
    w.expect_received(1);
    w.arm_solicited();
    w.arm();
    w.send(SendFlags::empty());
    w.event();
    w.expect_received(1);
    w.no_event("one event for two armings without a completion in between");
}

/// A write with immediate data can be solicited.
pub(crate) fn writes_with_immediate_are_solicited(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    w.arm_solicited();
    let (a, b) = (&w.c.a, &w.c.b);
    let data = [a.host.sge(0, 8)];
    a.post(&SendWr::new(1, SendOp::WriteImm(b.host.remote(0), 1), &data).with(SendFlags::SOLICITED));
    w.event();
    w.expect_received(1);
}

/// Failed completions count as solicited (IBA 11.4.2.2).
pub(crate) fn failures_count_as_solicited(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    w.arm_solicited();
    w.c.b.qp.to_error();
    w.event();
    w.expect_received(64);
    w.no_event("armed once");
}

/// The descriptor is readable exactly while an event is pending.
pub(crate) fn the_descriptor_is_readable(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    let Some(before) = w.readable() else {
        return assert_eq!(env.b.host().clock(), host::ClockKind::Virtual);
    };
    assert!(!before, "readable without an event");
    w.arm();
    assert_eq!(w.readable(), Some(false), "readable by arming");
    w.send(SendFlags::empty());
    env.waiter.until("readable descriptor", || (w.readable() == Some(true)).then_some(()));
    assert_eq!(w.readable(), Some(true), "stays so until the event is taken");
    w.event();
    assert_eq!(w.readable(), Some(false), "readable after the event");
    assert_eq!(w.channel.poll_event(), None);
    w.expect_received(1);
}

/// A queue without a channel cannot be armed.
pub(crate) fn arming_needs_a_channel(env: &Env) {
    let cq = env.b.create_cq(4).expect("a completion queue");
    let refusal = cq.req_notify(false);
    assert!(matches!(refusal, Err(Error::Invalid(_) | Error::Unsupported { .. })), "{refusal:?}");
}

/// A channel of another device is refused.
pub(crate) fn channels_belong_to_a_device(env: &Env) {
    let Some(channel) = channel(env) else { return };
    let refusal = env.a.create_cq_with(4, &channel).map(|cq| cq.id());
    assert!(matches!(refusal, Err(Error::Foreign { .. })), "{refusal:?}");
}

/// Several queues on one channel: each event names its queue.
pub(crate) fn channel_event_names_its_queue(env: &Env) {
    let Some(channel) = channel(env) else { return };
    let setup = Setup::default();
    let mut pairs = Vec::new();
    for _ in 0..4 {
        let (a, mut b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
        b.recv_cq = env.b.create_cq_with(16, &channel).expect("a queue that reports");
        b.qp = b.pd.create_qp(&QpInit::new(&b.send_cq).recv_cq(&b.recv_cq)).expect("a queue pair");
        connect(env, &a, &b, &setup);
        b.recv_cq.req_notify(false).expect("armed");
        pairs.push((a, b));
    }
    for (a, b) in pairs.iter().rev() {
        b.post_recv(1, &[b.host.sge(0, 8)]);
        a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
        assert_eq!(channel.get_event(env.waiter.deadline()), Ok(b.recv_cq.id()));
        b.next_received();
    }
}

/// Send completions notify as well.
pub(crate) fn send_completions_notify(env: &Env) {
    let Some(channel) = channel(env) else { return };
    let setup = Setup::default();
    let (a, mut b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
    let cq: Cq = env.b.create_cq_with(16, &channel).expect("a queue that reports");
    b.qp = b.pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
    connect(env, &a, &b, &setup);
    cq.req_notify(false).expect("armed");
    b.post(&SendWr::new(1, SendOp::Write(a.host.remote(0)), &[b.host.sge(0, 8)]));
    assert_eq!(channel.get_event(env.waiter.deadline()), Ok(cq.id()));
    assert!(env.waiter.completion(&cq, "the write").is_ok());
}

/// The loop of the manual page: arm, poll until empty, sleep. No message is missed.
pub(crate) fn arm_poll_sleep_misses_nothing(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    let mut seen = 0;
    w.arm();
    for sent in 1..=60 {
        w.send(SendFlags::empty());
        while seen < sent {
            w.event();
            w.arm();
            while w.c.b.recv_cq.poll_one().expect("no overrun").is_some() {
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 60);
}

/// A write with `NOTIFY` is a write: it arrives, has no completion at the peer, and causes no event on its channel. If
/// the device does not support the flag, posting is refused and leaves no trace, and a list reports how far it was
/// posted.
pub(crate) fn notifying_writes_complete_as_writes(env: &Env) {
    let Some(w) = connect_with_channel(env) else { return };
    let (a, b) = (&w.c.a, &w.c.b);
    w.arm();
    let sge = [a.host.sge(0, 64)];
    let plain = SendWr::new(1, SendOp::Write(b.host.remote(64)), &sge);
    let notifying = SendWr { wr_id: 2, ..plain }.with(SendFlags::NOTIFY);
    if env.a.attr().write_notify {
        a.host.buf().write(0, &crate::harness::check::pattern(7, 64)).expect("inside");
        for _ in 0..3 {
            a.post(&notifying);
            crate::harness::check::expect_success(a.next_sent(), 2, verbs::WcOpcode::Write);
        }
        let got = b.host.buf().to_vec(64..128).expect("inside");
        crate::harness::check::assert_same_bytes("written", &got, &crate::harness::check::pattern(7, 64));
    } else {
        let refusal = a.qp.post_send(&notifying);
        assert!(matches!(refusal, Err(Error::Unsupported { .. })), "{refusal:?}");
        let refusal = a.qp.post_sends(&[plain, notifying, plain]);
        assert!(matches!(refusal, Err((1, Error::Unsupported { .. }))), "{refusal:?}");
        crate::harness::check::expect_success(a.next_sent(), 1, verbs::WcOpcode::Write);
    }
    w.no_event("a write completes nothing here");
    a.waiter.no_completion(&a.send_cq, "nothing else was posted");
}

/// Makes a peer's request fail at `b`: `b` gets an asynchronous event.
fn fail_request_of_peer(c: &Conn) {
    let mut remote = c.b.host.remote(0);
    remote.rkey ^= 0x55;
    c.a.post(&SendWr::new(1, SendOp::Write(remote), &[c.a.host.sge(0, 8)]));
    assert!(!c.a.next_sent().is_ok());
}

/// A program can wait for an asynchronous event; without one, the wait ends at its deadline.
pub(crate) fn asynchronous_events_can_be_awaited(env: &Env) {
    let c = Conn::new(env);
    assert!(matches!(env.b.get_async_event(env.waiter.short_time()), Err(Error::TimedOut { .. })));
    fail_request_of_peer(&c);
    let event = env.b.get_async_event(env.waiter.deadline());
    assert_eq!(event, Ok(verbs::AsyncEvent::QpAccessError { qp_num: c.b.qp.num() }));
}

/// The device's descriptor, if it has one, is readable exactly while an asynchronous event is pending.
pub(crate) fn the_asynchronous_descriptor_is_readable(env: &Env) {
    let c = Conn::new(env);
    if readable(env.b.async_fd()).is_none() {
        return;
    }
    assert_eq!(readable(env.b.async_fd()), Some(false), "nothing has happened");
    fail_request_of_peer(&c);
    env.waiter.until("readable descriptor", || (readable(env.b.async_fd()) == Some(true)).then_some(()));
    assert!(env.b.poll_async_event().is_some());
    assert_eq!(readable(env.b.async_fd()), Some(false), "it has been taken");
}
