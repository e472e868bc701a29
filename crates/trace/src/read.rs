//! [`read`]: the bytes of a file become a [`Trace`].
//!
//! A file may come from anywhere, and from a process that was killed while it wrote: every number is checked where it is used,
//! records that are not complete are counted and left out, and text is made plain.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::format::{
    Encoded, Fields, HEADER_BYTES, MAGIC, RECORD_BYTES, RECORD_WORDS, RECORDS_MAX, RECORDS_MIN, TABLE_BYTES,
    entry, file_bytes, header, kind, mark,
};

/// Why a file is no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// It begins differently.
    Foreign,
    /// It is shorter than its header says.
    Truncated {
        /// The bytes that it has.
        has: u64,
        /// The bytes that it should have.
        needs: u64,
    },
    /// Its header has an impossible value.
    Header(&'static str),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => {
                f.write_str("it is no trace of this version of nicety; record one by nicety run --trace FILE")
            }
            Self::Truncated { has, needs } => {
                write!(f, "it is cut off: it has {has} of its {needs} bytes; copy the whole file")
            }
            Self::Header(what) => write!(f, "its header is damaged: {what}; record it again"),
        }
    }
}

impl std::error::Error for TraceError {}

/// The class of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Class {
    /// A device.
    Device = 0,
    /// A completion queue.
    Cq = 1,
    /// A queue pair.
    Qp = 2,
    /// A shared receive queue.
    Srq = 3,
    /// A channel of connection events.
    Cm = 4,
    /// A completion channel.
    Channel = 5,
}

impl Class {
    fn of(number: u64) -> Option<Self> {
        let all = [Self::Device, Self::Cq, Self::Qp, Self::Srq, Self::Cm, Self::Channel];
        all.into_iter().find(|class| *class as u64 == number)
    }
}

/// An object of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What it is.
    pub class: Class,
    /// Its device.
    pub device: u32,
    /// When it was created, in picoseconds of the process's clock.
    pub created_ps: u64,
    /// Of a queue pair: its number and the number in completions (upper half); the completion queues of sends and of receives;
    /// the shared receive queue, and 1 in the upper half if all requests are signaled; the sizes of both queues. Of a completion
    /// queue or a shared receive queue: its number, and its size.
    pub words: [u64; 4],
    /// Of a device, its name; of a queue pair, its peer.
    pub name: Arc<str>,
}

impl Object {
    /// The number that the device gave it; 0 for objects without.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.words[0] as u32
    }

    /// The number of a queue pair in completions.
    #[must_use]
    pub fn reported_number(&self) -> u32 {
        (self.words[0] >> 32) as u32
    }

    /// The shared receive queue of a queue pair.
    #[must_use]
    pub fn srq(&self) -> Option<u32> {
        Some(self.words[2] as u32).filter(|srq| *srq != 0)
    }

    /// Whether all requests of a queue pair are signaled.
    #[must_use]
    pub fn signals_all(&self) -> bool {
        self.words[2] >> 32 != 0
    }

    /// Entries of the send queue and of the receive queue.
    #[must_use]
    pub fn sizes(&self) -> (u32, u32) {
        (self.words[3] as u32, (self.words[3] >> 32) as u32)
    }
}

/// The kind of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A call has returned.
    Call,
    /// A request was posted to a send queue, or refused.
    Send,
    /// A receive was posted, or refused.
    Recv,
    /// The program polled a completion.
    Completion,
    /// A thread was about to sleep.
    Wait,
    /// The program got an event.
    Event,
    /// A call of the interface above has returned.
    Interface,
}

/// A record: something that happened at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub what: What,
    /// Its fields, as in the file.
    pub fields: Fields,
    /// The text that it names: a reason, an address, the name of a call.
    pub text: Option<Arc<str>>,
}

impl Record {
    /// Its end, in picoseconds of the process's clock: later than its time for calls only.
    #[must_use]
    pub fn end_ps(&self) -> u64 {
        match self.what {
            What::Call | What::Interface => self.fields.id.max(self.fields.time_ps),
            _ => self.fields.time_ps,
        }
    }

    /// Whether it is a failure: of a call, a request or a connection.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.fields.result != 0
    }
}

