//! [`Requests`]: the outstanding requests of a queue: what each was posted with, and what is checked when it ends.
//!
//! Data path: each posted request and each completion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use findings::{Image, Stack};
use nic_util::sync::unpoisoned;
use verbs::{Buf, Data, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode};

use crate::destinations::{Place, Writer};
use crate::regions::Region;
use crate::report::{Kind, find};
use crate::shared::Shared;

/// A request that has not completed, as far as the program knows.
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    /// Whether its success gives a completion.
    pub(crate) is_signaled: bool,
    is_recv: bool,
    /// The request as words.
    pub(crate) text: Arc<str>,
    bytes: u64,
    pub(crate) remote: Option<RemoteAddr>,
    pub(crate) sges: Box<[Sge]>,
    /// What its memory contained, by element.
    images: Vec<(usize, Buf, Image)>,
    places: Vec<Place>,
    is_shared: Arc<AtomicBool>,
    pub(crate) posted: Stack,
}

/// How a request uses its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Sends,
    Receives,
    Fetches,
}

/// The word for an operation, and its remote address.
fn operation(op: SendOp) -> (&'static str, Option<RemoteAddr>) {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => ("send", None),
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => ("RDMA write", Some(remote)),
        SendOp::Read(remote) => ("RDMA read", Some(remote)),
        SendOp::CompareSwap { remote, .. } => ("compare-and-swap", Some(remote)),
        SendOp::FetchAdd { remote, .. } => ("fetch-and-add", Some(remote)),
        SendOp::BindMw(_) => ("binding of a memory window", None),
        SendOp::LocalInv(_) => ("invalidation of a memory window", None),
    }
}

impl Request {
    /// Checks a request for a send queue that is about to be posted.
    pub(crate) fn send(shared: &Shared, queue: &str, wr: &SendWr<'_>, signals_all: bool) -> Self {
        let (word, remote) = operation(wr.op);
        let (sges, inline) = match wr.data {
            Data::Sges(sges) => (sges, None),
            Data::Inline(bytes) => (&[][..], Some(bytes.len() as u64)),
        };
        let how = if wr.op.fetches() { Use::Fetches } else { Use::Sends };
        let mut request = Self::new(shared, queue, (wr.wr_id, word), sges, inline, how);
        request.is_signaled = signals_all || wr.flags.contains(SendFlags::SIGNALED);
        request.remote = remote;
        if let (true, Some(remote)) = (wr.op.is_atomic(), remote)
            && (remote.addr % 8 != 0 || request.bytes != 8)
        {
            let about = [
                ("request", request.text.to_string()),
                ("remote", format!("address {:#x}, rkey {:#x}", remote.addr, remote.rkey)),
            ];
            find(
                Kind::AtomicOperand,
                "an atomic has an operand that is not 8 aligned bytes",
                &about,
                &[("posted", request.posted)],
            );
        }
        if let Some(card) = shared.card {
            let posted = request.posted;
            card.check_request(&request.text, request.bytes, sges.len(), inline, posted);
        }
        request
    }

    /// Checks a receive that is about to be posted.
    pub(crate) fn receive(shared: &Shared, queue: &str, wr: &RecvWr<'_>) -> Self {
        let request = Self::new(shared, queue, (wr.wr_id, "receive"), wr.sges, None, Use::Receives);
        if let Some(card) = shared.card {
            card.check_request(&request.text, 0, wr.sges.len(), None, request.posted);
        }
        request
    }

    fn new(
        shared: &Shared,
        queue: &str,
        (wr_id, word): (u64, &str),
        sges: &[Sge],
        inline: Option<u64>,
        how: Use,
    ) -> Self {
        let bytes = inline.unwrap_or_else(|| sges.iter().map(|sge| u64::from(sge.length)).sum());
        let text: Arc<str> = format!("{word} of {bytes} bytes, wr_id {wr_id}, on {queue}").into();
        let mut request = Self {
            wr_id,
            is_signaled: true,
            is_recv: how == Use::Receives,
            text,
            bytes,
            remote: None,
            sges: sges.into(),
            images: Vec::new(),
            places: Vec::new(),
            is_shared: Arc::default(),
            posted: Stack::here(),
        };
        for (at, sge) in sges.iter().enumerate().filter(|(_, sge)| sge.length != 0) {
            request.check_element(shared, at, sge, how);
        }
        request
    }

