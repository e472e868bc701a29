//! Concurrent use: any thread may call anything at any time. Real time only.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::Env;
use super::connections::disconnect::{MESSAGES, connect_and_send_all, messages_until_empty};
use super::harness::check::expect_success;
use super::harness::conn::{Conn, Endpoint, Setup, connect};
use host::{Descriptor, WaitSet};
use verbs::{Access, AtomicCap, Buf, Error, RemoteAddr, SendFlags, SendOp, SendWr, Wc, WcOpcode, WcStatus};

pub(super) use super::firmware::interrupts_wake_sleepers;

/// Posts, and retries while the queue is full.
fn post_patiently(end: &Endpoint, wr: &SendWr<'_>) {
    end.waiter.until("free send slot", || match end.qp.post_send(wr) {
        Ok(()) => Some(()),
        Err(Error::QueueFull { .. }) => None,
        Err(e) => panic!("{e}"),
    });
}

/// Several threads post to one queue pair while another polls: every request is executed once.
pub(super) fn requests_of_several_posters_complete_once(env: &Env) {
    let c = Arc::new(Conn::new(env));
    let (posters, each) = (4_u64, 2000_u64);
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for p in 0..posters {
        let c = c.clone();
        bodies.push(Box::new(move || {
            for i in 0..each {
                let data = [c.a.host.sge(p * 8, 8)];
                post_patiently(
                    &c.a,
                    &SendWr::new(p * each + i, SendOp::Write(c.b.host.remote(p * 8)), &data),
                );
            }
        }));
    }
    let poller = c.clone();
    bodies.push(Box::new(move || {
        let mut ids: Vec<u64> = Vec::new();
        for _ in 0..posters * each {
            let wc = poller.a.next_sent();
            assert!(wc.is_ok(), "{wc:?}");
            ids.push(wc.wr_id);
        }
        for p in 0..posters {
            let own: Vec<u64> = ids.iter().copied().filter(|id| id / each == p).collect();
            assert!(own.is_sorted(), "one thread's requests complete in its order");
            assert_eq!(own.len() as u64, each);
        }
    }));
    env.run_concurrently(bodies);
}

/// Several threads poll one queue: every completion is taken once.
pub(super) fn several_pollers_take_each_completion_once(env: &Env) {
    let c = Arc::new(Conn::new(env));
    let (total, taken) = (6000_u64, Arc::new(Mutex::new(Vec::new())));
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..3 {
        let (c, taken) = (c.clone(), taken.clone());
        bodies.push(Box::new(move || {
            c.a.waiter.until("all completions", || {
                let mut wcs = [Wc::default(); 5];
                let n = c.a.send_cq.poll(&mut wcs).expect("no overrun");
                let mut taken = taken.lock().expect("no panic");
                taken.extend(wcs[..n].iter().map(|wc| wc.wr_id));
                (taken.len() as u64 == total).then_some(())
            });
        }));
    }
    let poster = c.clone();
    bodies.push(Box::new(move || {
        for i in 0..total {
            let data = [poster.a.host.sge(0, 8)];
            post_patiently(&poster.a, &SendWr::new(i, SendOp::Write(poster.b.host.remote(0)), &data));
        }
    }));
    env.run_concurrently(bodies);
    let mut taken = taken.lock().expect("no panic").clone();
    taken.sort_unstable();
    assert_eq!(taken, (0..total).collect::<Vec<u64>>());
}

