//! [`Initiator`]: memory descriptors, operations in flight, and their events at the initiator
//! (Portals 4.3, sections 3.10 and 3.15).

use std::collections::VecDeque;

use verbs::host::SlotKey;

use crate::engine::completions::Completions;
use crate::objects::command::{MdAddr, Transfer};
use crate::objects::error::{Error, Result};
use crate::objects::event::{Event, EventKind, Fail};
use crate::objects::handles::{CtHandle, EqHandle, MdHandle, Table};
use crate::objects::limits::Limits;
use crate::objects::message::{AckReq, Action, Answer, Request};
use crate::objects::options::MdOptions;
use crate::objects::process::Process;
use crate::objects::region::Region;

/// Memory that operations of this process use (`ptl_md_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDescriptor {
    /// The memory.
    pub region: Region,
    /// Which events are reported and counted.
    pub options: MdOptions,
    /// Where events are reported.
    pub eq: Option<EqHandle>,
    /// Where they are counted.
    pub counter: Option<CtHandle>,
}

/// A request to send to its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The target process.
    pub target: Process,
    /// The header.
    pub request: Request,
    /// The memory of the inline data, and their offset in it; the request holds their length.
    pub payload: Option<(Region, u64)>,
    /// The memory may be changed as soon as the call returns.
    pub is_volatile: bool,
}

#[derive(Debug)]
struct Bound {
    md: MemoryDescriptor,
    /// Operations that use the memory or wait to.
    pending: u32,
}

/// A descriptor's settings at the start of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MdSettings {
    local: MdAddr,
    options: MdOptions,
    eq: Option<EqHandle>,
    counter: Option<CtHandle>,
}

/// The settings of an operation's two descriptors: that of sent data and that of fetched data.
pub(crate) type TransferSettings = (Option<MdSettings>, Option<MdSettings>);

#[derive(Debug)]
struct Operation {
    put: Option<MdSettings>,
    get: Option<MdSettings>,
    ack: AckReq,
    length: u64,
    user_ptr: u64,
    is_answered: bool,
    /// The release of the message's memory was reported.
    is_sent: bool,
    /// A send failure was reported by an event.
    failure_reported: bool,
}

/// The initiating half of an interface.
#[derive(Debug)]
pub(crate) struct Initiator {
    process: Process,
    uid: u32,
    mds: Table<Bound>,
    operations: Table<Operation>,
    outgoing: VecDeque<Outgoing>,
}

impl Initiator {
    pub(crate) fn new(process: Process, uid: u32) -> Self {
        let (mds, operations, outgoing) = (Table::default(), Table::default(), VecDeque::new());
        Self { process, uid, mds, operations, outgoing }
    }

    /// Sets this process's identity for later messages.
    pub(crate) fn set_process(&mut self, process: Process) {
        self.process = process;
    }

    /// Binds a memory descriptor.
    pub(crate) fn md_bind(&mut self, md: MemoryDescriptor, limits: &Limits) -> Result<MdHandle> {
        if md.region.piece_count() > limits.max_iovecs as usize {
            return Err(Error::ArgInvalid);
        }
        if self.mds.len() >= limits.max_mds as usize {
            return Err(Error::NoSpace);
        }
        Ok(MdHandle(self.mds.insert(Bound { md, pending: 0 })))
    }

    /// Releases a memory descriptor that no operation uses.
    pub(crate) fn md_release(&mut self, md: MdHandle) -> Result<()> {
        match self.mds.get(md.0) {
            None => Err(Error::ArgInvalid),
            Some(bound) if bound.pending > 0 => Err(Error::InUse),
            Some(_) => {
                self.mds.remove(md.0);
                Ok(())
            }
        }
    }

    /// Fails unless a transfer can start.
    #[inline]
    pub(crate) fn check(&self, transfer: &Transfer, limits: &Limits) -> Result<TransferSettings> {
        let Transfer { action, length, .. } = *transfer;
        let most = match action {
            Action::Put | Action::Get => limits.max_msg_size,
            Action::Atomic(..) => limits.max_atomic_size,
            Action::FetchAtomic(..) | Action::Swap(..) => limits.max_fetch_atomic_size,
        };
        let is_legal = action.atomic().is_none_or(|(op, datatype)| {
            let size = datatype.size() as u64;
            op.is_swap() == matches!(action, Action::Swap(..))
                && op.takes(datatype)
                && length.is_multiple_of(size)
                && (!op.has_operand() || length <= size)
        });
        let sides = transfer.put.is_some() == action.brings() && transfer.get.is_some() == action.fetches();
        if !is_legal || !sides || length > most {
            return Err(Error::ArgInvalid);
        }
        let settings = |local: &Option<MdAddr>| match local {
            Some(local) => self.settings(*local, length).map(Some),
            None => Ok(None),
        };
        let (put, get) = (settings(&transfer.put)?, settings(&transfer.get)?);
        if put.is_some_and(|settings| settings.options.contains(MdOptions::VOLATILE))
            && length > limits.max_volatile_size
        {
            return Err(Error::ArgInvalid);
        }
        if let (Some(MdSettings { eq, counter, .. }), None) = (put, get) {
            match transfer.ack {
                AckReq::Full if eq.is_none() => return Err(Error::ArgInvalid),
                AckReq::Counting if counter.is_none() => return Err(Error::ArgInvalid),
                _ => {}
            }
        }
        Ok((put, get))
    }

