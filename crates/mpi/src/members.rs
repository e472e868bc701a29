//! Groups as processes tell them to each other: by numbers within a job, and with addresses where there are several.

use crate::address::Address;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::strangers::{IDENTITY, Identity};

/// Of what the bytes behind this one consist.
const NUMBERS: u8 = 0;
const ADDRESSES: u8 = 1;

fn nonsense() -> Error {
    Error::new(Class::OTHER, "a process tells of a group what no process of this version tells")
}

/// The members of a group, for a process that this one can talk to.
pub(crate) fn told(core: &Core, group: &Group) -> Result<Vec<u8>> {
    // Who talks to another job knows some of it.
    if core.with(|engine| !engine.transport.strangers().is_empty()) {
        return told_apart(core, group);
    }
    let numbers = group.members().iter().flat_map(|process| process.to_le_bytes());
    Ok([NUMBERS].into_iter().chain(numbers).collect())
}

/// The members of a group, for a process of any job.
pub(crate) fn told_apart(core: &Core, group: &Group) -> Result<Vec<u8>> {
    let mut bytes = vec![ADDRESSES];
    for process in group.members() {
        let (identity, address) = core.with(|engine| {
            let transport = &engine.transport;
            transport.address_of(*process).map(|address| (transport.strangers().identity(*process), address))
        })?;
        let note = address.note()?;
        bytes.extend(identity.bytes());
        bytes.extend((note.len() as u16).to_le_bytes());
        bytes.extend(note.as_bytes());
    }
    Ok(bytes)
}

/// The members that bytes tell of, which this process knows from now on.
pub(crate) fn heard(core: &Core, bytes: &[u8]) -> Result<Group> {
    match bytes.split_first() {
        Some((&NUMBERS, numbers)) => {
            let process = |four: &[u8]| four.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
            Group::new(numbers.chunks_exact(4).map(process).collect())
        }
        Some((&ADDRESSES, told)) => heard_apart(core, told),
        _ => Err(nonsense()),
    }
}

fn heard_apart(core: &Core, mut bytes: &[u8]) -> Result<Group> {
    let mut members = Vec::new();
    while !bytes.is_empty() {
        let identity = Identity::parse(bytes).ok_or_else(nonsense)?;
        let (len, rest) = bytes[IDENTITY..].split_first_chunk().ok_or_else(nonsense)?;
        let (note, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into()).ok_or_else(nonsense)?;
        let note = std::str::from_utf8(note).map_err(|_| nonsense())?;
        let address = Address::parse(note)?;
        members.push(core.with(|engine| engine.transport.introduce(identity, address))?);
        bytes = rest;
    }
    Group::new(members)
}
