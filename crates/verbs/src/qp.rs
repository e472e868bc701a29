//! [`Qp`]: reliable connected queue pairs.

use std::sync::{Arc, OnceLock};

use host::Span;

use crate::provider::QpOps;
use crate::{
    Buf, Error, Pd, QpCap, QpInit, QpState, RNR_PAUSE_MAX, RNR_RETRY_FOREVER, RecvWr, RemoteAddr, Result,
    SendFlags, SendWr,
};

/// A reliable connected queue pair (`ibv_qp` of type RC). Dropping it disconnects; its own outstanding
/// requests then complete nowhere, and completions that nobody has polled go with it. The peer's are flushed.
///
/// Requests of the send queue are carried out and complete in order. Any thread may post at any time.
pub struct Qp {
    ops: Arc<dyn QpOps>,
    /// Of one that is connected with itself: what it is connected with, which sends for it, and receives nothing.
    twin: OnceLock<Box<Self>>,
    pd: Pd,
    init: QpInit,
    /// [`crate::DeviceAttr::write_ring`], at hand.
    may_ring: bool,
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Qp({}, {:?})", self.num(), self.state())
    }
}

impl Qp {
    pub(crate) fn new(ops: Arc<dyn QpOps>, pd: Pd, init: QpInit) -> Self {
        let may_ring = pd.device().attr().write_ring;
        Self { ops, twin: OnceLock::new(), pd, init, may_ring }
    }

    /// The device's number of it, which events carry.
    pub fn num(&self) -> u32 {
        self.ops.num()
    }

    /// The number that completions carry: [`QpInit::known_as`], or else [`Qp::num`].
    pub fn known_as(&self) -> u32 {
        self.init.known_as.unwrap_or_else(|| self.num())
    }

    /// Its state now.
    pub fn state(&self) -> QpState {
        self.ops.state()
    }

    /// The protection domain that it reaches.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// What it was made of.
    pub fn init(&self) -> &QpInit {
        &self.init
    }

    /// Makes what a queue pair is connected with that is to be connected with itself, as NICs connect two: its requests are posted
    /// there, and complete as its own. The twin, to be connected with it.
    pub(crate) fn make_twin(&self) -> Result<&Self> {
        let cap = QpCap { max_recv_wr: 1, max_recv_sge: 1, ..self.init.cap };
        let init = QpInit { cap, srq: None, known_as: Some(self.known_as()), ..self.init.clone() };
        let again = Error::Invalid("the queue pair is connected with itself already".into());
        self.twin.set(Box::new(self.pd.create_qp(&init)?)).map_err(|_| again)?;
        self.twin.get().map(Box::as_ref).ok_or(Error::Foreign { what: "the queue pair" })
    }

    /// What its requests are posted to.
    #[inline]
    fn sender(&self) -> &dyn QpOps {
        self.twin.get().map_or(&*self.ops, |twin| &*twin.ops)
    }

