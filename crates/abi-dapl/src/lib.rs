//! A DAT 2.0 provider library: `libdat2`, the standard's registry, loads it by a line in dat.conf, so that programs built
//! against uDAPL run on any of our devices.
//!
//! ```text
//! nicety u2.0 threadsafe default /usr/lib/libnicety_dat.so nicety.2.0 "shm" ""
//! ```
//!
//! The instance data, `shm` here, is a device's name as `nicety devices` lists them. `nicety run --dat -- COMMAND` configures
//! all of this.
//!
//! Each function checks its handles and pointers, calls [`dapl`], and converts the result to the standard's numbers. Panics are
//! caught. Functions that are not implemented return `DAT_NOT_IMPLEMENTED`.
//!
//! | file | purpose |
//! |---|---|
//! | `types` | the standard's structures; a test checks them against the installed header |
//! | `dat_return` | the return values of calls |
//! | `reason`, `names` | why a call failed, in words; the names of its arguments |
//! | `dat_conf` | the lines of dat.conf |
//! | `handles` | objects by handle |
//! | `provider` | the table of functions, and its registration |
//! | `calls` | the functions, by object |

mod calls;
mod dat_conf;
mod dat_return;
mod handles;
mod names;
pub mod provider;
mod reason;
pub mod types;
