//! The conformance suite of `verbs` on devices that are checked: a program that is checked sees the same NIC, whatever it does wrong.

use conformance::{Body, Env, Fixture};
use nic_check::CheckConfig;
use verbs::{Device, host};

/// A device that is checked in its strict form, over `shm` or `iwarp`.
struct Checked {
    is_iwarp: bool,
}

fn open(checked: &Checked) -> Device {
    let host = host::real::host();
    let below = if checked.is_iwarp {
        nic_iwarp::open(&host, &nic_iwarp::IwarpConfig::default())
    } else {
        nic_shm::open(&host, &nic_shm::ShmConfig::default())
    };
    // The suite makes many mistakes on purpose; their findings are not its output.
    let log = std::env::temp_dir().join(format!("nicety-conformance-{}.check", std::process::id()));
    let config = CheckConfig { is_strict: true, log: Some(log.clone()), ..CheckConfig::default() };
    let device = nic_check::open(&below.expect("a device"), &config).expect("a device that is checked");
    let _ = std::fs::remove_file(log);
    device
}

impl Fixture for Checked {
    fn run(&self, body: Body) {
        let addr = "127.0.0.1:0".parse().expect("an address");
        body(&Env::new(open(self), open(self), addr));
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        match test {
            "remote_violations::long_message_is_checked_before_it_is_written"
            | "large::a_large_message_out_of_bounds"
                if self.is_iwarp =>
            {
                Some("iWARP checks a message segment by segment")
            }
            _ => None,
        }
    }
}

mod shm {
    conformance::tests!(super::Checked { is_iwarp: false }, threads);
}

mod iwarp {
    conformance::tests!(super::Checked { is_iwarp: true }, threads);
}
