//! From a device's name to the device: the one place that knows concrete NICs.
//!
//! A name is a kind, with options in parentheses where it has any: `shm`, `shm(copy=service,dm=1G)`, `iwarp`, or
//! `iwarp@10.0.0.1(crc=on)` for the side with that address. Modelled cards are
//! `model:MACHINE`, a machine that comes along or the path of a machine file, with values of it as options:
//! `model:mt23108-nicmem(bus.clock_mhz=266)`. They open on simulated hosts only. A machine with several cards, or cards with
//! several ports, has a rail for each port of each card, numbered from 0: `model:connectx-multihca@1` is one of them, and
//! `model:connectx-multihca` the first card with all of its ports. Several devices as one are
//! `rails(iwarp@10.0.0.1,iwarp@10.1.0.1)`.
#![forbid(unsafe_code)]

mod iwarp;
mod name;
mod rails;

use std::sync::mpsc;

use host::world::{self, World};
use host::{Bytes, Host};
pub use nic_model::{Machine, MachineError, Parameter, Source, Value, Wrong, machines};
use nic_soft::iwarp::IwarpConfig;
use nic_soft::shm::{self, ShmConfig};
pub use nic_soft::shm::{CopyPath, copy_path};
use verbs::{Device, DeviceAttr, Error, Result};

use name::Name;

/// A kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What opens it.
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// Its options, as they are written, each with its meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Why it cannot be opened here, if so.
    pub available: std::result::Result<(), String>,
}

const SHM_OPTIONS: &[(&str, &str)] = &[
    ("copy=auto|kernel|service", "the way into private memory of other processes (auto)"),
    ("dm=SIZE", "NIC memory that can be allocated (half of the machine's memory)"),
];

/// What the names of modelled cards begin with.
const MODEL: &str = "model:";

const MODEL_OPTIONS: &[(&str, &str)] = &[
    (
        "SECTION.KEY=VALUE",
        "another value than the machine file's, as bus.clock_mhz=266 or faults.loss_ppm=100",
    ),
    ("payload=bytes|hole", "hole: only the ends of messages really move, for very large runs (bytes)"),
];

/// All kinds of devices. Machine files make more: `model:PATH.toml`.
pub fn list() -> Vec<Entry> {
    let shm = Entry {
        name: "shm".to_owned(),
        about: "shared memory between the processes of one user on this host".to_owned(),
        options: SHM_OPTIONS,
        available: Ok(()),
    };
    let model = |machine: Machine| Entry {
        name: format!("{MODEL}{}", machine.name),
        about: format!("a model, in virtual time: {}", machine.about),
        options: MODEL_OPTIONS,
        available: Ok(()),
    };
    [shm, iwarp::entry()].into_iter().chain(machines().into_iter().map(model)).collect()
}

/// Checks a name without opening anything.
///
/// # Errors
/// [`Error::Invalid`] that names what there is.
pub fn check(name: &str) -> Result<()> {
    match rails::parse(name) {
        Some(rails) => rails.map(drop),
        None => parse(name).map(drop),
    }
}

/// Whether the device of this name lives in virtual time: a modelled card, which opens on a simulated host only.
pub fn is_virtual(name: &str) -> bool {
    match rails::parse(name) {
        Some(rails) => rails.is_ok_and(|rails| rails.names.iter().all(|name| is_virtual(name))),
        None => name.trim_start().starts_with(MODEL),
    }
}

/// What the device of this name can do, found by opening it: on this host, or in a world of its own.
///
/// # Errors
/// As [`open`].
pub fn attr(name: &str) -> Result<DeviceAttr> {
    if !is_virtual(name) {
        return Ok(open(name, &host::real::host())?.attr().clone());
    }
    let mut world = World::new(world::Config::default());
    let (node, name, (tell, told)) = (world.node("node"), name.to_owned(), mpsc::channel());
    let host = node.host();
    let look = move || drop(tell.send(open(&name, &host).map(|device| device.attr().clone())));
    world
        .rank("rank", &[&node], look)
        .and_then(|()| world.run())
        .map_err(|failure| Error::system("a world for the device", std::io::Error::other(failure)))?;
    told.try_recv().map_err(|e| Error::system("the device's attributes", std::io::Error::other(e)))?
}

