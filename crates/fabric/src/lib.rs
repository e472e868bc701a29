//! From a device's name to the device: the only place that knows concrete NICs.
//!
//! A name is a kind, with optional options in parentheses: `shm`, `shm(copy=service,dm=1G)`, `iwarp`, or `iwarp@10.0.0.1(crc=on)`
//! for the side with that address. Real cards are `hw`, `hw:mlx5_0` or `hw:mlx5_0@2` for its second port. Modelled cards are `model:MACHINE`, with a built-in machine or the path of a machine file, and
//! with parameters of it as options: `model:mt23108-nicmem(bus.clock_mhz=266)`. They open on simulated hosts only. A machine with
//! several cards, or cards with several ports, has a rail for each port of each card, numbered from 0: `model:connectx-multihca@1`
//! is one of them, and `model:connectx-multihca` the first card with all its ports. Several devices as one are
//! `rails(iwarp@10.0.0.1,iwarp@10.1.0.1)`, and `faults(shm,rules=FILE)` is a device whose requests fail by rules,
//! `trace(shm,file=FILE)` one whose use is recorded, `check(shm)` one whose use is checked. `model:seastar` has no queue pairs: it runs programs ([`verbs::Firmware`]), and
//! [`profile`] reports where the time of their messages is spent.
#![forbid(unsafe_code)]

mod checked;
mod faults;
mod hw;
mod iwarp;
mod kind;
mod model;
mod name;
mod rails;
mod shm;
mod table;
mod trace;

use std::sync::mpsc;

use host::Host;
use host::world::{self, World};
pub use nic_check::{
    Message as CheckedMessage, check_private_data, check_wait, created, end as end_check, ended,
    is_on as is_checked, prepare as prepare_checked, refuse as refuse_checked, reported_attr, unacknowledged,
};
pub use nic_faults::request as fault_request;
pub use nic_hw::CardInfo;
pub use nic_model::{
    COMPONENTS, Family, Machine, MachineError, MachineErrorKind, Parameter, Profile, Source, Value,
    interrupted, machines, profile,
};
pub use nic_shm::{CopyPath, copy_path};
pub use nic_trace::{end_call, request_counters, set_rank};
use verbs::{Device, DeviceAttr, Error, Result};

pub use kind::{Baseline, Reach};
use table::KINDS;

/// A kind of device, or one of its modelled cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name that opens it.
    pub name: String,
    /// Its purpose, as a sentence.
    pub about: String,
    /// Its options in their written form, each with its meaning.
    pub options: Vec<(&'static str, &'static str)>,
    /// How far it reaches.
    pub reach: Reach,
    /// The baseline for its results.
    pub baseline: Baseline,
    /// Why it cannot be opened here, if so.
    pub available: std::result::Result<(), String>,
}

/// All kinds of devices. Machine files define more: `model:PATH.toml`.
pub fn list() -> Vec<DeviceInfo> {
    let entries = KINDS.into_iter().flat_map(|kind| {
        (kind.names)().into_iter().map(move |(name, about)| DeviceInfo {
            name,
            about,
            options: (kind.options)(),
            reach: kind.reach,
            baseline: kind.baseline,
            available: Ok(()),
        })
    });
    entries.collect()
}

/// Splits a list of names at separators outside of parentheses. If the parentheses do not match, the result is one name,
/// which [`check`] rejects.
pub fn split(list: &str, separator: char) -> Vec<&str> {
    name::split_outside_parentheses(list, separator).unwrap_or_else(|| vec![list.trim()])
}

/// Checks a name without opening anything.
///
/// # Errors
/// [`Error::Invalid`], with the names or options that exist.
pub fn check(name: &str) -> Result<()> {
    if let Some(faults) = faults::parse(name) {
        let faults = faults?;
        faults.config()?;
        check_faults_once(name, faults.below)?;
        return check(faults.below);
    }
    if let Some(trace) = trace::parse(name) {
        let trace = trace?;
        check_trace_once(name, trace.below)?;
        return check(trace.below);
    }
    if let Some(checked) = checked::parse(name) {
        let checked = checked?;
        checked.options.check()?;
        check_check_once(name, checked.below)?;
        return check(checked.below);
    }
    match rails::parse(name) {
        Some(rails) => rails.map(drop),
        None => {
            let (kind, name) = table::parse(name)?;
            (kind.parse)(&name).map(drop)
        }
    }
}

/// Refuses a name with faults of a device that has faults.
fn check_faults_once(name: &str, below: &str) -> Result<()> {
    let why = "faults of faults are not possible; write all rules into one file";
    if has_faults(below) {
        Err(Error::Invalid(format!("'{name}' is not a device name: {why}")))
    } else {
        Ok(())
    }
}

