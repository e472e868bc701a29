//! The conformance suite of `verbs` on devices of faults without rules, and with rules that never fire, which take the
//! longer way through each call.

mod support;

use conformance::{Body, Env, Fixture};
use support::{Nic, faulty};
use verbs::host;

/// A device of faults over this NIC.
struct Faults(Nic, &'static [&'static str]);

/// Rules that wait for each call, and fire in no test.
const NEVER: &[&str] = &[
    "on=request nth=1000000000 status=RETRY_EXC_ERR",
    "on=recv nth=1000000000 delay=1s",
    "on=reg_mr nth=1000000000 error=ENOMEM",
    "on=established nth=1000000000 action=lose",
    "on=disconnected nth=1000000000 action=lose",
    "on=connect_request nth=1000000000 action=lose",
];

impl Fixture for Faults {
    fn run(&self, body: Body) {
        let host = host::real::host();
        let open = || faulty(self.0, &host, 0, self.1);
        let addr = "127.0.0.1:0".parse().expect("an address");
        body(&Env::new(open(), open(), addr));
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        match test {
            "remote_violations::long_message_is_checked_before_it_is_written"
            | "large::a_large_message_out_of_bounds"
                if self.0 == Nic::Iwarp =>
            {
                Some("iWARP checks a message segment by segment")
            }
            _ => None,
        }
    }
}

mod shm {
    conformance::tests!(super::Faults(super::Nic::Shm, &[]), threads);
}

mod shm_with_rules {
    conformance::tests!(super::Faults(super::Nic::Shm, super::NEVER), threads);
}

mod iwarp {
    conformance::tests!(super::Faults(super::Nic::Iwarp, super::NEVER), threads);
}
