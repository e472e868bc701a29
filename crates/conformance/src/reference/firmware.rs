//! Programs that the reference NIC runs, in the thread that gives a command, until nothing waits at any of them.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::{Bell, Span, Wake};

use super::state::{Fault, Pieces, State, World};
use verbs::provider::ProgramOps;
use verbs::{Access, DmAccess, Error, Firmware, FirmwareCap, Message, NicCtx, Result, Sge};

pub(super) const CAP: FirmwareCap =
    FirmwareCap { max_command: 256, max_header: 128, max_payload: 1 << 30, max_waiting: 64 };

/// A loaded program.
pub(super) struct Loaded {
    domain: u32,
    /// Taken out while it runs.
    firmware: Option<Box<dyn Firmware>>,
    waiting: VecDeque<Work>,
    /// It has asked for a turn that has not come.
    wants_turn: bool,
    bell: Arc<Bell>,
}

/// What waits at a program.
enum Work {
    Command(Vec<u8>),
    Message { from: SocketAddr, header: Vec<u8>, payload: Vec<u8> },
    Turn,
}

/// What a program is lent for one call.
struct Lent<'a> {
    state: &'a mut State,
    at: SocketAddr,
    domain: u32,
    /// Of the message that the call is about.
    payload: &'a [u8],
}

impl State {
    /// Loads a program at `addr`, or at a free port of it.
    fn load(&mut self, domain: u32, mut addr: SocketAddr, firmware: Box<dyn Firmware>) -> Result<SocketAddr> {
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
        let (waiting, bell) = (VecDeque::new(), Arc::new(Bell::new()));
        let loaded = Loaded { domain, firmware: Some(firmware), waiting, wants_turn: false, bell };
        self.programs.insert(addr, loaded);
        Ok(addr)
    }

    /// Lets programs run until nothing waits at any, each with one piece of work in its turn.
    fn run_programs(&mut self) {
        loop {
            let busy: Vec<SocketAddr> =
                self.programs.iter().filter(|(_, p)| !p.waiting.is_empty()).map(|(&at, _)| at).collect();
            if busy.is_empty() {
                return;
            }
            busy.into_iter().for_each(|at| self.run_program(at));
        }
    }

    fn run_program(&mut self, at: SocketAddr) {
        let Some(program) = self.programs.get_mut(&at) else { return };
        let domain = program.domain;
        let (Some(work), Some(mut firmware)) = (program.waiting.pop_front(), program.firmware.take()) else {
            return;
        };
        match &work {
            Work::Command(command) => {
                firmware.on_command(&mut Lent { state: self, at, domain, payload: &[] }, command);
            }
            Work::Message { from, header, payload } => {
                let message = Message { from: *from, header, payload_len: payload.len() as u64 };
                firmware.on_message(&mut Lent { state: self, at, domain, payload }, &message);
            }
            Work::Turn => {
                program.wants_turn = false;
                firmware.on_turn(&mut Lent { state: self, at, domain, payload: &[] });
            }
        }
        if let Some(program) = self.programs.get_mut(&at) {
            program.firmware = Some(firmware);
        }
    }
}

impl NicCtx for Lent<'_> {
    /// Running takes its time.
    fn charge(&mut self, _span: Span) {}

    fn poll_turn(&mut self) {
        let Some(program) = self.state.programs.get_mut(&self.at) else { return };
        if !std::mem::replace(&mut program.wants_turn, true) {
            program.waiting.push_back(Work::Turn);
        }
    }

    fn send(&mut self, to: SocketAddr, header: &[u8], payload: &[Sge]) -> Result<()> {
        Error::check_limit("bytes of a header", header.len() as u64, CAP.max_header.into())?;
        let len = payload.iter().map(|sge| u64::from(sge.length)).sum();
        Error::check_limit("bytes of payload", len, CAP.max_payload)?;
        let payload = self.state.gather(self.domain, &Pieces::Sges(payload.to_vec()));
        let payload =
            payload.ok_or_else(|| Error::Invalid("a piece of the payload is not registered".into()))?;
        let Some(target) = self.state.programs.get_mut(&to) else { return Ok(()) };
        if target.waiting.len() >= CAP.max_waiting as usize {
            return Err(Error::QueueFull { queue: "target's message", depth: CAP.max_waiting });
        }
        target.waiting.push_back(Work::Message { from: self.at, header: header.to_vec(), payload });
        Ok(())
    }

    fn deposit(&mut self, offset: u64, to: Sge) -> Result<()> {
        let end = offset.saturating_add(to.length.into());
        Error::check_limit("the end of the deposit in the payload", end, self.payload.len() as u64)?;
        if to.length == 0 {
            return Ok(());
        }
        let (buf, at) = self.writable(&to)?;
        if self.is_broken(Fault::LosesDeposits) {
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
            return Err(Error::Invalid("nobody can poll this memory".into()));
        }
        let word = buf.word(at + rest.len())?;
        buf.write(at, rest)?;
        word.store(u64::from_ne_bytes(*last), Ordering::Release);
        Ok(())
    }

    fn interrupt(&mut self) {
        if let Some(program) =
            self.state.programs.get(&self.at).filter(|_| !self.is_broken(Fault::SilentInterrupt))
        {
            program.bell.ring();
        }
    }
}

impl Lent<'_> {
    fn is_broken(&self, fault: Fault) -> bool {
        self.state.fault == fault
    }

    fn writable(&self, to: &Sge) -> Result<(verbs::Buf, usize)> {
        let found = self.state.local(self.domain, to, Access::LOCAL_WRITE);
        found.ok_or_else(|| Error::Invalid("it is not registered memory that may be written".into()))
    }
}

/// The host's hold on a program.
pub(super) struct ProgramObject {
    world: Arc<World>,
    addr: SocketAddr,
    bell: Arc<Bell>,
}

pub(super) fn load(
    world: &Arc<World>,
    domain: u32,
    addr: SocketAddr,
    firmware: Box<dyn Firmware>,
) -> Result<ProgramObject> {
    let mut state = world.lock();
    let addr = state.load(domain, addr, firmware)?;
    let bell = state.programs[&addr].bell.clone();
    Ok(ProgramObject { world: world.clone(), addr, bell })
}

impl ProgramOps for ProgramObject {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn command(&self, command: &[u8]) -> Result<()> {
        let mut state = self.world.lock();
        let program = state.programs.get_mut(&self.addr).expect("this program");
        program.waiting.push_back(Work::Command(command.to_vec()));
        state.run_programs();
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.bell)
    }
}

impl Drop for ProgramObject {
    fn drop(&mut self) {
        let unloaded = self.world.lock().programs.remove(&self.addr);
        // Outside of the lock: the program may own what takes it to be dropped.
        drop(unloaded);
    }
}
