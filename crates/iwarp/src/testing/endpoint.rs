//! One endpoint of a connection: its state machines, its memory, and a driver that works on slices of bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::{Memory, Rights};
use crate::connection::{Connection, Cut};
use crate::crc::Crc;
use crate::rdmap::AtomicRequest;
use crate::rx::{Destination, Event, Lookup, Piece, Receive, ReceivedKind, Refusal};
use crate::terminate::{Terminate, TerminateCode};
use crate::tx::{Fpdu, Op, OpKind, Origin, Payload, PostError, Transmit};

/// An event that an endpoint has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Log {
    /// [`Event::Ready`].
    Ready,
    /// A Send with its content.
    Received {
        /// The content.
        data: Vec<u8>,
        /// Whether it solicits an event.
        solicited: bool,
        /// The tag that it invalidated.
        invalidated: Option<u32>,
    },
    /// Immediate Data.
    Immediate {
        /// The data.
        data: [u8; 8],
        /// Whether it solicits an event.
        solicited: bool,
    },
    /// An own read completed.
    ReadDone(u64),
    /// An own atomic completed; the second value is the word's previous value.
    AtomicDone(u64, u64),
    /// The peer ended the stream.
    Terminated(TerminateCode),
    /// This endpoint ended the stream.
    Failed(TerminateCode),
}

/// The driver's state next to the connection.
#[derive(Clone, Debug, Default)]
struct EndpointState {
    memory: Memory,
    receives: VecDeque<Range<usize>>,
    /// The receive buffer of the current message.
    taken: Range<usize>,
    sources: BTreeMap<u64, usize>,
    sinks: BTreeMap<u64, usize>,
    log: Vec<Log>,
    terminate: Option<Terminate>,
}

/// One endpoint of a connection, with its memory and its queues.
#[derive(Debug)]
pub struct Endpoint {
    /// Both directions of the protocol.
    pub connection: Connection,
    state: EndpointState,
    next_id: u64,
    /// Bytes that have arrived and were not consumed.
    held: Vec<u8>,
}

impl Endpoint {
    /// An endpoint without registered memory.
    pub fn new(connection: Connection) -> Self {
        Self { connection, state: EndpointState::default(), next_id: 1, held: Vec::new() }
    }

