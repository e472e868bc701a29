//! Data path: [`Link`], the queue pair and the memory of a connection, with the requests that the protocol needs; and what its halves
//! share, [`Counters`] and [`Flags`].

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use bitflags::bitflags;
use verbs::{CompChannel, Cq, Device, Qp, QpCap, QpInit, SendWr};

use crate::config::{Carrier, Config};
use crate::memory::Memory;
use crate::wire::Message;

/// Control messages with credits that may be on their way at the same time.
pub(crate) const CONTROLS_MAX: u32 = 4;
/// Requests in reserve for the ends of both directions, which never wait.
const ENDS_MAX: u32 = 2;
/// Receives in reserve for the peer's control messages, which need no credit: two halves of the ring, two of the credits, the ends of
/// both directions, and some that a peer of another version may send.
const CONTROL_RECEIVES: u32 = 16;

bitflags! {
    /// What has become of a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Flags: u32 {
        /// The peer sends nothing more.
        const PEER_SHUT = 1;
        /// The peer neither sends nor receives any more.
        const PEER_GONE = 2;
        /// The connection has failed.
        const BROKEN = 4;
        /// The peer has violated the protocol.
        const VIOLATED = 8;
        /// This end sends nothing more.
        const SHUT_WRITE = 16;
        /// This end takes nothing more.
        const SHUT_READ = 32;
        /// This end has announced that it neither sends nor receives any more.
        const DISCONNECTING = 64;
    }
}

/// Values that one lock's holder writes and another's reads. Positions count bytes since the connection was made.
#[derive(Default)]
pub(crate) struct Counters {
    /// Bytes that have arrived.
    pub(crate) arrived: AtomicU64,
    /// Bytes that the program has taken.
    pub(crate) taken: AtomicU64,
    /// Bytes that the peer may have written, at most.
    pub(crate) granted: AtomicU64,
    /// Sent bytes that have left the ring.
    pub(crate) sent: AtomicU64,
    /// Requests for data that have completed.
    pub(crate) data_done: AtomicU32,
    /// Requests for control messages that have been posted and have completed.
    pub(crate) control_posted: AtomicU32,
    pub(crate) control_done: AtomicU32,
    /// Data messages up to this number find a receive.
    pub(crate) credit_limit: AtomicU16,
    /// Messages that may have changed the table.
    pub(crate) table_version: AtomicU32,
    /// [`Flags`].
    flags: AtomicU32,
}

impl Counters {
    pub(crate) fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.flags.load(Ordering::Acquire))
    }

    /// Sets flags, and returns the former ones.
    pub(crate) fn set(&self, flags: Flags) -> Flags {
        Flags::from_bits_retain(self.flags.fetch_or(flags.bits(), Ordering::AcqRel))
    }
}

/// The queue pair and the memory of a connection.
pub(crate) struct Link {
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    pub(crate) channel: CompChannel,
    pub(crate) memory: Memory,
    pub(crate) config: Config,
    carrier: Carrier,
    pub(crate) big_endian_peer: bool,
}

impl Link {
    /// A queue pair with its receives, not connected yet.
    ///
    /// # Errors
    /// As [`Device::create_cq`], [`verbs::Pd::create_qp`] and [`verbs::Pd::reg_mr`].
    pub(crate) fn new(device: &Device, config: &Config, carrier: Carrier) -> verbs::Result<Self> {
        let config = config.adjusted(device.attr());
        let (sends, receives) =
            (u32::from(config.send_queue) + ENDS_MAX, u32::from(config.recv_queue) + CONTROL_RECEIVES);
        let channel = device.create_comp_channel()?;
        let cq = device.create_cq_with(sends + receives, &channel)?;
        let pd = device.alloc_pd()?;
        let memory = Memory::new(&pd, &config, carrier, receives)?;
        let cap = QpCap {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline: config.inline.into(),
        };
        let qp = pd.create_qp(&QpInit::new(&cq).cap(cap))?;
        let link = Self { qp, cq, channel, memory, config, carrier, big_endian_peer: false };
        (0..receives).try_for_each(|slot| link.post_receive(slot))?;
        Ok(link)
    }

    /// Posts the receive with this slot.
    pub(crate) fn post_receive(&self, slot: u32) -> verbs::Result<()> {
        use crate::memory::MESSAGE_BYTES as BYTES;
        let sge = self.memory.messages.as_ref().map(|slots| slots.sge(u64::from(slot * BYTES), BYTES));
        self.qp.post_recv(&verbs::RecvWr::new(slot.into(), sge.as_slice()))
    }

    /// Data and messages as requests of the send queue: how many each takes.
    pub(crate) fn requests_per_message(&self) -> u32 {
        match self.carrier {
            Carrier::Immediate => 1,
            Carrier::Send => 2,
        }
    }

    /// Posts a write and the message after it. The request with the message completes under `wr_id`.
    pub(crate) fn post_write(
        &self,
        wr_id: u64,
        data: verbs::Data<'_>,
        to: verbs::RemoteAddr,
        message: Message,
    ) -> verbs::Result<()> {
        use verbs::{Data, SendFlags, SendOp};
        let bits = message.encode();
        let request = |wr_id, op, data| SendWr { wr_id, op, data, flags: SendFlags::SIGNALED };
        match self.carrier {
            Carrier::Immediate => self.qp.post_send(&request(wr_id, SendOp::WriteImm(to, bits), data)),
            Carrier::Send => {
                let bytes = self.message_bytes(bits);
                let write = request(wr_id, SendOp::Write(to), data).unsignaled();
                let both = [write, request(wr_id, SendOp::Send, Data::Inline(&bytes))];
                self.qp.post_sends(&both).map_err(|(_, why)| why)
            }
        }
    }

    /// Posts a message alone.
    pub(crate) fn post_message(&self, wr_id: u64, message: Message) -> verbs::Result<()> {
        use verbs::{RemoteAddr, SendOp};
        let bits = message.encode();
        match self.carrier {
            Carrier::Immediate => {
                let op = SendOp::WriteImm(RemoteAddr::default(), bits);
                self.qp.post_send(&SendWr::new(wr_id, op, &[]))
            }
            Carrier::Send => {
                self.qp.post_send(&SendWr::inline(wr_id, SendOp::Send, &self.message_bytes(bits)))
            }
        }
    }

    /// A message as bytes, in the order of the peer's processor.
    fn message_bytes(&self, bits: u32) -> [u8; 4] {
        if self.big_endian_peer { bits.to_be_bytes() } else { bits.to_le_bytes() }
    }
}
