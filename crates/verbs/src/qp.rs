//! [`Qp`]: reliable connected queue pairs.

use std::sync::{Arc, OnceLock};

use host::Span;

use crate::provider::{QpOps, QpParts};
use crate::{
    Buf, Cq, Error, Pd, QpCap, QpState, RNR_PAUSE_MAX, RNR_RETRY_FOREVER, RecvWr, RemoteAddr, Result,
    SendFlags, SendWr, Srq,
};

/// Parameters of a queue pair (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInit {
    /// The completion queue of its send requests.
    pub send_cq: Cq,
    /// The completion queue of its receives; may be the same.
    pub recv_cq: Cq,
    /// Where it takes receives from, if given, instead of from a queue of its own.
    pub srq: Option<Srq>,
    /// Sizes.
    pub cap: QpCap,
    /// Whether every send request is signaled, regardless of its flags.
    pub sq_sig_all: bool,
    /// Maximum number of data bytes in a packet (the path MTU of ibv_modify_qp(3)); a connection uses the lesser value
    /// of its two ends. `None` leaves it to the device.
    pub mtu: Option<u32>,
    /// The number that completions carry instead of [`crate::Qp::num`], and that peers get if the protocol transmits a
    /// number. Events carry the device's number. So a new queue pair can replace an old one under the same number, as
    /// `IBV_QPS_RESET` of ibv_modify_qp(3) requires, and no late event of the old one is mistaken for one of the new.
    /// The caller keeps these numbers unique.
    pub reported_qp_num: Option<u32>,
    /// Whether its receives are split: a message longer than the receive that it takes is no error. Its first bytes fill
    /// the receive, which completes with [`crate::WcOpcode::RecvBegin`]; the rest waits, with all messages after it, until
    /// [`Qp::post_rest`] names memory for it. So a program can read a message's header before it decides where the data
    /// belong, and no byte of the rest is copied from an intermediate buffer.
    pub split_receives: bool,
}

impl QpInit {
    /// A queue pair of default size with one completion queue for both directions.
    pub fn new(cq: &Cq) -> Self {
        let (send_cq, recv_cq) = (cq.clone(), cq.clone());
        Self {
            send_cq,
            recv_cq,
            srq: None,
            cap: QpCap::default(),
            sq_sig_all: false,
            mtu: None,
            reported_qp_num: None,
            split_receives: false,
        }
    }

    /// Sets other sizes.
    pub fn cap(mut self, cap: QpCap) -> Self {
        self.cap = cap;
        self
    }

    /// Sets another completion queue for receives.
    pub fn recv_cq(mut self, cq: &Cq) -> Self {
        self.recv_cq = cq.clone();
        self
    }

    /// Limits packets to this many bytes of data.
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Sets a shared receive queue.
    pub fn srq(mut self, srq: &Srq) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Splits receives: see [`QpInit::split_receives`].
    pub fn split_receives(mut self) -> Self {
        self.split_receives = true;
        self
    }

    /// The parameters for the NIC: these attributes, with its own queues.
    fn parts(&self) -> QpParts {
        QpParts {
            send_cq: self.send_cq.ops().clone(),
            recv_cq: self.recv_cq.ops().clone(),
            srq: self.srq.as_ref().map(|srq| srq.ops().clone()),
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
            mtu: self.mtu,
            reported_qp_num: self.reported_qp_num,
            split_receives: self.split_receives,
        }
    }
}

/// A reliable connected queue pair (`ibv_qp` of type RC). Dropping it disconnects; its outstanding requests then never
/// complete, and completions that have not been polled are dropped with it. The peer's requests are flushed.
///
/// Requests of the send queue are executed and completed in order. Any thread may post at any time.
pub struct Qp {
    ops: Arc<dyn QpOps>,
    /// For a queue pair connected to itself: the queue pair at the other end, which sends for it, and receives nothing.
    twin: OnceLock<Box<Self>>,
    pd: Pd,
    init: QpInit,
    /// Cached [`crate::DeviceAttr::write_notify`].
    may_notify: bool,
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Qp({}, {:?})", self.num(), self.state())
    }
}

impl Qp {
    pub(crate) fn new(ops: Arc<dyn QpOps>, pd: Pd, init: QpInit) -> Self {
        let may_notify = pd.device().attr().write_notify;
        Self { ops, twin: OnceLock::new(), pd, init, may_notify }
    }

    /// The device's number of the queue pair, which events carry.
    #[inline]
    pub fn num(&self) -> u32 {
        self.ops.num()
    }

    /// The number that completions carry: [`QpInit::reported_qp_num`], or else [`Qp::num`].
    #[inline]
    pub fn reported_qp_num(&self) -> u32 {
        self.init.reported_qp_num.unwrap_or_else(|| self.num())
    }

