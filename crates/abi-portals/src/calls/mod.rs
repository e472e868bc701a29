//! The functions, by object (Portals 4.3, chapter 3). Each checks its handles and pointers, calls the engine,
//! and stores the results.

mod counter;
mod entry;
mod interface;
mod md;
mod queue;
mod table;
mod transfer;
mod triggered;

use portals::Ni;

use crate::answer::{Answer, Code, code};
use crate::handle::{self, Object};
use crate::state::{self, closed};
use crate::types::Handle;

/// The interface of an interface handle.
fn interface(handle: Handle) -> Answer<Ni> {
    state::check_init()?;
    state::interface(handle::own_interface(handle)?)
}

/// The object of a handle, and its interface.
fn resolve<T: Object>(handle: Handle) -> Answer<(Ni, T)> {
    state::check_init()?;
    let (number, object) = handle::decode(handle)?;
    Ok((state::interface(number)?, object))
}

/// An object of an interface, or `None` for the header's constant.
fn resolve_optional<T: Object>(ni: &Ni, handle: Handle, none: Handle) -> Answer<Option<T>> {
    if handle == none {
        return Ok(None);
    }
    let (number, object) = handle::decode(handle)?;
    if number == ni.kind().number() { Ok(Some(object)) } else { Err(other_interface(handle)) }
}

/// The code of a handle of another interface than the call's.
#[cold]
fn other_interface(handle: Handle) -> Code {
    code!(
        ArgInvalid,
        "handle {handle:#x} belongs to another interface; pass one of the interface that the call names"
    )
}

/// The engine's result; an invalid argument if the interface was closed meanwhile.
fn to_answer<T>(result: Option<portals::Result<T>>) -> Answer<T> {
    Ok(result.ok_or_else(closed)??)
}
