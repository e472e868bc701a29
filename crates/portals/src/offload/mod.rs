//! [`Offload`]: an interface that matches in the NIC's firmware ([`verbs::Firmware`]): the caller only issues
//! commands and reads memory. On a modelled NIC the host's kernel can run the firmware too, which is the
//! host-based mode.
//!
//! | file | contents |
//! |---|---|
//! | `matching` | the firmware: an [`crate::Engine`] on the NIC |
//! | `command` | its commands, as bytes |
//! | `record`, `words` | its output, as bytes in memory; integers as bytes |
//! | `v3` | posting receives in Portals 3.3: in three calls, or in one |
//!
//! A command that returns a handle or an error is a round trip to the NIC: the caller waits for the reply.
//! Transfers are not waited for; a failure to start is not reported. Counter values are written into the
//! process's memory, where it reads them. Puts and gets are supported, immediate and triggered, but no atomic
//! operations: a NIC that only moves data cannot combine them.

mod command;
mod matching;
mod record;
pub(crate) mod v3;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use verbs::host::{Host, Step, Time};
use verbs::{Access, Buf, Device, Mr, Program};

use crate::engine::ListId;
use crate::objects::command::{CtEvent, Transfer};
use crate::objects::entry::Entry;
use crate::objects::error::{Error, Result};
use crate::objects::event::Event;
use crate::objects::handles::{CtHandle, EntryHandle, MdHandle};
use crate::objects::limits::Limits;
use crate::objects::options::{MdOptions, PtOptions};
use crate::objects::process::Process;
use crate::objects::region::Region;
use command::{Command, Extent, Triggered};
use matching::MatchFirmware;
use record::{COUNTER, EVENT, Outcome, REPLY};

/// Counters of an interface.
const COUNTERS: u32 = 64;

/// An interface on a NIC, and the memory for its events, replies and counters.
#[derive(Debug)]
pub struct Offload {
    host: Host,
    program: Program,
    process: Process,
    /// The ring of events, followed by the reply and the counters.
    queue: Buf,
    slots: u64,
    /// Number of events read, and the number reported to the firmware.
    taken: u64,
    reported: u64,
    replies: u64,
    commands: u64,
    /// Registrations of the process's memory and of the queue.
    _memory: Vec<Mr>,
}

impl Offload {
    /// Opens a matching interface for process `pid` on the device's node, with one event queue of `slots`
    /// events. The NIC can access `memory`.
    ///
    /// # Errors
    /// Those of [`Device::load`] and of registering memory.
    pub fn open(
        device: &Device,
        pid: u16,
        memory: &[Buf],
        limits: Limits,
        slots: usize,
    ) -> verbs::Result<Self> {
        let Some(&IpAddr::V4(ip)) = device.attr().port_addrs.first() else {
            return Err(verbs::Error::Invalid(format!("{} has no IPv4 address", device.name())));
        };
        let process = Process::physical(ip.into(), pid.into());
        let pd = device.alloc_pd()?;
        let limits = Limits { max_cts: limits.max_cts.min(COUNTERS), ..limits };
        let queue = Buf::alloc(slots * EVENT + REPLY + places_of(limits.max_cts) * COUNTER)?;
        let regions = memory.iter().chain([&queue]).map(|buf| pd.reg_mr(buf, Access::LOCAL_WRITE));
        let regions: Vec<Mr> = regions.collect::<verbs::Result<_>>()?;
        let matching = Box::new(MatchFirmware::new(process, limits, slots));
        let program = device.load(&pd, SocketAddr::new(ip.into(), pid), matching)?;
        let (ring, reply) = (queue.addr(), queue.addr() + (slots * EVENT) as u64);
        let mut opened = Self {
            host: device.host().clone(),
            program,
            process,
            queue,
            slots: slots as u64,
            taken: 0,
            reported: 0,
            replies: 0,
            commands: 0,
            _memory: Vec::new(),
        };
        for region in &regions {
            let extent = Extent { addr: region.addr(), len: region.buf().len() as u64, lkey: region.lkey() };
            opened.issue(&Command::Memory(extent))?;
        }
        opened._memory = regions;
        // The only command that cannot fail.
        opened.call(&Command::Queues { ring, slots: slots as u64, reply })?.unwrap_or(None);
        Ok(opened)
    }

    /// This process's address.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// Commands issued so far, and those whose reply was waited for: each of the latter is a round trip to
    /// the NIC.
    #[must_use]
    pub fn commands(&self) -> (u64, u64) {
        (self.commands, self.replies)
    }

