//! [`Config`]: the sizes of a connection.

use host::Span;

use crate::wire;

/// The fewest and the most requests in a queue.
const QUEUE_MIN: u16 = 16;
const QUEUE_MAX: u16 = 0xfffe;

/// The least size of a buffer in bytes: two pieces of it have to hold something.
const BUFFER_MIN: u32 = 4096;
/// The largest, so that a message can express half of it.
const BUFFER_MAX: u32 = 1 << 29;

/// Bytes of inline data that control messages need.
const INLINE_MIN: u16 = 32;

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// As immediate data of RDMA writes.
    #[default]
    Immediate,
    /// As sends of four bytes: iWARP has no immediate data (RFC 5040).
    Send,
}

/// The sizes of a connection. They are set before it exists, and adjusted to what the device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The size of the send buffer in bytes (`SO_SNDBUF`).
    pub send_buffer: u32,
    /// The size of the receive buffer in bytes (`SO_RCVBUF`).
    pub recv_buffer: u32,
    /// Send requests (`RDMA_SQSIZE`).
    pub send_queue: u16,
    /// Receives for data messages (`RDMA_RQSIZE`).
    pub recv_queue: u16,
    /// The most bytes that are sent without a copy into the send buffer (`RDMA_INLINE`).
    pub inline: u16,
    /// Mappings that the peer may establish here (`RDMA_IOMAPSIZE`).
    pub iomap_size: u16,
    /// How long a call polls before it sleeps.
    pub polling: Span,
}

impl Default for Config {
    /// The sizes of rdma-core.
    fn default() -> Self {
        Self {
            send_buffer: 1 << 17,
            recv_buffer: 1 << 17,
            send_queue: 384,
            recv_queue: 384,
            inline: 64,
            iomap_size: 0,
            polling: Span::from_us(10),
        }
    }
}

impl Config {
    /// Moves every size into its range for a device with these limits; the receive buffer becomes a multiple of two cache lines, so that
    /// each half begins with one.
    pub(crate) fn adjusted(self, attr: &verbs::DeviceAttr) -> Self {
        let queue_max = u16::try_from(attr.max_qp_wr / 2).unwrap_or(QUEUE_MAX).clamp(QUEUE_MIN, QUEUE_MAX);
        let inline_max = u16::try_from(attr.max_inline).unwrap_or(u16::MAX).max(INLINE_MIN);
        Self {
            send_buffer: self.send_buffer.clamp(BUFFER_MIN, BUFFER_MAX),
            recv_buffer: self.recv_buffer.clamp(BUFFER_MIN, BUFFER_MAX) & !127,
            send_queue: self.send_queue.clamp(QUEUE_MIN, queue_max),
            recv_queue: self.recv_queue.clamp(QUEUE_MIN, queue_max),
            inline: self.inline.clamp(INLINE_MIN, inline_max),
            iomap_size: wire::round_iomap_size(self.iomap_size),
            ..self
        }
    }
}