/// Refuses a name with a trace of a device that has a trace.
fn check_trace_once(name: &str, below: &str) -> Result<()> {
    let why = "it is recorded twice; write trace(DEVICE) once";
    if has_trace(below) {
        Err(Error::Invalid(format!("'{name}' is not a device name: {why}")))
    } else {
        Ok(())
    }
}

/// Refuses a name with a check of a device that is checked.
fn check_check_once(name: &str, below: &str) -> Result<()> {
    let why = "it is checked twice; write check(DEVICE) once";
    if has_check(below) {
        Err(Error::Invalid(format!("'{name}' is not a device name: {why}")))
    } else {
        Ok(())
    }
}

/// Whether the device of this name exists only in virtual time: a modelled card, which opens on a simulated host only.
pub fn is_virtual(name: &str) -> bool {
    let name = below(name);
    match rails::parse(name) {
        Some(rails) => rails.is_ok_and(|rails| rails.names.iter().all(|name| is_virtual(name))),
        None => table::kind_of(name).is_some_and(|kind| kind.reach == Reach::World),
    }
}

/// Whether the device of this name reaches processes of this host only.
pub fn is_local(name: &str) -> bool {
    let name = below(name);
    match rails::parse(name) {
        Some(rails) => rails.is_ok_and(|rails| rails.names.iter().any(|name| is_local(name))),
        None => table::kind_of(name).is_some_and(|kind| kind.reach == Reach::Host),
    }
}

/// The baseline of the machine itself for results of the device of this name: for rails, which are of one kind, that of the
/// first.
pub fn baseline(name: &str) -> Baseline {
    let name = below(name);
    let rails = rails::parse(name).and_then(Result::ok);
    let first = rails.as_ref().map_or(name, |rails| rails.names[0]);
    table::kind_of(first).map(|kind| kind.baseline).unwrap_or_default()
}

/// The name of the device below all that is in front of it, such as `shm` of `faults(shm,rules=FILE)`; for every other device, its
/// own name.
pub fn below(name: &str) -> &str {
    next_below(name).map_or(name, below)
}

/// The name of the device below a device of faults, of a trace or of a check; `None` for other names.
fn next_below(name: &str) -> Option<&str> {
    let of_faults = || Some(faults::parse(name)?.ok()?.below);
    let of_trace = || Some(trace::parse(name)?.ok()?.below);
    of_faults().or_else(of_trace).or_else(|| Some(checked::parse(name)?.ok()?.below))
}

/// Whether there is something in front of the device: then [`end_report`] has to be called when the process ends.
pub fn is_wrapped(name: &str) -> bool {
    next_below(name).is_some()
}

/// Notes in the trace of this process that it ends in order; returns what the faults of its devices did, a line each.
pub fn end_report() -> Vec<String> {
    nic_trace::end();
    nic_faults::remaining_report()
}

/// The first word of a device's name, such as `iwarp` of `iwarp@10.0.0.1(crc=on)`: it is the same for all devices of a kind.
/// That of a device in front of another one is the word of the device below.
pub fn word(name: &str) -> &str {
    table::word(below(name))
}

/// Whether the device, or one below it, has faults.
pub fn has_faults(name: &str) -> bool {
    faults::parse(name).is_some() || next_below(name).is_some_and(has_faults)
}

/// Whether the use of the device, or of one below it, is recorded or counted.
pub fn has_trace(name: &str) -> bool {
    trace::parse(name).is_some() || next_below(name).is_some_and(has_trace)
}

/// Whether the use of the device, or of one below it, is checked.
pub fn has_check(name: &str) -> bool {
    checked::parse(name).is_some() || next_below(name).is_some_and(has_check)
}

/// The options of a device that is checked, in their written form, each with its meaning.
pub fn check_options() -> Vec<(&'static str, &'static str)> {
    checked::options()
}

/// The options of a device that is recorded, in their written form, each with its meaning.
pub fn trace_options() -> Vec<(&'static str, &'static str)> {
    trace::options()
}

/// The options of a device with faults, in their written form, each with its meaning.
pub fn faults_options() -> Vec<(&'static str, &'static str)> {
    faults::options()
}

/// The rules that a seed chooses (`faults(shm,chaos=SEED)`), as words.
pub fn chaos(seed: u64) -> Vec<String> {
    nic_faults::chaos(seed).iter().map(ToString::to_string).collect()
}

/// The options of a device made of several, in their written form, each with its meaning.
pub fn rails_options() -> Vec<(&'static str, &'static str)> {
    rails::options()
}

