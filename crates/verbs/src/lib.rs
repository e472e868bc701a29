//! The device API: one interface to every NIC, with the semantics of the OFA verbs and RDMA-CM.
//!
//! A program that uses a [`Device`] does not know which NIC is behind it. The crate `fabric` opens a device by its name,
//! such as `shm` or `iwarp`; a NIC implements the traits of [`provider`]. Names are those of libibverbs and librdmacm;
//! the interface is idiomatic Rust: objects free themselves, errors are typed and give the cause, no user error panics.
//!
//! | a program | by |
//! |---|---|
//! | creates the objects of a device | [`Device`]: protection domains ([`Pd`]), completion queues ([`Cq`]), connection channels ([`Cm`]) |
//! | makes memory accessible | [`Buf`], memory of the host or of the NIC ([`Device::alloc_dm`]); [`Pd::reg_mr`] registers it with rights ([`Access`]) |
//! | connects two queue pairs ([`Qp`]) | [`Cm::listen`], [`Cm::connect`] and [`Cm::accept`]; [`pairing`] if their numbers were exchanged out of band |
//! | moves data | [`Qp::post_send`] and [`Qp::post_recv`]: messages, RDMA writes and reads, atomics ([`SendWr`], [`RecvWr`]) |
//! | learns the results | [`Cq::poll`] and [`Cq::wait`] return work completions ([`Wc`]); a [`CompChannel`] has a descriptor |
//! | refuses strangers inside the NIC | [`Screen`]: checks connect requests |
//! | runs code on the NIC | [`Firmware`], which [`Device::load`] makes a [`Program`] |
//!
//! [`DeviceAttr`] has the limits of a device, and says what it supports; the rest returns [`Error::Unsupported`]. The API
//! takes the time from the device's [`host::Host`] and waits through it, so that a program runs in real and in simulated
//! time.
//!
//! # Example
//!
//! `send_word` works on queue pairs of any device. The guide `docs/guides/rust.md` has a whole program, which opens a
//! device and connects two of them.
//!
//! ```
//! use std::sync::atomic::Ordering;
//! use verbs::{Access, Buf, Cq, Pd, Qp, RecvWr, RemoteAddr, Result, SendOp, SendWr, WcOpcode};
//!
//! /// Sends a word from one queue pair to another, both of which complete on `cq`; returns what has arrived.
//! fn send_word(word: u64, pd: &Pd, cq: &Cq, from: &Qp, to: &Qp) -> Result<u64> {
//!     let sink = pd.reg_mr(&Buf::alloc(8)?, Access::LOCAL_WRITE)?;
//!     to.post_recv(&RecvWr::new(1, &[sink.sge(0, 8)]))?;
//!     from.post_send(&SendWr::inline(2, SendOp::Send, &word.to_ne_bytes()))?;
//!     for _ in 0..2 {
//!         let wc = cq.wait(None)?; // of the send and of the receive, in any order
//!         assert!(wc.is_ok(), "{wc:?}");
//!     }
//!     Ok(sink.buf().word(0)?.load(Ordering::Acquire))
//! }
//!
//! // Memory and work requests need no device.
//! let memory = Buf::alloc(8)?;
//! memory.write(0, &42_u64.to_ne_bytes())?;
//! assert_eq!(memory.word(0)?.load(Ordering::Acquire), 42);
//! let write = SendWr::inline(3, SendOp::Write(RemoteAddr { addr: 0x1000, rkey: 7 }), b"8 bytes.");
//! assert_eq!(write.op.opcode(), WcOpcode::Write);
//! # Ok::<(), verbs::Error>(())
//! ```
//!
//! Rules cite the InfiniBand Architecture Specification, volume 1, release 1.x (IBA) and the manual pages of
//! libibverbs and librdmacm (ibv_*(3), rdma_*(3)).

mod access;
mod async_event;
mod attr;
mod binding;
mod cm;
mod conn;
mod cq;
mod device;
mod error;
mod firmware;
mod memory;
mod mr;
mod mw;
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
    AtomicCap, DeviceAttr, DmAccess, QpCap, RNR_PAUSE, RNR_PAUSE_MAX, RNR_RETRY_FOREVER, RegionCap, SrqInit,
    WriteOrder,
};
pub use binding::{MwBind, MwKind};
pub use cm::{BoundAddr, Cm, CmId, Listener};
pub use conn::{CmFailure, ConnInfo, ConnParam, Depths};
pub use cq::{CompChannel, Cq};
pub use device::Device;
pub use error::{Error, Result};
pub use firmware::{Firmware, FirmwareCap, Message, NicCtx};
pub use host;
pub use memory::{Buf, MemoryKind, Words};
pub use mr::{ImplicitMr, Mr};
pub use mw::Mw;
pub use pd::Pd;
pub use program::Program;
pub use provider::{CmEvent, ConnectRequest};
pub use qp::{Qp, QpInit};
pub use qp_state::QpState;
pub use screen::{Screen, ScreenRequest, Verdict};
pub use srq::Srq;
pub use wc::{Wc, WcOpcode, WcStatus};
pub use wr::{Data, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};
