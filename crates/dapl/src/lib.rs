//! uDAPL 2.0 over the device API: the objects of the DAT Collaborative's user-level standard, in safe Rust.
//!
//! An [`Ia`] is an open adapter on a device. Memory is registered in a [`Pz`] as an [`Lmr`]; an [`Ep`] is one end of a
//! connection; what happens comes out of an [`Evd`], of which a [`Cno`] watches several. The passive side makes a [`Psp`] or
//! [`Rsp`] and answers each [`Cr`]. Everything that blocks does so in one loop of `Host`, so that all of it runs in real and in
//! virtual time.
//!
//! | file | what it holds; a file uses those above it only |
//! |---|---|
//! | `error`, `attr` | errors, attributes, with the standard's numbers |
//! | `ia` | [`Adapter`], [`Ia`], and how the device's events are handed out |
//! | `cr`, `event` | [`Cr`], [`Event`]: what dispatchers hold |
//! | `lane` | from a device's completion to the standard's event |
//! | `cno`, `evd` | [`Cno`] and [`Evd`], where one waits |
//! | `mem`, `srq`, `config` | [`Pz`], [`Lmr`]; [`Srq`]; what an endpoint is made of |
//! | `ep`, `connect` | [`Ep`] and what is posted to it; its connections |
//! | `rmr`, `sp` | [`Rmr`], which is bound by an endpoint; [`Psp`], [`Rsp`], and answers to requests |
//!
//! Names and numbers are those of the uDAPL 2.0 API specification and its headers. Objects are handles; the standard's rule
//! that an object in use is not freed is a call here (`check_unused`), since dropping a handle is always safe.
//!
//! # Ordering
//!
//! Requests of an endpoint are carried out, and complete, in the order in which they were posted; so do receives. An event of
//! the request dispatcher says nothing about the receive dispatcher's. A bind's event comes behind those of the requests posted
//! before it. A peer's first message does not wait for this side to hear that the connection is established: even in one
//! dispatcher the receive's event may come first. A disconnect's event comes when requests are flushed or about to be.
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
mod lane;
mod mem;
mod rmr;
mod sp;
mod srq;
mod sync;

pub use attr::{
    AsyncKind, Close, CompletionFlags, EpAttr, EpState, EvdFlags, IaAttr, Label, MemPriv, SrqAttr,
};
pub use cno::{Agent, Cno};
pub use config::EpConfig;
pub use connect::port_of;
pub use cr::Cr;
pub use ep::{Ep, RemoteEnd};
pub use error::{Error, Kind, Result, Subtype};
pub use evd::{Evd, EvdParam};
pub use event::{ConnectionKind, Dto, DtoEvent, DtoStatus, Event, RequestEvent};
pub use ia::{Adapter, Ia};
pub use mem::{Lmr, Pz};
pub use rmr::{Rmr, RmrParam};
pub use sp::{Psp, Rsp};
pub use srq::{Srq, SrqParam};
pub use verbs::{Buf, RemoteAddr, Sge};
