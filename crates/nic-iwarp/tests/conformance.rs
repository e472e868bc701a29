//! The conformance suite of `verbs` on the iWARP NIC, over the loopback address.

use std::net::{Ipv4Addr, SocketAddr};

use conformance::{Body, Env, Fixture};
use nic_iwarp::{FpduSize, IwarpConfig, Mpa, open};

/// Two devices with the same configuration in this process.
struct Loopback(fn() -> IwarpConfig);

impl Fixture for Loopback {
    fn run(&self, body: Body) {
        let host = host::real::host();
        let config = (self.0)();
        let open = || open(&host, &config).expect("an iWARP device");
        let env = Env::new(open(), open(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        // A million small FPDUs show no more than a tenth as many, and take too long on a loaded machine.
        let small = matches!(config.fpdu, FpduSize::Bytes(_));
        body(&if small { env.large_bytes(100 << 20) } else { env });
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        known_failure(test)
    }
}

fn known_failure(test: &str) -> Option<&'static str> {
    match test {
        "remote_violations::long_message_is_checked_before_it_is_written"
        | "large::a_large_message_out_of_bounds" => Some(
            "DDP names a place for each segment and nowhere the length of a message, so a write is checked segment by \
             segment (RFC 5041 section 5.2)",
        ),
        _ => None,
    }
}

/// The default configuration.
mod plain {
    conformance::tests!(super::Loopback(super::IwarpConfig::default), threads);
}

/// With CRCs.
mod crc {
    fn config() -> super::IwarpConfig {
        super::IwarpConfig { crc: true, ..super::IwarpConfig::default() }
    }

    conformance::tests!(super::Loopback(config), threads);
}

/// Revision 1 of MPA, and small FPDUs of an odd size.
mod old {
    fn config() -> super::IwarpConfig {
        let (mpa, fpdu) = (super::Mpa::V1, super::FpduSize::Bytes(1001));
        super::IwarpConfig { mpa, fpdu, ..super::IwarpConfig::default() }
    }

    conformance::tests!(super::Loopback(config), threads);
}
