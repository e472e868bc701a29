//! The host, whose clock programs see and in which calls wait.

use std::sync::OnceLock;

use host::Host;

/// The host, whose clock programs see.
pub(crate) fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(host::real::host)
}
