//! uDAPL 2.0 over the device API: the objects of the DAT Collaborative's user-level standard, in safe Rust.
//!
//! An [`Ia`] is an open adapter on a device. Memory is registered in a [`Pz`] as an [`Lmr`]; an [`Ep`] is one end of a
//! connection; an [`Evd`] returns events, and a [`Cno`] watches several dispatchers. The passive side creates a [`Psp`] or
//! [`Rsp`] and answers each [`Cr`]. Everything that blocks does so in one loop of `Host`, so that all of it runs in real and
//! in virtual time.
//!
//! | file | purpose; a file uses only those above it |
//! |---|---|
//! | `error`, `attr` | errors, attributes, with the standard's numbers |
//! | `ia` | [`Adapter`], [`Ia`], and the dispatch of the device's events |
//! | `cr`, `event` | [`Cr`], [`Event`]: the entries of dispatchers |
//! | `work_queue` | from a device's completion to the standard's event |
//! | `cno`, `evd` | [`Cno`] and [`Evd`], on which threads wait |
//! | `mem`, `srq`, `config` | [`Pz`], [`Lmr`]; [`Srq`]; the configuration of an endpoint |
//! | `ep`, `connect` | [`Ep`] and its posted work; its connections |
//! | `rmr`, `sp` | [`Rmr`], which an endpoint binds; [`Psp`], [`Rsp`], and answers to requests |
//!
//! Names and numbers are those of the uDAPL 2.0 API specification and its headers. Objects are handles; the standard's rule
//! that an object in use is not freed is a separate call here (`check_unused`), since dropping a handle is always safe.
//!
//! # Ordering
//!
//! Requests of an endpoint are executed, and complete, in the order in which they were posted; so do receives. Events of the
//! request dispatcher and of the receive dispatcher are not ordered with each other. A bind's event follows those of the
//! requests posted before it. A peer's first message is not delayed until this side's event that the connection is
//! established: even in one dispatcher the receive's event may come first. A disconnect's event is reported when requests are
//! flushed or about to be.
#![forbid(unsafe_code)]

mod attr;
mod cno;
mod config;
mod connect;
mod cr;
mod ep;
mod error;
mod evd;
mod event;
mod ia;
mod mem;
mod rmr;
mod sp;
mod srq;
mod sync;
mod work_queue;

pub use attr::{
    AsyncKind, Close, CompletionFlags, EpAttr, EpState, EvdFlags, IaAttr, Label, MemPriv, SrqAttr,
};
pub use cno::{Agent, Cno};
pub use config::EpConfig;
pub use connect::port_of;
pub use cr::Cr;
pub use ep::{Ep, RemoteEnd};
pub use error::{Error, ErrorKind, Result, Subtype};
pub use evd::{Evd, EvdParam};
pub use event::{ConnectionKind, Dto, DtoEvent, DtoStatus, Event, RequestEvent};
pub use ia::{Adapter, Ia};
pub use mem::{Lmr, Pz};
pub use rmr::{Rmr, RmrParam};
pub use sp::{Psp, Rsp};
pub use srq::{Srq, SrqParam};
pub use verbs::{Buf, RemoteAddr, Sge};