/// Whether the name has the form of a device made of several.
pub fn is_rails(name: &str) -> bool {
    word(name) == rails::WORD
}

/// The words of the kinds that a process may open on behalf of another, untrusted one: not modelled cards and real ones,
/// whose names can contain file names.
pub fn served() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().filter(|kind| kind.is_served).map(|kind| kind.word)
}

/// A device's name without its side, which another host does not have: `iwarp(crc=on)` of `iwarp@10.0.0.1(crc=on)`, `hw:mlx5_0`
/// of `hw:mlx5_0@2`. Neither has another host the faults, the trace or the check of the device, or its capture, which is a file here.
pub fn without_side(name: &str) -> String {
    let name = below(name);
    let end = name.find('(').unwrap_or(name.len());
    let (head, options) = name.split_at(end);
    format!("{}{}", head.split('@').next().unwrap_or_default(), iwarp::without_capture(options))
}

/// The device of this name with a file that gets what it sends and receives; `None` if it is no `iwarp`.
pub fn with_capture(name: &str, file: &str) -> Option<String> {
    (table::word(name) == "iwarp").then(|| iwarp::with_capture(name, file))
}

/// The attributes of the device of this name, found by opening it: on this host, or in a world of its own.
///
/// # Errors
/// As [`open`].
pub fn attr(name: &str) -> Result<DeviceAttr> {
    if !is_virtual(name) {
        return Ok(open(name, &host::real::host())?.attr().clone());
    }
    let mut world = World::new(world::Config::default());
    let (node, name, (sender, receiver)) = (world.add_node("node"), name.to_owned(), mpsc::channel());
    let host = node.host();
    let query = move || drop(sender.send(open(&name, &host).map(|device| device.attr().clone())));
    world
        .spawn("rank", &[&node], query)
        .and_then(|()| world.run())
        .map_err(|failure| Error::system("a world for the device", std::io::Error::other(failure)))?;
    receiver.try_recv().map_err(|e| Error::system("the device's attributes", std::io::Error::other(e)))?
}