/// A completion that another thread is taking counts as pending: while others poll the queue all the time with an empty
/// slice, a thread that knows of the end and finds the queue empty has received every acknowledged message.
pub(super) fn an_empty_queue_after_the_end_stays_empty(env: &Env) {
    for round in 0..40 {
        let Some((c, _srq)) = connect_and_send_all(env, round % 2 == 1) else { continue };
        let (cq, is_over) = (c.b.recv_cq.clone(), Arc::new(AtomicBool::new(false)));
        let (over, waiter) = (is_over.clone(), c.b.waiter.clone());
        let look = move || {
            waiter.until("end of the count", || {
                assert_eq!(cq.poll(&mut []).expect("a queue that works"), 0);
                over.load(Ordering::Acquire).then_some(())
            });
        };
        let count = move || {
            c.a.cm.disconnect(&c.a.qp).expect("disconnect");
            c.b.waiter.disconnected(&c.b.cm, c.b.qp.num());
            let messages = messages_until_empty(&c.b.recv_cq);
            is_over.store(true, Ordering::Release);
            c.b.device.host().node().inspect(|node| node.signal());
            assert_eq!(messages, MESSAGES, "messages of round {round}");
        };
        env.run_concurrently(vec![Box::new(look), Box::new(count)]);
    }
}

/// A ping-pong between two threads that sleep for each message.
pub(super) fn ping_pong_between_threads(env: &Env) {
    let c = Conn::new(env);
    let rounds = 2000;
    for end in [&c.a, &c.b] {
        end.post_recv(0, &[end.host.sge(0, 8)]);
    }
    let (a, b) = (c.a, c.b);
    let ping = move || {
        for i in 0..rounds {
            a.post(&SendWr::new(i, SendOp::Send, &[a.host.sge(8, 8)]));
            expect_success(a.next_received(), i, WcOpcode::Recv);
            a.post_recv(i + 1, &[a.host.sge(0, 8)]);
            expect_success(a.next_sent(), i, WcOpcode::Send);
        }
        a
    };
    let pong = move || {
        for i in 0..rounds {
            expect_success(b.next_received(), i, WcOpcode::Recv);
            b.post_recv(i + 1, &[b.host.sge(0, 8)]);
            b.post(&SendWr::new(i, SendOp::Send, &[b.host.sge(8, 8)]));
            expect_success(b.next_sent(), i, WcOpcode::Send);
        }
        b
    };
    // The ends outlive both loops: a queue pair dropped early would flush the other's last message.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (first, second) = (kept.clone(), kept.clone());
    let keep = move |end| first.lock().expect("no panic").push(end);
    let keep_too = move |end| second.lock().expect("no panic").push(end);
    env.run_concurrently(vec![Box::new(move || keep(ping())), Box::new(move || keep_too(pong()))]);
}

/// Atomics of several queue pairs and threads on one word add up.
pub(super) fn atomics_from_several_threads(env: &Env) {
    if env.b.attr().atomic_cap == AtomicCap::None {
        return; // The group `atomics` checks that they are refused.
    }
    let setup = Setup::default();
    let target = Arc::new(Endpoint::new(env, &env.b, &setup));
    let (threads, each) = (3, 1000_u64);
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    let mut far = Vec::new();
    for _ in 0..threads {
        let (a, qp) = (Endpoint::new(env, &env.a, &setup), target.another_qp());
        super::harness::conn::connect_qps(env, (&a.cm, &a.qp, &setup.a), (&target.cm, &qp, &setup.b));
        far.push(qp);
        let remote = target.host.remote(0);
        bodies.push(Box::new(move || {
            for i in 0..each {
                a.post(&SendWr::new(i, SendOp::FetchAdd { remote, add: 1 }, &[a.host.sge(0, 8)]));
                expect_success(a.next_sent(), i, WcOpcode::FetchAdd);
            }
        }));
    }
    env.run_concurrently(bodies);
    let sum = target.host.buf().to_vec(0..8).expect("inside");
    assert_eq!(sum, (threads * each).to_ne_bytes());
}

