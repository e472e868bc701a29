//! Limits of the system, and error texts for when they are too small.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbs::Error;

/// Raises the soft limit of descriptors to the hard limit, as connections need descriptors. Returns the
/// limit; `None` if there is none.
pub fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // If refused, the old limit stays; running out of descriptors is reported where it happens.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    getrlimit(Resource::Nofile).current
}

/// Default size of a device's NIC memory in bytes: half of the machine's memory, at least 64 MiB.
pub fn half_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram * u64::from(info.mem_unit) / 2).max(64 << 20)
}

/// The error for a device thread that could not be started. The system reports the same error for too many
/// threads and for a stack that does not fit, so each limit that is set is named.
pub fn no_thread(refused: std::io::Error) -> Error {
    let mut what = "cannot start the device's thread (are processes limited? see ulimit -u".to_owned();
    let sizes = [(Resource::As, "address space", "-v"), (Resource::Data, "data", "-d")];
    for (resource, name, flag) in sizes {
        if let Some(bytes) = getrlimit(resource).current {
            what += &format!("; {name} is limited to {bytes} bytes, see ulimit {flag}");
        }
    }
    Error::system(what + ")", refused)
}
