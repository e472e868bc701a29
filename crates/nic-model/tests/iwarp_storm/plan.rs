//! The plan of a seed: the configuration of both ends, their programs, and the fault.

use host::{Rng, Span};
use iwarp::mpa::{AcceptParams, InitiatorConfig, ResponderConfig, Revision, RtrSet};
use iwarp::rdmap::{AtomicOp, ReadRequest};
use iwarp::terminate::TerminateCode;
use iwarp::tx::OpKind;
use nic_model::stream::Direction;

/// Tags and first offsets of the regions at each end.
pub(crate) const WRITABLE: (u32, u64) = (0x100, 1 << 40);
pub(crate) const READABLE: (u32, u64) = (0x200, 4096);
pub(crate) const COUNTERS: (u32, u64) = (0x300, 8);
/// The first of the tags that messages invalidate, one for each message.
pub(crate) const PASSING: u32 = 0x1000;
pub(crate) const READABLE_LEN: usize = 20_000;
/// The final message of each program.
pub(crate) const BYE: &[u8] = b"good bye";

/// A request of an end.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRequest {
    /// Pause before it is posted.
    pub(crate) pause: Span,
    pub(crate) fence: bool,
    pub(crate) kind: OpKind,
    /// The data that it sends or writes.
    pub(crate) data: Vec<u8>,
    /// The required result: a read's data, or an atomic's old value.
    pub(crate) brings: Vec<u8>,
    /// It violates a rule, and this is the other end's error.
    pub(crate) breaks: Option<TerminateCode>,
}

/// The program of one end.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) steps: Vec<PlannedRequest>,
    /// Bytes of the region that the steps write, in sequence.
    pub(crate) writable: usize,
    /// Sizes of the receives that the other end posts.
    pub(crate) receives: Vec<usize>,
    /// Tags that the other end registers to be invalidated.
    pub(crate) passing: u32,
}

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The direction is reset after this many bytes.
    Reset(usize, u64),
    /// A bit is flipped in this direction, this many bytes after the handshake.
    Flip(usize, u64),
    /// A bit is flipped in this direction, this many bytes from its start, in the handshake or after it.
    Hit(usize, u64),
    /// The connection is reset in the handshake, when this many bytes were sent in this direction. If the
    /// initiator retries, that connection is reset later, too.
    Shaken(usize, u64),
    /// This end closes after this number of steps, without a receipt.
    Quit(usize, usize),
    /// This end closes after this number of steps, with a receipt.
    Leave(usize, usize),
    /// A step of this end's program violates a rule.
    Breach(usize),
    /// The responder's program rejects the connection.
    Reject,
    /// The responder only supports revision 1.
    Old,
    /// Only a read could serve as the first message, and no read may be outstanding.
    NoFirstMessage,
}

/// The plan of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) initiator: InitiatorConfig,
    pub(crate) responder: ResponderConfig,
    pub(crate) accept: AcceptParams,
    pub(crate) mulpdu: [u16; 2],
    /// Maximum number of operations that a state machine holds.
    pub(crate) queue: usize,
    /// Bytes per read of the stream.
    pub(crate) read: usize,
    pub(crate) directions: [Direction; 2],
    /// The directions of a second connection.
    pub(crate) directions_again: [Direction; 2],
    /// After this many steps an end queries whether they have arrived.
    pub(crate) ask_every: usize,
    pub(crate) programs: [Program; 2],
    pub(crate) fault: Fault,
}

