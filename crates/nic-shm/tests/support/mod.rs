//! Test support of the shared-memory NIC, in addition to what all NICs share.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod agent;
#[path = "../../../nic-util/tests/support/mod.rs"]
mod shared;

use nic_shm::{CopyPath, ShmConfig, open};
use verbs::Device;

use shared::endpoint::Endpoint;
pub(crate) use shared::*;

/// A device with default settings, except for its copy path.
#[track_caller]
pub(crate) fn device(copy: CopyPath) -> Device {
    let config = ShmConfig { copy, ..ShmConfig::default() };
    open(&host::real::host(), &config).expect("a shared-memory device")
}

impl Endpoint {
    /// Creates an endpoint on its own device with regions of `len` bytes, between guard bytes.
    #[track_caller]
    pub(crate) fn new(copy: CopyPath, len: usize) -> Self {
        Self::on(&device(copy), len)
    }
}
