//! Tests of virtual time: clocks, waiting, determinism under both factories, successful and failing ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::{EventCount, Host, Span, Step, Time};

const US: u64 = 1_000_000;

fn at(us: u64) -> Time {
    Time::from_ps(us * US)
}

/// A wire: a message arrives a microsecond later in the inbox of a node.
struct Wire {
    timeline: Timeline,
    nodes: Vec<Node>,
    id: Mutex<Option<HandlerId>>,
    inbox: Vec<Mutex<VecDeque<u64>>>,
}

impl Wire {
    fn new(world: &World, nodes: &[Node]) -> Arc<Self> {
        let wire = Arc::new(Self {
            timeline: world.timeline(),
            nodes: nodes.to_vec(),
            id: Mutex::new(None),
            inbox: nodes.iter().map(|_| Mutex::new(VecDeque::new())).collect(),
        });
        *wire.id.lock().unwrap() = Some(wire.timeline.add_handler(wire.clone()));
        wire
    }

    fn send(&self, to: usize, value: u64) {
        let id = self.id.lock().unwrap().expect("added");
        let when = self.timeline.now() + Span::from_us(1) + Span::from_ns(to as u64 % 7);
        self.timeline.schedule(when, id, (to as u64) << 32 | value);
    }

    fn receive(&self, at: usize) -> u64 {
        let host = self.nodes[at].host();
        let attempt = || {
            self.nodes[at].sync();
            host.charge(Span::from_ns(20));
            self.inbox[at].lock().unwrap().pop_front()
        };
        host.wait("receive", &EventCount::new(), None, attempt).expect("no deadline")
    }
}

impl EventHandler for Wire {
    fn on_event(&self, _now: Time, token: u64) {
        let to = (token >> 32) as usize;
        self.inbox[to].lock().unwrap().push_back(token & 0xffff_ffff);
        self.nodes[to].signal();
    }
}

/// Rounds of a dissemination barrier among `fibers`; each computes, charges, sends and waits.
fn barriers(config: Config, fibers: usize, rounds: u64) -> Ended {
    let mut world = World::new(config);
    let nodes: Vec<Node> = (0..fibers).map(|i| world.add_node(&format!("node {i}"))).collect();
    let wire = Wire::new(&world, &nodes);
    for (me, node) in nodes.iter().enumerate() {
        let (wire, host) = (wire.clone(), node.host());
        let body = move || {
            for _ in 0..rounds {
                let mut distance = 1;
                while distance < fibers {
                    host.charge(Span::from_ns(200));
                    wire.send((me + distance) % fibers, 7);
                    assert_eq!(wire.receive(me), 7);
                    distance *= 2;
                }
            }
        };
        world.spawn(&format!("rank {me}"), &[node], body).expect("a fiber");
    }
    world.run().expect("an end")
}

fn thread() -> Config {
    Config { fiber_kind: FiberKind::Thread, ..Config::default() }
}

#[test]
fn equal_seeds_give_equal_traces_with_both_kinds_of_fibers() {
    let once = barriers(Config::default(), 32, 10);
    assert_eq!(barriers(Config::default(), 32, 10), once);
    assert_eq!(barriers(thread(), 32, 10), once);
    assert_ne!(barriers(Config { seed: 2, ..Config::default() }, 32, 10).trace, once.trace);
}

/// Runs one fiber on one node.
fn alone(config: Config, body: impl FnOnce(&Node, &Host) + Send + 'static) -> Result<Ended, Failure> {
    let mut world = World::new(config);
    let node = world.add_node("node");
    let own = node.clone();
    world.spawn("rank", &[&node], move || body(&own, &own.host())).expect("a fiber");
    world.run()
}

#[test]
fn charging_moves_the_own_clock_and_ends_the_world_later() {
    let ended = alone(Config::default(), |_, host| {
        assert_eq!(host.now(), Time::ZERO);
        host.charge(Span::from_us(3));
        assert_eq!(host.now(), at(3));
    });
    assert_eq!(ended.expect("an end").time, at(3));
}

/// Goal: polling costs no events, and sees the change when a real poller would. Method: the change happens at 10 us;
/// each poll takes 3 us, so the first one that sees it begins at 12 us.
#[test]
fn wait_resumes_at_first_poll_after_the_change() {
    struct Set(Node, AtomicU64);
    impl EventHandler for Set {
        fn on_event(&self, _now: Time, _token: u64) {
            self.1.store(1, Ordering::Relaxed);
            self.0.signal();
        }
    }
    for config in [Config::default(), thread()] {
        let ended = alone(config, |node, host| {
            let set = Arc::new(Set(node.clone(), AtomicU64::new(0)));
            let timeline = node.timeline();
            timeline.schedule(at(10), timeline.add_handler(set.clone()), 0);
            let attempt = || {
                node.sync();
                let seen = set.1.load(Ordering::Relaxed) == 1;
                host.charge(Span::from_us(3));
                seen.then_some(())
            };
            host.poll("a change", None, attempt).expect("no deadline");
            assert_eq!(host.now(), at(15), "seen by the poll from 12 to 15 us");
        })
        .expect("an end");
        assert!(ended.events < 10, "{} events", ended.events);
    }
}

