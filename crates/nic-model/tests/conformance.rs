//! The conformance suite of `verbs` on modelled cards, in virtual time. Each test runs twice, and both runs
//! must have the same events.

mod support;

use conformance::{Body, Fixture};
use support::ModelSetup;

/// A card of this machine in each of two nodes.
struct Model(&'static str);

impl Fixture for Model {
    fn run(&self, body: Body) {
        let play = ModelSetup::new(self.0);
        let once = play.run(body).unwrap_or_else(|failure| panic!("{failure}"));
        let again = play.run(body).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(once, again, "the same seed gave another world");
    }
}

mod nicmem {
    conformance::tests!(super::Model("mt23108-nicmem"), threads);
}

/// Other properties: one processor, descriptors written by the processor, a message after a write with
/// immediate data, no atomics.
mod myrinet {
    conformance::tests!(super::Model("myrinet-gm"), threads);
}

/// Small packets, data in descriptors, no shared receives, no atomics.
mod quadrics {
    conformance::tests!(super::Model("quadrics-elan3"), threads);
}

/// One of two cards of a machine, which has no NIC memory.
mod connectx_card {
    conformance::tests!(super::Model("connectx-multihca@1"), threads);
}

/// One of two ports of a card.
mod connectx_port {
    conformance::tests!(super::Model("connectx-multiport@1"), threads);
}

/// The whole of a card with one port.
mod connectx_single {
    conformance::tests!(super::Model("connectx-single"), threads);
}

/// A write with immediate data that becomes a write and a message, no shared receives, no atomics.
mod t3b {
    conformance::tests!(super::Model("t3b"), threads);
}

/// Data transported by the kernel's TCP.
mod t3b_sockets {
    conformance::tests!(super::Model("t3b-sockets"), threads);
}

/// The other machines only differ in values: some groups are enough.
mod others {
    use super::Model;
    use conformance::{all, threaded};

    fn run_groups(machine: &'static str, groups: &[&str]) {
        for test in all().iter().chain(threaded()).filter(|test| groups.contains(&test.group)) {
            test.run(&Model(machine));
        }
    }

    #[test]
    fn vapi_machine_passes_groups() {
        run_groups(
            "mt23108-vapi",
            &["objects", "send_recv", "write", "atomics", "order", "rnr", "notify", "threads"],
        );
    }

    #[test]
    fn ibal_machine_passes_groups() {
        run_groups("mt23108-ibal", &["memory", "read", "srq", "connect", "peer_loss", "random"]);
    }
}