/// What a process did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The process.
    pub pid: u32,
    /// Its rank in `MPI_COMM_WORLD`.
    pub rank: Option<u32>,
    /// Whether times are those of a simulation.
    pub is_virtual: bool,
    /// Whether the process has ended in order: otherwise it runs, was killed or crashed.
    pub has_ended: bool,
    /// A number of its host, the same until its next start.
    pub host: u64,
    /// The start, in picoseconds of the process's clock.
    pub start_ps: u64,
    /// The start, in nanoseconds of the clock that all processes of the host share.
    pub start_host_ns: u64,
    /// The start, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// How much faster the host's clock is than that of the process.
    pub scale: f64,
    /// Records that were written; the file has the latest.
    pub written: u64,
    /// Records that are damaged: the process was stopped while it wrote them.
    pub damaged: u64,
    /// Objects, threads and texts that found no place.
    pub lost_entries: u64,
    /// Threads: the system's number, and the name.
    pub threads: BTreeMap<u16, (u64, Arc<str>)>,
    /// Objects, by the numbers that records have.
    pub objects: BTreeMap<u32, Object>,
    /// The records, by their time.
    pub records: Vec<Record>,
}

/// The word with this number, 0 behind the end.
fn word(bytes: &[u8], at: usize) -> u64 {
    let start = at.saturating_mul(8);
    let word = bytes.get(start..start.saturating_add(8)).and_then(|word| word.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}

/// Text without control characters, which would change what a terminal shows.
fn plain(bytes: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|letter| if letter.is_control() { '\u{fffd}' } else { letter })
        .collect::<String>()
        .into()
}

/// Reads a file.
///
/// # Errors
/// [`TraceError`] for bytes that are no whole file.
pub fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    if word(bytes, header::MAGIC) != MAGIC {
        return Err(TraceError::Foreign);
    }
    let count = word(bytes, header::RECORDS);
    if !count.is_power_of_two() || !(RECORDS_MIN..=RECORDS_MAX).contains(&count) {
        return Err(TraceError::Header("the number of records is impossible"));
    }
    let (has, needs) = (bytes.len() as u64, file_bytes(count));
    if has < needs {
        return Err(TraceError::Truncated { has, needs });
    }
    let mut trace = of_header(bytes);
    let table = &bytes[HEADER_BYTES..HEADER_BYTES + TABLE_BYTES];
    let used = usize::try_from(word(bytes, header::TABLE_USED)).unwrap_or(usize::MAX).min(TABLE_BYTES);
    let texts = read_table(&mut trace, &table[..used]);
    read_ring(&mut trace, &bytes[HEADER_BYTES + TABLE_BYTES..], count, &texts);
    Ok(trace)
}

fn of_header(bytes: &[u8]) -> Trace {
    let head = |at| word(bytes, at);
    let passed_ps = head(header::LATE_PS).saturating_sub(head(header::START_PS));
    let passed_ns = head(header::LATE_HOST_NS).saturating_sub(head(header::START_HOST_NS));
    let scale = passed_ns as f64 * 1e3 / passed_ps as f64;
    Trace {
        pid: head(header::PID) as u32,
        rank: u32::try_from(head(header::RANK)).unwrap_or(0).checked_sub(1),
        is_virtual: head(header::IS_VIRTUAL) != 0,
        has_ended: head(header::ENDED) != 0,
        host: head(header::HOST),
        start_ps: head(header::START_PS),
        start_host_ns: head(header::START_HOST_NS),
        start_unix_ns: head(header::START_UNIX_NS),
        // Two readings that are too close together, or were interrupted, say nothing.
        scale: if (0.999..1.001).contains(&scale) { scale } else { 1.0 },
        written: head(header::WRITTEN),
        lost_entries: head(header::TABLE_LOST),
        ..Trace::default()
    }
}

/// Reads the table: objects and threads, and texts by their places.
fn read_table(trace: &mut Trace, table: &[u8]) -> BTreeMap<u32, Arc<str>> {
    let mut texts = BTreeMap::new();
    let mut at = 0;
    while at + 8 <= table.len() {
        let first = word(table, at / 8);
        let (kind, words, len) = (first as u16, usize::from((first >> 16) as u16), (first >> 32) as usize);
        let start = at + 8 + 8 * words;
        let Some(text) = start.checked_add(len).and_then(|end| table.get(start..end)) else { break };
        let field = |number: usize| if number < words { word(table, at / 8 + 1 + number) } else { 0 };
        match kind {
            // Place 0 means that there is no text.
            entry::TEXT if at == 0 => {}
            entry::TEXT => drop(texts.insert((at / 8) as u32, plain(text))),
            entry::THREAD => drop(trace.threads.insert(field(0) as u16, (field(1), plain(text)))),
            entry::OBJECT => {
                if let Some(class) = Class::of(field(0) >> 32) {
                    let object = Object {
                        class,
                        device: field(1) as u32,
                        created_ps: field(2),
                        words: [3, 4, 5, 6].map(field),
                        name: plain(text),
                    };
                    trace.objects.insert(field(0) as u32, object);
                }
            }
            // The end, or an entry that was not finished.
            _ => break,
        }
        at = start + len.next_multiple_of(8);
    }
    texts
}