/// The names of the devices that are the rails of this one, in their order: those in `rails(...)`, or those of a modelled
/// machine with several cards or ports. One name, its own, for every other device.
///
/// # Errors
/// [`Error::Invalid`] as [`check`].
pub fn rails_of(name: &str) -> Result<Vec<String>> {
    if let Some(rails) = rails::parse(name) {
        return Ok(rails?.names.into_iter().map(str::to_owned).collect());
    }
    let Parsed::Model(config) = parse(name)? else { return Ok(vec![name.to_owned()]) };
    let rails = config.machine.rails();
    if config.rail.is_some() || rails == 1 {
        return Ok(vec![name.to_owned()]);
    }
    let at = name.find('(').unwrap_or(name.len());
    Ok((0..rails).map(|rail| format!("{}@{rail}{}", name[..at].trim_end(), &name[at..])).collect())
}

/// Opens the device of this name, which is then [`Device::name`].
///
/// # Errors
/// [`Error::Invalid`] for an unknown kind or option, naming those that exist; the device's own.
pub fn open(name: &str, host: &Host) -> Result<Device> {
    let device = match rails::parse(name) {
        Some(rails) => rails?.open(host),
        None => match parse(name)? {
            Parsed::Shm(config) => shm::open(host, &config),
            Parsed::Iwarp(config) => nic_soft::iwarp::open(host, &config),
            Parsed::Model(config) => nic_model::open(host, &config),
        },
    };
    Ok(device?.named(name.trim()))
}

enum Parsed {
    Shm(ShmConfig),
    Iwarp(IwarpConfig),
    Model(Box<nic_model::Config>),
}

/// The machine that a modelled card's name says, with its options.
///
/// # Errors
/// [`Error::Invalid`] for what is unknown, missing or beyond its range, and for a card that is no model.
pub fn machine(name: &str) -> Result<Machine> {
    match parse(name)? {
        Parsed::Model(config) => Ok(config.machine),
        Parsed::Shm(_) | Parsed::Iwarp(_) => {
            Err(Error::Invalid(format!("'{name}' is no model, and has no machine")))
        }
    }
}

fn parse(text: &str) -> Result<Parsed> {
    let name = Name::parse(text)?;
    if let Some(machine) = name.kind.strip_prefix(MODEL) {
        return Ok(Parsed::Model(Box::new(nic_model::Config::new(machine, &name.options)?)));
    }
    if let Some(config) = iwarp::parse(&name) {
        return Ok(Parsed::Iwarp(config?));
    }
    match name.kind {
        "shm" => Ok(Parsed::Shm(shm_config(&name)?)),
        kind => {
            let known: Vec<_> = list().into_iter().map(|e| e.name).collect();
            Err(Error::Invalid(format!(
                "there is no device '{kind}'; there is: {}, and rails(DEVICE,DEVICE,...)",
                known.join(", ")
            )))
        }
    }
}

fn shm_config(name: &Name<'_>) -> Result<ShmConfig> {
    let mut config = ShmConfig::default();
    for &(key, value) in &name.options {
        match key {
            "copy" => {
                config.copy = match value {
                    "auto" => CopyPath::Auto,
                    "kernel" => CopyPath::Kernel,
                    "service" => CopyPath::Service,
                    _ => return Err(bad_option("shm", key, value, SHM_OPTIONS)),
                }
            }
            "dm" => {
                let size: Bytes = value.parse().map_err(Error::Invalid)?;
                if !(4096..=1 << 46).contains(&size.0) {
                    return Err(bad_option("shm", key, value, SHM_OPTIONS));
                }
                config.dm_size = Some(size);
            }
            _ => return Err(bad_option("shm", key, value, SHM_OPTIONS)),
        }
    }
    Ok(config)
}

