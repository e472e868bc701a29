//! [`Messages`]: which received message is which sent one, and whether their types match.
//!
//! A sender precedes each message by a *note* on the second communicator, with the same destination and tag. Messages of one sender with
//! one tag arrive in order (MPI 5.0, section 3.5), and so do their notes. A receiver takes a message's note when it knows the message's
//! sender and tag, and which of its receives came first: a receive waits for earlier receives that could have taken the message instead.

use std::collections::{BTreeMap, VecDeque};

use findings::Stack;

use crate::library::{self, ANY_SOURCE, ANY_TAG, BYTE, COMM_NULL, PROC_NULL, REQUEST_NULL, SUCCESS, Status};
use crate::memory::Memory;
use crate::report::{self, NOT_RECEIVED, TYPE_MISMATCH};
use crate::signature::{RUNS_MAX, Run, Signature};

/// Bytes of a sender's place in a note.
const PLACE: usize = 120;
/// Words of a note before the place: whether the signature is known, its count, the number of runs, and two words for each run.
const WORDS: usize = 3 + 2 * RUNS_MAX;
const NOTE: usize = 8 * WORDS + PLACE;
/// Notes of messages that were never received which are reported for each communicator.
const REPORTED_MAX: u32 = 20;

/// A receive that was posted.
struct Posted {
    number: u64,
    source: i32,
    tag: i32,
    /// `None` if it is not known.
    signature: Option<Signature>,
    stack: Stack,
    /// The sender and the tag of its message, once they are known.
    message: Option<(i32, i32)>,
}

/// A communicator of the program.
struct Comm {
    second: usize,
    is_inter: bool,
    /// Whether notes are still in step with messages. Otherwise they are received and not compared.
    is_compared: bool,
    posted: VecDeque<Posted>,
}

/// A received message: its note can be taken.
pub(crate) struct Match {
    second: usize,
    source: i32,
    tag: i32,
    signature: Option<Signature>,
    stack: Stack,
}

/// The messages of this process.
pub(crate) struct Messages {
    comms: BTreeMap<usize, Comm>,
    /// Whether messages are compared at all: threads that send at the same time would mix up notes.
    is_on: bool,
    next: u64,
    /// Notes that are being sent, with their requests.
    outgoing: Vec<(usize, Box<[u8; NOTE]>)>,
    places: BTreeMap<Stack, String>,
}

impl Messages {
    pub(crate) fn new(is_on: bool) -> Self {
        let (outgoing, places) = (Vec::new(), BTreeMap::new());
        Self { comms: BTreeMap::new(), is_on, next: 0, outgoing, places }
    }

    pub(crate) fn add(&mut self, comm: usize, second: usize, is_inter: bool) {
        let is_compared = self.is_on;
        self.comms.insert(comm, Comm { second, is_inter, is_compared, posted: VecDeque::new() });
    }

    pub(crate) fn remove(&mut self, comm: usize) -> Option<usize> {
        self.comms.remove(&comm).map(|comm| comm.second)
    }

    /// The second communicator for collectives; `None` between groups.
    pub(crate) fn second_of_group(&self, comm: usize) -> Option<usize> {
        self.comms.get(&comm).filter(|comm| !comm.is_inter).map(|comm| comm.second)
    }

    /// Sends the note of a message that is about to be sent.
    pub(crate) fn send(&mut self, memory: &Memory, dest: i32, tag: i32, comm: usize, stack: Stack) {
        let Some(comm) = self.comms.get(&comm) else { return };
        if dest < 0 || tag < 0 {
            return;
        }
        let place = self.places.entry(stack).or_insert_with(|| place(stack));
        let mut note = Box::new(note(Signature::of(memory).as_ref(), place));
        let (mut request, from) = (REQUEST_NULL, note.as_mut_ptr().expose_provenance());
        if library::isend(from, NOTE as i32, BYTE, dest, tag, comm.second, &mut request) == SUCCESS {
            self.outgoing.push((request, note));
        }
        self.outgoing.retain_mut(|(request, _)| !is_complete(request));
    }

    /// A receive is about to be posted. Returns its number; `None` if no note comes.
    pub(crate) fn post(
        &mut self,
        memory: &Memory,
        source: i32,
        tag: i32,
        comm: usize,
        stack: Stack,
    ) -> Option<u64> {
        self.add_receive(Signature::of(memory), source, tag, comm, stack)
    }

