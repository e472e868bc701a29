//! From a device's name to the device: the one place that knows concrete NICs.
//!
//! A name is a kind, with options in parentheses where it has any: `shm`, `shm(copy=service,dm=1G)`.
#![forbid(unsafe_code)]

mod name;

use host::{Bytes, Host};
use nic_soft::shm::{self, ShmConfig};
pub use nic_soft::shm::{CopyPath, copy_path};
use verbs::{Device, Error, Result};

use name::Name;

/// A kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What opens it.
    pub name: &'static str,
    /// What it is for, in a sentence.
    pub about: &'static str,
    /// Its options, as they are written, each with its meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// Why it cannot be opened here, if so.
    pub available: std::result::Result<(), String>,
}

const SHM_OPTIONS: &[(&str, &str)] = &[
    ("copy=auto|kernel|service", "the way into private memory of other processes (auto)"),
    ("dm=SIZE", "NIC memory that can be allocated (half of the machine's memory)"),
];

/// All kinds of devices.
pub fn list() -> Vec<Entry> {
    vec![Entry {
        name: "shm",
        about: "shared memory between the processes of one user on this host",
        options: SHM_OPTIONS,
        available: Ok(()),
    }]
}

/// Checks a name without opening anything.
///
/// # Errors
/// [`Error::Invalid`] that names what there is.
pub fn check(name: &str) -> Result<()> {
    parse(name).map(|_| ())
}

/// Whether the device of this name lives in virtual time: a modelled card, which opens on a simulated host only.
pub fn is_virtual(name: &str) -> bool {
    name.trim_start().starts_with("model:")
}

/// Opens the device of this name.
///
/// # Errors
/// [`Error::Invalid`] for an unknown kind or option, naming those that exist; the device's own.
pub fn open(name: &str, host: &Host) -> Result<Device> {
    match parse(name)? {
        Parsed::Shm(config) => shm::open(host, &config),
    }
}

enum Parsed {
    Shm(ShmConfig),
}

fn parse(text: &str) -> Result<Parsed> {
    let name = Name::parse(text)?;
    match name.kind {
        "shm" => Ok(Parsed::Shm(shm_config(&name)?)),
        kind => {
            let known: Vec<_> = list().iter().map(|e| e.name).collect();
            Err(Error::Invalid(format!("there is no device '{kind}'; there is: {}", known.join(", "))))
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
            check(entry.name).expect(entry.name);
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
        ] {
            let message = check(name).expect_err(name).to_string();
            assert!(message.contains(hint), "{name}: {message}");
        }
    }

    #[test]
    fn a_device_opens_with_its_options() {
        let device = open("shm(dm=64M)", &host::real::host()).expect("a device");
        assert_eq!(device.attr().max_dm_size, 64 << 20);
    }
}
