//! The conformance suite of `verbs` on modelled cards, in virtual time. Every test runs twice, and both runs must be the
//! same, event by event.

mod support;

use support::Play;
use verbs::conformance::{Body, Fixture};

/// A card of this machine in each of two nodes.
struct Model(&'static str);

impl Fixture for Model {
    fn run(&self, body: Body) {
        let play = Play::new(self.0);
        let once = play.run(body).unwrap_or_else(|failure| panic!("{failure}"));
        let again = play.run(body).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(once, again, "the same seed gave another world");
    }
}

mod nicmem {
    verbs::conformance!(super::Model("mt23108-nicmem"), threads);
}
