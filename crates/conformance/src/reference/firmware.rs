//! Programs that the reference NIC runs: in real time in the thread that gives a command, until no program has pending
//! work; in virtual time on a processor of the NIC, a rank whose clock [`NicCtx::charge`] advances.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use host::{EventCount, Span, Step, Wake};

use super::state::{Fault, LocalData, NicState, World};
use verbs::provider::ProgramOps;
use verbs::{Access, DmAccess, Error, Firmware, FirmwareCap, Message, NicCtx, Result, Sge};

pub(super) const CAP: FirmwareCap =
    FirmwareCap { max_command: 256, max_header: 128, max_payload: 1 << 30, max_waiting: 64 };

/// A loaded program.
pub(super) struct LoadedProgram {
    device: usize,
    domain: u32,
    /// Taken out while it runs.
    firmware: Option<Box<dyn Firmware>>,
    waiting: VecDeque<ProgramWork>,
    /// It has requested a turn that is still pending.
    wants_turn: bool,
    wakeup: Arc<EventCount>,
}

/// Pending work of a program.
enum ProgramWork {
    Command(Vec<u8>),
    Message { from: SocketAddr, header: Vec<u8>, payload: Vec<u8> },
    Turn,
}

/// The context of one call of a program.
struct CallContext<'a> {
    world: &'a World,
    at: SocketAddr,
    domain: u32,
    /// The payload of the message that the call handles.
    payload: &'a [u8],
}

impl NicState {
    /// Loads a program at `addr`, or at a free port of it.
    fn load(
        &mut self,
        (device, domain): (usize, u32),
        mut addr: SocketAddr,
        firmware: Box<dyn Firmware>,
    ) -> Result<SocketAddr> {
        if addr.ip().is_unspecified() {
            addr.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        if !addr.ip().is_loopback() {
            return Err(Error::Address {
                addr,
                why: "it is not the reference NIC's, which is 127.0.0.1".into(),
            });
        }
        if addr.port() == 0 {
            let free = (1..=u16::MAX).find(|&port| !self.programs.contains_key(&(addr.ip(), port).into()));
            addr.set_port(free.ok_or(Error::Limit {
                what: "programs",
                given: 1 << 16,
                limit: u16::MAX.into(),
            })?);
        }
        if self.programs.contains_key(&addr) {
            return Err(Error::Address {
                addr,
                why: "a program is loaded there; choose another port".into(),
            });
        }
        let (waiting, wakeup) = (VecDeque::new(), Arc::new(EventCount::new()));
        let loaded =
            LoadedProgram { device, domain, firmware: Some(firmware), waiting, wants_turn: false, wakeup };
        self.programs.insert(addr, loaded);
        Ok(addr)
    }

    /// The next program, in turn, that has pending work and is not running; of one NIC, or of all.
    fn next_program(&self, of: Option<usize>) -> Option<SocketAddr> {
        let can = |program: &LoadedProgram| {
            of.is_none_or(|device| program.device == device)
                && program.firmware.is_some()
                && !program.waiting.is_empty()
        };
        let later = self.programs.iter().filter(|(at, _)| self.last_program.is_none_or(|last| **at > last));
        let mut in_turn = later.chain(&self.programs);
        in_turn.find(|(_, program)| can(program)).map(|(&at, _)| at)
    }
}

impl World {
    /// Makes the NICs run programs with pending work.
    fn run_programs(&self) {
        if self.host.node().is_some() {
            // Their processors poll again.
            self.host.signal();
        } else {
            while self.run_program(None) {}
        }
    }

    /// Runs a program once, of one NIC or of all; returns whether there was any work.
    fn run_program(&self, of: Option<usize>) -> bool {
        let mut state = self.lock();
        let Some(at) = state.next_program(of) else { return false };
        state.last_program = Some(at);
        let Some(program) = state.programs.get_mut(&at) else { return false };
        let domain = program.domain;
        let (Some(work), Some(mut firmware)) = (program.waiting.pop_front(), program.firmware.take()) else {
            return false;
        };
        program.wants_turn &= !matches!(work, ProgramWork::Turn);
        drop(state);
        let mut context = CallContext { world: self, at, domain, payload: &[] };
        match &work {
            ProgramWork::Command(command) => firmware.on_command(&mut context, command),
            ProgramWork::Message { from, header, payload } => {
                let message = Message { from: *from, header, payload_len: payload.len() as u64 };
                firmware.on_message(&mut CallContext { payload, ..context }, &message);
            }
            ProgramWork::Turn => firmware.on_turn(&mut context),
        }
        // The thread that unloads a program waits for this.
        self.lock().programs.entry(at).and_modify(|program| program.firmware = Some(firmware));
        self.host.signal();
        true
    }

    /// In virtual time: starts the processor of a NIC, which runs as long as the world.
    fn start_processor(self: &Arc<Self>, device: usize) {
        if self.host.node().is_none() || std::mem::replace(&mut self.lock().has_processor[device], true) {
            return;
        }
        let world = self.clone();
        let body = move || {
            let work = || world.lock().next_program(Some(device)).map(drop);
            while world.host.poll("work for a NIC's programs", None, work).is_some() {
                world.run_program(Some(device));
                // A call takes some time even without charges: otherwise programs that retry would keep others from
                // running.
                world.host.charge_poll();
            }
        };
        self.host.spawn("a NIC's processor", None, body).expect("another rank");
    }
}

impl NicCtx for CallContext<'_> {
    /// Charges the processor that runs the program.
    fn charge(&mut self, span: Span) {
        self.world.host.charge(span);
    }

