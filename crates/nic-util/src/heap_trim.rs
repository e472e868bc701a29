//! Heap trim: how much memory the objects of a device take, and giving it back to the system.
//!
//! Objects take their rings and their state from malloc(3). glibc returns freed memory to the system only at the end of a heap:
//! one small block above it keeps everything below resident, and once something large was freed, glibc keeps tens of megabytes
//! at the end, too. After 8,192 queue pairs that were 450 MB, after eight of the largest of rails 80 MB. So when half of much
//! memory was freed, the device's thread waits until no more is freed and then calls malloc_trim(3). It does so once more if
//! freeing had only paused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use host::{Span, Time};

/// Less than that, in bytes, is not worth the look, which takes milliseconds.
const MUCH: usize = 4 << 20;
/// An ebb is over when for so long nothing has gone.
const CALM: Span = Span::from_ms(10);
/// What goes sooner than that after an ebb belongs to it: whoever closes a crowd was held up, and what is left of it may be too
/// little to make an ebb of its own.
const PAUSE: Span = Span::from_ms(500);
/// An ebb that does not end is given back from time to time.
const PATIENCE: Span = Span::from_secs(1);

/// What a memory region takes, in bytes, with its place in tables.
pub const REGION: usize = 256;

/// What a queue pair takes, or another queue, of so many entries, in bytes, about: the least ones were measured with 8 KiB, those
/// of default size with 55 KiB.
pub fn queue(entries: u32) -> usize {
    4096 + entries as usize * 256
}

/// What the objects of a device take, in bytes.
#[derive(Debug, Default)]
pub struct HeapTrim {
    now: AtomicUsize,
    /// The most since the last ebb.
    high: AtomicUsize,
    /// How many objects have ever gone.
    gone: AtomicUsize,
    /// How often much has gone.
    ebbs: AtomicUsize,
    watch: Mutex<Watch>,
}

/// What the device's thread knows.
#[derive(Debug, Default)]
struct Watch {
    /// Ebbs whose memory has been given back.
    settled: usize,
    /// The ebb that goes on.
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// How much had gone when it was looked at last, and since when it is so much.
    gone: usize,
    at: Time,
    /// When to give back in any case.
    latest: Time,
    /// Whether all that had gone has been given back.
    is_given: bool,
}

/// What the device's thread is to do.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Nothing,
    /// Look again at this time.
    Wait(Time),
    /// Give back, and look again at this time.
    GiveBack(Time),
}

impl HeapTrim {
    /// Counts another one, of so many bytes.
    pub fn rise(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.high.fetch_max(now, Ordering::AcqRel);
    }

