//! The protocol between mpirun and the crew of a host: calls on this host, frames through a pipe to another.
//!
//! A frame is its length, a kind, the number of a process, and a body. Process numbers count all processes that this mpirun
//! starts; in the first job, the number is the rank.

use std::ffi::OsString;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::options::{Abi, Resource};

/// The largest order in bytes: the kernel limits variables and arguments of a process to 6 MiB, and JSON enlarges them.
pub(super) const ORDER_LEN_MAX: usize = 64 << 20;
/// The largest event in bytes: a crew forwards what it reads in pieces of 64 KiB.
pub(super) const EVENT_LEN_MAX: usize = 1 << 20;
/// Kind and process number.
const HEAD_LEN: usize = 5;

/// The description of a process to start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ProcessSpec {
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// Its working directory.
    pub(super) directory: OsString,
    /// Variables in addition to those of the crew.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Its index among the processes of its job on this host, and their number.
    pub(super) local_rank: u32,
    pub(super) local_size: u32,
    /// What it is bound to.
    pub(super) bind: Binding,
    /// The library of MPI's standard ABI that it is given.
    pub(super) mpi: Library,
    /// Whether it receives standard input.
    pub(super) reads: bool,
    /// Whether it inherits mpirun's output streams instead of writing to pipes.
    pub(super) inherits_output: bool,
    /// Whether it may be asked which MPI calls it waits in.
    pub(super) notes_calls: bool,
}

/// What the ranks of a host are bound to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Binding {
    #[default]
    None,
    /// Each rank to its share of the cores, if there is at least one core for each.
    Share,
    /// Each rank to units of a resource in turn; after the last, the first is used again.
    Turn(Turn),
    /// A rank to these cores.
    Cores(Vec<CoreRange>),
}

/// The order in which ranks take units of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    /// What a rank is bound to, and how many units of it.
    pub(super) to: Resource,
    pub(super) width: u32,
    /// The resource whose units ranks take in turn, and how many ranks each takes before the next.
    pub(super) by: Resource,
    pub(super) ranks: u32,
}

/// Cores of a host, or of one of its sockets; all numbers start at 0 and count what the host allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CoreRange {
    pub(super) socket: Option<u32>,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// The library of MPI's standard ABI that a program is given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Library {
    /// None from us.
    #[default]
    None,
    /// The libraries that were built or installed with this program, if they exist.
    Bundled(Abi),
    /// The library in this directory.
    In(OsString),
}

/// An order from mpirun to the crew of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Start(u32, Box<ProcessSpec>),
    /// Bytes of the PMI stream.
    Pmi(u32, Vec<u8>),
    /// Standard input; an empty vector is its end.
    Input(u32, Vec<u8>),
    /// A signal for all processes.
    Signal(i32),
    /// Report the MPI calls that processes wait in.
    ReportCalls,
    /// End all processes: SIGTERM, then SIGKILL.
    End,
    /// Kill all processes.
    Kill,
}

/// An output stream of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stream {
    Out,
    Err,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExitReason {
    Exit(u8),
    Signal(u8),
}

/// The first message of an agent: describes itself and its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AgentInfo {
    pub(super) version: String,
    /// The name of its host.
    pub(super) host: String,
    pub(super) cores: u32,
    /// Addresses by which other hosts may reach the host.
    pub(super) addresses: Vec<IpAddr>,
}

/// An event on a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CrewEvent {
    Hello(AgentInfo),
    /// A process was started, with this process id, bound to these processors; none if it is not bound.
    Started(u32, u32, Vec<u32>),
    /// A process could not be started, with the reason.
    NotStarted(u32, String),
    /// Bytes of the PMI stream; an empty vector is its end.
    Pmi(u32, Vec<u8>),
    /// Output of a process; an empty vector is the end of the stream.
    Output(u32, Stream, Vec<u8>),
    /// The input given to the process was passed on, or never will be.
    InputWritten(u32),
    Ended(u32, ExitReason),
    /// Before `Ended`: the MPI library of the process is missing; the text says so.
    Missing(u32, String),
    /// Before `Ended` of a process that did not join its job: its MPI library cannot join; the text says so.
    NotJoined(u32, String),
    /// The MPI calls that a process waits in, separated by commas; empty if it waits in none.
    WaitsIn(u32, String),
    /// All processes have ended; this is the last event.
    Finished,
    /// The crew cannot be reached any more, with the reason.
    Lost(String),
}

/// Encodes a frame.
fn frame(kind: u8, number: u32, body: &[u8]) -> Vec<u8> {
    let len = (HEAD_LEN + body.len()) as u32;
    [&len.to_le_bytes()[..], &[kind], &number.to_le_bytes(), body].concat()
}