fn read_ring(trace: &mut Trace, ring: &[u8], count: u64, texts: &BTreeMap<u32, Arc<str>>) {
    let kept = trace.written.min(count);
    for place in trace.written - kept..trace.written {
        let start = (place % count) as usize * RECORD_BYTES;
        let bytes = &ring[start..start + RECORD_BYTES];
        let mut words = [0; RECORD_WORDS];
        words.iter_mut().enumerate().for_each(|(at, into)| *into = word(bytes, at));
        let (fields, found) = Encoded(words).decode();
        let what = match fields.kind {
            kind::CALL => What::Call,
            kind::SEND => What::Send,
            kind::RECV => What::Recv,
            kind::COMPLETION => What::Completion,
            kind::WAIT => What::Wait,
            kind::EVENT => What::Event,
            kind::INTERFACE => What::Interface,
            _ => {
                trace.damaged += 1;
                continue;
            }
        };
        if found != mark(place) {
            trace.damaged += 1;
            continue;
        }
        let is_request = matches!(what, What::Send | What::Recv);
        let place = if is_request && fields.result == 0 { 0 } else { fields.extra };
        trace.records.push(Record { what, fields, text: texts.get(&place).cloned() });
    }
    trace.records.sort_by_key(|record| record.fields.time_ps);
}

impl Trace {
    /// The name of an object for people, such as `qp 0x12`.
    #[must_use]
    pub fn object_name(&self, id: u32) -> String {
        match self.objects.get(&id) {
            None if id == 0 => "-".to_owned(),
            None => format!("object {id}"),
            Some(object) => match object.class {
                Class::Qp => format!("qp {:#x}", object.number()),
                Class::Cq => format!("cq {id}"),
                Class::Srq => format!("srq {id}"),
                Class::Device => object.name.to_string(),
                Class::Cm => format!("cm {id}"),
                Class::Channel => format!("channel {id}"),
            },
        }
    }

    /// The name of a thread for people.
    #[must_use]
    pub fn thread_name(&self, number: u16) -> String {
        match self.threads.get(&number) {
            Some((tid, name)) if name.is_empty() => format!("thread {tid}"),
            Some((tid, name)) => format!("{name}/{tid}"),
            None => format!("thread #{number}"),
        }
    }

