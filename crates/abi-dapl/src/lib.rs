//! A DAT 2.0 provider library: what `libdat2`, the standard's registry, loads by a line in dat.conf, so that programs built
//! against uDAPL run on any of our devices.
//!
//! ```text
//! nicety u2.0 threadsafe default /usr/lib/libnicety_dat.so nicety.2.0 "shm" ""
//! ```
//!
//! The instance data, `shm` here, is a device's name as `nicety devices` lists them. `nicety run --dat -- COMMAND` sets that up.
//!
//! Each function checks its handles and pointers, calls [`dapl`], and turns what comes back into the standard's numbers. No panic
//! leaves it. What is not there answers `DAT_NOT_IMPLEMENTED`.
//!
//! | file | what it holds |
//! |---|---|
//! | `types` | the standard's structures; checked against the installed header by a test |
//! | `answer` | what a call answers |
//! | `lines` | the lines of dat.conf |
//! | `handles` | objects by handle |
//! | `provider` | the table of functions, and how the registry gets it |
//! | `calls` | the functions, by object |

mod answer;
mod calls;
mod handles;
mod lines;
pub mod provider;
pub mod types;
