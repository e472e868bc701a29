//! Connections by librdmacm.
//!
//! | file | contents |
//! |---|---|
//! | `cm_events` | the events of a channel of the API |
//! | `conn` | one connection: its phases, and the events that move it on |
//! | `registry` | all connections and listeners of a device, by number |

pub(crate) mod cm_events;
pub(crate) mod conn;
pub(crate) mod registry;
