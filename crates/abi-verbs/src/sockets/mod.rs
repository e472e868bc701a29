//! The rsocket functions of librdmacm (rsocket(7)): sockets with the calls of TCP over RDMA. The crate `rsocket` has the streams; this
//! folder has descriptors, addresses, options, and waiting.
//!
//! A socket's number is that of a descriptor of the system which it owns, so that it never equals another descriptor.
//!
//! | file | contents; a file uses only those above it |
//! |---|---|
//! | `entry` | a program's socket, found by its number |
//! | `devices` | the devices that a socket uses: binding, listening, connecting |
//! | `step` | one attempt of a call that waits |
//! | `setup` | from rsocket to rclose |
//! | `options` | options and flags |
//! | `transfer` | sending and receiving |
//! | `poll` | rpoll and rselect |
//! | `iomap` | memory that the peer writes directly |

mod devices;
mod entry;
pub(crate) mod iomap;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod setup;
mod step;
pub(crate) mod transfer;
