//! The NIC thread: sleeps until a socket or a peer wants something; carries on what nobody polls for.
//!
//! It answers the connection protocol, notices peers that die (their sockets close), retries requests that wait,
//! copies for peers that may not copy themselves, and fails queue pairs whose peers failed. Kicks say which queue pair is
//! meant, so that its work does not grow with their number. Never on the path of a message between running processes.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use host::{Span, Time};
use verbs::Result;

use crate::connect::conns::{expire_handshakes, on_socket, wake_listeners};
use crate::inner::Inner;
use crate::memory::layout::state;
use crate::qp::QpInner;
use crate::send::sending::By;
use crate::shared::Shared;
use crate::wake::reactor::Happening;

/// Looks again after this while something waits that may not announce itself.
const RETRY: Span = Span::from_ms(1);
/// Looks this often whether a peer has left that was inside when its connection ended.
const DEPARTURE: Span = Span::from_ms(20);
/// Looks at all queue pairs this often at most, when peers ring without naming one.
const LOOK_AT_ALL: Span = Span::from_ms(100);

/// Starts a device's thread.
pub(crate) fn start(device: &Arc<Inner>) -> Result<()> {
    let (shared, weak) = (device.shared.clone(), Arc::downgrade(device));
    device.thread.start(&device.shared.host, "nicety-shm", move || run(&shared, &weak))
}

fn run(shared: &Shared, device: &Weak<Inner>) {
    let (mut pause, mut agenda) = (None, Agenda::default());
    let mut events = Vec::with_capacity(64);
    let reactor = &shared.reactor;
    while !reactor.ear.is_stopping() {
        reactor.ear.sleep(&mut events, pause);
        if reactor.ear.is_stopping() {
            return;
        }
        let Some(device) = device.upgrade() else { return };
        device.thread.is_me();
        for event in &events {
            match reactor.meaning(event) {
                Happening::Rung => agenda.is_rung = true,
                Happening::Socket(id) => on_socket(&device, id),
            }
        }
        let next = agenda.round(&device);
        let now = shared.host.now();
        pause = next.map(|at| at.since(now));
    }
}

/// What the thread goes on with from one round to the next.
#[derive(Default)]
struct Agenda {
    /// Queue pairs that wait for something that may not announce itself.
    waiting: BTreeSet<usize>,
    /// A peer has rung since the last round.
    is_rung: bool,
    /// When to look at all queue pairs, and when that was done last.
    all_at: Option<Time>,
    saw_all: Time,
}

impl Agenda {
    /// Looks at the queue pairs that somebody has named since the last round, and at those that wait for something that may not
    /// announce itself; when to do so again without being asked. What it takes does not grow with the queue pairs that nobody
    /// named.
    fn round(&mut self, device: &Arc<Inner>) -> Option<Time> {
        device.settle_condemned();
        let (shared, objects) = (&device.shared, &device.objects);
        let now = shared.host.now();
        let rung = std::mem::take(&mut self.is_rung);
        let kicked = &shared.header.kicked;
        if kicked.any() {
            kicked.take(|index| {
                self.waiting.insert(index);
            });
        } else if rung && self.all_at.is_none() {
            // A round before has dealt with it, or a peer that is wrong took back what another said.
            self.all_at = Some(self.saw_all + LOOK_AT_ALL);
        }
        if self.all_at.is_some_and(|at| at <= now) {
            (self.all_at, self.saw_all) = (None, now);
            self.waiting.extend(objects.live_qps().iter().map(|qp| qp.index()));
        }
        self.waiting.retain(|&index| objects.qp(index).is_some_and(|qp| is_waiting(&qp)));
        let turn_is_held = device.look_at_turn();
        let impatient = turn_is_held || !self.waiting.is_empty() || shared.reactor.is_deaf();
        let retry = impatient.then(|| now + RETRY);
        let departures = objects.see_off_departed(shared).then(|| now + DEPARTURE);
        let handshakes = expire_handshakes(device, now);
        let listeners = wake_listeners(device, now);
        let ebb = shared.tide.give_back(now);
        [retry, self.all_at, departures, handshakes, listeners, ebb].into_iter().flatten().min()
    }
}

/// Looks at a queue pair; whether it has to be looked at again.
fn is_waiting(qp: &QpInner) -> bool {
    let connection = &qp.connection;
    if connection.state() != state::ERROR {
        let asks_again = qp.serve_peer();
        qp.progress(By::Thread);
        return asks_again || qp.sending.is_stalled();
    }
    if !connection.has_failed() {
        qp.fail();
    }
    if connection.peer_is_inside() {
        return true;
    }
    // What the peer has left can be flushed now.
    qp.receiving.completions.alarm(connection.index);
    qp.report_last_receive();
    false
}

#[cfg(test)]
mod tests {
    use crate::device::of;
    use verbs::{Device, QpInit};

    use super::*;

    /// Goal: a kick costs the NIC thread what it says, however many queue pairs there are. Method: a device whose thread
    /// has ended, so that the rounds are ours; queue pairs that fail in secret show who was looked at.
    #[test]
    fn a_round_looks_at_those_who_were_named() {
        let device: Device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = of(&device).expect("this kind");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<_> = (0..100).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        inner.stop();
        for qp in inner.objects.live_qps() {
            assert!(qp.connection.advance(state::INIT, state::ERROR), "in secret");
        }
        let mut agenda = Agenda::default();
        let looked_at = |agenda: &mut Agenda| {
            assert_eq!(agenda.round(&inner), None, "nothing to wait for");
            let dealt_with = |qp: &Arc<QpInner>| qp.connection.has_failed();
            inner
                .objects
                .live_qps()
                .iter()
                .filter(|qp| dealt_with(qp))
                .map(|qp| qp.index())
                .collect::<Vec<_>>()
        };
        assert_eq!(looked_at(&mut agenda), [0; 0], "nobody was named");
        [7, 64, 99, 7].iter().for_each(|&index| inner.shared.look_at(index));
        assert_eq!(looked_at(&mut agenda), [7, 64, 99]);
        // Who rings without naming anybody, as when a third has taken the name back, is heard all the same, a while after
        // the last look at all: the clock begins with the process.
        let later = || (inner.shared.host.now() > Time::ZERO + LOOK_AT_ALL).then_some(());
        inner
            .shared
            .host
            .poll("a later time", inner.shared.host.after(Span::from_secs(30)), later)
            .expect("a clock that goes");
        agenda.is_rung = true;
        assert_eq!(looked_at(&mut agenda).len(), 100);
        drop(qps);
    }
    /// Goal: this thread gives back what a crowd leaves. Method: a crowd comes and goes; the thread, which has ended, so that
    /// the rounds are ours, looks again until it has dealt with it.
    #[test]
    fn rounds_go_on_until_the_memory_of_a_crowd_is_given_back() {
        let device: Device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let inner = of(&device).expect("this kind");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        inner.stop();
        let mut agenda = Agenda::default();
        let crowd: Vec<_> =
            (0..1024).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        assert_eq!(agenda.round(&inner), None, "nobody has gone");
        drop(crowd);
        assert!(agenda.round(&inner).is_some(), "a crowd has gone");
        let calm = || agenda.round(&inner).is_none().then_some(());
        let patience = inner.shared.host.after(Span::from_secs(30));
        assert!(inner.shared.host.poll("the calm", patience, calm).is_some(), "it never ends");
    }
}
