//! Communicators: their members, their names, and how they are made.
//!
//! | file | what it holds |
//! |---|---|
//! | `communicator` | [`Comm`](crate::Comm) |
//! | `group` | [`Group`](crate::Group): an ordered set of processes |
//! | `members` | groups as bytes, for other processes |
//! | `context` | the number that keeps a communicator's messages apart from others' |
//! | `oob` | what members agree on when a communicator is made |
//! | `create`, `duplicate` | how communicators are made of others; without waiting |

pub(crate) mod communicator;
pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod duplicate;
pub(crate) mod group;
pub(crate) mod members;
pub(crate) mod oob;