    fn charge_step(&mut self, step: Step, n: u64) {
        self.world.host.charge_step(step, n);
    }

    fn request_turn(&mut self) {
        let mut state = self.state();
        let Some(program) = state.programs.get_mut(&self.at) else { return };
        if !std::mem::replace(&mut program.wants_turn, true) {
            program.waiting.push_back(ProgramWork::Turn);
        }
    }

    fn send(&mut self, to: SocketAddr, header: &[u8], payload: &[Sge]) -> Result<()> {
        Error::check_limit("bytes of a header", header.len() as u64, CAP.max_header.into())?;
        let len = payload.iter().map(|sge| u64::from(sge.length)).sum();
        Error::check_limit("bytes of payload", len, CAP.max_payload)?;
        let mut state = self.state();
        let payload = state.gather(self.domain, &LocalData::Sges(payload.to_vec()));
        let payload =
            payload.ok_or_else(|| Error::Invalid("a piece of the payload is not registered".into()))?;
        let Some(target) = state.programs.get_mut(&to) else { return Ok(()) };
        if target.waiting.len() >= CAP.max_waiting as usize {
            return Err(Error::QueueFull { queue: "target's message", depth: CAP.max_waiting });
        }
        target.waiting.push_back(ProgramWork::Message { from: self.at, header: header.to_vec(), payload });
        drop(state);
        self.world.host.signal();
        Ok(())
    }

    fn deposit(&mut self, offset: u64, to: Sge) -> Result<()> {
        let end = offset.saturating_add(to.length.into());
        Error::check_limit("the end of the deposit in the payload", end, self.payload.len() as u64)?;
        if to.length == 0 {
            return Ok(());
        }
        let (buf, at) = self.writable(&to)?;
        if self.state().fault == Fault::LosesDeposits {
            return Ok(());
        }
        buf.write(at, &self.payload[offset as usize..end as usize])
    }

    fn event(&mut self, to: Sge, record: &[u8]) -> Result<()> {
        Error::check_limit("bytes of the record", record.len() as u64, to.length.into())?;
        let Some((rest, last)) = record.split_last_chunk().filter(|(rest, _)| rest.len() % 8 == 0) else {
            return Err(Error::Invalid("a record has a multiple of eight bytes".into()));
        };
        let (buf, at) = self.writable(&to)?;
        if buf.access() != DmAccess::Coherent {
            return Err(Error::Invalid("no processor can poll this memory".into()));
        }
        let word = buf.word(at + rest.len())?;
        buf.write(at, rest)?;
        word.store(u64::from_ne_bytes(*last), Ordering::Release);
        self.world.host.signal();
        Ok(())
    }

    fn interrupt(&mut self) {
        let state = self.state();
        let program = state.programs.get(&self.at).filter(|_| state.fault != Fault::SilentInterrupt);
        let wakeup = program.map(|program| program.wakeup.clone());
        drop(state);
        wakeup.inspect(|wakeup| self.world.host.notify(wakeup));
    }
}

impl CallContext<'_> {
    /// The state at the time of the processor's clock: effects of the call come after the time charged before.
    fn state(&self) -> MutexGuard<'_, NicState> {
        if let Some(node) = self.world.host.node() {
            node.sync();
        }
        self.world.lock()
    }

    fn writable(&self, to: &Sge) -> Result<(verbs::Buf, usize)> {
        let found = self.state().local(self.domain, to, Access::LOCAL_WRITE);
        found.ok_or_else(|| Error::Invalid("it is not registered memory that may be written".into()))
    }
}

/// The host's handle of a program.
pub(super) struct ProgramObject {
    world: Arc<World>,
    addr: SocketAddr,
    wakeup: Arc<EventCount>,
}

/// Loads a program into the NIC with that number, for memory of that domain.
pub(super) fn load(
    world: &Arc<World>,
    owner: (usize, u32),
    addr: SocketAddr,
    firmware: Box<dyn Firmware>,
) -> Result<ProgramObject> {
    world.start_processor(owner.0);
    let mut state = world.lock();
    let addr = state.load(owner, addr, firmware)?;
    let wakeup = state.programs[&addr].wakeup.clone();
    Ok(ProgramObject { world: world.clone(), addr, wakeup })
}

impl ProgramOps for ProgramObject {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn command(&self, command: &[u8]) -> Result<()> {
        let mut state = self.world.lock();
        let program = state.programs.get_mut(&self.addr).expect("this program");
        program.waiting.push_back(ProgramWork::Command(command.to_vec()));
        drop(state);
        self.world.run_programs();
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }
}

impl Drop for ProgramObject {
    fn drop(&mut self) {
        let unload = || {
            let mut state = self.world.lock();
            let rests = state.programs.get(&self.addr).is_none_or(|program| program.firmware.is_some());
            rests.then(|| state.programs.remove(&self.addr))
        };
        let unloaded = self.world.host.poll("the end of a program's call", None, unload);
        // Without the lock: the program may own objects whose drop takes it.
        drop(unloaded);
    }
}