/// The names of the rails of this device, in their order: those in `rails(...)`, or those of a modelled machine with several
/// cards or ports. For every other device, its own name alone.
///
/// # Errors
/// [`Error::Invalid`] as [`check`].
pub fn rails_of(name: &str) -> Result<Vec<String>> {
    if let Some(faults) = faults::parse(name) {
        return rails_of(faults?.below);
    }
    if let Some(trace) = trace::parse(name) {
        return rails_of(trace?.below);
    }
    if let Some(checked) = checked::parse(name) {
        return rails_of(checked?.below);
    }
    if let Some(rails) = rails::parse(name) {
        return Ok(rails?.names.into_iter().map(str::to_owned).collect());
    }
    let Some(config) = model_config(name)? else { return Ok(vec![name.to_owned()]) };
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
/// [`Error::Invalid`] for an unknown kind or option, with those that exist; the device's own.
pub fn open(name: &str, host: &Host) -> Result<Device> {
    if let Some(faults) = faults::parse(name) {
        let faults = faults?;
        check_faults_once(name, faults.below)?;
        return Ok(faults.open(&open(faults.below, host)?)?.named(name.trim()));
    }
    if let Some(trace) = trace::parse(name) {
        let trace = trace?;
        check_trace_once(name, trace.below)?;
        return Ok(trace.open(&open(trace.below, host)?)?.named(name.trim()));
    }
    if let Some(checked) = checked::parse(name) {
        let checked = checked?;
        check_check_once(name, checked.below)?;
        return Ok(checked.open(&open(checked.below, host)?)?.named(name.trim()));
    }
    let device = match rails::parse(name) {
        Some(rails) => rails?.open(host),
        None => {
            let (kind, name) = table::parse(name)?;
            (kind.parse)(&name)?(host)
        }
    };
    Ok(device?.named(name.trim()))
}

/// The real cards that the system's libibverbs lists.
///
/// # Errors
/// [`Error::System`] and [`Error::Invalid`] if it cannot be loaded, is our own, or finds no kernel modules.
pub fn cards() -> Result<Vec<CardInfo>> {
    nic_hw::cards(&nic_hw::HwConfig::default())
}

/// The machine in the name of a modelled card, with its options.
///
/// # Errors
/// [`Error::Invalid`] for what is unknown, missing or out of range, and for a card that is not a model.
pub fn machine(name: &str) -> Result<Machine> {
    let name = below(name);
    match model_config(name)? {
        Some(config) => Ok(config.machine),
        None => Err(Error::Invalid(format!("'{name}' is not a model, and has no machine"))),
    }
}

/// The configuration of a modelled card; `None` for other devices.
fn model_config(name: &str) -> Result<Option<nic_model::Config>> {
    let (kind, name) = table::parse(name)?;
    if kind.word == model::KIND.word {
        return model::parse_config(&name).map(Some);
    }
    (kind.parse)(&name).map(|_| None)
}

/// The program in the guide compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct Guide;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_outside_of_parentheses() {
        let allow = "iwarp(allow=10.0.0.0/8+127.0.0.1,crc=on)";
        assert_eq!(split(&format!("shm + {allow}"), '+'), ["shm", allow]);
        assert_eq!(split(&format!("{allow},shm"), ','), [allow, "shm"]);
        assert_eq!(split("shm", '+'), ["shm"]);
        assert_eq!(split("shm+", '+'), ["shm", ""]);
        assert_eq!(split("iwarp(crc=on+shm", '+'), ["iwarp(crc=on+shm"]);
    }

    #[test]
    fn existing_names_open_and_errors_list_them() {
        for entry in list() {
            check(&entry.name).expect(&entry.name);
            if entry.name == "hw" {
                // A machine without a card has no such device.
                let why = attr("hw").err().map(|why| why.to_string()).unwrap_or_default();
                assert!(why.is_empty() || why.contains("card") || why.contains("libibverbs"), "{why}");
                continue;
            }
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
            ("model:mt23108-nicmen", "did you mean 'mt23108-nicmem'?"),
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
    fn modelled_card_takes_parameters_and_needs_virtual_time() {
        let name = "model:mt23108-nicmem(nic_memory.size_mib=7,payload=hole)";
        assert_eq!(attr(name).expect("a card").max_dm_size, 7 << 20);
        assert_eq!(machine(name).expect("a machine").params.nic_memory.size_mib, 7.0);
        assert!(machine("shm").is_err());
        let refusal = open(name, &host::real::host()).expect_err("time is real here").to_string();
        assert!(refusal.contains("virtual time only"), "{refusal}");
    }

    /// Goal: the rails of a modelled machine are devices of their own, with an address each, and make a device together.
    #[test]
    fn machine_has_a_rail_for_each_port_of_each_card() {
        for name in ["model:connectx-multiport", "model:connectx-multihca"] {
            let rails = rails_of(&format!("{name}(payload=hole)")).expect("rails");
            assert_eq!(rails, [format!("{name}@0(payload=hole)"), format!("{name}@1(payload=hole)")]);
            let addrs: Vec<_> = rails.iter().map(|rail| attr(rail).expect(rail).port_addrs).collect();
            assert_eq!(addrs.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
            assert_ne!(addrs[0], addrs[1]);
            assert_eq!(rails_of(&rails[1]).expect("the name itself"), rails[1..]);
            attr(&format!("rails({},{})", rails[0], rails[1])).expect("a device made of both");
        }
        assert_eq!(rails_of("rails(shm,shm)").expect("rails"), ["shm", "shm"]);
        assert_eq!(rails_of("shm(dm=64M)").expect("the name itself"), ["shm(dm=64M)"]);
        assert!(rails_of("model:nothing").is_err());
    }

    #[test]
    fn baseline_matches_the_data_path() {
        assert_eq!(baseline("iwarp@::1(crc=on)"), Baseline::Sockets);
        assert_eq!(baseline("shm"), Baseline::Memory);
        assert_eq!(baseline("rails(shm,shm)"), Baseline::Memory);
        assert_eq!(baseline("rails(iwarp@10.0.0.1,iwarp@10.1.0.1)"), Baseline::Sockets);
        assert_eq!(baseline("model:mt23108-vapi"), Baseline::None);
    }

    /// Goal: a suffix that a kind does not allow makes the name unknown; nothing after it becomes a kind by accident.
    #[test]
    fn kind_requires_its_word_and_an_allowed_suffix() {
        for name in
            ["iwarpx", "iwarp:x", "hwx", "hw@1", "shm@10.0.0.1", "shm:x", "modelx", "model@1", "railsx"]
        {
            let message = check(name).expect_err(name).to_string();
            assert!(message.contains("there is no device"), "{name}: {message}");
            assert!(!is_virtual(name), "{name}");
        }
        assert!(is_virtual(" model:no-such-machine") && is_rails("rails (shm,shm)") && !is_rails("shm"));
        assert_eq!(served().collect::<Vec<_>>(), ["shm", "iwarp"]);
    }

    #[test]
    fn device_opens_with_its_options() {
        let device = open("shm(dm=64M)", &host::real::host()).expect("a device");
        assert_eq!(device.attr().max_dm_size, 64 << 20);
    }
}