    /// A message was probed for, and can only be received by its handle: as a receive without memory.
    pub(crate) fn probed(&mut self, source: i32, tag: i32, comm: usize, stack: Stack) -> Option<u64> {
        let number = self.add_receive(None, source, tag, comm, stack)?;
        self.received(comm, number, source, tag);
        Some(number)
    }

    fn add_receive(
        &mut self,
        signature: Option<Signature>,
        source: i32,
        tag: i32,
        comm: usize,
        stack: Stack,
    ) -> Option<u64> {
        let comm = self.comms.get_mut(&comm)?;
        if source == PROC_NULL {
            return None;
        }
        let number = self.next;
        self.next += 1;
        comm.posted.push_back(Posted { number, source, tag, signature, stack, message: None });
        Some(number)
    }

    /// A receive has got its message.
    pub(crate) fn received(&mut self, comm: usize, number: u64, source: i32, tag: i32) {
        let Some(comm) = self.comms.get_mut(&comm) else { return };
        if let Some(posted) = comm.posted.iter_mut().find(|posted| posted.number == number) {
            posted.message = Some((source, tag));
        }
    }

    /// A receive was cancelled, and has no message.
    pub(crate) fn cancelled(&mut self, comm: usize, number: u64) {
        if let Some(comm) = self.comms.get_mut(&comm) {
            comm.posted.retain(|posted| posted.number != number);
        }
    }

    /// A receive has ended, and which message it got is unknown: those of this communicator are not compared any more.
    pub(crate) fn lose(&mut self, comm: usize, number: u64) {
        self.cancelled(comm, number);
        if let Some(comm) = self.comms.get_mut(&comm) {
            comm.is_compared = false;
        }
    }

    /// The messages of a communicator that are known now, in the order of their notes.
    pub(crate) fn matches(&mut self, comm: usize) -> Vec<Match> {
        let Some(comm) = self.comms.get_mut(&comm) else { return Vec::new() };
        let (mut waiting, mut known) = (VecDeque::new(), Vec::new());
        for posted in std::mem::take(&mut comm.posted) {
            let is_first = |(source, tag): (i32, i32)| {
                !waiting.iter().any(|earlier: &Posted| match earlier.message {
                    Some(message) => message == (source, tag),
                    None => {
                        (earlier.source == ANY_SOURCE || earlier.source == source)
                            && (earlier.tag == ANY_TAG || earlier.tag == tag)
                    }
                })
            };
            match posted.message.filter(|message| is_first(*message)) {
                Some((source, tag)) => {
                    let Posted { signature, stack, .. } = posted;
                    let signature = signature.filter(|_| comm.is_compared);
                    known.push(Match { second: comm.second, source, tag, signature, stack });
                }
                None => waiting.push_back(posted),
            }
        }
        comm.posted = waiting;
        known
    }

    /// Reports messages that nobody has received. All ranks have sent what they send.
    pub(crate) fn report_not_received(&mut self) {
        for comm in self.comms.values().filter(|comm| comm.is_compared) {
            for _ in 0..REPORTED_MAX {
                let (mut is_there, mut status) = (0, Status::default());
                let code = library::iprobe(ANY_SOURCE, ANY_TAG, comm.second, &mut is_there, &mut status);
                if code != SUCCESS || is_there == 0 {
                    break;
                }
                let Some(Note { signature, place }) = take(comm.second, status.source, status.tag) else {
                    break;
                };
                // A receive that is still outstanding may have it; that is reported as such.
                let is_taken = comm.posted.iter().any(|posted| {
                    let (source, tag) = posted.message.unwrap_or((posted.source, posted.tag));
                    [ANY_SOURCE, status.source].contains(&source) && [ANY_TAG, status.tag].contains(&tag)
                });
                if is_taken {
                    continue;
                }
                let about = [
                    (
                        "message",
                        format!(
                            "from rank {}, tag {}, {}",
                            status.source,
                            status.tag,
                            words(signature.as_ref())
                        ),
                    ),
                    ("sent at", place),
                ];
                report::find(NOT_RECEIVED, "a message was sent to this rank and never received", &about, &[]);
            }
        }
    }

