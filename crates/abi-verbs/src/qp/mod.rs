//! Queue pairs.
//!
//! | file | what it holds |
//! |---|---|
//! | `queue_pair` | how they are made and destroyed |
//! | `life`, `attach` | the device's queue pair behind each, and how events reach it |
//! | `modify`, `states`, `settings`, `reset` | states, what is set with them, and the way back to RESET |
//! | `gate`, `parting`, `parted` | requests posted before the connection is up; reports when the other end has gone |

pub(crate) mod attach;
pub(crate) mod gate;
pub(crate) mod life;
pub(crate) mod modify;
pub(crate) mod parted;
pub(crate) mod parting;
pub(crate) mod queue_pair;
pub(crate) mod reset;
pub(crate) mod settings;
pub(crate) mod states;
