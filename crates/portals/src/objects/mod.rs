//! The values of the interface: arguments, results, and the messages between interfaces (Portals 4.3, chapter 3).
//!
//! | file | contents |
//! |---|---|
//! | `entry`, `region`, `process` | list entries, memory, and processes |
//! | `options`, `limits` | options of entries, descriptors and the portal table; capacities of an interface |
//! | `command` | operations, started by a call or by a counter |
//! | `message` | requests and answers between interfaces, without their data |
//! | `atomic` | atomic operations and their data types |
//! | `event`, `error` | events and return codes |
//! | `handles` | handles, and the tables that they index |

pub(crate) mod atomic;
pub(crate) mod command;
pub(crate) mod entry;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod handles;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod options;
pub(crate) mod process;
pub(crate) mod region;
