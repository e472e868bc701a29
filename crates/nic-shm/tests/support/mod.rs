//! What the tests of the shared-memory NIC share, beside what the tests of all NICs do.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod agent;
#[path = "../../../nic-util/tests/support/mod.rs"]
mod shared;

use nic_shm::{CopyPath, ShmConfig, open};
use verbs::Device;

use shared::end::End;
pub(crate) use shared::*;

/// A device as the tests open it.
#[track_caller]
pub(crate) fn device(copy: CopyPath) -> Device {
    let config = ShmConfig { copy, ..ShmConfig::default() };
    open(&host::real::host(), &config).expect("a shared-memory device")
}

impl End {
    /// An end on its own device with regions of `len` bytes, between canaries.
    #[track_caller]
    pub(crate) fn new(copy: CopyPath, len: usize) -> Self {
        Self::on(&device(copy), len)
    }
}
