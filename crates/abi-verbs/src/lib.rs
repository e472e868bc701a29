//! `libibverbs.so.1` and `librdmacm.so.1` in one file: programs built for libibverbs and librdmacm run unmodified on all our devices.
//! `nicety run` makes programs load it under both names.
//!
//! `NICETY_VERBS_DEVICES` names the devices, separated by `;` (`shm` if unset); programs see them as `nicety0`, `nicety1` and so on.
//! `NICETY_VERBS_KIND` selects whether they appear as RoCE (`hca`) or as iWARP (`rnic`). No other crate below reads the environment.
//!
//! Each function validates the objects that it is passed, calls `verbs`, and converts the result to C numbers. Panics are contained.
//! Unsupported functions return ENOSYS or EOPNOTSUPP.
//!
//! | file | contents |
//! |---|---|
//! | `functions.txt`, `private.txt` | the table of public functions and their support; names that vendors' libraries need. build.rs generates code from both |
//! | `exports` | the exported functions |
//! | `tables` | functions that the inline functions of `verbs.h` call through an object |
//! | `answer`, `errno` | panic containment and return conventions; error numbers |
//! | `slab` | storage of objects, with validation of their addresses |
//! | `objects`, `usage` | the objects that programs hold; use counts that prevent destruction |
//! | `engine`, `thread` | an opened device; the thread that handles its events |
//! | `address` | addressing: GIDs and LIDs |
//! | `discovery` | the list of devices, their attributes, and their files in /sys and /dev |
//! | `resources` | contexts, domains, regions, queues, address handles, events |
//! | `qp` | queue pairs |
//! | `requests` | the data path |
//! | `ud` | datagrams |
//! | `event_queue` | queues of events that a program has not taken |
//! | `text` | names and rates |
//! | `cm` | librdmacm |
//! | `sockets` | librdmacm's sockets, rsocket(7) |

mod address;
mod answer;
mod cm;
mod discovery;
mod engine;
mod errno;
mod event_queue;
mod exports;
mod objects;
mod qp;
mod requests;
mod resources;
mod slab;
mod sockets;
mod tables;
mod text;
mod thread;
mod ud;
mod usage;

/// The bodies of the exported functions, by name.
mod calls {
    pub(crate) use crate::cm::addrinfo::*;
    pub(crate) use crate::cm::channel::*;
    pub(crate) use crate::cm::connect::*;
    pub(crate) use crate::cm::destroy::*;
    pub(crate) use crate::cm::endpoint::*;
    pub(crate) use crate::cm::event::*;
    pub(crate) use crate::cm::id::*;
    pub(crate) use crate::cm::resolve::*;
    pub(crate) use crate::cm::route::*;
    pub(crate) use crate::cm::sync::*;
    pub(crate) use crate::discovery::device::*;
    pub(crate) use crate::discovery::paths::{ibv_get_sysfs_path, ibv_read_sysfs_file};
    pub(crate) use crate::discovery::port::*;
    pub(crate) use crate::qp::modify::*;
    pub(crate) use crate::qp::queue_pair::*;
    pub(crate) use crate::resources::ah::*;
    pub(crate) use crate::resources::channel::*;
    pub(crate) use crate::resources::context::*;
    pub(crate) use crate::resources::cq::*;
    pub(crate) use crate::resources::event::*;
    pub(crate) use crate::resources::mr::*;
    pub(crate) use crate::resources::pd::*;
    pub(crate) use crate::resources::srq::*;
    pub(crate) use crate::sockets::iomap::*;
    pub(crate) use crate::sockets::options::*;
    pub(crate) use crate::sockets::poll::*;
    pub(crate) use crate::sockets::setup::*;
    pub(crate) use crate::sockets::transfer::*;
    pub(crate) use crate::text::*;
}