    /// A descriptor's settings; fails if the `length` bytes are not inside of its memory.
    #[inline]
    fn settings(&self, local: MdAddr, length: u64) -> Result<MdSettings> {
        let MemoryDescriptor { region, options, eq, counter } =
            &self.mds.get(local.md.0).ok_or(Error::ArgInvalid)?.md;
        let is_inside = local.offset.checked_add(length).is_some_and(|end| end <= region.len());
        let settings = MdSettings { local, options: *options, eq: *eq, counter: *counter };
        if is_inside { Ok(settings) } else { Err(Error::ArgInvalid) }
    }

    /// Holds the descriptors of a checked transfer until [`Initiator::start`] or [`Initiator::drop_waiting`].
    pub(crate) fn hold(&mut self, transfer: &Transfer) {
        for local in transfer.put.iter().chain(&transfer.get) {
            if let Some(bound) = self.mds.get_mut(local.md.0) {
                bound.pending += 1;
            }
        }
    }

    /// Releases the descriptors of a transfer that will not start.
    pub(crate) fn drop_waiting(&mut self, transfer: &Transfer) {
        transfer.put.iter().chain(&transfer.get).for_each(|local| self.release(local.md));
    }

    fn release(&mut self, md: MdHandle) {
        if let Some(bound) = self.mds.get_mut(md.0) {
            bound.pending -= 1;
        }
    }

    /// Starts a held transfer; holding has kept its descriptors valid since the check.
    pub(crate) fn start_held(&mut self, transfer: &Transfer) {
        let settings = |local: MdAddr| self.settings(local, 0).ok();
        let sides = (transfer.put.and_then(settings), transfer.get.and_then(settings));
        self.start(transfer, sides);
    }

    /// The request of a transfer, without its number.
    #[inline]
    fn request(&self, transfer: &Transfer) -> Request {
        Request {
            operation: 0,
            action: transfer.action,
            ack: transfer.ack,
            initiator: self.process,
            uid: self.uid,
            pt_index: transfer.pt_index,
            match_bits: transfer.match_bits,
            remote_offset: transfer.remote_offset,
            length: transfer.length,
            hdr_data: transfer.hdr_data,
        }
    }

    /// The request of a put whose completion is not reported if it leaves immediately, with the memory of its
    /// data and their offset. `None` for any other transfer, and if it cannot start. Records nothing.
    #[inline]
    pub(crate) fn silent_put(&self, transfer: &Transfer, limits: &Limits) -> Option<(Request, &Region, u64)> {
        let Transfer { action: Action::Put, put: Some(local), get: None, ack: AckReq::None, length, .. } =
            *transfer
        else {
            return None;
        };
        let MemoryDescriptor { region, options, .. } = &self.mds.get(local.md.0)?.md;
        let is_inside = local.offset.checked_add(length).is_some_and(|end| end <= region.len());
        let silent = MdOptions::EVENT_SUCCESS_DISABLE | MdOptions::EVENT_SEND_DISABLE;
        let is_silent = options.intersects(silent) && !options.contains(MdOptions::EVENT_CT_SEND);
        if !is_inside || !is_silent || length > limits.max_msg_size || self.has_outgoing() {
            return None;
        }
        Some((self.request(&Transfer { action: Action::Put, ..*transfer }), region, local.offset))
    }

    /// Starts a held transfer.
    #[inline]
    pub(crate) fn start(&mut self, transfer: &Transfer, (put, get): TransferSettings) {
        let Transfer { ack, length, user_ptr, .. } = *transfer;
        let mut request = self.request(transfer);
        let (is_answered, is_sent, failure_reported) = (request.is_answered(), put.is_none(), false);
        let operation = Operation { put, get, ack, length, user_ptr, is_answered, is_sent, failure_reported };
        request.operation = self.operations.insert(operation).number();
        let payload = transfer.put.and_then(|MdAddr { md, offset }| {
            let bound = self.mds.get(md.0)?;
            Some((bound.md.region.clone(), offset))
        });
        let is_volatile = put.is_some_and(|settings| settings.options.contains(MdOptions::VOLATILE));
        self.outgoing.push_back(Outgoing { target: transfer.target, request, payload, is_volatile });
    }