    fn find_element(&self, kind: Kind, what: &str, sge: &Sge, at: usize, region: Option<&Region>) {
        let mut about = vec![
            ("request", self.text.to_string()),
            ("element", format!("{at}: {} bytes at {:#x}, lkey {:#x}", sge.length, sge.addr, sge.lkey)),
        ];
        let mut stacks = vec![("posted", self.posted)];
        if let Some(region) = region {
            about.push(("region", region.text()));
            stacks.push(("registered", region.registered));
            stacks.extend(region.ended.get().map(|ended| ("deregistered", *ended)));
        }
        find(kind, what, &about, &stacks);
    }

    /// Checks an element, and takes an image of its memory.
    fn check_element(&mut self, shared: &Shared, at: usize, sge: &Sge, how: Use) {
        let Some(region) = shared.regions.by_lkey(sge.lkey) else {
            let dead = shared.regions.dead(|region| region.lkey == sge.lkey);
            let (kind, what) = match dead {
                Some(_) => {
                    (Kind::KeyDeregistered, "a request uses the lkey of a region that was deregistered")
                }
                None => (Kind::KeyUnknown, "a request uses an lkey that no region of this device has"),
            };
            self.find_element(kind, what, sge, at, dead.as_deref());
            return;
        };
        let Some((buf, range)) = region.part(sge) else {
            let what = "an element is not inside of its region";
            self.find_element(Kind::OutsideRegion, what, sge, at, Some(&region));
            return;
        };
        if how != Use::Sends && !region.is_writable() {
            let what = "a request would write to a region that the device may only read";
            self.find_element(Kind::MissingRight, what, sge, at, Some(&region));
        }
        let memory = sge.addr..sge.addr + u64::from(sge.length);
        if region.is_host_memory() {
            self.check_writers(shared, &memory, how);
        }
        let Some(buf) = buf.filter(|_| how != Use::Fetches) else { return };
        match Image::take(range, |at, bytes| buf.read(at, bytes)) {
            Ok(image) => self.images.push((at, buf.clone(), image)),
            Err(why) => {
                let what = format!("the memory of a region is gone, and a request uses it: {why}");
                self.find_element(Kind::MemoryGone, &what, sge, at, Some(&region));
            }
        }
    }

    /// Compares its memory with that to which other requests write.
    fn check_writers(&mut self, shared: &Shared, memory: &std::ops::Range<u64>, how: Use) {
        let mut all = unpoisoned(&shared.destinations);
        let other = if how == Use::Sends {
            all.writer_of(memory).cloned()
        } else {
            let writer = Writer {
                text: self.text.clone(),
                is_recv: self.is_recv,
                posted: self.posted,
                is_shared: self.is_shared.clone(),
            };
            let (place, other) = all.add(memory, &writer);
            self.places.push(place);
            other
        };
        drop(all);
        // Many programs post receives whose memory they never read, and send from memory into which only later messages come.
        let Some(other) = other.filter(|other| shared.is_strict || !other.is_recv || how == Use::Fetches)
        else {
            return;
        };
        let what = match how {
            Use::Sends => "a request sends memory to which another outstanding request writes",
            _ => "two outstanding requests write to the same memory",
        };
        let about = [
            ("request", self.text.to_string()),
            ("other", other.text.to_string()),
            ("memory", format!("{:#x} to {:#x}", memory.start, memory.end)),
        ];
        find(Kind::Overlap, what, &about, &[("posted", self.posted), ("other posted", other.posted)]);
    }

    /// The completion of a send has arrived, its own or that of a later request: its memory must be as it was.
    fn check_sent(&self) {
        for (at, buf, image) in &self.images {
            let sge = self.sges[*at];
            let changed = match image.changed(0, |at, bytes| buf.read(at, bytes)) {
                Ok(Some(changed)) => changed,
                Ok(None) => continue,
                Err(why) => {
                    let what =
                        format!("the memory of a request was unmapped while it was outstanding: {why}");
                    let stacks = [("posted", self.posted), ("completed", Stack::here())];
                    find(Kind::MemoryGone, &what, &[("request", self.text.to_string())], &stacks);
                    continue;
                }
            };
            let about = [("request", self.text.to_string()), ("changed", self.place_of(&changed, *at, &sge))];
            find(
                Kind::BufferChanged,
                "a buffer changed while a request was sending it",
                &about,
                &[("posted", self.posted), ("completed", Stack::here())],
            );
        }
    }

