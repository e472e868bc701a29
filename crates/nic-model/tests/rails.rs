//! Rails of modelled cards in virtual time: the conformance suite, each test twice with equal traces; traffic
//! during which a cable is cut, for many seeds; and machines that die while they connect.

#[path = "rails/machine_death.rs"]
mod machine_death;
#[path = "support/rails.rs"]
mod rails_support;

use conformance::{Body, Fixture};
use nic_rails::Engine;
use rails_support::{Load, Pair, storm};
use verbs::host::world::FiberKind;

/// Seeds of storms.
const STORM_SEEDS: u64 = 150;

struct OnRails(&'static str, Engine);

impl Fixture for OnRails {
    fn run(&self, body: Body) {
        let pair = Pair::new(self.0).served(self.1);
        let once = pair.run(body).unwrap_or_else(|failure| panic!("{failure}"));
        let again = pair.run(body).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(once, again, "the same seed gave another world");
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        match test {
            // With threads they fail immediately, and no other bytes are placed.
            "remote_violations::long_message_is_checked_before_it_is_written"
            | "large::a_large_message_out_of_bounds"
                if self.1 == Engine::Callers =>
            {
                Some("stripes are checked one by one, like segments of iWARP")
            }
            _ => None,
        }
    }
}

/// Two cards of one port.
mod cards {
    conformance::tests!(super::OnRails("connectx-multihca", super::Engine::Callers), threads);
}

/// Two cards of one port, with a rank for each.
mod cards_in_threads {
    conformance::tests!(super::OnRails("connectx-multihca", super::Engine::Threads), threads);
}

/// Two ports of one card.
mod ports {
    conformance::tests!(super::OnRails("connectx-multiport", super::Engine::Callers), threads);
}

/// Storms of many seeds.
fn storms(load: Load) {
    let (mut failed, mut lost) = (Vec::new(), 0);
    for seed in 1..=STORM_SEEDS {
        match storm(seed, load, FiberKind::Coroutine) {
            Ok((_, rails)) => lost += u64::from(rails > 0),
            Err(why) => failed.push(why),
        }
    }
    assert!(lost > STORM_SEEDS / 2, "in {lost} storms only has a rail been lost");
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Goal: a cut cable, possibly repaired later, loses no byte and no completion.
#[test]
fn cut_cable_loses_no_byte_and_no_completion() {
    storms(Load::Traffic);
}

/// Goal: a cut cable loses no message and no receive where several queue pairs share receives.
#[test]
fn cut_cable_loses_no_shared_receive() {
    storms(Load::Shared);
}

/// Goal: the seed determines everything. Method: the same storm again, and with a thread per rank.
#[test]
fn seed_determines_everything() {
    for (seed, load) in (1..=4).flat_map(|seed| [(seed, Load::Traffic), (seed, Load::Shared)]) {
        let once = storm(seed, load, FiberKind::Coroutine).expect("it passes");
        assert_eq!(storm(seed, load, FiberKind::Coroutine), Ok(once), "seed {seed}");
        assert_eq!(storm(seed, load, FiberKind::Thread), Ok(once), "seed {seed}, in threads");
    }
}
