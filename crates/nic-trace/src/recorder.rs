//! [`Recorder`]: writes the records of a process into its file.
//!
//! Data path: a record is one atomic addition and eight stores. Each record is stored before its call is made, so that the file of a
//! process that crashes inside of it has it; a call that fails is marked afterwards.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use host::{ClockKind, Host, Time};
use nic_util::fork::ForkGuard;
use nic_util::sync::unpoisoned;
use rustix::time::{ClockId, clock_gettime};
use trace::format::{
    Encoded, Fields, HEADER_BYTES, MAGIC, RECORD_WORDS, TABLE_BYTES, entry, file_bytes, header, kind, mark,
};
use trace::{Class, Object};
use verbs::{Error, Result, Words};

use crate::mapping;

/// Both clocks are compared again after this many records.
const COMPARED_SHIFT: u32 = 14;
/// A longer text is cut off.
const TEXT_BYTES_MAX: usize = 1024;
/// Different texts that are found again; more are stored again and again.
const TEXTS_MAX: usize = 4096;
/// The first word of the ring.
const RING: usize = (HEADER_BYTES + TABLE_BYTES) / 8;

/// The recorder of this process, with the process and the path that it was created for.
static CURRENT: Mutex<Option<(ForkGuard, PathBuf, Arc<Recorder>)>> = Mutex::new(None);
/// Whether there is a recorder: calls of interfaces check this.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Recorders that were created, so that a thread finds out that its number belongs to another one.
static SERIAL: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The number of this thread in the records of the recorder with this serial number.
    static THREAD: Cell<(u32, u16)> = const { Cell::new((0, 0)) };
}

pub(crate) struct Recorder {
    host: Host,
    words: Words,
    /// Records of the ring minus 1.
    mask: u64,
    serial: u32,
    next_thread: AtomicU16,
    next_object: AtomicU32,
    texts: Mutex<BTreeMap<String, u32>>,
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// A number of this host, the same until its next start.
fn host_number() -> u64 {
    let text = host::bounded::kernel_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.bytes().fold(0, |number, byte| host::mix(number ^ u64::from(byte)))
}

impl Recorder {
    /// The recorder of this process, created with its first device.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the process already records into another file; the system's.
    pub(crate) fn of_process(path: &Path, records: u64, host: &Host) -> Result<Arc<Self>> {
        let mut current: MutexGuard<'_, _> = unpoisoned(&CURRENT);
        if let Some((_, known, recorder)) = current.as_ref().filter(|(guard, ..)| !guard.is_forked()) {
            return if known == path {
                Ok(recorder.clone())
            } else {
                Err(Error::Invalid(format!(
                    "this process records into {} already; give all of its devices the same file",
                    known.display()
                )))
            };
        }
        let recorder = Arc::new(Self::create(path, records, host)?);
        *current = Some((ForkGuard::current()?, path.to_owned(), recorder.clone()));
        IS_ON.store(true, Ordering::Release);
        Ok(recorder)
    }

    pub(crate) fn create(path: &Path, records: u64, host: &Host) -> Result<Self> {
        let bytes = file_bytes(records);
        let (_, buf) = mapping::create(path, bytes)?;
        let recorder = Self {
            host: host.clone(),
            words: buf.words(0, bytes as usize / 8)?,
            mask: records - 1,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed) + 1,
            next_thread: AtomicU16::new(0),
            next_object: AtomicU32::new(1),
            texts: Mutex::default(),
        };
        let is_virtual = host.clock() == ClockKind::Virtual;
        let (start, host_ns) = recorder.both_clocks();
        for (at, value) in [
            (header::RECORDS, records),
            (header::PID, std::process::id().into()),
            (header::IS_VIRTUAL, is_virtual.into()),
            (header::START_PS, start.as_ps()),
            (header::START_HOST_NS, host_ns),
            (header::START_UNIX_NS, clock_ns(ClockId::Realtime)),
            (header::HOST, host_number()),
        ] {
            recorder.words[at].store(value, Ordering::Relaxed);
        }
        // Place 0 means that there is no text.
        let _ = recorder.entry(entry::TEXT, &[], "");
        recorder.words[header::MAGIC].store(MAGIC, Ordering::Release);
        Ok(recorder)
    }

    /// The time of the process's clock, and that of the host's.
    fn both_clocks(&self) -> (Time, u64) {
        let now = self.host.now();
        if self.host.clock() == ClockKind::Virtual {
            return (now, now.as_ps() / 1000);
        }
        (now, clock_ns(ClockId::MonotonicRaw))
    }