    /// Frees the second communicators and the requests of notes.
    pub(crate) fn end(&mut self) {
        for (request, note) in std::mem::take(&mut self.outgoing) {
            let mut request = request;
            if !is_complete(&mut request) {
                // The library may still read it.
                library::request_free(&mut request);
                Box::leak(note);
            }
        }
        for comm in std::mem::take(&mut self.comms).into_values() {
            let mut second = comm.second;
            if second != COMM_NULL {
                library::comm_free(&mut second);
            }
        }
    }
}

/// Whether a request of ours is complete, which frees it.
fn is_complete(request: &mut usize) -> bool {
    let (mut flag, mut status) = (0, Status::default());
    library::test(request, &mut flag, &mut status) != SUCCESS || flag != 0
}

/// Takes the notes of messages, and compares their types with those of the receives.
pub(crate) fn compare(matches: Vec<Match>, is_strict: bool) {
    for Match { second, source, tag, signature, stack } in matches {
        let Some(Note { signature: sent, place }) = take(second, source, tag) else { continue };
        let (Some(sent), Some(received)) = (sent, signature) else { continue };
        let Some(wrong) = sent.mismatch(&received, is_strict) else { continue };
        let about = [
            ("message", format!("from rank {source}, tag {tag}")),
            ("sent", format!("{} at {place}", words(Some(&sent)))),
            ("received as", words(Some(&received))),
            ("element", format!("{}: {} was sent, {} is received", wrong.at, wrong.sent, wrong.received)),
        ];
        report::find(
            TYPE_MISMATCH,
            "a message is received as another type than it was sent",
            &about,
            &[("posted", stack)],
        );
    }
}

/// A signature as words.
fn words(signature: Option<&Signature>) -> String {
    let Some(Signature { runs, count }) = signature else {
        return "of types that are not compared".to_owned();
    };
    let name = |run: &Run| {
        format!(
            "{} {}",
            run.count.saturating_mul(if runs.len() == 1 { *count } else { 1 }),
            library::name(run.basic as usize)
        )
    };
    match runs.len() {
        0 => "no data".to_owned(),
        1 => name(&runs[0]),
        _ => format!("{count} x ({})", runs.iter().map(name).collect::<Vec<_>>().join(", ")),
    }
}

/// A place of the program in one line.
pub(crate) fn place(stack: Stack) -> String {
    let mut place = stack.lines().into_iter().next().unwrap_or_else(|| "an unknown place".to_owned());
    if place.len() > PLACE {
        let from = place.len() - PLACE + 3;
        let from = (from..place.len()).find(|at| place.is_char_boundary(*at)).unwrap_or(place.len());
        place = format!("...{}", &place[from..]);
    }
    place
}

/// A note that was taken.
struct Note {
    signature: Option<Signature>,
    place: String,
}

/// The bytes of a note.
fn note(signature: Option<&Signature>, place: &str) -> [u8; NOTE] {
    let mut words = [0_u64; WORDS];
    if let Some(Signature { runs, count }) = signature {
        words[..3].copy_from_slice(&[1, *count, runs.len() as u64]);
        for (at, run) in runs.iter().take(RUNS_MAX).enumerate() {
            words[3 + 2 * at] = u64::from(run.basic) << 32 | u64::from(run.size);
            words[4 + 2 * at] = run.count;
        }
    }
    let mut bytes = [0; NOTE];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let len = place.len().min(PLACE);
    bytes[8 * WORDS..][..len].copy_from_slice(&place.as_bytes()[..len]);
    bytes
}

/// Receives the note of a message that has arrived.
fn take(second: usize, source: i32, tag: i32) -> Option<Note> {
    let (mut bytes, mut status) = ([0_u8; NOTE], Status::default());
    let to = bytes.as_mut_ptr().expose_provenance();
    if library::recv(to, NOTE as i32, BYTE, source, tag, second, &mut status) != SUCCESS {
        return None;
    }
    let words: Vec<u64> =
        bytes[..8 * WORDS].as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let place = bytes[8 * WORDS..].split(|byte| *byte == 0).next().unwrap_or_default();
    let run = |pair: &[u64]| Run { basic: (pair[0] >> 32) as u32, size: pair[0] as u32, count: pair[1] };
    let count = (words[2] as usize).min(RUNS_MAX);
    let runs = words[3..].chunks_exact(2).take(count).map(run).collect();
    let signature = (words[0] == 1).then_some(Signature { runs, count: words[1] });
    Some(Note { signature, place: String::from_utf8_lossy(place).into_owned() })
}