    /// A part of an element as words.
    fn place_of(&self, changed: &std::ops::Range<usize>, at: usize, sge: &Sge) -> String {
        let first = sge.addr + changed.start as u64;
        let (count, plural) = (changed.len(), if changed.len() == 1 { "" } else { "s" });
        format!("{count} byte{plural} at {first:#x}, from byte {} of element {at} on", changed.start)
    }

    /// The completion of a receive has arrived: the memory behind its message must be as it was.
    fn check_received(&self, wc: &Wc) {
        if !wc.is_ok() || wc.opcode != WcOpcode::Recv || self.is_shared.load(Ordering::Relaxed) {
            return;
        }
        let mut filled = u64::from(wc.byte_len);
        for (at, sge) in self.sges.iter().enumerate() {
            let here = filled.min(sge.length.into());
            filled -= here;
            let Some((_, buf, image)) = self.images.iter().find(|(of, ..)| *of == at) else { continue };
            let changed = image.changed(here as usize, |at, bytes| buf.read(at, bytes));
            let Ok(Some(changed)) = changed else { continue };
            let about = [
                ("request", format!("{}; a message of {} bytes arrived", self.text, wc.byte_len)),
                ("changed", self.place_of(&changed, at, sge)),
            ];
            find(
                Kind::ReceiveTouched,
                "the program wrote to the buffer of a receive that was outstanding",
                &about,
                &[("posted", self.posted), ("completed", Stack::here())],
            );
        }
    }

    /// Whether both write to some of the same memory.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let ranges = |of: &Self| {
            let range = |sge: &Sge| sge.addr..sge.addr + u64::from(sge.length);
            of.sges.iter().map(range).filter(|range| !range.is_empty()).collect::<Vec<_>>()
        };
        let (own, others) = (ranges(self), ranges(other));
        own.iter().any(|a| others.iter().any(|b| a.start < b.end && b.start < a.end))
    }

    /// Whether another request writes to its memory, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }
}

/// The outstanding requests of a queue, in their order.
#[derive(Default)]
pub(crate) struct Requests(VecDeque<Request>);

impl Requests {
    pub(crate) fn push(&mut self, request: Request) {
        self.0.push_back(request);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }

    /// Takes the first one out, if it has this number.
    pub(crate) fn take_first(&mut self, wr_id: u64) -> Option<Request> {
        self.0.pop_front_if(|first| first.wr_id == wr_id)
    }

    /// Takes the last one back, which the NIC has refused.
    pub(crate) fn take_back(&mut self, shared: &Shared) -> Option<Request> {
        let last = self.0.pop_back()?;
        unpoisoned(&shared.destinations).remove(&last.places);
        Some(last)
    }

    /// Ends the send request of a completion, and those in front of it. Returns it, and how many signaled ones ended.
    pub(crate) fn end_sends(&mut self, shared: &Shared, wc: &Wc) -> Option<(Request, u32)> {
        let fits = |request: &Request| request.wr_id == wc.wr_id && (request.is_signaled || !wc.is_ok());
        let at = self.0.iter().position(fits)?;
        let mut ended: Vec<_> = self.0.drain(..=at).collect();
        let mut destinations = unpoisoned(&shared.destinations);
        ended.iter().for_each(|request| destinations.remove(&request.places));
        drop(destinations);
        if wc.is_ok() {
            ended.iter().for_each(Request::check_sent);
        }
        let signaled = ended.iter().filter(|request| request.is_signaled).count() as u32;
        Some((ended.pop()?, signaled))
    }

    /// Ends the receive of a completion.
    pub(crate) fn end_receive(&mut self, shared: &Shared, wc: &Wc) -> Option<Request> {
        let at = self.0.iter().position(|request| request.wr_id == wc.wr_id)?;
        let ended = self.0.remove(at)?;
        unpoisoned(&shared.destinations).remove(&ended.places);
        ended.check_received(wc);
        Some(ended)
    }

    /// Ends all: the queue is gone.
    pub(crate) fn clear(&mut self, shared: &Shared) {
        let mut destinations = unpoisoned(&shared.destinations);
        self.0.drain(..).for_each(|request| destinations.remove(&request.places));
    }
}
