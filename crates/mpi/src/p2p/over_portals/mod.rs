//! Messages over Portals: the interface does the matching ([`portals::Matcher`]), not this crate.
//!
//! A message is a put to one portal table entry, with its context and tag as match bits, and a receive is an entry for such
//! messages. All messages are sent eagerly, and take one of three ways:
//!
//! - A message with a posted receive is stored in the receive's buffer, at any length.
//! - A short unexpected message is stored in a block of the overflow list, and copied when its receive is posted.
//! - Of a long unexpected message only the header is stored: the receiver gets the data from the sender, which exposed them before
//!   sending, and learns from the acknowledgement which way the message took.
//!
//! A synchronous send learns of its match in the same way: by the acknowledgement, or by a get of no bytes. A message without room
//! at the receiver waits at its sender, since the interface is patient.
//!
//! | file | purpose |
//! |---|---|
//! | `messages` | [`Portals`]: sends, receives and probes as calls of Portals, and the handling of their events |
//! | `found` | names of sends and receives, and messages that a search found |
//! | `bits` | contexts and tags as match bits |
//! | `entries` | the portal table entries, and the conversion of their errors |
//! | `overflow` | memory for messages that arrive before their receives |
//! | `open` | opens the interface and maps ranks to processes |

mod bits;
mod entries;
mod found;
mod messages;
mod open;
mod overflow;

pub(crate) use bits::carries;
pub(crate) use found::{FoundMessage, PortalsKey};
pub(crate) use messages::{Portals, PortalsStarted};
