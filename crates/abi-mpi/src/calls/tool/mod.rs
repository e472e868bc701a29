//! The tool interface, `MPI_T`: control and performance variables, and events (MPI 5.0, section 15.3).
//!
//! | file | what it holds |
//! |---|---|
//! | `cvar` | control variables: limits of protocols, algorithms, costs |
//! | `pvar` | performance variables, in sessions |
//! | `event` | events, reported at the end of the call that noticed them |
//! | `open` | whether a tool has opened the interface; results in its conventions |
//! | `category` | categories of variables and events |

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