/// Goal: a caller that only tests, in its own loop, lets other fibers run and pays for each poll. Method: another fiber
/// sets a word at 10 us; polls cost 4 us.
#[test]
fn charge_poll_lets_time_pass() {
    for config in [Config::default(), thread()] {
        let ended = alone(config, |node, host| {
            node.set_costs(HostCosts { poll: Span::from_us(4), ..HostCosts::default() });
            let word = Arc::new(AtomicU64::new(0));
            let (set, own) = (word.clone(), host.clone());
            let body = move || {
                own.charge(Span::from_us(10));
                own.charge_poll();
                set.store(1, Ordering::Relaxed);
            };
            let task = host.spawn("setter", None, body).expect("a fiber");
            let mut polls = 0;
            while word.load(Ordering::Relaxed) == 0 {
                host.charge_poll();
                polls += 1;
            }
            assert_eq!((polls, host.now()), (4, at(16)), "the word was set at 14 us");
            task.join();
        });
        ended.expect("an end");
    }
}

#[test]
fn deadlines_end_waits_and_leave_no_timers_behind() {
    let ended = alone(Config::default(), |_, host| {
        for _ in 0..1000 {
            let until = host.after(Span::from_us(5));
            assert!(host.wait("nothing", &EventCount::new(), until, || None::<()>).is_none());
            assert!(host.now() >= until.expect("a time"));
            // A wait that ends immediately must not leave its deadline in the queue.
            assert!(
                host.wait("all", &EventCount::new(), host.after(Span::from_secs(9)), || Some(())).is_some()
            );
        }
        assert_eq!(host.now(), at(5000));
    })
    .expect("an end");
    assert!(ended.events < 5000, "{}", ended.events);
}

#[test]
fn deadlock_is_reported() {
    for config in [Config::default(), thread()] {
        let failure = alone(config, |_, host| {
            host.charge(Span::from_us(2));
            host.wait("Cq::wait", &EventCount::new(), None, || None::<()>);
        })
        .expect_err("a deadlock");
        let Failure::Deadlock { waiting, .. } = &failure else { panic!("{failure}") };
        assert_eq!(waiting.len(), 1);
        let text = failure.to_string();
        assert!(text.contains("deadlock") && text.contains("rank in Cq::wait since 2"), "{text}");
    }
}

#[test]
fn panic_is_a_failure_that_names_the_fiber() {
    for config in [Config::default(), thread()] {
        let failure = alone(config, |_, _| panic!("on purpose: {}", 7)).expect_err("a panic");
        assert_eq!(failure, Failure::Panicked { fiber: "rank".into(), message: "on purpose: 7".into() });
    }
}

#[test]
fn endless_world_fails_at_its_event_limit() {
    let config = Config { max_events: 1000, ..Config::default() };
    let failure = alone(config, |_, host| {
        while host
            .wait("a moment", &EventCount::new(), host.after(Span::from_ns(50)), || None::<()>)
            .is_none()
        {}
    })
    .expect_err("no end");
    assert!(matches!(failure, Failure::EventLimit { .. }), "{failure}");
}

#[test]
fn spawned_task_runs_concurrently_and_is_joined() {
    for config in [Config::default(), thread()] {
        alone(config, |node, host| {
            let (other, done) = (node.host(), Arc::new(AtomicU64::new(0)));
            let mark = done.clone();
            let task = host
                .spawn("beside", None, move || {
                    other.charge(Span::from_us(50));
                    mark.store(1, Ordering::Relaxed);
                })
                .expect("a task");
            host.charge(Span::from_us(20));
            assert_eq!(host.now(), at(20), "its own processor");
            task.join();
            assert_eq!(done.load(Ordering::Relaxed), 1);
            assert!(host.now() >= at(50));
        })
        .expect("an end");
    }
}

/// Goal: a task of a fiber on two machines is woken by both. Method: it waits for an event on the other one.
#[test]
fn spawned_task_shares_the_nodes_of_its_parent() {
    struct Set(Node, AtomicU64);
    impl EventHandler for Set {
        fn on_event(&self, _now: Time, _token: u64) {
            self.1.store(1, Ordering::Relaxed);
            self.0.signal();
        }
    }
    let mut world = World::new(Config::default());
    let (one, two) = (world.add_node("one"), world.add_node("two"));
    let (host, other) = (one.host(), two.clone());
    let body = move || {
        let set = Arc::new(Set(other.clone(), AtomicU64::new(0)));
        let timeline = other.timeline();
        timeline.schedule(at(10), timeline.add_handler(set.clone()), 0);
        let own = host.clone();
        let wait = move || {
            let attempt = || (set.1.load(Ordering::Relaxed) == 1).then_some(());
            own.poll("a change elsewhere", None, attempt).expect("no deadline");
            assert!(own.now() < at(11));
        };
        host.spawn("beside", None, wait).expect("a task").join();
    };
    world.spawn("rank", &[&one, &two], body).expect("a fiber");
    world.run().expect("an end");
}