fn bad_option(kind: &str, key: &str, value: &str, options: &[(&str, &str)]) -> Error {
    let known: Vec<_> = options.iter().map(|(form, _)| *form).collect();
    Error::Invalid(format!("device '{kind}' has no option {key}={value}; it has: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_exist_open_and_others_say_what_exists() {
        for entry in list() {
            check(&entry.name).expect(&entry.name);
            let attr = attr(&entry.name).expect(&entry.name);
            assert_eq!(is_virtual(&entry.name), !attr.port_addrs.is_empty(), "{}", entry.name);
        }
        check("shm(copy=service,dm=64M)").expect("options");
        for (name, hint) in [
            ("smh", "shm"),
            ("", "shm"),
            ("shm(copy=fast)", "copy=auto|kernel|service"),
            ("shm(dm=1)", "dm=SIZE"),
            ("shm(dm=x)", "size"),
            ("shm(", "parenthes"),
            ("shm(copy)", "copy"),
            ("shm()x", "parenthes"),
            ("iwarp(crc=on,mpa=2,crc=off)", "'crc' is given twice"),
            ("model:", "there is no such machine"),
            ("model:mt23108-nicmen", "Did you mean mt23108-nicmem?"),
            ("model:nowhere.toml", "nowhere.toml: this file cannot be read"),
            ("model:mt23108-vapi(bus.clock_ghz=1)", "wrong unit: write clock_mhz"),
            ("model:mt23108-vapi(bus.clock_mhz=0)", "1 to 10000 MHz"),
            ("model:mt23108-vapi(payload=no)", "payload=hole"),
            ("model", "model:mt23108-vapi"),
            ("model:connectx-multihca@2", "2 rails, which are numbered from 0"),
            ("model:connectx-single@99999999999999999999", "1 rails"),
            ("model:connectx-single@one", "there is no such machine"),
        ] {
            let message = check(name).expect_err(name).to_string();
            assert!(message.contains(hint), "{name}: {message}");
        }
    }

    #[test]
    fn a_modelled_card_takes_values_and_needs_virtual_time() {
        let name = "model:mt23108-nicmem(nic_memory.size_mib=7,payload=hole)";
        assert_eq!(attr(name).expect("a card").max_dm_size, 7 << 20);
        assert_eq!(machine(name).expect("a machine").params.nic_memory.size_mib, 7.0);
        assert!(machine("shm").is_err());
        let refusal = open(name, &host::real::host()).expect_err("time is real here").to_string();
        assert!(refusal.contains("virtual time only"), "{refusal}");
    }

    /// Goal: the rails of a modelled machine are devices of their own, with an address each, and make a device together.
    #[test]
    fn a_machine_has_a_rail_for_each_port_of_each_card() {
        for name in ["model:connectx-multiport", "model:connectx-multihca"] {
            let rails = rails_of(&format!("{name}(payload=hole)")).expect("rails");
            assert_eq!(rails, [format!("{name}@0(payload=hole)"), format!("{name}@1(payload=hole)")]);
            let addrs: Vec<_> = rails.iter().map(|rail| attr(rail).expect(rail).port_addrs).collect();
            assert_eq!(addrs.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
            assert_ne!(addrs[0], addrs[1]);
            assert_eq!(rails_of(&rails[1]).expect("itself"), rails[1..]);
            attr(&format!("rails({},{})", rails[0], rails[1])).expect("a device made of both");
        }
        assert_eq!(rails_of("rails(shm,shm)").expect("rails"), ["shm", "shm"]);
        assert_eq!(rails_of("shm(dm=64M)").expect("itself"), ["shm(dm=64M)"]);
        assert!(rails_of("model:nothing").is_err());
    }

    #[test]
    fn a_device_opens_with_its_options() {
        let device = open("shm(dm=64M)", &host::real::host()).expect("a device");
        assert_eq!(device.attr().max_dm_size, 64 << 20);
    }
}