    /// Allocates a portal table entry (`PtlPTAlloc`; Portals 4.3, section 3.7).
    ///
    /// # Errors
    /// As [`crate::Engine::pt_alloc`].
    pub fn pt_alloc(&mut self, options: PtOptions, index: Option<u32>) -> Result<u32> {
        self.call_for_number(&Command::PtAlloc { options, index }).map(|index| index as u32)
    }

    /// Enables or disables a portal table entry (`PtlPTEnable`, `PtlPTDisable`; Portals 4.3, section 3.7).
    ///
    /// # Errors
    /// As [`crate::Engine::pt_enable`].
    pub fn pt_enable(&mut self, index: u32, is_enabled: bool) -> Result<()> {
        self.call_for_number(&Command::PtEnable { index, is_enabled }).map(drop)
    }

    /// Frees a portal table entry (`PtlPTFree`; Portals 4.3, section 3.7).
    ///
    /// # Errors
    /// As [`crate::Engine::pt_free`].
    pub fn pt_free(&mut self, index: u32) -> Result<()> {
        self.call_for_number(&Command::PtFree(index)).map(drop)
    }

    /// Appends an entry with memory in one piece (`PtlMEAppend`; Portals 4.3, section 3.12).
    ///
    /// # Errors
    /// As [`crate::Engine::append`]; [`Error::ArgInvalid`] for memory in pieces.
    pub fn append(&mut self, place: ListId, entry: &Entry, user_ptr: u64) -> Result<EntryHandle> {
        let entry = Self::plain(entry)?;
        self.call_for_number(&Command::Append { place, entry, user_ptr, seen: None })
            .map(EntryHandle::from_number)
    }

    fn plain(entry: &Entry) -> Result<Entry> {
        if entry.region.piece_count() == 1 { Ok(entry.clone()) } else { Err(Error::ArgInvalid) }
    }

    /// Unlinks an entry (`PtlMEUnlink`; Portals 4.3, section 3.12).
    ///
    /// # Errors
    /// As [`crate::Engine::unlink`].
    pub fn unlink(&mut self, entry: EntryHandle) -> Result<()> {
        self.call_for_number(&Command::Unlink(entry)).map(drop)
    }

    /// Binds memory in one piece (`PtlMDBind`; Portals 4.3, section 3.10).
    ///
    /// # Errors
    /// As [`crate::Engine::md_bind`]; [`Error::ArgInvalid`] for memory in pieces.
    pub fn md_bind(&mut self, region: &Region, options: MdOptions) -> Result<MdHandle> {
        self.bind(region, options, None)
    }

    /// Binds memory in one piece, with a counter for its operations (`PtlMDBind`; Portals 4.3, section 3.10).
    ///
    /// # Errors
    /// As [`Offload::md_bind`]; [`Error::ArgInvalid`] for no counter.
    pub fn md_bind_counting(
        &mut self,
        region: &Region,
        options: MdOptions,
        counter: CtHandle,
    ) -> Result<MdHandle> {
        self.bind(region, options, Some(counter))
    }

    fn bind(&mut self, region: &Region, options: MdOptions, counter: Option<CtHandle>) -> Result<MdHandle> {
        if region.piece_count() != 1 {
            return Err(Error::ArgInvalid);
        }
        let command = Command::Bind { addr: region.address(0), len: region.len(), options, counter };
        self.call_for_number(&command).map(MdHandle::from_number)
    }

    /// Releases memory (`PtlMDRelease`; Portals 4.3, section 3.10).
    ///
    /// # Errors
    /// As [`crate::Engine::md_release`].
    pub fn md_release(&mut self, md: MdHandle) -> Result<()> {
        self.call_for_number(&Command::Release(md)).map(drop)
    }