    /// The time of the last record, in picoseconds of the process's clock.
    #[must_use]
    pub fn last_ps(&self) -> u64 {
        self.records.iter().map(Record::end_ps).max().unwrap_or(self.start_ps)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::format::{flag, header};
    use crate::names::Operation;
    use proptest::prelude::*;

    /// A file that a test fills.
    pub(crate) struct File {
        pub(crate) bytes: Vec<u8>,
    }

    impl File {
        pub(crate) fn new() -> Self {
            let mut file = Self { bytes: vec![0; file_bytes(RECORDS_MIN) as usize] };
            file.set(header::MAGIC, MAGIC);
            file.set(header::RECORDS, RECORDS_MIN);
            file.set(header::PID, 42);
            file
        }

        pub(crate) fn set(&mut self, at: usize, value: u64) {
            self.bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        }

        /// Adds an entry to the table; returns its place.
        pub(crate) fn entry(&mut self, kind: u16, words: &[u64], text: &str) -> u32 {
            let used = word(&self.bytes, header::TABLE_USED) as usize;
            let mut at = HEADER_BYTES / 8 + used / 8;
            self.set(at, u64::from(kind) | (words.len() as u64) << 16 | (text.len() as u64) << 32);
            for word in words {
                at += 1;
                self.set(at, *word);
            }
            self.bytes[8 * at + 8..][..text.len()].copy_from_slice(text.as_bytes());
            let len = 8 + 8 * words.len() + text.len().next_multiple_of(8);
            self.set(header::TABLE_USED, (used + len) as u64);
            (used / 8) as u32
        }

        pub(crate) fn record(&mut self, fields: Fields) {
            let place = word(&self.bytes, header::WRITTEN);
            let mut words = fields.encode().0;
            words[1] |= u64::from(mark(place));
            let at = (HEADER_BYTES + TABLE_BYTES) / 8 + (place % RECORDS_MIN) as usize * RECORD_WORDS;
            words.into_iter().enumerate().for_each(|(number, word)| self.set(at + number, word));
            self.set(header::WRITTEN, place + 1);
        }

        /// A queue pair with this number in records, whose number is 0x10 times that; both queues are of 4.
        pub(crate) fn qp(&mut self, id: u64, signals_all: bool) {
            let number = 0x10 * id;
            let words = [
                id | 2 << 32,
                1,
                0,
                number | number << 32,
                2 | 2 << 32,
                u64::from(signals_all) << 32,
                4 | 4 << 32,
            ];
            self.entry(entry::OBJECT, &words, "10.0.0.1:7");
        }

        pub(crate) fn send(&mut self, time_ps: u64, object: u32, id: u64, flags: u8) {
            let code = Operation::Write as u8;
            self.record(Fields {
                time_ps,
                kind: kind::SEND,
                code,
                object,
                id,
                flags,
                bytes: 8,
                ..Fields::default()
            });
        }

        pub(crate) fn completion(&mut self, time_ps: u64, qp_num: u32, id: u64, result: u16) {
            let code = Operation::Write as u8;
            let fields = Fields {
                time_ps,
                kind: kind::COMPLETION,
                code,
                object: 2,
                id,
                other: qp_num,
                result,
                ..Fields::default()
            };
            self.record(fields);
        }

        pub(crate) fn read(&self) -> Trace {
            read(&self.bytes).expect("a trace")
        }
    }

    #[test]
    fn file_without_header_or_end_is_refused() {
        let file = File::new();
        assert_eq!(read(b"hello"), Err(TraceError::Foreign));
        assert_eq!(read(&[]), Err(TraceError::Foreign));
        let cut = read(&file.bytes[..file.bytes.len() - 1]);
        assert!(matches!(cut, Err(TraceError::Truncated { .. })), "{cut:?}");
        for records in [0, 3, 1 << 9, 1 << 40, u64::MAX] {
            let mut file = File::new();
            file.set(header::RECORDS, records);
            assert!(matches!(read(&file.bytes), Err(TraceError::Header(_))), "{records}");
        }
    }

    #[test]
    fn ring_gives_the_latest_records_in_the_order_of_time() {
        let mut file = File::new();
        for at in 0..RECORDS_MIN + 5 {
            file.send(1000 - at.min(999), 3, at, flag::SIGNALED);
        }
        let trace = file.read();
        assert_eq!((trace.records.len() as u64, trace.written), (RECORDS_MIN, RECORDS_MIN + 5));
        assert!(trace.records.is_sorted_by_key(|record| record.fields.time_ps));
        assert!(trace.records.iter().all(|record| record.fields.id >= 5));
    }

    #[test]
    fn record_that_was_not_finished_is_left_out() {
        let mut file = File::new();
        file.send(1, 3, 1, 0);
        file.set(header::WRITTEN, 2);
        let trace = file.read();
        assert_eq!((trace.records.len(), trace.damaged), (1, 1));
    }

    #[test]
    fn text_of_a_file_cannot_control_a_terminal() {
        let mut file = File::new();
        file.entry(entry::THREAD, &[0, 7], "evil\u{1b}[2J\n");
        assert_eq!(file.read().thread_name(0), "evil\u{fffd}[2J\u{fffd}/7");
    }

    proptest! {
        /// Goal: no bytes make the reader or what follows it panic. Method: a file with entries and records, in which words
        /// are replaced.
        #[test]
        fn damaged_files_never_panic(changes in prop::collection::vec((0..700_usize, any::<u64>(), 0..4_u32), 0..40)) {
            let mut file = File::new();
            file.qp(3, false);
            let text = file.entry(entry::TEXT, &[], "reason");
            for at in 0..20 {
                file.send(at, 3, at, u8::try_from(at % 2).expect("a flag"));
                file.record(Fields { time_ps: at, kind: (at % 9) as u8, object: 3, extra: text, result: 1, ..Fields::default() });
                file.completion(at + 1, 0x30, at, (at % 3) as u16);
            }
            for (at, value, area) in changes {
                let start = [0, HEADER_BYTES / 8, (HEADER_BYTES + TABLE_BYTES) / 8, 10][area as usize];
                let value = if area == 3 { value % 5000 } else { value };
                file.set(start + at % if area == 3 { 2 } else { 512 }, value);
            }
            if let Ok(trace) = read(&file.bytes) {
                let job = crate::Job::new(vec![("x".into(), trace)]);
                let all = crate::Selection::default();
                let _ = (crate::text(&job, &all), crate::chrome(&job, &all), crate::roce(&job, &all));
            }
        }
    }
}