/// The readable bytes of an end.
pub(crate) fn readable(seed: u64, end: usize) -> Vec<u8> {
    Rng::new(seed ^ 0xbeef ^ (end as u64) << 32).bytes(READABLE_LEN)
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut fault = fault(&mut rng);
        let v2 = !rng.one_in(4) || matches!(fault, Fault::Old | Fault::Shaken(..));
        let depths = [0, 1, 2, 5, 16];
        // Only CRCs detect flipped bits.
        let crc = matches!(fault, Fault::Flip(..)) || rng.one_in(2);
        let all_first_messages = rng.one_in(2);
        let initiator = InitiatorConfig {
            revision: if v2 { Revision::V2 } else { Revision::V1 },
            crc,
            ird: *rng.one_of(&depths),
            ord: *rng.one_of(&depths),
            peer_to_peer: if v2 && all_first_messages {
                RtrSet::all()
            } else if v2 && !rng.one_in(3) {
                RtrSet::from_bits_truncate(rng.next_u64() as u8)
            } else {
                RtrSet::empty()
            },
            private_data: rng.bytes(rng.clone().below(64) as usize),
            ..InitiatorConfig::default()
        };
        let responder = ResponderConfig {
            revision_max: if fault == Fault::Old { Revision::V1 } else { Revision::V2 },
            crc: rng.one_in(3),
            ..ResponderConfig::default()
        };
        let accept =
            AcceptParams { ird: *rng.one_of(&depths), ord: *rng.one_of(&depths), private_data: rng.bytes(5) };
        if initiator.peer_to_peer == RtrSet::READ
            && initiator.ord.min(accept.ird) == 0
            && !matches!(fault, Fault::Old | Fault::Reject | Fault::Shaken(..) | Fault::Hit(..))
        {
            fault = Fault::NoFirstMessage;
        }
        let breach = |end| fault == Fault::Breach(end);
        // Revision 1 does not negotiate depths: each side relies on the other's choice.
        let again = matches!(fault, Fault::Old | Fault::Shaken(..));
        let (initiator, accept) =
            if v2 && !again { (initiator, accept) } else { match_depths(initiator, accept) };
        let reads = [initiator.ord.min(accept.ird) > 0, accept.ord.min(initiator.ird) > 0];
        let mut directions = [direction(&mut rng), direction(&mut rng)];
        let (queue, read) = (*rng.one_of(&[1, 2, 8, 64]), *rng.one_of(&[1, 13, 500, 4096, 65_536]));
        // Byte by byte, long messages would only take long.
        let tiny = read == 1
            || directions.iter().any(|direction| direction.segment < 100 || direction.send_buffer < 100);
        let longest = if tiny { 150 } else { READABLE_LEN };
        let programs = [0, 1].map(|end| {
            program(&mut rng, ProgramSpec { seed, end, longest, reads: reads[end], breach: breach(end) })
        });
        if let Fault::Reset(end, at) | Fault::Shaken(end, at) = fault {
            directions[end].reset_at = Some(at);
        }
        let mut directions_again = [direction(&mut rng), direction(&mut rng)];
        if let Fault::Shaken(end, _) = fault {
            directions_again[end].reset_at =
                Some(*rng.one_of(&[100, 1000, 10_000]) * rng.below(100) / 100 + 20);
        }
        let ask_every = *rng.one_of(&[1, 2, 5]);
        let mulpdu = [0; 2].map(|_| *rng.one_of(&[128, 200, 536, 1452, 8952, u16::MAX]));
        Self {
            initiator,
            responder,
            accept,
            mulpdu,
            queue,
            read,
            directions,
            directions_again,
            ask_every,
            programs,
            fault,
        }
    }
}

impl Plan {
    /// Whether FPDUs have CRCs.
    pub(crate) fn has_crcs(&self) -> bool {
        self.initiator.crc || self.responder.crc
    }
}

fn match_depths(initiator: InitiatorConfig, accept: AcceptParams) -> (InitiatorConfig, AcceptParams) {
    let (ird, ord) = (initiator.ird, initiator.ord);
    (initiator, AcceptParams { ird: ord, ord: ird, ..accept })
}

fn fault(rng: &mut Rng) -> Fault {
    let end = rng.below(2) as usize;
    match rng.below(26) {
        20..=22 => Fault::Hit(end, *rng.one_of(&[60, 300, 3000, 30_000]) * rng.below(100) / 100),
        23 | 24 => Fault::Shaken(end, 1 + rng.below(if end == 0 { 24 } else { 30 })),
        0..=3 => Fault::Reset(end, 1 + *rng.one_of(&[30, 300, 3000, 30_000]) * rng.below(100) / 100),
        4..=6 => Fault::Flip(end, *rng.one_of(&[30, 300, 3000, 30_000]) * rng.below(100) / 100),
        7 => Fault::Quit(end, rng.below(20) as usize),
        8..=11 => Fault::Breach(end),
        12 if rng.one_in(2) => Fault::Reject,
        13 if rng.one_in(2) => Fault::Old,
        14 | 15 => Fault::Leave(end, rng.below(12) as usize),
        _ => Fault::None,
    }
}

