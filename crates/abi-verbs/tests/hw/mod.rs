//! The NIC `hw` with our own library as its libibverbs and librdmacm: the card that is always there.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::PathBuf;
use std::sync::OnceLock;

use conformance::{Body, Env, Fixture};
use nic_hw::HwConfig;

#[path = "../common/mod.rs"]
pub(crate) mod common;
pub(crate) mod ends;

/// A test, and why the card fails it.
pub(crate) type Difference = (&'static str, &'static str);

/// On every device of our library.
pub(crate) const NO_EVENT: Difference = (
    "connect::request_is_not_alive_after_connecting_side_left",
    "our librdmacm reports no event for a request whose sender has left",
);

/// Two `hw` devices on the first device of our library.
pub(crate) struct OwnCard {
    /// What `NICETY_VERBS_DEVICES` and `NICETY_VERBS_KIND` say; the same in all tests of a program.
    pub(crate) device: &'static str,
    pub(crate) kind: &'static str,
    /// The address that it listens at.
    pub(crate) addr: &'static str,
    /// Tests that it is known to fail, with the reason.
    pub(crate) differences: &'static [Difference],
}

impl OwnCard {
    /// The configuration that opens it.
    pub(crate) fn config(&self) -> HwConfig {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            // SAFETY: all tests begin here, and nothing reads the environment before: the library reads it when it lists
            // its devices.
            unsafe {
                std::env::set_var("NICETY_VERBS_DEVICES", self.device);
                std::env::set_var("NICETY_VERBS_KIND", self.kind);
            }
            common::library()
        });
        HwConfig { lib_path: Some(library.clone()), ..HwConfig::default() }
    }
}

impl Fixture for OwnCard {
    fn run(&self, body: Body) {
        let (host, config) = (host::real::host(), self.config());
        let open = || nic_hw::open(&host, &config).expect("our own library has a device");
        let addr = self.addr.parse().expect("an address");
        body(&Env::new(open(), open(), addr).large_bytes(64 << 20));
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        self.differences.iter().find(|(name, _)| *name == test).map(|(_, why)| *why)
    }
}
