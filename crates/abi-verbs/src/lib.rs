//! `libibverbs.so.1` and `librdmacm.so.1` in one file: programs that were built for libibverbs and librdmacm run on any of our
//! devices, unmodified. `nicety run` has programs find it by both names.
//!
//! `NICETY_VERBS_DEVICES` names the devices, separated by `;` (`shm` if it is not set); programs see them as `nicety0`, `nicety1`
//! and so on. `NICETY_VERBS_KIND` says whether they look like RoCE (`hca`) or like iWARP (`rnic`). No other crate below reads the environment.
//!
//! Each function checks the objects that it is passed, calls `verbs`, and turns what comes back into the numbers of C. No panic
//! leaves it. What is not there says so by ENOSYS or EOPNOTSUPP.
//!
//! | file | what it holds |
//! |---|---|
//! | `functions.txt`, `private.txt` | the public names as a table, and what is there of each; names that vendors' libraries want. build.rs makes the rest of them |
//! | `exports` | the exported functions |
//! | `tables` | the functions that programs call through an object: inline functions of `verbs.h` |
//! | `answer`, `errno` | the firewall; errors as C has them |
//! | `slab` | objects by address, and whether they are alive |
//! | `objects`, `usage` | the objects that programs hold; what keeps them from being destroyed |
//! | `engine`, `thread` | an opened device; the thread that takes its events |
//! | `address` | who can be reached: GIDs and LIDs |
//! | `discovery` | the list of devices, what they can do, and the files that programs look for |
//! | `resources` | contexts, domains, regions, queues, address handles, events |
//! | `qp` | queue pairs |
//! | `requests` | the data path |
//! | `ud` | datagrams |
//! | `mailbox` | what a program has not been told yet |
//! | `text` | names and rates |
//! | `cm` | librdmacm |

mod address;
mod answer;
mod cm;
mod discovery;
mod engine;
mod errno;
mod exports;
mod mailbox;
mod objects;
mod qp;
mod requests;
mod resources;
mod slab;
mod tables;
mod text;
mod thread;
mod ud;
mod usage;

/// The bodies of the exported functions, by their names.
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
    pub(crate) use crate::text::*;
}