    /// The next request to send.
    #[inline]
    pub(crate) fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// Whether there is a request to send.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The memory for the data of an answer, with offset and length; `None` for an operation that has
    /// completed or fetches nothing.
    pub(crate) fn reply_to(&self, operation: u64) -> Option<(Region, u64, u64)> {
        let operation = self.operations.get(SlotKey::from_number(operation))?;
        let MdAddr { md, offset } = operation.get?.local;
        Some((self.mds.get(md.0)?.md.region.clone(), offset, operation.length))
    }

    /// The memory of a request may be reused, or, with a failure, the request was not sent.
    #[inline]
    pub(crate) fn sent(&mut self, completions: &mut Completions, operation: u64, fail: Fail) {
        let key = SlotKey::from_number(operation);
        let Some(operation) = self.operations.get_mut(key) else { return };
        if !std::mem::replace(&mut operation.is_sent, true)
            && let Some(settings) = operation.put
        {
            let options = settings.options;
            let is_reported = !options.contains(MdOptions::EVENT_SEND_DISABLE)
                && (fail != Fail::Ok || !options.contains(MdOptions::EVENT_SUCCESS_DISABLE));
            if is_reported {
                operation.failure_reported = fail != Fail::Ok && settings.eq.is_some();
                completions
                    .post(settings.eq, Event { fail, ..Event::new(EventKind::Send, operation.user_ptr) });
            }
            if options.contains(MdOptions::EVENT_CT_SEND) {
                let bytes = options.contains(MdOptions::EVENT_CT_BYTES);
                completions.count(settings.counter, fail, if bytes { operation.length } else { 1 });
            }
            self.release(settings.local.md);
        }
        if self.operations.get(key).is_some_and(|operation| !operation.is_answered) {
            self.operations.remove(key);
        }
    }

    /// Completes an operation. Answers to unknown operations are ignored.
    pub(crate) fn answered(&mut self, completions: &mut Completions, answer: &Answer) {
        let key = SlotKey::from_number(answer.operation);
        if self.operations.get(key).is_none_or(|operation| !operation.is_answered) {
            return;
        }
        self.sent(completions, answer.operation, Fail::Ok);
        let Some(operation) = self.operations.remove(key) else { return };
        match operation.get {
            Some(settings) => {
                self.release(settings.local.md);
                let (event, count) = (EventKind::Reply, MdOptions::EVENT_CT_REPLY);
                report(completions, &operation, settings, answer, Some(event), count);
            }
            None => {
                let Some(settings) = operation.put.filter(|_| !answer.is_quiet) else { return };
                let is_full = operation.ack == AckReq::Full && !operation.failure_reported;
                let event = is_full.then_some(EventKind::Ack);
                report(completions, &operation, settings, answer, event, MdOptions::EVENT_CT_ACK);
            }
        }
    }

    /// The target of an operation is not reachable (any more): reports every outstanding event as a failure.
    pub(crate) fn undeliverable(&mut self, completions: &mut Completions, operation: u64) {
        let fail = Fail::Undeliverable;
        self.sent(completions, operation, fail);
        let (list, is_quiet, mlength, offset) = (Default::default(), false, 0, 0);
        self.answered(completions, &Answer { operation, fail, is_quiet, list, mlength, offset });
    }
}

/// Reports an answer by event and counter.
fn report(
    completions: &mut Completions,
    operation: &Operation,
    settings: MdSettings,
    answer: &Answer,
    event: Option<EventKind>,
    counts: MdOptions,
) {
    let Answer { fail, list, mlength, offset, .. } = *answer;
    let is_reported = fail != Fail::Ok || !settings.options.contains(MdOptions::EVENT_SUCCESS_DISABLE);
    if let Some(kind) = event.filter(|_| is_reported) {
        let event =
            Event { fail, list, mlength, remote_offset: offset, ..Event::new(kind, operation.user_ptr) };
        completions.post(settings.eq, event);
    }
    if settings.options.contains(counts) {
        // `Completed` only counts the completion: one, even if it failed at the target.
        let is_completed = operation.ack == AckReq::Completed && operation.get.is_none();
        let bytes = settings.options.contains(MdOptions::EVENT_CT_BYTES) && !is_completed;
        let fail = if is_completed && fail != Fail::Undeliverable { Fail::Ok } else { fail };
        completions.count(settings.counter, fail, if bytes { mlength } else { 1 });
    }
}