    /// The current state.
    #[inline]
    pub fn state(&self) -> QpState {
        self.ops.state()
    }

    /// The protection domain that it can access.
    #[inline]
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// The parameters that it was created with.
    #[inline]
    pub fn init(&self) -> &QpInit {
        &self.init
    }

    /// Creates and returns the twin of a queue pair that will be connected to itself, as NICs connect two queue pairs:
    /// requests are posted to the twin, and complete as those of this queue pair.
    pub(crate) fn make_twin(&self) -> Result<&Self> {
        let cap = QpCap { max_recv_wr: 1, max_recv_sge: 1, ..self.init.cap };
        let init =
            QpInit { cap, srq: None, reported_qp_num: Some(self.reported_qp_num()), ..self.init.clone() };
        let again = Error::Invalid("the queue pair is connected with itself already".into());
        self.twin.set(Box::new(self.pd.create_qp(&init)?)).map_err(|_| again)?;
        self.twin.get().map(Box::as_ref).ok_or(Error::Foreign { what: "the queue pair" })
    }

    /// The queue pair to which requests are posted.
    #[inline]
    fn sender(&self) -> &dyn QpOps {
        self.twin.get().map_or(&*self.ops, |twin| &*twin.ops)
    }

    /// Posts one request to the send queue (`ibv_post_send`).
    ///
    /// # Errors
    /// Nothing is posted on any of these: [`crate::Error::QueueFull`]; [`crate::Error::WrongState`] before the
    /// connection is established; [`crate::Error::Limit`] for too many elements, too much inline or message data;
    /// [`crate::Error::Invalid`] for inline data with an operation that returns data. In the error state requests are
    /// accepted and flushed (IBA 10.3.1). All other errors of a request are reported by its completion.
    #[inline]
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if wr.flags.contains(SendFlags::NOTIFY) && !self.may_notify {
            return self.pd.device().unsupported("writes that notify");
        }
        self.sender().post_send(wr)
    }

    /// Posts several requests in order, with one doorbell if the NIC has any.
    ///
    /// # Errors
    /// As [`Qp::post_send`], with the number of requests that *were* posted.
    pub fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, crate::Error)> {
        let refused = wrs.iter().position(|wr| wr.flags.contains(SendFlags::NOTIFY) && !self.may_notify);
        self.sender().post_sends(&wrs[..refused.unwrap_or(wrs.len())])?;
        match refused {
            None => Ok(()),
            Some(at) => self.pd.device().unsupported("writes that notify").map_err(|e| (at, e)),
        }
    }

    /// Posts a receive (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`crate::Error::QueueFull`]; [`crate::Error::WrongState`] in `Reset`; [`crate::Error::Limit`] for too many
    /// elements; [`crate::Error::Invalid`] on a queue pair with a shared receive queue.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.ops.post_recv(wr)
    }

    /// Names memory for the rest of the message whose beginning completed last ([`QpInit::split_receives`]). When all of the
    /// rest has arrived, [`crate::WcOpcode::RecvRest`] reports its length under this request's number. A rest that is longer
    /// than this memory fails as a message that is longer than its receive. Of longer memory the part behind the rest is
    /// undefined afterwards. The NIC may write to the memory until the request completes or the queue pair is destroyed, as
    /// with every receive.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] unless a beginning has completed whose rest has no memory yet; [`crate::Error::Limit`]
    /// for more elements than a receive may have; [`crate::Error::Unsupported`] without
    /// [`crate::DeviceAttr::split_receives`].
    #[inline]
    pub fn post_rest(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.ops.post_rest(wr)
    }

    /// Moves it to the error state: all outstanding requests are flushed, the peer is disconnected.
    pub fn to_error(&self) {
        self.ops.to_error();
        self.twin.get().into_iter().for_each(|twin| twin.to_error());
    }

    /// Sets the limit of retries for messages of this queue pair that find no receive posted (`rnr_retry` of
    /// `ibv_modify_qp(3)`): 0 to 6, or [`RNR_RETRY_FOREVER`]. It replaces the limit in the peer's [`crate::ConnParam`],
    /// and applies to messages that are posted from now on. The receiver sets the pause before each retry
    /// ([`Self::set_rnr_pause`]).
    ///
    /// # Errors
    /// [`crate::Error::Limit`] for more than 7, [`crate::Error::Unsupported`] if the NIC has no such limit.
    pub fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        Error::check_limit("retries", retries.into(), RNR_RETRY_FOREVER.into())?;
        self.sender().set_rnr_retry(retries)
    }

    /// Sets the pause before messages of the peer that find no receive here are retried (`min_rnr_timer` of
    /// `ibv_modify_qp(3)`). The default is [`crate::RNR_PAUSE`], the maximum [`crate::RNR_PAUSE_MAX`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a longer pause, [`crate::Error::Unsupported`] if the NIC has no such pause.
    pub fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        if pause > RNR_PAUSE_MAX {
            return Err(Error::Invalid(format!(
                "a pause of {pause} between retries is longer than {RNR_PAUSE_MAX}, the longest; use a shorter one"
            )));
        }
        self.ops.set_rnr_pause(pause)
    }

    /// Why it has failed, as a sentence for its program: which address, key or peer is wrong, and what to do. It belongs to the first
    /// request that completed with an error other than a flush. `None` if there was no such failure, or the NIC does not know its
    /// reason.
    pub fn failure(&self) -> Option<String> {
        self.sender().failure().or_else(|| self.ops.failure())
    }

    /// Whether successful completions of its sends or receives wait to be polled. They are lost when it is destroyed,
    /// so a program must poll them before it handles the end of the connection. Always false on a NIC that does not
    /// know.
    pub fn has_completed(&self) -> bool {
        self.ops.has_completed()
    }

    /// Maps `len` bytes of the peer's NIC memory at `remote`, for load and store by this process: a cache line that
    /// both sides write in turn costs one transfer, less than any message, and a window that several processes share
    /// costs none (`MPI_Win_allocate_shared`). The key must allow reading and writing, and is checked once, now: the
    /// mapping lasts until its last handle is dropped, even if the peer deregisters, disconnects or dies. After the
    /// peer has freed the memory, the mapping shows its later contents.
    ///
    /// Stores are ordered with requests of the queue pair only as the processor orders stores: post a request after the
    /// stores that must precede it.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] if peers' memory cannot be mapped, and for host memory;
    /// [`crate::Error::WrongState`] unless connected; [`crate::Error::Invalid`] if the key does not allow it, and for
    /// zero bytes.
    pub fn map(&self, remote: RemoteAddr, len: usize) -> Result<Buf> {
        if len == 0 {
            return Err(Error::Invalid("a mapping needs at least one byte".into()));
        }
        self.sender().map(remote, len)
    }

    /// Wakes sleepers on the completion queue of the peer's receives, as a write with [`crate::SendFlags::NOTIFY`]
    /// does: for earlier stores in its memory. It costs little if no thread sleeps. A disconnected peer is not
    /// notified.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] unless [`crate::DeviceAttr::maps_peers`].
    #[inline]
    pub fn notify(&self) -> Result<()> {
        self.sender().notify()
    }

    /// The implementation, for the NIC's crate.
    #[inline]
    pub fn ops(&self) -> &Arc<dyn QpOps> {
        &self.ops
    }
}

