//! Messages over Portals: who matches is the interface ([`portals::Matcher`]), not this crate.
//!
//! A message is a put into one portal table entry, whose bits are its context and tag, and a receive is an entry for such messages. All
//! go eagerly, by three ways:
//!
//! - What a receive waits for goes where it belongs, however long it is.
//! - A short message that none waits for goes into a block of the overflow list, and is copied when its receive comes.
//! - A long one that none waits for leaves its header alone: the receive gets the data from the sender, who opened them for that
//!   before it began, and hears from the acknowledgement which way it was.
//!
//! A synchronous send is told of its receive by the same means: by the acknowledgement, or by a get of no bytes. Where there is no
//! room for a message, it waits with its sender, as the interface is patient.
//!
//! | file | what it holds |
//! |---|---|
//! | `messages` | [`Portals`]: sends, receives and probes as calls of Portals, and what their events mean |
//! | `found` | names of sends and receives, and messages that a search found |
//! | `bits` | contexts and tags as bits |
//! | `entries` | the portal table entries, and what their errors become |
//! | `overflow` | memory for messages that come before their receives |
//! | `opening` | how it begins: who has which rank |

mod bits;
mod entries;
mod found;
mod messages;
mod opening;
mod overflow;

pub(crate) use bits::carries;
pub(crate) use found::{Found, Name};
pub(crate) use messages::{Portals, Started};
