//! What is the same for all devices of a kind: how its names look, where it reaches, what it stands beside, how it opens.
//!
//! A kind is a value of [`Kind`] in a file of its own, and an entry of `KINDS`. Whoever wants to know something of a kind
//! asks for a field; nobody compares names.

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

/// What the machine itself can do, beside which results of a device stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FloorKind {
    /// The memory that both sides share: cache lines and copies.
    #[default]
    Memory,
    /// Plain TCP sockets.
    Sockets,
    /// Nothing of this machine: it is a model.
    None,
}

/// What may follow the word of a kind in a name, before the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    None,
    /// `@` and the side of this host that it keeps to, or nothing.
    Side,
    /// `:` and what it is.
    Instance,
}

/// What opens a device whose name has been read.
pub(crate) type Opener = Box<dyn FnOnce(&Host) -> Result<Device>>;

/// A kind of device.
pub(crate) struct Kind {
    /// The word that its names begin with.
    pub(crate) word: &'static str,
    /// What may follow the word.
    pub(crate) tail: Tail,
    /// How far it reaches. What reaches a world only lives in virtual time.
    pub(crate) reach: Reach,
    /// What its results stand beside.
    pub(crate) floor: FloorKind,
    /// Names to show, each with what it is for in a sentence.
    pub(crate) names: fn() -> Vec<(String, String)>,
    /// Its options as they are written, each with its meaning.
    pub(crate) options: fn() -> Vec<(&'static str, &'static str)>,
    /// Reads a name of this kind; nothing is opened. [`verbs::Error::Invalid`] says what is wrong with it.
    pub(crate) read: fn(&Name<'_>) -> Result<Opener>,
    /// Reads a name of this kind that is one of several rails: they have rules and defaults of their own.
    pub(crate) read_rail: fn(&Name<'_>) -> Result<Opener>,
    /// Whether one name may be several rails: each opening of it is a device by itself.
    pub(crate) rail_repeats: bool,
}