impl Pd {
    /// Creates a reliable connected queue pair in state `Init` (`rdma_create_qp`): receives may be posted.
    ///
    /// # Errors
    /// [`Error::Limit`] beyond the device's attributes, [`Error::Invalid`] for queues without entries,
    /// [`Error::Foreign`] for completion queues of another device or a shared receive queue of another domain,
    /// [`Error::Unsupported`] for an MTU if connections have none of their own, and for split receives without
    /// [`crate::DeviceAttr::split_receives`]; [`Error::Invalid`] for split receives of a shared queue.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp> {
        let (attr, cap) = (self.device().attr(), &init.cap);
        Error::check_count("send requests", cap.max_send_wr, attr.max_qp_wr)?;
        if init.srq.is_none() {
            Error::check_count("receives", cap.max_recv_wr, attr.max_qp_wr)?;
        }
        Error::check_count("pieces of a send request", cap.max_send_sge, attr.max_sge)?;
        Error::check_count("pieces of a receive", cap.max_recv_sge, attr.max_sge)?;
        Error::check_limit("inline bytes", cap.max_inline.into(), attr.max_inline.into())?;
        init.mtu.map_or(Ok(()), |mtu| self.device().ops().check_mtu(mtu))?;
        for cq in [&init.send_cq, &init.recv_cq] {
            self.device().check_own(cq.device(), "the completion queue")?;
        }
        if init.srq.as_ref().is_some_and(|srq| !Arc::ptr_eq(srq.pd().ops(), self.ops())) {
            return Err(Error::Foreign { what: "the shared receive queue" });
        }
        if init.split_receives && !attr.split_receives {
            return self.device().unsupported("receives of the beginning of a message");
        }
        if init.split_receives && init.srq.is_some() {
            let text = "receives of a shared queue cannot be split; use a receive queue of the queue pair";
            return Err(Error::Invalid(text.into()));
        }
        Ok(Qp::new(self.ops().create_qp(&init.parts())?, self.clone(), init.clone()))
    }
}
