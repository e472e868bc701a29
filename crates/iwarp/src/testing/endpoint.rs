//! One endpoint of a connection: its state machines, its memory, and a driver that works on slices of bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::{Memory, Rights};
use crate::connection::{Connection, UnexpectedEof};
use crate::crc::Crc;
use crate::rdmap::AtomicRequest;
use crate::rx::{AccessError, Destination, Event, Lookup, Piece, ReceivedKind, ReceiverStep};
use crate::terminate::{Terminate, TerminateCode};
use crate::tx::{Fpdu, Op, OpKind, Origin, Payload, PostError, Transmit};

/// An event that an endpoint has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointEvent {
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
    log: Vec<EndpointEvent>,
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
    pub fn log(&self) -> &[EndpointEvent] {
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
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        while self.transmit_next(out).is_some() {}
    }

    /// Appends the next FPDU, if something can be sent now. Returns its origin, and whether it ends its message.
    pub fn transmit_next(&mut self, out: &mut Vec<u8>) -> Option<(Origin, bool)> {
        Some(match self.connection.poll_transmit()? {
            Transmit::Fpdu(fpdu) => {
                self.transmit_fpdu(&fpdu, out);
                (fpdu.origin, fpdu.last)
            }
            Transmit::Atomic(request) => {
                self.execute(&request, out);
                (Origin::Response, true)
            }
        })
    }

    fn transmit_fpdu(&mut self, fpdu: &Fpdu, out: &mut Vec<u8>) {
        let payload = match fpdu.payload {
            Payload::None => 0..0,
            Payload::Op { id, offset, len } => {
                let begin = self.state.sources.get(&id).map_or(0, |source| source + offset as usize);
                begin..begin + len as usize
            }
            Payload::Source { stag, to, len } => {
                match self.state.memory.check_access(stag, to, len, Rights::READ) {
                    Ok(range) => range,
                    // The buffer was deregistered after the request was checked. No byte of this FPDU was sent, so it
                    // is dropped.
                    Err(refusal) => return self.connection.abort(refusal.code()),
                }
            }
        };
        let payload = self.state.memory.read(payload);
        let mut trailer = fpdu.trailer_builder();
        if trailer.wants_payload() {
            let (head, tail) = payload.split_at(payload.len() / 3);
            trailer.update(head);
            trailer.append(Crc::compute(tail), tail.len());
        }
        let trailer = trailer.finish().expect("the whole payload was passed to the trailer");
        let before = out.len();
        out.extend_from_slice(fpdu.header());
        out.extend_from_slice(payload);
        out.extend_from_slice(&trailer);
        assert_eq!(out.len() - before, fpdu.len(), "an FPDU knows its length");
    }

    fn execute(&mut self, request: &AtomicRequest, out: &mut Vec<u8>) {
        match self.state.memory.check_access(request.stag, request.to, 8, Rights::ATOMIC) {
            Ok(range) => {
                let word: [u8; 8] = self.state.memory.read(range.clone()).try_into().expect("8 bytes");
                let original = u64::from_ne_bytes(word);
                self.state.memory.place(range.start, &request.op.apply(original).to_ne_bytes());
                if let Some(fpdu) = self.connection.atomic_done(original) {
                    self.transmit_fpdu(&fpdu, out);
                }
            }
            Err(refusal) => self.connection.abort(refusal.code()),
        }
    }

    /// Receives bytes of the stream, in one piece or several. After the end of the stream they are dropped.
    pub fn receive_bytes(&mut self, bytes: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let taken = self.consume(&held);
        held.drain(..taken);
        self.held = held;
    }

    /// Processes bytes; returns how many were consumed.
    fn consume(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let receive = match self.connection.poll_receive(&mut self.state) {
                Ok(receive) => receive,
                Err(failure) => {
                    self.state.log.push(EndpointEvent::Failed(failure.terminate.code));
                    return bytes.len();
                }
            };
            match receive {
                ReceiverStep::Closed => return bytes.len(),
                ReceiverStep::Event(event) => self.state.record_event(event),
                ReceiverStep::Check(wanted) => {
                    self.connection.check(rest);
                    if rest.len() < wanted {
                        return bytes.len() - rest.len();
                    }
                }
                _ if rest.is_empty() => return bytes.len(),
                ReceiverStep::Bytes(wanted) => {
                    assert!(wanted > 0, "at least one byte is needed");
                    let taken = self.connection.feed(rest);
                    assert!(taken > 0 && taken <= wanted, "the receiver consumes what it needs");
                    rest = &rest[taken..];
                }
                ReceiverStep::Place(piece) => {
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
                    .check_access(stag, to, piece.len as u32, Rights::WRITE)
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
    pub fn receive_eof(&mut self) -> Result<(), UnexpectedEof> {
        self.connection.handle_eof()
    }
}

impl EndpointState {
    fn record_event(&mut self, event: Event) {
        let log = match event {
            Event::Ready => EndpointEvent::Ready,
            Event::Received(received) => {
                let solicited = received.solicited;
                match received.kind {
                    ReceivedKind::Send { len, invalidate } => {
                        if let Some(stag) = invalidate {
                            self.memory.invalidate(stag);
                        }
                        let begin = self.taken.start;
                        let data = self.memory.read(begin..begin + len as usize).to_vec();
                        EndpointEvent::Received { data, solicited, invalidated: invalidate }
                    }
                    ReceivedKind::Immediate(data) => EndpointEvent::Immediate { data, solicited },
                }
            }
            Event::ReadDone { id } => EndpointEvent::ReadDone(id),
            Event::AtomicDone { id, original } => EndpointEvent::AtomicDone(id, original),
            Event::Terminated(terminate) => {
                self.terminate = Some(terminate);
                EndpointEvent::Terminated(terminate.code)
            }
            Event::ReadRequest(_) | Event::AtomicRequest(_) | Event::RtrDone => return,
        };
        self.log.push(log);
    }
}

impl Lookup for EndpointState {
    fn check_write(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError> {
        self.memory.check_access(stag, to, len, Rights::WRITE).map(drop)
    }

    fn check_read_sink(&mut self, id: u64, _offset: u32, _len: u32) -> Result<(), AccessError> {
        if self.sinks.contains_key(&id) { Ok(()) } else { Err(AccessError::Invalid) }
    }

    fn check_read_source(&mut self, stag: u32, to: u64, len: u32) -> Result<(), AccessError> {
        self.memory.check_access(stag, to, len, Rights::READ).map(drop)
    }

    fn check_atomic(&mut self, stag: u32, to: u64) -> Result<(), AccessError> {
        self.memory.check_access(stag, to, 8, Rights::ATOMIC).map(drop)
    }

    fn check_invalidate(&mut self, stag: u32) -> Result<(), AccessError> {
        self.memory.may_invalidate(stag)
    }

    fn take_receive(&mut self, _msn: u32) -> Option<u32> {
        self.taken = self.receives.pop_front()?;
        Some(self.taken.len() as u32)
    }
}
