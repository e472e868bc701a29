//! The conformance suite of `verbs` on devices that record: a program that is traced sees the same NIC.

use std::path::PathBuf;

use conformance::{Body, Env, Fixture};
use nic_trace::TraceConfig;
use trace::format::RECORDS_MIN;
use verbs::{Device, host};

/// A device that records, over `shm` or `iwarp`; all of the process into one file.
struct Traced {
    is_iwarp: bool,
    has_file: bool,
}

fn file() -> PathBuf {
    let name = format!("nicety-conformance-{}.trace", std::process::id());
    std::env::temp_dir().join(name)
}

fn open(traced: &Traced) -> Device {
    let host = host::real::host();
    let below = if traced.is_iwarp {
        nic_iwarp::open(&host, &nic_iwarp::IwarpConfig::default())
    } else {
        nic_shm::open(&host, &nic_shm::ShmConfig::default())
    };
    let file = traced.has_file.then(|| (file(), RECORDS_MIN));
    let device = nic_trace::open(&below.expect("a device"), &TraceConfig { file, has_control: false });
    let device = device.expect("a device that records");
    // The mapping stays; the file need not.
    let _ = std::fs::remove_file(self::file());
    device
}

impl Fixture for Traced {
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
    conformance::tests!(super::Traced { is_iwarp: false, has_file: true }, threads);
}

mod shm_counted {
    conformance::tests!(super::Traced { is_iwarp: false, has_file: false }, threads);
}

mod iwarp {
    conformance::tests!(super::Traced { is_iwarp: true, has_file: true }, threads);
}
