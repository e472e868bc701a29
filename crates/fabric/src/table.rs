//! The table of all kinds of devices, and the lookup of a name's kind.

use verbs::{Error, Result};

use crate::kind::{DeviceKind, NameSuffix};
use crate::name::Name;
use crate::{hw, iwarp, model, shm};

/// All kinds, in the order in which they are shown.
pub(crate) const KINDS: [&DeviceKind; 4] = [&shm::KIND, &iwarp::KIND, &hw::KIND, &model::KIND];

/// The first word of a name, before a side, an instance or options.
pub(crate) fn word(name: &str) -> &str {
    name.split(['@', '(', ':']).next().unwrap_or(name).trim()
}

/// The kind of a name, from its form alone; does not check whether the device exists, and opens no file.
pub(crate) fn kind_of(name: &str) -> Option<&'static DeviceKind> {
    let kind = KINDS.into_iter().find(|kind| kind.word == word(name))?;
    let head = name.split('(').next().unwrap_or(name).trim();
    let suffix = head[kind.word.len()..].trim_start();
    match kind.suffix {
        NameSuffix::None => suffix.is_empty(),
        NameSuffix::Address => suffix.is_empty() || suffix.starts_with('@'),
        NameSuffix::Instance => suffix.starts_with(':'),
        NameSuffix::OptionalInstance => suffix.is_empty() || suffix.starts_with(':'),
    }
    .then_some(kind)
}

/// Parses the name of one device, and returns its kind and parts.
///
/// # Errors
/// [`Error::Invalid`] for an invalid name, and for an unknown kind, with the kinds that exist.
pub(crate) fn parse(text: &str) -> Result<(&'static DeviceKind, Name<'_>)> {
    let name = Name::parse(text)?;
    let Some(kind) = kind_of(text) else {
        let known: Vec<_> = KINDS.into_iter().flat_map(|kind| (kind.names)()).map(|(name, _)| name).collect();
        return Err(Error::Invalid(format!(
            "there is no device '{}'; there is: {}, rails(DEVICE,DEVICE,...) and faults(DEVICE)",
            name.head,
            known.join(", ")
        )));
    };
    Ok((kind, name))
}
