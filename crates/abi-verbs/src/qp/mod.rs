//! Queue pairs.
//!
//! | file | contents |
//! |---|---|
//! | `queue_pair` | creating and destroying queue pairs |
//! | `device_qp`, `attach` | the device's queue pair behind each, and routing its events |
//! | `modify`, `states`, `settings`, `reset` | state changes, attributes, and the reset |
//! | `gate`, `disconnect_hold`, `peer_gone` | requests posted before the connection is up; completions after the peer has gone |
//! | `failed_completion` | the log of completions with errors |

pub(crate) mod attach;
pub(crate) mod device_qp;
pub(crate) mod disconnect_hold;
pub(crate) mod failed_completion;
pub(crate) mod gate;
pub(crate) mod modify;
pub(crate) mod peer_gone;
pub(crate) mod queue_pair;
pub(crate) mod reset;
pub(crate) mod settings;
pub(crate) mod states;
