//! [`Attack`], its time [`Budget`], and the [`Tally`] of its results.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use host::Rng;

/// An attack on the stack: its name, its description, and its function.
pub(crate) struct Attack {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// A one-line description.
    pub(crate) about: &'static str,
    /// Its share of the time, relative to the weights of the others.
    pub(crate) weight: u32,
    /// The latest that a victim may notice; later is a failure.
    pub(crate) late_max: Duration,
    /// Carries it out until the budget is spent. An error is a failure of the victim that no count describes, or of the attack
    /// itself; it ends the attack.
    pub(crate) run: fn(&mut Budget, &mut Tally) -> anyhow::Result<()>,
}

/// The time and the random seed of an attack.
pub(crate) struct Budget {
    until: Instant,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    /// How many values of each field are tried, however long it takes; for attacks that count values.
    pub(crate) values: Option<u64>,
    /// Only fields whose names contain this.
    pub(crate) field: String,
    /// Seeded: the same seed repeats the attack, as far as the machine allows.
    pub(crate) rng: Rng,
}

impl Budget {
    /// A budget that starts now.
    pub(crate) fn new(time: Duration, seed: u64) -> Self {
        let (values, field) = (None, String::new());
        Self { until: Instant::now() + time, seed, values, field, rng: Rng::new(seed) }
    }

    /// Whether another round may begin.
    pub(crate) fn has_time_left(&self) -> bool {
        Instant::now() < self.until
    }

    /// How much of it is left.
    pub(crate) fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// A wait that takes longer counts as a hang.
pub(crate) const HANG: Duration = Duration::from_secs(1);

/// The results of an attack. All but `tried`, `survived`, `late` and `notes` must stay zero.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Rounds begun.
    pub(crate) tried: u64,
    /// Rounds after which the victim was as before.
    pub(crate) survived: u64,
    /// Messages reported successful that did not arrive, or acknowledged and never delivered.
    pub(crate) lost: u64,
    /// Messages that arrived twice.
    pub(crate) doubled: u64,
    /// Waits that took over a second, or never ended.
    pub(crate) hung: u64,
    /// Processes that died and should not have.
    pub(crate) crashed: u64,
    /// Bytes that changed outside of registered memory.
    pub(crate) outside: u64,
    /// Descriptors, mappings, processes, files and names left behind.
    pub(crate) left_over: u64,
    /// The longest that a victim took to notice, or that an honest client waited for its answer.
    pub(crate) late: Duration,
    /// Remarks, a line each; the first of each failure with how to repeat it.
    pub(crate) notes: Vec<String>,
}

impl Tally {
    /// A victim noticed, or answered, after this long.
    pub(crate) fn record_reaction(&mut self, after: Duration) {
        self.late = self.late.max(after);
        self.hung += u64::from(after > HANG);
    }

    /// Adds a note, unless there are many already.
    pub(crate) fn add_note(&mut self, line: impl std::fmt::Display) {
        if self.notes.len() < 20 {
            self.notes.push(line.to_string());
        }
    }

    /// Adds the results of another part of the same attack.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tried += other.tried;
        self.survived += other.survived;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.hung += other.hung;
        self.crashed += other.crashed;
        self.outside += other.outside;
        self.left_over += other.left_over;
        self.late = self.late.max(other.late);
        other.notes.iter().for_each(|note| self.add_note(note));
    }

    /// The counts that must be zero and are not, and lateness beyond the limit; empty if all is well.
    pub(crate) fn failures(&self, late_max: Duration) -> Vec<String> {
        let counts = [
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("hung", self.hung),
            ("crashed", self.crashed),
            ("outside", self.outside),
            ("left over", self.left_over),
        ];
        let mut failures: Vec<String> =
            counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what}: {n}")).collect();
        if self.tried == 0 {
            failures.push("no round was run".to_owned());
        }
        if self.survived < self.tried {
            failures.push(format!("{} of {} rounds failed", self.tried - self.survived, self.tried));
        }
        if self.late > late_max {
            failures.push(format!("detected after {:?}, more than {late_max:?}", self.late));
        }
        failures
    }
}
