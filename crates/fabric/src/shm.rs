//! The names of shared-memory devices: `shm`, with options.

use nic_shm::{CopyPath, ShmConfig};
use verbs::Result;

use crate::kind::{Baseline, DeviceKind, NameSuffix, Opener, Reach};
use crate::name::{DeviceOption, Name, option_help, parse_choice, parse_size, set_options};

pub(crate) const KIND: DeviceKind = DeviceKind {
    word: "shm",
    suffix: NameSuffix::None,
    reach: Reach::Host,
    baseline: Baseline::Memory,
    names: || {
        vec![("shm".to_owned(), "shared memory between the processes of one user on this host".to_owned())]
    },
    options: || option_help(OPTIONS),
    parse,
    parse_rail: parse,
    rail_repeats: true,
    is_served: true,
};

const OPTIONS: &[DeviceOption<ShmConfig>] = &[
    DeviceOption {
        form: "copy=auto|kernel|service",
        about: "how private memory of other processes is copied (auto)",
        set: |config, value| {
            let all =
                [("auto", CopyPath::Auto), ("kernel", CopyPath::Kernel), ("service", CopyPath::Service)];
            config.copy = parse_choice(value, all)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "dm=SIZE",
        about: "NIC memory that can be allocated (half of the machine's memory)",
        set: |config, value| {
            config.dm_size = Some(host::Bytes(parse_size(value, 4096..=1 << 46)?));
            Ok(())
        },
    },
];

fn parse(name: &Name<'_>) -> Result<Opener> {
    let mut config = ShmConfig::default();
    set_options(name, OPTIONS, &mut config)?;
    Ok(Box::new(move |host| nic_shm::open(host, &config)))
}