    #[cold]
    fn compare_clocks(&self) {
        if self.host.clock() == ClockKind::Virtual {
            // There is one clock, and this may be the thread of another machine.
            return;
        }
        let (now, host_ns) = self.both_clocks();
        self.words[header::LATE_PS].store(now.as_ps(), Ordering::Relaxed);
        self.words[header::LATE_HOST_NS].store(host_ns, Ordering::Relaxed);
    }

    /// The number of the calling thread in records.
    #[inline]
    pub(crate) fn thread(&self) -> u16 {
        let (serial, number) = THREAD.get();
        if serial == self.serial { number } else { self.add_thread() }
    }

    #[cold]
    fn add_thread(&self) -> u16 {
        let number = self.next_thread.fetch_add(1, Ordering::Relaxed);
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let name = host::bounded::kernel_text(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
        let _ = self.entry(entry::THREAD, &[number.into(), u64::from(tid.cast_unsigned())], name.trim());
        THREAD.set((self.serial, number));
        number
    }

    /// Takes the places of `count` records.
    #[inline]
    pub(crate) fn reserve(&self, count: usize) -> u64 {
        let place = self.words[header::WRITTEN].fetch_add(count as u64, Ordering::Relaxed);
        if (place ^ (place + count as u64)) >> COMPARED_SHIFT != 0 || place == 0 {
            self.compare_clocks();
        }
        place
    }

    /// The words of a place.
    #[inline]
    fn slot(&self, place: u64) -> &[std::sync::atomic::AtomicU64] {
        let at = RING + (place & self.mask) as usize * RECORD_WORDS;
        &self.words[at..at + RECORD_WORDS]
    }

    /// Stores a record.
    #[inline]
    pub(crate) fn store(&self, place: u64, fields: &Fields) {
        let Encoded(words) = fields.encode();
        let slot = self.slot(place);
        // Until the record is whole, it has no mark.
        slot[1].store(0, Ordering::Relaxed);
        slot[0].store(words[0], Ordering::Release);
        for at in 2..RECORD_WORDS {
            slot[at].store(words[at], Ordering::Relaxed);
        }
        slot[1].store(words[1] | u64::from(mark(place)), Ordering::Release);
    }

    /// Stores a record at the next place.
    #[inline]
    pub(crate) fn add(&self, fields: &Fields) {
        self.store(self.reserve(1), fields);
    }

    /// Marks the request that was stored at a place as refused.
    #[cold]
    pub(crate) fn refuse(&self, place: u64, why: &str) {
        let text = self.text(why);
        let slot = self.slot(place);
        if slot[1].load(Ordering::Acquire) as u32 == mark(place) {
            slot[7].store(
                (slot[7].load(Ordering::Relaxed) & 0xffff_ffff) | u64::from(text) << 32,
                Ordering::Relaxed,
            );
            slot[2].store(slot[2].load(Ordering::Relaxed) | 1 << 48, Ordering::Release);
        }
    }

    /// Adds an entry to the table; returns its place, or 0 if there is no room.
    fn entry(&self, kind: u16, words: &[u64], text: &str) -> u32 {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text.as_bytes()[..end];
        // The lock of the texts protects the table as well.
        let _texts = unpoisoned(&self.texts);
        let used = self.words[header::TABLE_USED].load(Ordering::Relaxed) as usize;
        let len = 8 + 8 * words.len() + text.len().next_multiple_of(8);
        if used + len > TABLE_BYTES {
            self.words[header::TABLE_LOST].fetch_add(1, Ordering::Relaxed);
            return 0;
        }
        let at = HEADER_BYTES / 8 + used / 8;
        let first = u64::from(kind) | (words.len() as u64) << 16 | (text.len() as u64) << 32;
        let letters = text.chunks(8).map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(word)
        });
        for (place, word) in [first].into_iter().chain(words.iter().copied()).chain(letters).enumerate() {
            self.words[at + place].store(word, Ordering::Relaxed);
        }
        self.words[header::TABLE_USED].store((used + len) as u64, Ordering::Release);
        (used / 8) as u32
    }

    /// The place of a text; 0 for an empty one, and if there is no room.
    #[cold]
    pub(crate) fn text(&self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(known) = unpoisoned(&self.texts).get(text) {
            return *known;
        }
        let place = self.entry(entry::TEXT, &[], text);
        let mut texts = unpoisoned(&self.texts);
        if place != 0 && texts.len() < TEXTS_MAX {
            texts.insert(text.to_owned(), place);
        }
        place
    }

    /// The number of a new object.
    pub(crate) fn new_object(&self) -> u32 {
        self.next_object.fetch_add(1, Ordering::Relaxed)
    }

    /// Describes an object; a later description replaces an earlier one.
    pub(crate) fn describe(&self, id: u32, object: &Object) {
        let [a, b, c, d] = object.words;
        let first = u64::from(id) | (object.class as u64) << 32;
        let words = [first, object.device.into(), object.created_ps, a, b, c, d];
        let _ = self.entry(entry::OBJECT, &words, &object.name);
    }

    /// Numbers and describes the object of a class that was created at this time.
    pub(crate) fn object(
        &self,
        class: Class,
        device: u32,
        created: Time,
        words: [u64; 4],
        name: &str,
    ) -> (u32, Object) {
        let id = self.new_object();
        let device = if class == Class::Device { id } else { device };
        let object = Object { class, device, created_ps: created.as_ps(), words, name: name.into() };
        self.describe(id, &object);
        (id, object)
    }
}

