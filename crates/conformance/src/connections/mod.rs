//! Connections: how they are established, refused and ended.
//!
//! | file | contents |
//! |---|---|
//! | `connect`, `disconnect` | establishing and ending connections |
//! | `listen`, `screen`, `ports` | listeners, listeners that screen requests, reserved addresses |
//! | `pairing` | queue pairs whose numbers were exchanged out of band |
//! | `replaced_qp` | queue pairs that replace others under the same number |
//! | `peer_loss` | peers that disappear |

pub(crate) mod connect;
pub(crate) mod disconnect;
pub(crate) mod listen;
pub(crate) mod pairing;
pub(crate) mod peer_loss;
pub(crate) mod ports;
pub(crate) mod replaced_qp;
pub(crate) mod screen;