    /// Starts a put or a get (`PtlPut`, `PtlGet`; Portals 4.3, section 3.15).
    ///
    /// # Errors
    /// [`Error::ArgInvalid`] for other actions.
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        Self::check(transfer)?;
        self.issue(&Command::Transfer(*transfer)).map_err(|_| Error::ArgInvalid)
    }

    fn check(transfer: &Transfer) -> Result<()> {
        let moves = transfer.action.atomic().is_none() && transfer.put.is_some() != transfer.get.is_some();
        if moves { Ok(()) } else { Err(Error::ArgInvalid) }
    }

    /// Allocates a counter (`PtlCTAlloc`; Portals 4.3, section 3.14); there are 64.
    ///
    /// # Errors
    /// As [`crate::Engine::ct_alloc`].
    pub fn ct_alloc(&mut self) -> Result<CtHandle> {
        self.call_for_number(&Command::CtAlloc).map(CtHandle::from_number)
    }

    /// Frees a counter (`PtlCTFree`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// As [`crate::Engine::ct_free`].
    pub fn ct_free(&mut self, ct: CtHandle) -> Result<()> {
        self.call_for_number(&Command::CtFree(ct)).map(drop)
    }

    /// Cancels the pending triggered operations of a counter (`PtlCTCancelTriggered`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// As [`crate::Engine::ct_cancel`].
    pub fn ct_cancel(&mut self, ct: CtHandle) -> Result<()> {
        self.call_for_number(&Command::CtCancel(ct)).map(drop)
    }

    /// Sets a counter (`PtlCTSet`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// As [`crate::Engine::ct_set`].
    pub fn ct_set(&mut self, ct: CtHandle, to: CtEvent) -> Result<()> {
        self.call_for_number(&Command::CtSet(ct, to)).map(drop)
    }

    /// Adds to a counter (`PtlCTInc`; Portals 4.3, section 3.14).
    ///
    /// # Errors
    /// As [`crate::Engine::ct_inc`].
    pub fn ct_inc(&mut self, ct: CtHandle, by: CtEvent) -> Result<()> {
        self.call_for_number(&Command::CtInc(ct, by)).map(drop)
    }

    /// A counter's value (`PtlCTGet`; Portals 4.3, section 3.14), read from memory; zero for a counter that was never
    /// allocated.
    #[must_use]
    pub fn ct_get(&self, ct: CtHandle) -> CtEvent {
        let at = self.slots as usize * EVENT + REPLY + ct.number() as u32 as usize * COUNTER;
        let word = |at| self.queue.word(at).map_or(0, |word| word.load(Ordering::Acquire));
        loop {
            // The firmware writes failures first.
            let (success, failure) = (word(at + 8), word(at));
            if word(at + 8) == success {
                return CtEvent { success, failure };
            }
        }
    }

    /// Waits until a counter reaches a number of successes or has a failure (`PtlCTWait`; Portals 4.3, section 3.14);
    /// `None` if the deadline passes first.
    #[must_use]
    pub fn ct_wait(&self, ct: CtHandle, test: u64, deadline: Option<Time>) -> Option<CtEvent> {
        let look = || Some(self.ct_get(ct)).filter(|count| count.success >= test || count.failure > 0);
        self.host.poll("PtlCTWait", deadline, look)
    }

    /// Starts a put or a get when a counter reaches a threshold (`PtlTriggeredPut`, `PtlTriggeredGet`; Portals 4.3,
    /// section 3.16).
    ///
    /// # Errors
    /// As [`crate::Engine::trigger`], and [`Offload::transfer`].
    pub fn trigger(&mut self, ct: CtHandle, threshold: u64, transfer: &Transfer) -> Result<()> {
        Self::check(transfer)?;
        self.call_for_number(&Command::Trigger { ct, threshold, triggered: Triggered::Transfer(*transfer) })
            .map(drop)
    }

    /// Adds to `target` when the counter `trigger` reaches a threshold (`PtlTriggeredCTInc`; Portals 4.3, section 3.16).
    ///
    /// # Errors
    /// As [`crate::Engine::trigger_ct_inc`].
    pub fn trigger_ct_inc(
        &mut self,
        trigger: CtHandle,
        threshold: u64,
        target: CtHandle,
        increment: CtEvent,
    ) -> Result<()> {
        let triggered = Triggered::Inc(target, increment);
        self.call_for_number(&Command::Trigger { ct: trigger, threshold, triggered }).map(drop)
    }

    /// Sets `target` when the counter `trigger` reaches a threshold (`PtlTriggeredCTSet`; Portals 4.3, section 3.16).
    ///
    /// # Errors
    /// As [`crate::Engine::trigger_ct_set`].
    pub fn trigger_ct_set(
        &mut self,
        trigger: CtHandle,
        threshold: u64,
        target: CtHandle,
        value: CtEvent,
    ) -> Result<()> {
        let triggered = Triggered::Set(target, value);
        self.call_for_number(&Command::Trigger { ct: trigger, threshold, triggered }).map(drop)
    }

    /// Appends an entry when a counter reaches a threshold (`PtlTriggeredMEAppend`).
    ///
    /// # Errors
    /// As [`crate::Engine::trigger_append`], and [`Offload::append`].
    pub fn trigger_append(
        &mut self,
        ct: CtHandle,
        threshold: u64,
        place: ListId,
        entry: &Entry,
        user_ptr: u64,
    ) -> Result<EntryHandle> {
        let triggered = Triggered::Append { place, entry: Self::plain(entry)?, user_ptr };
        self.call_for_number(&Command::Trigger { ct, threshold, triggered }).map(EntryHandle::from_number)
    }

    /// Unlinks an entry when a counter reaches a threshold (`PtlTriggeredMEUnlink`).
    ///
    /// # Errors
    /// As [`crate::Engine::trigger_unlink`].
    pub fn trigger_unlink(&mut self, ct: CtHandle, threshold: u64, entry: EntryHandle) -> Result<()> {
        self.call_for_number(&Command::Trigger { ct, threshold, triggered: Triggered::Unlink(entry) })
            .map(drop)
    }

    /// Waits until all commands have been executed; a process that exits earlier cancels the rest.
    pub fn finish(&mut self) {
        // Only the reply itself matters.
        let _ = self.call(&Command::Nothing);
    }

    /// The oldest event, and whether one before it was lost (`PtlEQGet`; Portals 4.3, section 3.13).
    pub fn eq_get(&mut self) -> Option<(Event, bool)> {
        let slot = (self.taken % self.slots) as usize * EVENT;
        let found = self.has_reached(slot + EVENT - 8, self.taken + 1);
        let mut bytes = [0; EVENT];
        found.then(|| self.queue.read(slot, &mut bytes).ok())??;
        self.host.charge_step(Step::Event, 1);
        self.taken += 1;
        if self.taken - self.reported >= self.slots / 2 {
            self.reported = self.taken;
            // If this fails, the next such command covers it.
            self.issue(&Command::Seen(self.taken)).unwrap_or(());
        }
        record::event(&bytes)
    }

    /// Waits for an event (`PtlEQWait`; Portals 4.3, section 3.13); `None` if the deadline passes first.
    pub fn eq_wait(&mut self, deadline: Option<Time>) -> Option<(Event, bool)> {
        let at = (self.taken % self.slots) as usize * EVENT + EVENT - 8;
        let number = self.taken + 1;
        self.host.clone().poll("PtlEQWait", deadline, || self.has_reached(at, number).then_some(()))?;
        self.eq_get()
    }

    /// Whether the word at this offset of the queue has reached a number.
    fn has_reached(&self, at: usize, number: u64) -> bool {
        self.queue.word(at).is_ok_and(|word| word.load(Ordering::Acquire) == number)
    }

    /// Issues a command when there is room for it.
    fn issue(&mut self, command: &Command) -> verbs::Result<()> {
        let bytes = command.bytes();
        self.commands += 1;
        let issued = || match self.program.command(bytes.as_slice()) {
            Err(verbs::Error::QueueFull { .. }) => None,
            other => Some(other),
        };
        self.host.poll("room for a command", None, issued).unwrap_or(Ok(()))
    }

    /// Issues a command and waits for its result.
    fn call(&mut self, command: &Command) -> verbs::Result<Outcome> {
        self.issue(command)?;
        self.replies += 1;
        let at = self.slots as usize * EVENT;
        self.host.poll("a reply of the NIC", None, || {
            self.has_reached(at + REPLY - 8, self.replies).then_some(())
        });
        let mut bytes = [0; REPLY];
        self.queue.read(at, &mut bytes)?;
        Ok(record::reply(&bytes))
    }

    /// As [`call`](Self::call); an error of the device is [`Error::ArgInvalid`].
    fn outcome(&mut self, command: &Command) -> Outcome {
        self.call(command).unwrap_or(Err(Error::ArgInvalid))
    }

    /// As [`outcome`](Self::outcome), for commands whose result is a number, such as that of a new object; [`Error::InUse`] without one.
    fn call_for_number(&mut self, command: &Command) -> Result<u64> {
        self.outcome(command)?.ok_or(Error::InUse)
    }
}

/// Slots that this many counters may occupy: tables keep some freed ones unused.
const fn places_of(counters: u32) -> usize {
    (counters + crate::objects::handles::RESTING) as usize
}