/// Encodes a value as JSON; only a lack of memory could make this fail.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl Order {
    /// Encodes it as a frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start(number, start) => frame(b'S', *number, &json(start)),
            Self::Pmi(number, bytes) => frame(b'P', *number, bytes),
            Self::Input(number, bytes) => frame(b'I', *number, bytes),
            Self::Signal(signal) => frame(b'U', signal.unsigned_abs(), &[]),
            Self::ReportCalls => frame(b'C', 0, &[]),
            Self::End => frame(b'E', 0, &[]),
            Self::Kill => frame(b'K', 0, &[]),
        }
    }

    /// Decodes a frame; `None` if it is malformed.
    pub(super) fn decode((kind, number, body): Frame) -> Option<Self> {
        Some(match kind {
            b'S' => Self::Start(number, serde_json::from_slice(&body).ok()?),
            b'P' => Self::Pmi(number, body),
            b'I' => Self::Input(number, body),
            b'U' => Self::Signal(number.try_into().ok()?),
            b'C' => Self::ReportCalls,
            b'E' => Self::End,
            b'K' => Self::Kill,
            _ => return None,
        })
    }
}

impl CrewEvent {
    /// Encodes it as a frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello(hello) => frame(b'h', 0, &json(hello)),
            Self::Started(number, pid, bound) => {
                let body: Vec<u8> = [*pid].iter().chain(bound).flat_map(|word| word.to_le_bytes()).collect();
                frame(b's', *number, &body)
            }
            Self::NotStarted(number, why) => frame(b'n', *number, why.as_bytes()),
            Self::Pmi(number, bytes) => frame(b'p', *number, bytes),
            Self::Output(number, Stream::Out, bytes) => frame(b'o', *number, bytes),
            Self::Output(number, Stream::Err, bytes) => frame(b'e', *number, bytes),
            Self::InputWritten(number) => frame(b't', *number, &[]),
            Self::Ended(number, ExitReason::Exit(code)) => frame(b'x', *number, &[*code]),
            Self::Ended(number, ExitReason::Signal(signal)) => frame(b'k', *number, &[*signal]),
            Self::Missing(number, text) => frame(b'm', *number, text.as_bytes()),
            Self::NotJoined(number, text) => frame(b'a', *number, text.as_bytes()),
            Self::WaitsIn(number, calls) => frame(b'c', *number, calls.as_bytes()),
            Self::Finished => frame(b'g', 0, &[]),
            Self::Lost(why) => frame(b'l', 0, why.as_bytes()),
        }
    }

    /// Decodes a frame; `None` if it is malformed.
    pub(super) fn decode((kind, number, body): Frame) -> Option<Self> {
        let text = |body| String::from_utf8(body).ok();
        Some(match kind {
            b'h' => Self::Hello(results::plain::from_peer(&body).ok()?),
            b's' => {
                let (words, rest) = body.as_chunks::<4>();
                let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
                let pid = words.next().filter(|_| rest.is_empty())?;
                Self::Started(number, pid, words.collect())
            }
            b'n' => Self::NotStarted(number, text(body)?),
            b'p' => Self::Pmi(number, body),
            b'o' => Self::Output(number, Stream::Out, body),
            b'e' => Self::Output(number, Stream::Err, body),
            b't' => Self::InputWritten(number),
            b'x' => Self::Ended(number, ExitReason::Exit(*body.first()?)),
            b'k' => Self::Ended(number, ExitReason::Signal(*body.first()?)),
            b'm' => Self::Missing(number, text(body)?),
            b'a' => Self::NotJoined(number, text(body)?),
            b'c' => Self::WaitsIn(number, text(body)?),
            b'g' => Self::Finished,
            b'l' => Self::Lost(text(body)?),
            _ => return None,
        })
    }
}

/// Kind, process number and body.
pub(super) type Frame = (u8, u32, Vec<u8>);

/// Assembles frames from received bytes.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    taken: usize,
    len_max: usize,
}

impl Frames {
    /// An empty buffer; each frame has at most `len_max` bytes.
    pub(super) fn new(len_max: usize) -> Self {
        Self { bytes: Vec::new(), taken: 0, len_max }
    }