fn direction(rng: &mut Rng) -> Direction {
    let segment = *rng.one_of(&[1, 5, 100, 1460, 9000]);
    // Tiny sizes everywhere would only be slow.
    let receive_buffer = *rng.one_of(&[if segment < 100 { 300 } else { 1000 }, 4096, 65_536]);
    Direction {
        segment,
        send_buffer: *rng.one_of(&[1, 100, 4096, 65_536]),
        receive_buffer,
        delay: Span::from_ns(*rng.one_of(&[0, 500, 5_000])),
        jitter: Span::from_ns(*rng.one_of(&[0, 100, 20_000])),
        ps_per_byte: *rng.one_of(&[0, 80, 800]),
        reset_at: None,
    }
}

fn length(rng: &mut Rng, longest: usize) -> usize {
    let len = match rng.below(8) {
        0 => 0,
        1 => 1 + rng.below(16),
        2..=5 => rng.below(700),
        6 => rng.below(3000),
        _ => rng.below(READABLE_LEN as u64),
    };
    len as usize % (longest + 1)
}

/// Requirements for a program.
struct ProgramSpec {
    seed: u64,
    end: usize,
    /// Maximum bytes of a message.
    longest: usize,
    /// It contains reads.
    reads: bool,
    /// It violates a rule.
    breach: bool,
}

/// Generates the program of an end.
struct ProgramBuilder<'a> {
    rng: &'a mut Rng,
    readable: Vec<u8>,
    program: Program,
    longest: usize,
    /// The value of this end's counter at the other end.
    counter: u64,
    to: u64,
}

fn program(rng: &mut Rng, ask: ProgramSpec) -> Program {
    let ProgramSpec { seed, end, longest, reads, breach } = ask;
    let count = *rng.one_of(&[1, 4, 12, 30]);
    let breach_at = breach.then(|| rng.below(count));
    let program = Program { steps: Vec::new(), writable: 0, receives: Vec::new(), passing: 0 };
    let readable = readable(seed, 1 - end);
    let mut builder = ProgramBuilder { rng, readable, program, longest, counter: 0, to: WRITABLE.1 };
    for number in 0..count {
        if breach_at == Some(number) {
            builder.breach(reads);
        }
        match builder.rng.below(if reads { 9 } else { 5 }) {
            0..=1 => builder.write(),
            2..=3 => builder.send(),
            4 => builder.immediate(),
            5..=6 => builder.read(),
            _ => builder.atomic(),
        }
    }
    // After all data that reads return.
    builder.add(OpKind::Send { len: 0, solicited: true, invalidate: None }, BYE.to_vec(), Vec::new());
    let mut program = builder.program;
    program.steps.last_mut().expect("the bye").fence = true;
    program.receives.push(BYE.len());
    program
}

