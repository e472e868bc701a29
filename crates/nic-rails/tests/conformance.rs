//! The conformance suite of `verbs` on rails: two iWARP NICs, and two shared-memory NICs, as one device.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use conformance::{Body, Env, Fixture};
use nic_rails::{Engine, RailsConfig};
use verbs::{Device, host::Host};

/// Opens one rail of a device.
type OpenRail = fn(&Host, u8) -> Device;

/// Two devices of two rails each in this process.
struct Rails {
    open: OpenRail,
    stripe_min: u64,
    engine: Engine,
}

impl Fixture for Rails {
    fn run(&self, body: Body) {
        let host = host::real::host();
        let open = || {
            let config =
                RailsConfig { stripe_min: self.stripe_min, engine: self.engine, ..RailsConfig::default() };
            nic_rails::open(vec![(self.open)(&host, 1), (self.open)(&host, 2)], &config).expect("rails")
        };
        body(
            &Env::new(open(), open(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
                .slow(3)
                .large_bytes(256 << 20),
        );
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        match test {
            "remote_violations::long_message_is_checked_before_it_is_written"
            | "large::a_large_message_out_of_bounds" => {
                Some("stripes are checked one by one, like segments of iWARP")
            }
            _ => None,
        }
    }
}

fn iwarp_rail(host: &Host, side: u8) -> Device {
    let bind = Some(IpAddr::from([127, 0, 0, side]));
    nic_iwarp::open(host, &nic_iwarp::IwarpConfig { bind, ..nic_iwarp::IwarpConfig::default() })
        .expect("an iWARP device")
}

fn shm_rail(host: &Host, _side: u8) -> Device {
    nic_shm::open(host, &nic_shm::ShmConfig::default()).expect("a shared-memory device")
}

/// Nearly all writes and reads are striped.
mod on_iwarp {
    use super::{Engine, Rails};
    conformance::tests!(
        Rails { open: super::iwarp_rail, stripe_min: 1024, engine: Engine::Callers },
        threads
    );
}

mod on_shm {
    use super::{Engine, Rails};
    conformance::tests!(
        Rails { open: super::shm_rail, stripe_min: 16 << 10, engine: Engine::Callers },
        threads
    );
}

mod on_iwarp_in_threads {
    use super::{Engine, Rails};
    conformance::tests!(
        Rails { open: super::iwarp_rail, stripe_min: 1024, engine: Engine::Threads },
        threads
    );
}
