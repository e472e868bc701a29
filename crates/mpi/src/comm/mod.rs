//! Communicators: their members, their names, and their creation (MPI 5.0, chapter 7).
//!
//! | file | purpose |
//! |---|---|
//! | `communicator` | [`Comm`](crate::Comm) |
//! | `group` | [`Group`](crate::Group): an ordered set of processes |
//! | `hosts` | the hosts of the members, for collectives and topologies |
//! | `members` | the encoding of groups for other processes |
//! | `context` | the number that separates a communicator's messages from those of others |
//! | `oob` | out-of-band messages between members while a communicator is created |
//! | `create`, `duplicate` | creation of communicators, blocking and nonblocking |

pub(crate) mod communicator;
pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod duplicate;
pub(crate) mod group;
mod hosts;
pub(crate) mod members;
pub(crate) mod oob;
