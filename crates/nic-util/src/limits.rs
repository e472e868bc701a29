//! What the system lets this process have, and what to say when that is too little.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbs::Error;

/// Connections need descriptors: the soft limit goes up to the hard one. How many there may be; `None` without a limit.
pub fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // Refused, the old limit stays, and running out of descriptors says so where it happens.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    getrlimit(Resource::Nofile).current
}

/// Bytes of NIC memory of a device that is told nothing else: half of the machine's memory, at least 64 MiB.
pub fn half_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram * u64::from(info.mem_unit) / 2).max(64 << 20)
}

/// Why a device's thread could not be started. The system says the same when threads are too many and when there is no
/// place for a stack, so each limit that is set is named.
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