    /// The memory that the peer may access.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.state.memory
    }

    /// The events so far.
    pub fn log(&self) -> &[Log] {
        &self.state.log
    }

    /// The Terminate of the peer, if it has sent one.
    pub fn terminate(&self) -> Option<&Terminate> {
        self.state.terminate.as_ref()
    }

    /// Posts a receive buffer of this size.
    pub fn post_receive(&mut self, len: usize) {
        let buffer = self.state.memory.alloc(&vec![0; len]);
        self.state.memory.permit(buffer.clone());
        self.state.receives.push_back(buffer);
    }

    /// Registers a new buffer; its first byte has offset `to`.
    pub fn register(&mut self, stag: u32, to: u64, content: &[u8], rights: Rights) -> Range<usize> {
        let range = self.state.memory.alloc(content);
        self.state.memory.register(stag, to, range.clone(), rights);
        range
    }

    /// Posts an operation that sends `data`; its own length field is ignored. Returns its identifier.
    pub fn post(&mut self, kind: OpKind, data: &[u8], fence: bool) -> Result<u64, PostError> {
        let id = self.next_id;
        let len = data.len() as u32;
        let kind = match kind {
            OpKind::Write { stag, to, .. } => OpKind::Write { stag, to, len },
            OpKind::Send { solicited, invalidate, .. } => OpKind::Send { len, solicited, invalidate },
            other => other,
        };
        self.connection.post(Op { id, kind, fence })?;
        if let OpKind::Read(request) = kind {
            let sink = self.state.memory.alloc(&vec![0; request.len as usize]);
            self.state.memory.permit(sink.clone());
            self.state.sinks.insert(id, sink.start);
        } else {
            let source = self.state.memory.alloc(data);
            self.state.sources.insert(id, source.start);
        }
        self.next_id += 1;
        Ok(id)
    }

    /// The data of a completed read.
    pub fn read_result(&self, id: u64, len: usize) -> Option<&[u8]> {
        let &at = self.state.sinks.get(&id)?;
        Some(self.state.memory.read(at..at + len))
    }

    /// Appends everything that can be sent now.
    pub fn give(&mut self, out: &mut Vec<u8>) {
        while self.give_next(out).is_some() {}
    }

    /// Appends the next FPDU, if something can be sent now. Returns its origin, and whether it ends its message.
    pub fn give_next(&mut self, out: &mut Vec<u8>) -> Option<(Origin, bool)> {
        Some(match self.connection.poll_transmit()? {
            Transmit::Fpdu(fpdu) => {
                self.give_fpdu(&fpdu, out);
                (fpdu.origin, fpdu.last)
            }
            Transmit::Atomic(request) => {
                self.execute(&request, out);
                (Origin::Answer, true)
            }
        })
    }

    fn give_fpdu(&mut self, fpdu: &Fpdu, out: &mut Vec<u8>) {
        let payload = match fpdu.payload {
            Payload::None => 0..0,
            Payload::Op { id, offset, len } => {
                let begin = self.state.sources.get(&id).map_or(0, |source| source + offset as usize);
                begin..begin + len as usize
            }
            Payload::Source { stag, to, len } => {
                match self.state.memory.reach(stag, to, len, Rights::READ) {
                    Ok(range) => range,
                    // The buffer was deregistered after the request was checked. No byte of this FPDU was sent, so it
                    // is dropped.
                    Err(refusal) => return self.connection.abort(refusal.code()),
                }
            }
        };
        let payload = self.state.memory.read(payload);
        let mut seal = fpdu.seal();
        if seal.wants_payload() {
            let (head, tail) = payload.split_at(payload.len() / 3);
            seal.update(head);
            seal.append(Crc::of(tail), tail.len());
        }
        let trailer = seal.finish().expect("the whole payload was passed to the seal");
        let before = out.len();
        out.extend_from_slice(fpdu.header());
        out.extend_from_slice(payload);
        out.extend_from_slice(&trailer);
        assert_eq!(out.len() - before, fpdu.len(), "an FPDU knows its length");
    }

    fn execute(&mut self, request: &AtomicRequest, out: &mut Vec<u8>) {
        match self.state.memory.reach(request.stag, request.to, 8, Rights::ATOMIC) {
            Ok(range) => {
                let word: [u8; 8] = self.state.memory.read(range.clone()).try_into().expect("8 bytes");
                let original = u64::from_ne_bytes(word);
                self.state.memory.place(range.start, &request.op.apply(original).to_ne_bytes());
                if let Some(fpdu) = self.connection.atomic_done(original) {
                    self.give_fpdu(&fpdu, out);
                }
            }
            Err(refusal) => self.connection.abort(refusal.code()),
        }
    }

    /// Receives bytes of the stream, in one piece or several. After the end of the stream they are dropped.
    pub fn take(&mut self, bytes: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let taken = self.take_some(&held);
        held.drain(..taken);
        self.held = held;
    }

    /// Processes bytes; returns how many were consumed.
    fn take_some(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let receive = match self.connection.poll_receive(&mut self.state) {
                Ok(receive) => receive,
                Err(failure) => {
                    self.state.log.push(Log::Failed(failure.terminate.code));
                    return bytes.len();
                }
            };
            match receive {
                Receive::Closed => return bytes.len(),
                Receive::Event(event) => self.state.note(event),
                Receive::Check(wanted) => {
                    self.connection.check(rest);
                    if rest.len() < wanted {
                        return bytes.len() - rest.len();
                    }
                }
                _ if rest.is_empty() => return bytes.len(),
                Receive::Bytes(wanted) => {
                    assert!(wanted > 0, "at least one byte is needed");
                    let taken = self.connection.feed(rest);
                    assert!(taken > 0 && taken <= wanted, "the receiver consumes what it needs");
                    rest = &rest[taken..];
                }
                Receive::Place(piece) => {
                    let (now, later) = rest.split_at(piece.len.min(rest.len()));
                    self.place(&piece, now);
                    rest = later;
                }
            }
        }
    }

    fn place(&mut self, piece: &Piece, bytes: &[u8]) {
        let at = match piece.destination {
            Destination::Write { stag, to } => {
                self.state
                    .memory
                    .reach(stag, to, piece.len as u32, Rights::WRITE)
                    .expect("the receiver checks access before it returns a place")
                    .start
            }
            Destination::ReadSink { id, offset, .. } => {
                let sink = self.state.sinks.get(&id).expect("the receiver only names own reads");
                sink + offset as usize
            }
            Destination::Receive { offset, .. } => {
                assert!(offset as usize + piece.len <= self.state.taken.len(), "inside the buffer");
                self.state.taken.start + offset as usize
            }
        };
        self.state.memory.place(at, bytes);
        self.connection.placed(bytes.len());
    }

    /// The stream has ended.
    pub fn take_eof(&mut self) -> Result<(), Cut> {
        self.connection.handle_eof()
    }
}

impl EndpointState {
    fn note(&mut self, event: Event) {
        let log = match event {
            Event::Ready => Log::Ready,
            Event::Received(received) => {
                let solicited = received.solicited;
                match received.kind {
                    ReceivedKind::Send { len, invalidate } => {
                        if let Some(stag) = invalidate {
                            self.memory.invalidate(stag);
                        }
                        let begin = self.taken.start;
                        let data = self.memory.read(begin..begin + len as usize).to_vec();
                        Log::Received { data, solicited, invalidated: invalidate }
                    }
                    ReceivedKind::Immediate(data) => Log::Immediate { data, solicited },
                }
            }
            Event::ReadDone { id } => Log::ReadDone(id),
            Event::AtomicDone { id, original } => Log::AtomicDone(id, original),
            Event::Terminated(terminate) => {
                self.terminate = Some(terminate);
                Log::Terminated(terminate.code)
            }
            Event::ReadRequest(_) | Event::AtomicRequest(_) | Event::RtrDone => return,
        };
        self.log.push(log);
    }
}

impl Lookup for EndpointState {
    fn write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), Refusal> {
        self.memory.reach(stag, to, len, Rights::WRITE).map(drop)
    }

    fn read_sink(&mut self, id: u64, _offset: u32, _len: u32) -> Result<(), Refusal> {
        if self.sinks.contains_key(&id) { Ok(()) } else { Err(Refusal::Invalid) }
    }

    fn read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), Refusal> {
        self.memory.reach(stag, to, len, Rights::READ).map(drop)
    }

    fn atomic(&mut self, stag: u32, to: u64) -> Result<(), Refusal> {
        self.memory.reach(stag, to, 8, Rights::ATOMIC).map(drop)
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Refusal> {
        self.memory.may_invalidate(stag)
    }

    fn receive(&mut self, _msn: u32) -> Option<u32> {
        self.taken = self.receives.pop_front()?;
        Some(self.taken.len() as u32)
    }
}