/// The recorder of this process, if it records.
fn current() -> Option<Arc<Recorder>> {
    if !IS_ON.load(Ordering::Acquire) {
        return None;
    }
    let current = unpoisoned(&CURRENT);
    current.as_ref().filter(|(guard, ..)| !guard.is_forked()).map(|(.., recorder)| recorder.clone())
}

/// Notes the rank of this process in `MPI_COMM_WORLD`.
pub fn set_rank(rank: u32) {
    if let Some(recorder) = current() {
        recorder.words[header::RANK].store(u64::from(rank) + 1, Ordering::Relaxed);
    }
}

/// Notes that this process ends in order.
pub fn end() {
    if let Some(recorder) = current() {
        recorder.compare_clocks();
        recorder.words[header::ENDED].store(1, Ordering::Release);
    }
}

/// Records a call of an interface above the devices that began at this time, with its result: 0 for success.
pub fn end_call(name: &'static str, began: Time, result: i32) {
    if let Some(recorder) = current() {
        let fields = Fields {
            time_ps: began.as_ps(),
            kind: kind::INTERFACE,
            thread: recorder.thread(),
            result: u16::from(result != 0),
            id: recorder.host.now().as_ps(),
            bytes: result.cast_unsigned(),
            extra: recorder.text(name),
            ..Fields::default()
        };
        recorder.add(&fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::What;
    use trace::format::RECORDS_MIN;

    fn recorder(folder: &tempfile::TempDir) -> (PathBuf, Recorder) {
        let path = folder.path().join("a.trace");
        let recorder = Recorder::create(&path, RECORDS_MIN, &host::real::host()).expect("a recorder");
        (path, recorder)
    }

    fn read(path: &Path) -> trace::Trace {
        trace::read(&std::fs::read(path).expect("a file")).expect("a trace")
    }

    #[test]
    fn file_has_records_while_the_process_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, recorder) = recorder(&folder);
        let fields =
            Fields { kind: kind::SEND, id: 7, thread: recorder.thread(), extra: 3, ..Fields::default() };
        let place = recorder.reserve(2);
        recorder.store(place, &fields);
        recorder.store(place + 1, &Fields { id: 8, time_ps: 1, ..fields });
        recorder.refuse(place + 1, "the send queue is full");
        let trace = read(&path);
        let found: Vec<_> =
            trace.records.iter().map(|record| (record.fields.id, record.text.as_deref())).collect();
        assert_eq!(found, [(7, None), (8, Some("the send queue is full"))]);
        assert!(trace.records[1].has_failed() && trace.records[0].what == What::Send);
        assert_eq!((trace.pid, trace.threads.len(), trace.has_ended), (std::process::id(), 1, false));
    }

    /// Goal: the file is bounded and stays readable. Method: more texts, objects and records than there is room for, by several
    /// threads.
    #[test]
    fn full_table_and_ring_lose_the_rest_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, recorder) = recorder(&folder);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for at in 0..4000 {
                        recorder.add(&Fields {
                            kind: kind::WAIT,
                            thread: recorder.thread(),
                            time_ps: at,
                            ..Fields::default()
                        });
                        let _ = recorder.text(&format!("reason {thread} {at} {}", "x".repeat(200)));
                    }
                });
            }
        });
        let trace = read(&path);
        assert_eq!((trace.written, trace.records.len() as u64 + trace.damaged), (12_000, RECORDS_MIN));
        assert_eq!(trace.threads.len(), 3);
        assert!(trace.lost_entries > 0 && recorder.text(&"y".repeat(500)) == 0);
    }
}
