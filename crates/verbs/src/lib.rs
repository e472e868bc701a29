//! The device API: one interface to every NIC, with the semantics of the OFA verbs and RDMA-CM.
//!
//! A [`Device`] creates protection domains ([`Pd`]), completion queues ([`Cq`]), NIC memory ([`Device::alloc_dm`]) and
//! connection channels ([`Cm`]). Memory ([`Buf`], host or NIC) becomes accessible by registration ([`Pd::reg_mr`]); a
//! reliable connected queue pair ([`Qp`]) moves data between registered memory of its two ends. Names are those of
//! libibverbs and librdmacm; the interface is idiomatic Rust: objects free themselves, errors are typed and give the
//! cause, no user error panics.
//!
//! | file | contents |
//! |---|---|
//! | `device`, `pd`, `mr`, `cq`, `srq`, `qp`, `cm` | the objects, one per file |
//! | `pairing` | connecting queue pairs whose numbers were exchanged out of band |
//! | `memory` | [`Buf`]: memory that a NIC may read and write, in the host or on the NIC |
//! | `wr`, `wc`, `attr` | work requests, work completions, attributes and limits |
//! | `access`, `qp_state`, `async_event` | rights of regions; states of queue pairs; asynchronous events |
//! | `conn` | parameters of connections, and information about their ends |
//! | `screen` | [`Screen`]: checks connect requests inside the NIC |
//! | `error` | [`Error`] |
//! | `numbers` | numbers of a device's objects |
//! | `firmware`, `program` | [`Firmware`]: programs that a NIC runs itself; the host's handle of one |
//! | `provider` | the traits that a NIC implements; the default is unsupported |
//!
//! Rules cite the InfiniBand Architecture Specification, volume 1, release 1.x (IBA) and the manual pages of
//! libibverbs and librdmacm (ibv_*(3), rdma_*(3)).

mod access;
mod async_event;
mod attr;
mod cm;
mod conn;
mod cq;
mod device;
mod error;
mod firmware;
mod memory;
mod mr;
mod numbers;
pub mod pairing;
mod pd;
mod program;
pub mod provider;
mod qp;
mod qp_state;
mod screen;
mod srq;
mod wc;
mod wr;

pub use access::Access;
pub use async_event::AsyncEvent;
pub use attr::{
    AtomicCap, DeviceAttr, DmAccess, QpCap, RNR_PAUSE, RNR_PAUSE_MAX, RNR_RETRY_FOREVER, SrqInit, WriteOrder,
};
pub use cm::{BoundAddr, Cm, CmId, Listener};
pub use conn::{CmFailure, ConnInfo, ConnParam, Depths};
pub use cq::{CompChannel, Cq};
pub use device::Device;
pub use error::{Error, Result};
pub use firmware::{Firmware, FirmwareCap, Message, NicCtx};
pub use host;
pub use memory::{Buf, MemoryKind, Words};
pub use mr::{ImplicitMr, Mr};
pub use pd::Pd;
pub use program::Program;
pub use provider::{CmEvent, ConnectRequest};
pub use qp::{Qp, QpInit};
pub use qp_state::QpState;
pub use screen::{Screen, ScreenRequest, Verdict};
pub use srq::Srq;
pub use wc::{Wc, WcOpcode, WcStatus};
pub use wr::{Data, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};
