//! A world with two machines and one rank that runs on both and drives both ends of connections.

use std::net::SocketAddr;

use conformance::{Body, Env};
use nic_model::Config;
use verbs::host::world::{self, Ended, Failure, FiberKind, World};

/// Bytes of the largest messages: some thousand packets.
const LARGE_BYTES: u64 = 16 << 20;
/// Maximum number of events of a test: far more than any test needs.
const MAX_EVENTS: u64 = 100_000_000;

/// A modelled card with options, a seed, and the kind of ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelSetup {
    pub(crate) machine: &'static str,
    pub(crate) options: &'static [(&'static str, &'static str)],
    pub(crate) seed: u64,
    pub(crate) fiber_kind: FiberKind,
}

impl ModelSetup {
    pub(crate) fn new(machine: &'static str) -> Self {
        Self { machine, options: &[], seed: 1, fiber_kind: FiberKind::Coroutine }
    }

    /// Runs a test's body in a world of its own.
    pub(crate) fn run(&self, body: Body) -> Result<Ended, Failure> {
        let stack = 1 << 20;
        let config =
            world::Config { seed: self.seed, fiber_kind: self.fiber_kind, stack, max_events: MAX_EVENTS };
        let mut world = World::new(config);
        let (a, b) = (world.add_node("a"), world.add_node("b"));
        let config = Config::new(self.machine, self.options).expect("a machine");
        let hosts = (a.host(), b.host());
        world.spawn("driver", &[&a, &b], move || {
            let a = nic_model::open(&hosts.0, &config).expect("a card");
            let b = nic_model::open(&hosts.1, &config).expect("a card");
            let addr = SocketAddr::new(b.attr().port_addrs[0], 0);
            body(&Env::new(a, b, addr).large_bytes(LARGE_BYTES));
        })?;
        world.run()
    }
}
