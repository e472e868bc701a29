//! librdmacm: connections by addresses.
//!
//! An identifier reports its events on a channel. An identifier without a program's channel has its own, and each call waits for the
//! event that answers it.
//!
//! | file | contents |
//! |---|---|
//! | `channel`, `event` | event channels; events that a program holds and acknowledges |
//! | `id`, `c_fields`, `destroy` | creating identifiers and their options; the fields that C sees; destroying them |
//! | `route`, `shared` | which device reaches an address; the contexts that librdmacm opens |
//! | `reserve` | addresses that identifiers hold |
//! | `resolve` | binding an identifier and resolving the peer's address |
//! | `endpoint` | queue pairs, shared receive queues and completion queues of an identifier |
//! | `connect`, `attempt`, `outcome` | listen, connect, accept; retries; the device's connection events |
//! | `service` | datagram services |
//! | `sync` | synchronous calls, and endpoints created in one call |
//! | `addrinfo` | name resolution |

pub(crate) mod addrinfo;
pub(crate) mod attempt;
pub(crate) mod c_fields;
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
pub(crate) mod sync;
