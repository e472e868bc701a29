//! Cuts at many points in the middle of traffic: nothing is lost or duplicated, and completions stay exact.

use std::net::{IpAddr, SocketAddr};

use conformance::shared::{self, SharedTraffic};
use conformance::traffic::{self, Traffic};
use nic_rails::Engine;

use crate::sockets::{Break, break_all};
use crate::{env, one_at_a_time, rail_events};

/// What happens to a rail, and how the ends behave.
struct CutScenario {
    net: u8,
    seed: u64,
    /// The rail's number, from 1.
    rail: u8,
    how: Break,
    /// It is cut when this many requests have completed, and again after as many more.
    when: u64,
    times: usize,
    sleeps: bool,
}

impl CutScenario {
    /// Runs traffic until all is complete and the rail has been reconnected each time. Returns the events of both ends.
    fn run(&self, requests: u64) -> [String; 2] {
        let engine = if self.seed.is_multiple_of(5) { Engine::Threads } else { Engine::Callers };
        let env = env(self.net, engine);
        let (mut cuts, mut due, mut events) = (0, self.when, [String::new(), String::new()]);
        let ip = IpAddr::from([127, 0, self.net, self.rail]);
        let mut meanwhile = |done: u64| {
            for (events, device) in events.iter_mut().zip([&env.a, &env.b]) {
                events.push_str(&rail_events(device));
            }
            let whole = events.iter().all(|events| events.matches('+').count() == cuts);
            if whole && cuts < self.times && done >= due {
                let ends = break_all(ip, self.how, |at| at == (self.seed % 2) as usize);
                assert!(ends > 0, "nothing was cut");
                (cuts, due) = (cuts + 1, done + self.when);
                return false;
            }
            whole && cuts == self.times
        };
        let detour = |addr: SocketAddr| addr;
        let (seed, longest, sleeps) = (self.seed, 32 << 10, self.sleeps);
        let meanwhile = &mut meanwhile;
        traffic::run(&env, &mut Traffic { seed, requests, longest, meanwhile, detour: &detour, sleeps });
        events
    }
}

/// Goal: the traffic itself is correct. Method: nothing is cut.
#[test]
fn traffic_without_cuts_loses_nothing() {
    let _gate = one_at_a_time();
    for seed in 0..4 {
        let (rail, how) = (1, Break::Reset);
        let cut = CutScenario { net: 1, seed, rail, how, when: 0, times: 0, sleeps: seed % 2 == 1 };
        assert_eq!(cut.run(300), ["", ""]);
    }
}

/// Goal: either rail may fail at any time, and is used again once it is reconnected. Method: each is cut at many
/// points, in two ways, with pollers and with sleepers.
#[test]
fn cut_rail_is_reconnected() {
    let _gate = one_at_a_time();
    for seed in 0..60 {
        let rail = 1 + (seed / 2 % 2) as u8;
        let how = if seed / 4 % 2 == 0 { Break::Reset } else { Break::Shut };
        let cut =
            CutScenario { net: 2, seed, rail, how, when: seed * 4 % 230, times: 1, sleeps: seed % 3 == 2 };
        let whole = format!("-{rail}+{rail}");
        assert_eq!(cut.run(100), [whole.clone(), whole], "seed {seed}");
    }
}

/// Goal: a reconnected rail can fail again. Method: the same rail is cut four times in one connection.
#[test]
fn repeatedly_cut_rail_is_reconnected() {
    let _gate = one_at_a_time();
    for seed in 0..8 {
        let rail = 1 + (seed / 2 % 2) as u8;
        let cut =
            CutScenario { net: 3, seed, rail, how: Break::Reset, when: 50, times: 4, sleeps: seed % 3 == 2 };
        let whole = format!("-{rail}+{rail}").repeat(4);
        assert_eq!(cut.run(100), [whole.clone(), whole], "seed {seed}");
    }
}

/// Goal: a rail that is cut under a shared receive queue costs no message and no receive, whether it is cut for all of
/// its queue pairs or for one. Method: either rail is cut at many points, all connections or one of them.
#[test]
fn cut_rail_of_a_shared_receive_queue_is_reconnected() {
    const SENDERS: u64 = 3;
    let _gate = one_at_a_time();
    for seed in 0..40 {
        let engine = if seed % 5 == 0 { Engine::Threads } else { Engine::Callers };
        let env = env(7, engine);
        let ip = IpAddr::from([127, 0, 7, if seed % 4 == 3 { 2 } else { 1 }]);
        let how = if seed / 4 % 2 == 0 { Break::Reset } else { Break::Shut };
        let (mut is_cut, mut events) = (false, [String::new(), String::new()]);
        let mut meanwhile = |delivered: u64| {
            for (events, device) in events.iter_mut().zip([&env.a, &env.b]) {
                events.push_str(&rail_events(device));
            }
            if !is_cut && delivered >= seed * 7 % 200 {
                // Both ends of each connection are in this process.
                let one = (seed % 2 == 1).then_some((seed / 2 % (2 * SENDERS)) as usize);
                assert!(break_all(ip, how, |at| one.is_none_or(|one| at == one)) > 0, "nothing was cut");
                is_cut = true;
            }
            let counts =
                events.each_ref().map(|events| (events.matches('-').count(), events.matches('+').count()));
            is_cut && counts.iter().all(|&(downs, ups)| downs > 0 && (downs, ups) == (counts[0].0, downs))
        };
        shared::run(
            &env,
            &mut SharedTraffic { seed, senders: SENDERS, messages: 100, meanwhile: &mut meanwhile },
        );
    }
}
