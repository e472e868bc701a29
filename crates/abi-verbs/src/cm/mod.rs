//! librdmacm: connections by addresses.
//!
//! An identifier has a channel on which it tells what has become of it. One without a channel of the program's has its own, and
//! each call waits for the event that answers it.
//!
//! | file | what it holds |
//! |---|---|
//! | `channel`, `event` | channels; events as a program holds and acknowledges them |
//! | `id`, `show`, `destroy` | identifiers, and what they are asked; what C sees of them; how they end |
//! | `route`, `shared` | which device leads where; contexts that are opened for that |
//! | `reserve` | addresses that identifiers hold |
//! | `resolve` | an identifier's address, and the other side's |
//! | `endpoint` | queue pairs, shared receive queues and completion queues of an identifier |
//! | `connect`, `attempt`, `outcome` | listening, connecting, accepting; trying again; what the device says of it |
//! | `service` | services of datagrams |
//! | `sync` | waiting for what answers a call; identifiers that are made in one call |
//! | `addrinfo` | addresses by name |

pub(crate) mod addrinfo;
pub(crate) mod attempt;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod destroy;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod outcome;
pub(crate) mod reserve;
pub(crate) mod resolve;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod show;
pub(crate) mod sync;