    /// Posts one request to the send queue (`ibv_post_send`).
    ///
    /// # Errors
    /// Nothing is posted on any of these: [`crate::Error::QueueFull`]; [`crate::Error::WrongState`] before the
    /// connection is established; [`crate::Error::Limit`] for too many pieces, too much inline or message
    /// data; [`crate::Error::Invalid`] for inline data with an operation that returns data. In the error state
    /// requests are accepted and flushed (IBA 10.3.1). Everything else that is wrong with a request
    /// shows in its completion.
    #[inline]
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if wr.flags.contains(SendFlags::RING) && !self.may_ring {
            return self.pd.device().unsupported("writes that ring");
        }
        self.sender().post_send(wr)
    }

    /// Posts several requests in order, for one doorbell where the NIC has one.
    ///
    /// # Errors
    /// As [`Qp::post_send`], with the number of requests that *were* posted.
    pub fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, crate::Error)> {
        let refused = wrs.iter().position(|wr| wr.flags.contains(SendFlags::RING) && !self.may_ring);
        self.sender().post_sends(&wrs[..refused.unwrap_or(wrs.len())])?;
        match refused {
            None => Ok(()),
            Some(at) => self.pd.device().unsupported("writes that ring").map_err(|e| (at, e)),
        }
    }

    /// Posts a receive (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`crate::Error::QueueFull`]; [`crate::Error::WrongState`] in `Reset`; [`crate::Error::Limit`] for too
    /// many pieces; [`crate::Error::Invalid`] on a queue pair with a shared receive queue.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.ops.post_recv(wr)
    }

    /// Moves it to the error state: everything posted is flushed, the peer is disconnected.
    pub fn to_error(&self) {
        self.ops.to_error();
        self.twin.get().into_iter().for_each(|twin| twin.to_error());
    }

    /// Sets the limit of retries for messages of this queue pair that find no receive posted (`rnr_retry` of `ibv_modify_qp(3)`): 0 to 6, or
    /// [`RNR_RETRY_FOREVER`]. It replaces the limit in the peer's [`crate::ConnParam`], and applies to messages that are posted from
    /// now on. The receiver sets the pause before each retry ([`Self::set_rnr_pause`]).
    ///
    /// # Errors
    /// [`crate::Error::Limit`] for more than 7, [`crate::Error::Unsupported`] where the NIC has no such limit.
    pub fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        Error::check_limit("retries", retries.into(), RNR_RETRY_FOREVER.into())?;
        self.sender().set_rnr_retry(retries)
    }

    /// Sets the pause before messages of the peer that find no receive here are tried again (`min_rnr_timer` of `ibv_modify_qp(3)`).
    /// The default is [`crate::RNR_PAUSE`], the limit [`crate::RNR_PAUSE_MAX`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a longer one, [`crate::Error::Unsupported`] where the NIC has no such pause.
    pub fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        if pause > RNR_PAUSE_MAX {
            return Err(Error::Invalid(format!(
                "a pause of {pause} between retries is longer than {RNR_PAUSE_MAX}, the longest; use a shorter one"
            )));
        }
        self.ops.set_rnr_pause(pause)
    }

    /// Whether successful completions of it, of sends or receives, wait to be polled. They are lost when it is destroyed, so a
    /// program needs them before it hears that the connection has ended. Always false on a NIC that does not know.
    pub fn has_completed(&self) -> bool {
        self.ops.has_completed()
    }

    /// `len` bytes of the peer's NIC memory at `remote`, for load and store by this process: a line that both sides write in turn
    /// costs one transfer, which no message does, and a window that several processes share costs none
    /// (`MPI_Win_allocate_shared`). The key must allow reading and writing, and is looked at once, now: the mapping lasts until
    /// its last handle is dropped, though the peer deregisters, disconnects or dies. What the peer puts there after it has freed
    /// the memory is reached, too.
    ///
    /// Stores are ordered with requests of the queue pair only as the processor orders stores: post after them what is to
    /// come after them.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] where peers' memory cannot be mapped, and for memory of the host;
    /// [`crate::Error::WrongState`] unless connected; [`crate::Error::Invalid`] where the key does not allow it, and for no bytes.
    pub fn map(&self, remote: RemoteAddr, len: usize) -> Result<Buf> {
        if len == 0 {
            return Err(Error::Invalid("a mapping needs at least one byte".into()));
        }
        self.sender().map(remote, len)
    }

    /// Wakes whoever sleeps on the queue that the peer's receives complete to, as a write that rings does
    /// ([`crate::SendFlags::RING`]): for stores in its memory that came before. It costs little where nobody sleeps. A peer that is
    /// not connected is not rung.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] where [`crate::DeviceAttr::maps_peers`] denies it.
    #[inline]
    pub fn ring(&self) -> Result<()> {
        self.sender().ring()
    }

    /// The implementation, for its own crate.
    pub fn ops(&self) -> &Arc<dyn QpOps> {
        &self.ops
    }
}
