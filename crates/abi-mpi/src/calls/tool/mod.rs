//! The tool interface, `MPI_T`: variables that tools read and set, and events that they hear of.
//!
//! | file | what it holds |
//! |---|---|
//! | `cvar` | control variables: limits of protocols, algorithms, costs |
//! | `pvar` | performance variables, in sessions |
//! | `event` | events, told of when the call ends that has noticed them |
//! | `open` | whether a tool has opened the interface; answers in its way |
//! | `category` | which belong together |

mod category;
mod cvar;
mod event;
mod open;
mod pvar;

pub(crate) use category::*;
pub(crate) use cvar::*;
pub(crate) use event::*;
pub(crate) use open::*;
pub(crate) use pvar::*;
