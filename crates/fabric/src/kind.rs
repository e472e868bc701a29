//! The properties that all devices of a kind share: the form of their names, their reach, their comparison baseline, and how
//! they are opened.
//!
//! A kind is a value of [`DeviceKind`] in a file of its own, and an entry of `KINDS`. Code that needs a property of a kind reads
//! the field, and never compares names.

use host::Host;
use verbs::{Device, Result};

use crate::name::Name;

/// How far a device reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Other processes of this host.
    Host,
    /// Any host of the network.
    Network,
    /// The other cards of its world, in virtual time.
    World,
}

/// The baseline of the machine itself with which results of a device are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Baseline {
    /// Shared memory: cache-line transfers and copies.
    #[default]
    Memory,
    /// Plain TCP sockets.
    Sockets,
    /// None: the device is a model.
    None,
}

/// What may follow a kind's word in a name, before the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSuffix {
    /// Nothing.
    None,
    /// `@` and the address of this host that the device is bound to; or nothing.
    Address,
    /// `:` and an instance of the kind.
    Instance,
    /// `:` and an instance of the kind; or nothing.
    OptionalInstance,
}

/// A function that opens a device whose name has been parsed.
pub(crate) type Opener = Box<dyn FnOnce(&Host) -> Result<Device>>;

/// A kind of device.
pub(crate) struct DeviceKind {
    /// The word that its names begin with.
    pub(crate) word: &'static str,
    /// What may follow the word.
    pub(crate) suffix: NameSuffix,
    /// How far it reaches. Kinds with [`Reach::World`] exist only in virtual time.
    pub(crate) reach: Reach,
    /// The baseline for its results.
    pub(crate) baseline: Baseline,
    /// Names to show, each with its purpose as a sentence.
    pub(crate) names: fn() -> Vec<(String, String)>,
    /// Its options in their written form, each with its meaning.
    pub(crate) options: fn() -> Vec<(&'static str, &'static str)>,
    /// Parses a name of this kind, without opening anything. [`verbs::Error::Invalid`] reports errors in it.
    pub(crate) parse: fn(&Name<'_>) -> Result<Opener>,
    /// Parses a name of this kind that is one of several rails: rails have their own rules and defaults.
    pub(crate) parse_rail: fn(&Name<'_>) -> Result<Opener>,
    /// Whether one name may be used for several rails: each opening of it is a separate device.
    pub(crate) rail_repeats: bool,
    /// Whether a process may open it on behalf of another, untrusted one: its names contain no files.
    pub(crate) is_served: bool,
}