/// Goal: the values of fibers are dropped however the world ends. Method: count drops of values on the stacks of fibers
/// that end, wait for ever, never begin to wait because another one panicked, or run on a node that dies.
#[test]
fn fibers_may_end_in_any_order() {
    struct Held(Arc<AtomicU64>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for config in [Config::default(), thread()] {
        let drops = Arc::new(AtomicU64::new(0));
        let mut world = World::new(config);
        let nodes: Vec<Node> = (0..4).map(|i| world.add_node(&format!("node {i}"))).collect();
        for (i, node) in nodes.iter().enumerate() {
            let (held, own, last) = (Held(drops.clone()), node.clone(), nodes[3].clone());
            let body = move || {
                let _held = held;
                let host = own.host();
                let sleep =
                    |us| host.wait("sleep", &EventCount::new(), host.after(Span::from_us(us)), || None::<()>);
                match i {
                    0 => drop(sleep(1)),
                    1 => drop(host.wait("for ever", &EventCount::new(), None, || None::<()>)),
                    2 => {
                        sleep(5);
                        last.kill();
                        assert!(last.is_dead());
                        sleep(5);
                        panic!("on purpose");
                    }
                    _ => {
                        sleep(10);
                        unreachable!("its node is dead");
                    }
                }
            };
            world.spawn(&format!("rank {i}"), &[node], body).expect("a fiber");
        }
        let failure = world.run().expect_err("a panic");
        assert!(failure.to_string().contains("rank 2 panicked: on purpose"), "{failure}");
        assert_eq!(drops.load(Ordering::Relaxed), 4);
    }
}

#[test]
fn shared_objects_belong_to_one_world() {
    let make = || Arc::new(AtomicU64::new(0));
    let (one, two) = (World::new(Config::default()), World::new(Config::default()));
    let first = one.timeline().shared_object("net", make);
    assert!(Arc::ptr_eq(&first, &one.timeline().shared_object("net", make)));
    assert!(!Arc::ptr_eq(&first, &one.timeline().shared_object("other", make)));
    assert!(!Arc::ptr_eq(&first, &two.timeline().shared_object("net", make)));
}

#[test]
fn copies_cost_what_the_node_sets() {
    alone(Config::default(), |node, host| {
        let costs = HostCosts { copy: Span::from_ns(100), copy_ps_per_byte: 1000.0, ..HostCosts::default() };
        node.set_costs(costs);
        host.charge_copy(4096);
        assert_eq!(host.now().as_ps(), 100_000 + 4_096_000);
        assert_eq!(host.clock(), crate::ClockKind::Virtual);
    })
    .expect("an end");
}

/// Goal: 16,384 fibers can be created, run and end, however long that takes.
#[test]
fn sixteen_thousand_fibers_run() {
    let ended = barriers(Config { stack: 64 << 10, ..Config::default() }, 16_384, 1);
    assert!(ended.events > 16_384 * 14 * 2);
}

/// Goal: each step of a library costs what the machine sets for it, and nothing by default.
#[test]
fn steps_cost_what_the_machine_sets() {
    let mut world = World::new(Config::default());
    let node = world.add_node("machine");
    let steps = [1, 20, 300, 4000, 50_000, 600_000].map(Span::from_ns);
    let host = node.host();
    let fiber = move || {
        host.charge_step(Step::Match, 1000);
        assert_eq!(host.now(), Time::ZERO, "steps are free until a machine says better");
        host.node().expect("a machine").set_costs(HostCosts { steps, ..HostCosts::default() });
        for (step, each) in Step::ALL.into_iter().zip(steps) {
            let before = host.now();
            host.charge_step(step, 3);
            assert_eq!(host.now() - before, each * 3, "{step:?}");
        }
    };
    world.spawn("rank", &[&node], fiber).expect("a fiber");
    world.run().expect("an end");
}

/// Goal: a wait costs a wake-up only if it slept, and a turn only where the same thread waited for another adapter
/// before. Method: two threads of one machine, each with adapters of its own.
#[test]
fn waits_cost_wake_ups_and_turns() {
    let mut world = World::new(Config::default());
    let node = world.add_node("machine");
    let [wake, turn] = [1000, 30_000].map(Span::from_ns);
    let steps = [Span::ZERO, Span::ZERO, Span::ZERO, Span::ZERO, wake, turn];
    node.set_costs(HostCosts { steps, ..HostCosts::default() });
    for thread in 0..2 {
        let host = node.host();
        let fiber = move || {
            let cost = |adapter, slept| {
                let before = host.now();
                host.charge_wait(adapter, slept);
                host.now() - before
            };
            let own = 10 * thread;
            assert_eq!(cost(own, false), Span::ZERO, "its first wait");
            assert_eq!(cost(own, true), wake);
            assert_eq!(cost(own + 1, false), turn);
            assert_eq!(cost(own, true), wake + turn);
        };
        world.spawn("thread", &[&node], fiber).expect("a fiber");
    }
    world.run().expect("an end");
}