/// A region is deregistered while peers write through it. Once that returns, its memory does not change any more; a
/// write before it succeeds, a later one fails. (`Error::Busy` would mean a peer that is stopped.)
pub(super) fn dereg_during_writes_stops_them(env: &Env) {
    for _ in 0..20 {
        let c = Conn::new(env);
        let mr = c.b.pd.reg_mr(c.b.host.buf(), Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("a region");
        let remote = mr.remote(0);
        let Conn { a, b } = c;
        let writer = Box::new(move || {
            a.host.buf().fill(0x55);
            for i in 0..200_000 {
                post_patiently(&a, &SendWr::new(i, SendOp::Write(remote), &[a.host.sge(0, 4096)]));
                let wc = a.next_sent();
                if !wc.is_ok() {
                    return assert_eq!(wc.status, WcStatus::RemAccessErr);
                }
            }
        });
        let owner = Box::new(move || {
            let byte = b.host.buf().byte(0).expect("inside");
            b.waiter.until("first byte", || (byte.load(Ordering::Acquire) == 0x55).then_some(()));
            mr.dereg().expect("no peer is stopped");
            b.host.buf().fill(0);
            b.wait_for_error();
            assert!(b.host.buf().to_vec(0..4096).expect("inside").iter().all(|&byte| byte == 0));
        });
        env.run_concurrently(vec![writer, owner]);
    }
}

/// A queue pair is moved to the error state while another thread posts: each accepted request completes once.
pub(super) fn to_error_during_posts_completes_each_request(env: &Env) {
    for _ in 0..20 {
        let c = Arc::new(Conn::new(env));
        let (poster, killer) = (c.clone(), c.clone());
        let accepted = Arc::new(AtomicU64::new(0));
        let count = accepted.clone();
        let post = Box::new(move || {
            for i in 0..100 {
                post_patiently(&poster.a, &SendWr::new(i, SendOp::Send, &[poster.a.host.sge(0, 8)]));
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        env.run_concurrently(vec![post, Box::new(move || killer.a.qp.to_error())]);
        c.a.expect_sends_flushed(0..accepted.load(Ordering::Acquire));
    }
}

/// A request fails while another thread posts: requests after it are flushed and not executed.
pub(super) fn no_request_executes_after_a_failure(env: &Env) {
    const WRITES: u64 = 60;
    for _ in 0..100 {
        let c = Arc::new(Conn::new(env));
        let posted = Arc::new(AtomicU64::new(0));
        let (poster, count) = (c.clone(), posted.clone());
        let post = Box::new(move || {
            for i in 0..WRITES {
                let (data, to) = ([poster.a.host.sge(0, 8)], poster.b.host.remote(8 * i));
                post_patiently(&poster.a, &SendWr::new(i, SendOp::Write(to), &data));
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        let spoiler = c.clone();
        let spoil = Box::new(move || {
            let host = spoiler.a.device.host();
            host.poll("the writes", None, || (posted.load(Ordering::Acquire) > 9).then_some(()));
            let wrong = RemoteAddr { rkey: 0, ..spoiler.b.host.remote(0) };
            post_patiently(
                &spoiler.a,
                &SendWr::new(WRITES, SendOp::Write(wrong), &[spoiler.a.host.sge(0, 8)]),
            );
        });
        let memory = |range| c.b.host.buf().to_vec(range).expect("inside");
        c.a.host.buf().write(0, &[0xa5; 8]).expect("inside");
        let before = memory(0..8 * WRITES as usize);
        env.run_concurrently(vec![post, spoil]);
        let done: Vec<Wc> = (0..=WRITES).map(|_| c.a.next_sent()).collect();
        let failed = done.iter().position(|wc| !wc.is_ok()).expect("one has a wrong key");
        assert_eq!((done[failed].wr_id, done[failed].status), (WRITES, WcStatus::RemAccessErr));
        c.b.wait_for_error();
        for wc in &done[failed + 1..] {
            assert_eq!(wc.status, WcStatus::WrFlushErr, "behind the failure: {wc:?}");
            let range = 8 * wc.wr_id as usize..8 * wc.wr_id as usize + 8;
            assert_eq!(
                memory(range.clone()),
                before[range],
                "write {} was flushed, and carried out",
                wc.wr_id
            );
        }
    }
}

/// A peer with its memory is destroyed while another thread writes to it: the writer gets an error and an event.
pub(super) fn peer_destroyed_during_writes_fails_them(env: &Env) {
    for _ in 0..20 {
        let Conn { a, b } = Conn::new(env);
        let remote = b.host.remote(0);
        let is_gone = Arc::new(AtomicBool::new(false));
        let gone = is_gone.clone();
        let writer = Box::new(move || {
            let mut after = 0;
            for i in 0.. {
                // The other thread may start late.
                after += u32::from(gone.load(Ordering::Relaxed));
                assert!(after < 1_000_000, "the peer is gone, and writes still succeed");
                post_patiently(&a, &SendWr::new(i, SendOp::Write(remote), &[a.host.sge(0, 512)]));
                if !a.next_sent().is_ok() {
                    a.waiter.disconnected(&a.cm, a.qp.num());
                    return a.wait_for_error();
                }
            }
        });
        let end = Box::new(move || {
            drop(b);
            is_gone.store(true, Ordering::Relaxed);
        });
        env.run_concurrently(vec![writer, end]);
    }
}

/// Several threads establish and end connections at the same time, through one listener.
pub(super) fn connections_from_several_threads_are_independent(env: &Env) {
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..3 {
        let env = env.clone();
        bodies.push(Box::new(move || {
            for _ in 0..30 {
                let setup = Setup::default();
                let (a, b) = (Endpoint::new(&env, &env.a, &setup), Endpoint::new(&env, &env.b, &setup));
                connect(&env, &a, &b, &setup);
                Conn { a, b }.check_traffic();
            }
        }));
    }
    env.run_concurrently(bodies);
}

/// Several threads create and drop objects at the same time.
pub(super) fn several_threads_create_and_drop_objects(env: &Env) {
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..4 {
        let env = env.clone();
        bodies.push(Box::new(move || {
            for _ in 0..200 {
                let end = Endpoint::new(&env, &env.a, &Setup { cqe: 16, len: 4096, ..Setup::default() });
                drop((end.another_qp(), end));
            }
        }));
    }
    env.run_concurrently(bodies);
}

/// A thread that sleeps for a completion is woken by another thread's request; a thread that sleeps for an event is
/// woken by the end of the connection.
pub(super) fn sleepers_are_woken(env: &Env) {
    let c = Arc::new(Conn::new(env));
    c.b.post_recv(1, &[c.b.host.sge(0, 8)]);
    let (sleeper, waker) = (c.clone(), c.clone());
    let sleep = Box::new(move || {
        expect_success(sleeper.b.next_received(), 1, WcOpcode::Recv);
        sleeper.b.waiter.disconnected(&sleeper.b.cm, sleeper.b.qp.num());
    });
    let wake = Box::new(move || {
        let a = &waker.a;
        // Long enough for the other thread to fall asleep.
        a.waiter.no_completion(&a.recv_cq, "nothing was sent");
        a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
        expect_success(a.next_sent(), 2, WcOpcode::Send);
        a.waiter.no_completion(&a.recv_cq, "nothing was sent");
        a.cm.disconnect(&a.qp).expect("disconnect");
    });
    env.run_concurrently(vec![sleep, wake]);
}

/// A thread that sleeps on a completion queue and polls memory is woken by every write with `NOTIFY`, even by a write
/// that comes while it falls asleep.
pub(super) fn notifying_writes_wake_sleepers(env: &Env) {
    if !env.a.attr().write_notify {
        return;
    }
    let c = Arc::new(Conn::new(env));
    let words = c.b.host.buf().clone();
    wake_sleepers(env, &c, words, |c, round| {
        let (op, word) = (SendOp::Write(c.b.host.remote(0)), round.to_ne_bytes());
        c.a.post(&SendWr::inline(round, op, &word).with(SendFlags::NOTIFY));
        expect_success(c.a.next_sent(), round, WcOpcode::Write);
    });
}

/// A thread that polls NIC memory is woken when the peer stores to it and then calls `notify`. If peers' memory cannot
/// be mapped, `notify` is refused.
pub(super) fn notify_calls_wake_sleepers(env: &Env) {
    let c = Arc::new(Conn::with_nic(env));
    if !env.a.attr().maps_peers {
        assert!(matches!(c.a.qp.notify(), Err(Error::Unsupported { .. })));
        return;
    }
    let far = c.b.nic.as_ref().expect("it is mapped by peers");
    let (words, there) = (far.buf().clone(), c.a.qp.map(far.remote(0), 8).expect("mapped"));
    wake_sleepers(env, &c, words, move |c, round| {
        there.word(0).expect("aligned").store(round, Ordering::Release);
        c.a.qp.notify().expect("the peer is notified");
    });
}

/// One end sleeps until its first word is the number of the round, which `write` sets from the other end.
fn wake_sleepers(env: &Env, c: &Arc<Conn>, words: Buf, write: impl Fn(&Conn, u64) + Send + 'static) {
    const ROUNDS: u64 = 400;
    let (sleeper, writer, host) = (c.clone(), c.clone(), env.a.host().clone());
    let seen = Arc::new(AtomicU64::new(0));
    let observed = seen.clone();
    words.fill(0);
    let sleep = Box::new(move || {
        let (b, word) = (&sleeper.b, words.word(0).expect("aligned"));
        for round in 1..=ROUNDS {
            let look = || {
                // On devices where only polls make progress, this makes it.
                assert_eq!(b.recv_cq.poll_one(), Ok(None));
                (word.load(Ordering::Acquire) >= round).then_some(())
            };
            let found = b.device.host().wait("a write that notifies", &b.recv_cq, b.waiter.deadline(), look);
            found.unwrap_or_else(|| panic!("write {round} woke no sleeper"));
            seen.store(round, Ordering::Release);
        }
    });
    let write = Box::new(move || {
        let a = &writer.a;
        let mut rng = host::Rng::new(3);
        for round in 1..=ROUNDS {
            // From no pause to long after the other thread has fallen asleep.
            let pause = host::Span::from_us([0, 1, 10, 60, 100, 300, 1000][rng.index(7)]);
            host.poll("a pause", host.after(pause), || None::<()>);
            write(&writer, round);
            let observed = || (observed.load(Ordering::Acquire) == round).then_some(());
            host.poll("the sleeper", a.waiter.deadline(), observed).expect("it woke");
        }
    });
    env.run_concurrently(vec![sleep, write]);
}

/// If the attributes guarantee an order, a thread that polls for the last byte of a write sees all of it, while another
/// thread writes.
pub(super) fn last_byte_seen_implies_whole_write(env: &Env) {
    let c = Arc::new(Conn::with_setup(env, &Setup { len: 64 << 10, nic: true, ..Setup::default() }));
    for nic in [false, true] {
        let region = if nic { c.b.nic.as_ref() } else { Some(&c.b.host) };
        if !region.is_some_and(|far| super::operations::write::can_poll(env, far)) {
            continue;
        }
        let turn = Arc::new(AtomicU64::new(0));
        let (reader, writer, taken) = (c.clone(), c.clone(), turn.clone());
        let waiter = env.waiter.clone();
        let sizes = [64_usize, 100, 4096, 50_000];
        const ROUNDS: u64 = 800;
        let read = Box::new(move || {
            let far = if nic { reader.b.nic.as_ref().expect("asked") } else { &reader.b.host };
            for round in 1..=ROUNDS {
                let len = sizes[round as usize % sizes.len()];
                let (byte, want) = (far.buf().byte(len - 1).expect("inside"), round as u8 | 1);
                let mark = if round % 2 == 0 { want ^ 0x80 } else { want };
                waiter.until("last byte", || (byte.load(Ordering::Acquire) == mark).then_some(()));
                let got = far.buf().to_vec(0..len).expect("inside");
                super::harness::check::assert_same_bytes(
                    "a write whose last byte was seen",
                    &got,
                    &vec![mark; len],
                );
                far.buf().fill(0);
                turn.store(round, Ordering::Release);
            }
        });
        let waiter = env.waiter.clone();
        let write = Box::new(move || {
            let a = &writer.a;
            let far = if nic { writer.b.nic.as_ref().expect("asked") } else { &writer.b.host };
            for round in 1..=ROUNDS {
                let len = sizes[round as usize % sizes.len()];
                let want = round as u8 | 1;
                let mark = if round % 2 == 0 { want ^ 0x80 } else { want };
                a.host.buf().write(0, &vec![mark; len]).expect("inside");
                a.post(&SendWr::new(round, SendOp::Write(far.remote(0)), &[a.host.sge(0, len as u32)]));
                expect_success(a.next_sent(), round, WcOpcode::Write);
                waiter.until("reader", || (taken.load(Ordering::Acquire) == round).then_some(()));
            }
        });
        env.run_concurrently(vec![read, write]);
    }
}

/// One wait sleeps on completions, connection events and a descriptor of the program, and ends with each of these.
pub(super) fn one_wait_for_several_sources(env: &Env) {
    let c = Arc::new(Conn::new(env));
    let (reader, pipe) = rustix::pipe::pipe().expect("a pipe");
    c.b.post_recv(1, &[c.b.host.sge(0, 8)]);
    let (sleeper, waker, host) = (c.clone(), c.clone(), env.a.host().clone());
    let sleep = Box::new(move || {
        let b = &sleeper.b;
        let mut set = WaitSet::new();
        set.add(b.recv_cq.clone());
        set.add(b.cm.clone());
        set.add(b.device.clone());
        set.add(Descriptor(reader.try_clone().expect("a descriptor")));
        let mut seen = (false, false, false);
        while seen != (true, true, true) {
            let look = || {
                let before = seen;
                seen.0 |= b.recv_cq.poll_one().expect("no overrun").is_some_and(|wc| wc.is_ok());
                seen.1 |= super::harness::check::readable(Some(std::os::fd::AsFd::as_fd(&reader)))
                    == Some(true)
                    && {
                        rustix::io::read(&reader, &mut [0; 1]).expect("readable");
                        true
                    };
                seen.2 |= matches!(b.cm.poll_event(), Some(verbs::CmEvent::Disconnected { .. }));
                (seen != before).then_some(())
            };
            let found = b.device.host().wait("several sources", &set, b.waiter.deadline(), look);
            found.unwrap_or_else(|| panic!("of completion, descriptor and event were seen: {seen:?}"));
        }
    });
    let wake = Box::new(move || {
        let (a, pause) =
            (&waker.a, || host.poll("a pause", host.after(host::Span::from_ms(3)), || None::<()>));
        pause();
        a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, 8)]));
        expect_success(a.next_sent(), 2, WcOpcode::Send);
        pause();
        rustix::io::write(&pipe, &[1]).expect("room in a pipe");
        pause();
        a.cm.disconnect(&a.qp).expect("disconnect");
        // The writing end stays open until the other thread has finished.
        a.waiter.disconnected(&a.cm, a.qp.num());
        drop(pipe);
    });
    env.run_concurrently(vec![sleep, wake]);
}

/// A thread that sleeps for an asynchronous event is woken by it.
pub(super) fn asynchronous_events_wake_sleepers(env: &Env) {
    let c = Arc::new(Conn::new(env));
    // This thread keeps the queue pair: some devices report no event for a destroyed one.
    let (b, deadline) = (c.clone(), env.waiter.deadline());
    let sleep = Box::new(move || {
        let event = b.b.device.get_async_event(deadline);
        assert_eq!(event, Ok(verbs::AsyncEvent::QpAccessError { qp_num: b.b.qp.num() }));
    });
    let violate = Box::new(move || {
        let a = &c.a;
        a.waiter.no_completion(&a.recv_cq, "nothing was sent");
        let mut remote = c.b.host.remote(0);
        remote.rkey ^= 0x55;
        a.post(&SendWr::new(1, SendOp::Write(remote), &[a.host.sge(0, 8)]));
        assert!(!a.next_sent().is_ok());
    });
    env.run_concurrently(vec![sleep, violate]);
}
