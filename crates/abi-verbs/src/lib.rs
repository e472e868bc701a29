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
//! | `device`, `port`, `context` | the list of devices, what they can do; opened ones |
//! | `pd`, `mr`, `dm`, `channel`, `cq`, `srq`, `ah` | objects, one kind in each |
//! | `qp`, `life`, `attach` | queue pairs; the device's queue pair behind each, and how events reach it |
//! | `modify`, `states`, `settings`, `reset` | states, what is set with them, and the way back to RESET |
//! | `gate`, `parting`, `parted` | requests posted before the connection is up; reports when the other end has gone |
//! | `ud` | datagrams |
//! | `post`, `builder`, `poll` | requests and completions: by chains, by calls, one by one |
//! | `event`, `mailbox` | asynchronous events; what a program has not been told yet |
//! | `text` | names and rates |
//! | `sysfs` | the files of a device, as the kernel has them |
//! | `paths`, `folders`, `interface` | what is below /dev/infiniband and /sys/class/infiniband, where this library is preloaded |
//! | `cm` | librdmacm |

mod address;
mod ah;
mod answer;
mod attach;
mod builder;
mod channel;
mod cm;
mod context;
mod cq;
mod device;
mod dm;
mod engine;
mod errno;
mod event;
mod exports;
mod folders;
mod gate;
mod interface;
mod life;
mod mailbox;
mod modify;
mod mr;
mod objects;
mod parted;
mod parting;
mod paths;
mod pd;
mod poll;
mod port;
mod post;
mod qp;
mod reset;
mod settings;
mod slab;
mod srq;
mod states;
mod sysfs;
mod tables;
mod text;
mod thread;
mod ud;
mod usage;

/// The bodies of the exported functions, by their names.
mod calls {
    pub(crate) use crate::ah::*;
    pub(crate) use crate::channel::*;
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
    pub(crate) use crate::context::*;
    pub(crate) use crate::cq::*;
    pub(crate) use crate::device::*;
    pub(crate) use crate::event::*;
    pub(crate) use crate::modify::*;
    pub(crate) use crate::mr::*;
    pub(crate) use crate::paths::{ibv_get_sysfs_path, ibv_read_sysfs_file};
    pub(crate) use crate::pd::*;
    pub(crate) use crate::port::*;
    pub(crate) use crate::qp::*;
    pub(crate) use crate::srq::*;
    pub(crate) use crate::text::*;
}
