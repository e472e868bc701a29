//! The host: its clock is the one of `MPI_Wtime`, and blocking calls wait through it.

use std::sync::OnceLock;

use host::Host;

/// The host that provides the clock.
pub(crate) fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(host::real::host)
}