impl ProgramBuilder<'_> {
    fn add(&mut self, kind: OpKind, data: Vec<u8>, brings: Vec<u8>) {
        let pause = if self.rng.one_in(2) { Span::ZERO } else { Span::from_ns(self.rng.below(30_000)) };
        let fence = self.rng.one_in(8);
        self.program.steps.push(PlannedRequest { pause, fence, kind, data, brings, breaks: None });
    }

    fn write(&mut self) {
        let len = length(self.rng, self.longest);
        let (stag, to) = (WRITABLE.0, self.to);
        self.to += len as u64;
        self.program.writable += len;
        let data = self.rng.bytes(len);
        self.add(OpKind::Write { stag, to, len: 0 }, data, Vec::new());
    }

    fn send(&mut self) {
        let len = length(self.rng, self.longest).min(4000);
        let solicited = self.rng.one_in(2);
        let invalidate = self.rng.one_in(4).then(|| {
            self.program.passing += 1;
            PASSING + self.program.passing - 1
        });
        let spare = *self.rng.one_of(&[0, 0, 1, 100]);
        self.program.receives.push(len + spare);
        let data = self.rng.bytes(len);
        self.add(OpKind::Send { len: 0, solicited, invalidate }, data, Vec::new());
    }

    fn immediate(&mut self) {
        let data = self.rng.next_u64().to_be_bytes();
        self.program.receives.push(self.rng.below(9) as usize);
        let solicited = self.rng.one_in(2);
        self.add(OpKind::Immediate { data, solicited }, Vec::new(), Vec::new());
    }

    fn read(&mut self) {
        let len = length(self.rng, self.longest);
        let from = self.rng.below((READABLE_LEN - len) as u64 + 1);
        let brings = self.readable[from as usize..][..len].to_vec();
        let request = ReadRequest {
            sink_stag: self.rng.next_u64() as u32 | 1,
            sink_to: self.rng.below(1 << 50),
            len: len as u32,
            source_stag: READABLE.0,
            source_to: READABLE.1 + from,
        };
        self.add(OpKind::Read(request), Vec::new(), brings);
    }

    fn atomic(&mut self) {
        let op = if self.rng.one_in(2) {
            AtomicOp::FetchAdd {
                add: self.rng.next_u64(),
                mask: if self.rng.one_in(2) { 0 } else { 1 << 31 },
            }
        } else {
            let compare = if self.rng.one_in(2) { self.counter } else { self.rng.next_u64() };
            let compare_mask = *self.rng.one_of(&[u64::MAX, u64::MAX, 0xff]);
            let (swap, swap_mask) = (self.rng.next_u64(), *self.rng.one_of(&[u64::MAX, 0xffff_0000]));
            AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask }
        };
        let brings = self.counter.to_ne_bytes().to_vec();
        // A computation independent of the one under test.
        self.counter = reference(op, self.counter);
        self.add(OpKind::Atomic { stag: COUNTERS.0, to: COUNTERS.1, op }, Vec::new(), brings);
    }

    /// Adds a step that the other end must refuse, with its error.
    fn breach(&mut self, reads: bool) {
        let unknown = 0x7777;
        let write = |stag, to| OpKind::Write { stag, to, len: 0 };
        let read = |source_stag, source_to| {
            OpKind::Read(ReadRequest { sink_stag: 9, sink_to: 0, len: 100, source_stag, source_to })
        };
        let send = |invalidate| OpKind::Send { len: 0, solicited: false, invalidate };
        let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
        let (kind, code) = match self.rng.below(if reads { 11 } else { 7 }) {
            0 => (write(unknown, 0), TerminateCode::TAGGED_STAG_INVALID),
            1 => (write(COUNTERS.0, COUNTERS.1), TerminateCode::ACCESS),
            2 => (write(WRITABLE.0, WRITABLE.1 - 1), TerminateCode::TAGGED_BOUNDS),
            3 => (write(READABLE.0, READABLE.1), TerminateCode::ACCESS),
            4 => (send(Some(READABLE.0)), TerminateCode::CANNOT_INVALIDATE),
            5 => (send(Some(unknown)), TerminateCode::STAG_INVALID),
            6 => {
                self.program.receives.push(99);
                (send(None), TerminateCode::UNTAGGED_TOO_LONG)
            }
            7 => (read(unknown, 0), TerminateCode::STAG_INVALID),
            8 => (read(COUNTERS.0, COUNTERS.1), TerminateCode::ACCESS),
            9 => (read(READABLE.0, READABLE.1 + READABLE_LEN as u64 - 99), TerminateCode::BOUNDS),
            _ => (OpKind::Atomic { stag: READABLE.0, to: READABLE.1, op: add }, TerminateCode::ACCESS),
        };
        if matches!(code, TerminateCode::CANNOT_INVALIDATE) || kind == send(Some(unknown)) {
            self.program.receives.push(200);
        }
        if let OpKind::Write { .. } = kind
            && self.rng.one_in(2)
        {
            // A write of no bytes needs no rights, so this one is not refused.
            self.add(kind, Vec::new(), Vec::new());
        }
        let data =
            if matches!(kind, OpKind::Read(_) | OpKind::Atomic { .. }) { Vec::new() } else { vec![1; 100] };
        self.add(kind, data, Vec::new());
        self.program.steps.last_mut().expect("just added").breaks = Some(code);
    }
}

/// The result of an atomic, bit by bit (RFC 7306 section 5.1).
fn reference(op: AtomicOp, word: u64) -> u64 {
    let bit = |word: u64, at: u32| word >> at & 1 == 1;
    let mut result = 0;
    match op {
        AtomicOp::FetchAdd { add, mask } => {
            let mut carry = false;
            for at in 0..64 {
                let sum = u8::from(bit(word, at)) + u8::from(bit(add, at)) + u8::from(carry);
                result |= u64::from(sum & 1) << at;
                // A set bit in the mask is the last bit of its field.
                carry = sum > 1 && !bit(mask, at);
            }
        }
        AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask } => {
            let same = (0..64).all(|at| !bit(compare_mask, at) || bit(word, at) == bit(compare, at));
            for at in 0..64 {
                let from = if same && bit(swap_mask, at) { swap } else { word };
                result |= u64::from(bit(from, at)) << at;
            }
        }
    }
    result
}
