//! librdmacm: connections by addresses.
//!
//! | file | what it holds |
//! |---|---|
//! | `channel` | event channels, events, and their acknowledgement |
//! | `id` | identifiers: addresses, routes, queue pairs |
//! | `connect` | listening, connecting, accepting, and what the device says of it |

pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod id;