    /// One less, of so many bytes; whether that makes an ebb, which the device's thread is to be woken for.
    pub fn fall(&self, bytes: usize) -> bool {
        let now = self.now.fetch_sub(bytes, Ordering::AcqRel) - bytes;
        self.gone.fetch_add(1, Ordering::AcqRel);
        let high = self.high.load(Ordering::Acquire);
        let is_ebb = now <= high / 2
            && high - now >= MUCH
            && self.high.compare_exchange(high, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ebb {
            self.ebbs.fetch_add(1, Ordering::AcqRel);
        }
        is_ebb
    }

    /// Something else of a crowd's has gone; the device's thread is to be woken.
    pub fn ebb(&self) {
        self.gone.fetch_add(1, Ordering::AcqRel);
        self.ebbs.fetch_add(1, Ordering::AcqRel);
    }

    /// On the device's thread: gives free memory back to the system when an ebb is over. When to call again.
    pub fn give_back(&self, now: Time) -> Option<Time> {
        match self.turn(now) {
            Turn::Nothing => None,
            Turn::Wait(until) => Some(until),
            Turn::GiveBack(again) => {
                trim();
                Some(again)
            }
        }
    }

    fn turn(&self, now: Time) -> Turn {
        // Nothing panics under this lock, which only the device's thread takes.
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let ebbs = self.ebbs.load(Ordering::Acquire);
        if ebbs == watch.settled {
            return Turn::Nothing;
        }
        let gone = self.gone.load(Ordering::Acquire);
        let new = Seen { gone, at: now, latest: now + PATIENCE, is_given: false };
        let mut seen = watch.seen.unwrap_or(new);
        if seen.gone != gone {
            (seen.gone, seen.at, seen.is_given) = (gone, now, false);
        }
        let (calm, over) = (seen.at + CALM, seen.at + PAUSE);
        let turn = match seen.is_given {
            true if now >= over => {
                *watch = Watch { settled: ebbs, seen: None };
                return Turn::Nothing;
            }
            true => Turn::Wait(over),
            false if now >= calm => Turn::GiveBack(over),
            false if now >= seen.latest => Turn::GiveBack(calm),
            false => Turn::Wait(calm),
        };
        if matches!(turn, Turn::GiveBack(_)) {
            (seen.is_given, seen.latest) = (now >= calm, now + PATIENCE);
        }
        watch.seen = Some(seen);
        turn
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it looks at free memory only, under the allocator's own locks. Test: `crowds` of the siege.
    unsafe { libc::malloc_trim(0) };
    // It passes over the end of a thread's heap, and may have joined megabytes to it just now. Freeing something large, which
    // is too small for a mapping of its own, has glibc look there.
    // SAFETY: allocated here, and nobody's. Test: as above.
    unsafe { libc::free(std::hint::black_box(libc::malloc(96 << 10))) };
}

/// Other C libraries give back by themselves, or not at all.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_ms(1);
    const PIECE: usize = 16 << 10;
    const PIECES: usize = MUCH / PIECE;

    #[test]
    fn much_that_goes_ebbs_a_few_times_and_little_never_does() {
        let ebbs = |count: usize| {
            let tide = HeapTrim::default();
            (0..count).for_each(|_| tide.rise(PIECE));
            (0..count).filter(|_| tide.fall(PIECE)).count()
        };
        assert_eq!((ebbs(PIECES - 1), ebbs(PIECES), ebbs(PIECES * 16)), (0, 1, 5));
    }

    /// Goal: a few that are large count as many that are small do. Method: one that takes as much as makes an ebb.
    #[test]
    fn one_large_queue_ebbs_and_one_small_does_not() {
        let ebbs = |bytes: usize| {
            let tide = HeapTrim::default();
            tide.rise(bytes);
            tide.fall(bytes)
        };
        assert_eq!((ebbs(queue(1)), ebbs(REGION), ebbs(queue(1 << 15))), (false, false, true));
    }

    /// Goal: what goes behind the half is given back as well. Method: a crowd of which one goes in each millisecond after the
    /// half; memory is given back once, 10 ms after the last.
    #[test]
    fn memory_is_given_back_when_the_last_has_gone() {
        let tide = HeapTrim::default();
        (0..PIECES * 2).for_each(|_| tide.rise(PIECE));
        assert_eq!(tide.turn(Time::ZERO), Turn::Nothing);
        assert!((0..PIECES).any(|_| tide.fall(PIECE)), "half of them make an ebb");
        let mut now = Time::ZERO;
        assert_eq!(tide.turn(now), Turn::Wait(now + CALM));
        for _ in 0..PIECES {
            now = now + MS;
            tide.fall(PIECE);
            assert_eq!(tide.turn(now), Turn::Wait(now + CALM), "at {now:?}");
        }
        assert_eq!(tide.turn(now + MS), Turn::Wait(now + CALM), "asked too early");
        assert_eq!(tide.turn(now + CALM), Turn::GiveBack(now + PAUSE));
        assert_eq!(tide.turn(now + CALM * 2), Turn::Wait(now + PAUSE));
        assert_eq!(tide.turn(now + PAUSE), Turn::Nothing);
    }

    /// Goal: a crowd that pauses on its way out is given back to the last. Method: half of it goes, is given back, and after
    /// a pause the rest goes, which would make no ebb by itself.
    #[test]
    fn what_goes_after_a_pause_is_given_back() {
        let tide = HeapTrim::default();
        (0..PIECES).for_each(|_| tide.rise(PIECE));
        assert_eq!((0..PIECES).filter(|_| tide.fall(PIECE)).count(), 1, "an ebb, with the last of them");
        (0..PIECES / 2).for_each(|_| tide.rise(PIECE));
        let mut now = Time::ZERO + CALM;
        assert_eq!(tide.turn(Time::ZERO), Turn::Wait(now));
        assert_eq!(tide.turn(now), Turn::GiveBack(Time::ZERO + PAUSE));
        now = Time::ZERO + MS * 499;
        assert!(!(0..PIECES / 2).any(|_| tide.fall(PIECE)), "too few for an ebb");
        assert_eq!(tide.turn(now), Turn::Wait(now + CALM));
        assert_eq!(tide.turn(now + CALM), Turn::GiveBack(now + PAUSE));
        assert_eq!(tide.turn(now + PAUSE), Turn::Nothing);
    }

    /// Where queue pairs go without end, what has gone is given back all the same, once in a second.
    #[test]
    fn an_ebb_without_an_end_is_given_back_from_time_to_time() {
        let tide = HeapTrim::default();
        (0..PIECES).for_each(|_| tide.rise(PIECE));
        assert!((0..PIECES).any(|_| tide.fall(PIECE)), "all of them make an ebb");
        let mut given = Vec::new();
        for ms in 0..2500 {
            tide.rise(PIECE);
            tide.fall(PIECE);
            let now = Time::ZERO + MS * ms;
            if let Turn::GiveBack(again) = tide.turn(now) {
                assert_eq!(again, now + CALM, "it goes on");
                given.push(ms);
            }
        }
        assert_eq!(given, [1000, 2000]);
    }
}
