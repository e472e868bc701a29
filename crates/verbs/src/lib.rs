//! The device API: one way to talk to every NIC, with the semantics of the OFA verbs and RDMA-CM.
//!
//! A [`Device`] hands out protection domains ([`Pd`]), completion queues ([`Cq`]), NIC memory
//! ([`Device::alloc_dm`]) and connection channels ([`Cm`]). Memory ([`Buf`], host or NIC) becomes reachable by
//! registering it ([`Pd::reg_mr`]); a reliable connected queue pair ([`Qp`]) moves data between registered
//! memory of two ends. Names are those of libibverbs and librdmacm; shapes are Rust's: objects free
//! themselves, errors are typed and say the cause, no user error panics.
//!
//! | file | what it holds |
//! |---|---|
//! | `device`, `pd`, `mr`, `cq`, `srq`, `qp`, `cm` | the objects, one per file |
//! | `pairing` | connecting queue pairs whose numbers were exchanged out of band |
//! | `memory` | [`Buf`]: memory that a NIC may read and write, in the host or on the NIC |
//! | `wr`, `wc`, `attr` | work requests, work completions, attributes and limits |
//! | `screen` | [`Screen`]: checks connect requests inside the NIC |
//! | `error` | [`Error`] |
//! | `numbers` | numbers of a device's objects |
//! | `firmware` | [`Firmware`]: programs that a NIC runs itself |
//! | `provider` | what a NIC implements; unsupported is the default answer |
//! | `rails` | a device made of several |
//!
//! Rules cite the InfiniBand Architecture Specification, volume 1, release 1.x (IBA) and the manual pages of
//! libibverbs and librdmacm (ibv_*(3), rdma_*(3)).

mod attr;
mod cm;
mod cq;
mod device;
mod error;
mod firmware;
mod memory;
mod mr;
mod numbers;
pub mod pairing;
mod pd;
pub mod provider;
mod qp;
pub mod rails;
mod screen;
mod srq;
mod wc;
mod wr;

pub use attr::{
    AtomicCap, DeviceAttr, DmAccess, QpCap, QpInit, QpState, RNR_PAUSE, RNR_PAUSE_MAX, RNR_RETRY_FOREVER,
    SrqInit, WriteOrder,
};
pub use cm::{Cm, CmEvent, CmFailure, CmId, ConnInfo, ConnParam, ConnectRequest, Depths, Listener, Port};
pub use cq::{CompChannel, Cq};
pub use device::{AsyncEvent, Device};
pub use error::{Error, Result};
pub use firmware::{Firmware, FirmwareCap, Message, NicCtx, Program};
pub use host;
pub use memory::{Buf, MemoryKind, Words};
pub use mr::{Access, ImplicitMr, Mr};
pub use pd::Pd;
pub use qp::Qp;
pub use screen::{Screen, ScreenRequest, Verdict};
pub use srq::Srq;
pub use wc::{Wc, WcOpcode, WcStatus};
pub use wr::{Data, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};
