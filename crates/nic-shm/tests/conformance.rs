//! Runs the conformance suite of `verbs` on the shared-memory NIC, once for each way to copy private memory.

use std::net::{Ipv4Addr, SocketAddr};

use conformance::{Body, Env, Fixture};
use nic_shm::{CopyPath, ShmConfig, open};

/// Two devices in this process, with this copy path.
struct Shm(CopyPath);

impl Fixture for Shm {
    fn run(&self, body: Body) {
        let host = host::real::host();
        let config = ShmConfig { copy: self.0, dm_size: None };
        let open = || open(&host, &config).expect("a shared-memory device");
        body(&Env::new(open(), open(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    }
}

mod direct {
    conformance::tests!(super::Shm(super::CopyPath::Auto), threads);
}

mod by_kernel {
    conformance::tests!(super::Shm(super::CopyPath::Kernel), threads);
}

mod by_service {
    conformance::tests!(super::Shm(super::CopyPath::Service), threads);
}
