//! The names of modelled cards: `model:MACHINE`, with a built-in machine or the path of a machine file, optionally with one
//! of its rails, and with parameters of it as options.

use nic_model::{Config, machines};
use verbs::Result;

use crate::kind::{Baseline, DeviceKind, NameSuffix, Opener, Reach};
use crate::name::Name;

pub(crate) const KIND: DeviceKind = DeviceKind {
    word: "model",
    suffix: NameSuffix::Instance,
    reach: Reach::World,
    baseline: Baseline::None,
    names: || {
        let one = |machine: nic_model::Machine| {
            (format!("model:{}", machine.name), format!("a model, in virtual time: {}", machine.about))
        };
        machines().into_iter().map(one).collect()
    },
    options: || nic_model::OPTIONS.to_vec(),
    parse,
    parse_rail: parse,
    rail_repeats: false,
    is_served: false,
};

/// Parses the configuration from a name of this kind.
pub(crate) fn parse_config(name: &Name<'_>) -> Result<Config> {
    let machine = name.head.split_once(':').map_or("", |(_, machine)| machine);
    Ok(Config::new(machine, &name.options)?)
}

fn parse(name: &Name<'_>) -> Result<Opener> {
    let config = parse_config(name)?;
    Ok(Box::new(move |host| nic_model::open(host, &config)))
}
