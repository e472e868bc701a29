//! The names of shared-memory devices: `shm`, with options.

use nic_shm::{CopyPath, ShmConfig};
use verbs::Result;

use crate::kind::{FloorKind, Kind, Opener, Reach, Tail};
use crate::name::{Choice, Name, choose, help, set, size};

pub(crate) const KIND: Kind = Kind {
    word: "shm",
    tail: Tail::None,
    reach: Reach::Host,
    floor: FloorKind::Memory,
    names: || {
        vec![("shm".to_owned(), "shared memory between the processes of one user on this host".to_owned())]
    },
    options: || help(OPTIONS),
    read,
    read_rail: read,
    rail_repeats: true,
};

const OPTIONS: &[Choice<ShmConfig>] = &[
    Choice {
        form: "copy=auto|kernel|service",
        about: "the way into private memory of other processes (auto)",
        set: |config, value| {
            let all =
                [("auto", CopyPath::Auto), ("kernel", CopyPath::Kernel), ("service", CopyPath::Service)];
            config.copy = choose(value, all)?;
            Ok(())
        },
    },
    Choice {
        form: "dm=SIZE",
        about: "NIC memory that can be allocated (half of the machine's memory)",
        set: |config, value| {
            config.dm_size = Some(host::Bytes(size(value, 4096..=1 << 46)?));
            Ok(())
        },
    },
];

fn read(name: &Name<'_>) -> Result<Opener> {
    let mut config = ShmConfig::default();
    set(name, OPTIONS, &mut config)?;
    Ok(Box::new(move |host| nic_shm::open(host, &config)))
}
