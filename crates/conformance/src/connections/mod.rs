//! Connections: how they begin, are refused and end.
//!
//! | file | what it holds |
//! |---|---|
//! | `connect`, `disconnect` | how connections begin and end |
//! | `listen`, `screen`, `ports` | listeners, listeners that check requests first, held addresses |
//! | `pairing` | queue pairs whose numbers were exchanged out of band |
//! | `stand_in` | queue pairs that replace others under the same number |
//! | `vanish` | peers that vanish |

pub(crate) mod connect;
pub(crate) mod disconnect;
pub(crate) mod listen;
pub(crate) mod pairing;
pub(crate) mod ports;
pub(crate) mod screen;
pub(crate) mod stand_in;
pub(crate) mod vanish;