    /// Appends bytes that have arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame if it is complete.
    ///
    /// # Errors
    /// The first bytes of a malformed frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, String> {
        let rest = &self.bytes[self.taken..];
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if !(HEAD_LEN..=self.len_max).contains(&len) {
            let text = self.bytes[self.taken..].iter().take(80).copied().collect::<Vec<u8>>();
            return Err(String::from_utf8_lossy(&text).into_owned());
        }
        let Some(rest) = rest.get(..len) else { return Ok(None) };
        let number = u32::from_le_bytes([rest[1], rest[2], rest[3], rest[4]]);
        let frame = (rest[0], number, rest[HEAD_LEN..].to_vec());
        self.taken += 4 + len;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Vec<Order> {
        let start = ProcessSpec {
            command: vec!["./a".into(), std::os::unix::ffi::OsStringExt::from_vec(vec![0xff])],
            directory: "/tmp".into(),
            variables: vec![("A".into(), "b=c".into())],
            local_size: 2,
            bind: Binding::Cores(vec![CoreRange { socket: Some(1), first: 0, last: 2 }]),
            mpi: Library::In("/lib".into()),
            reads: true,
            ..ProcessSpec::default()
        };
        vec![
            Order::Start(7, Box::new(start)),
            Order::Pmi(1, b"cmd=init\n".to_vec()),
            Order::Input(2, Vec::new()),
            Order::Signal(15),
            Order::ReportCalls,
            Order::End,
            Order::Kill,
        ]
    }

    fn events() -> Vec<CrewEvent> {
        vec![
            CrewEvent::Hello(AgentInfo {
                version: "1".into(),
                host: "a".into(),
                cores: 2,
                addresses: vec![[10, 0, 0, 1].into()],
            }),
            CrewEvent::Started(1, 4711, vec![0, 7]),
            CrewEvent::Started(2, 1, Vec::new()),
            CrewEvent::NotStarted(1, "why".into()),
            CrewEvent::Pmi(3, vec![0, 255]),
            CrewEvent::Output(1, Stream::Out, b"x\n".to_vec()),
            CrewEvent::Output(1, Stream::Err, Vec::new()),
            CrewEvent::InputWritten(u32::MAX),
            CrewEvent::Ended(0, ExitReason::Exit(3)),
            CrewEvent::Ended(0, ExitReason::Signal(9)),
            CrewEvent::Missing(1, "a".into()),
            CrewEvent::NotJoined(2, "b".into()),
            CrewEvent::WaitsIn(1, "MPI_Recv".into()),
            CrewEvent::Finished,
            CrewEvent::Lost("why".into()),
        ]
    }

    fn frames(bytes: &[u8], step: usize) -> Vec<Frame> {
        let mut frames = Frames::new(EVENT_LEN_MAX);
        let mut found = Vec::new();
        for piece in bytes.chunks(step) {
            frames.push(piece);
            while let Some(frame) = frames.next().expect("frames") {
                found.push(frame);
            }
        }
        found
    }

    /// Goal: messages arrive however the stream is cut. Method: all kinds of messages, in pieces of several sizes.
    #[test]
    fn both_ways() {
        for step in [1, 3, 7, 10_000] {
            let bytes: Vec<u8> = orders().iter().flat_map(Order::encode).collect();
            let found: Option<Vec<Order>> = frames(&bytes, step).into_iter().map(Order::decode).collect();
            assert_eq!(found, Some(orders()));
            let bytes: Vec<u8> = events().iter().flat_map(CrewEvent::encode).collect();
            let found: Option<Vec<CrewEvent>> =
                frames(&bytes, step).into_iter().map(CrewEvent::decode).collect();
            assert_eq!(found, Some(events()));
        }
    }

    #[test]
    fn text_that_is_no_frame_is_shown() {
        let mut frames = Frames::new(EVENT_LEN_MAX);
        frames.push(b"bash: nicety: command not found\n");
        assert_eq!(frames.next(), Err("bash: nicety: command not found\n".to_owned()));
        let mut frames = Frames::new(EVENT_LEN_MAX);
        frames.push(&[0, 0, 0, 0]);
        assert!(frames.next().is_err());
        let frame = |len: usize| [&(len as u32).to_le_bytes()[..], &vec![b'o'; len]].concat();
        for (len, fits) in [(EVENT_LEN_MAX, true), (EVENT_LEN_MAX + 1, false)] {
            let mut frames = Frames::new(EVENT_LEN_MAX);
            frames.push(&frame(len));
            assert_eq!(frames.next().is_ok_and(|frame| frame.is_some()), fits, "{len}");
        }
        assert_eq!(Order::decode((b'?', 0, Vec::new())), None);
        assert_eq!(Order::decode((b'S', 0, b"{}".to_vec())), None);
        assert_eq!(CrewEvent::decode((b'x', 0, Vec::new())), None);
        assert_eq!(CrewEvent::decode((b's', 0, vec![1])), None);
    }
}
