//! [`Run`], the content of a result file, and its parts.

use serde::{Deserialize, Serialize};

use crate::variant::Variant;

/// Kind of file, before the slash of [`SCHEMA`].
pub const SCHEMA_KIND: &str = "nicety-results";
/// Version this program writes, and the newest it reads.
pub const SCHEMA_VERSION: u32 = 1;
/// Value of the top-level `schema` key.
pub const SCHEMA: &str = "nicety-results/1";

/// A whole result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`SCHEMA`]; checked on reading.
    pub schema: String,
    /// The machine and the moment.
    pub environment: Environment,
    /// Every effective parameter, with the source of its value.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// One entry for each measured cell.
    pub results: Vec<Measurement>,
    /// Requested measurements that could not be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// A cell that was not measured in any launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Experiment.
    pub experiment: String,
    /// Device.
    pub device: String,
    /// Factors other than size.
    pub variant: Variant,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Metric that it would have had.
    pub metric: String,
    /// The reason, in words.
    pub why: String,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            environment: Environment::default(),
            parameters: Vec::new(),
            results: Vec::new(),
            missing: Vec::new(),
        }
    }
}

/// The machine and the moment, by allow-list: nothing is copied here wholesale.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Version of nicety that measured.
    pub nicety_version: String,
    /// Commit that it was built from, with `+changes` if there were some; `None` if it was not built from a
    /// repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// UTC start of the run, RFC 3339, e.g. `2026-03-01T12:00:00Z`.
    pub date: String,
    /// Host name.
    pub host: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Logical processors usable by the run.
    pub cores: u32,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Frequency governor of the pinned cores; `None` if the kernel shows none.
    pub governor: Option<String>,
    /// Whether the time-stamp counter runs at a constant rate; `None` where unknown.
    pub tsc_invariant: Option<bool>,
    /// The clock that timed the run.
    pub clock: ClockInfo,
    /// Logical processors that measuring threads were pinned to, in rank order; empty if unpinned.
    pub pinned_cores: Vec<u32>,
    /// Noise probe before the first measurement.
    pub noise_before: Option<NoiseSummary>,
    /// Noise probe after the last measurement.
    pub noise_after: Option<NoiseSummary>,
    /// The difference between two measurements of the same thing; with several devices, of the worst device.
    pub aa_noise: Option<AaNoise>,
    /// The devices, in the order in which they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceInfo>,
    /// The other hosts, rank by rank; empty if all processes were on this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerInfo>,
    /// Doubts about these numbers, and the remedy.
    pub warnings: Vec<Warning>,
}

/// A host of the other side, as reported by its `nicety serve`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerInfo {
    /// `HOST:PORT` by which it was called.
    pub address: String,
    /// Host name.
    pub host: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Logical processors usable there.
    pub cores: u32,
    /// Version of nicety that serves.
    pub nicety_version: String,
    /// The core that its process was pinned to.
    pub pinned_core: Option<u32>,
}

/// A device of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInfo {
    /// Its name, as in the results.
    pub name: String,
    /// The clock that timed it: a modelled card's is virtual.
    pub clock: ClockKind,
    /// The difference between two measurements of the same thing on it.
    pub aa_noise: Option<AaNoise>,
    /// The choices that it made when opened, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The names of its rails, in their order: its own name if it has only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rails: Vec<String>,
    /// The limits of each rail, from the machine file of a modelled card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rail_rates: Option<RailRates>,
}

/// The limits of one rail, in MB/s (MB = 10^6 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RailRates {
    /// Its link, in one direction.
    pub link: f64,
    /// The bus of its card, both directions together.
    pub card: f64,
}

/// Clock that timed a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// Invariant time-stamp counter, calibrated against the monotonic clock.
    Tsc,
    /// Virtual counter of an aarch64 processor, calibrated in the same way.
    Cntvct,
    /// The system's monotonic clock.
    #[default]
    Monotonic,
    /// Simulated time: exact, no overhead.
    Virtual,
}

impl std::fmt::Display for ClockKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Tsc => "tsc",
            Self::Cntvct => "cntvct",
            Self::Monotonic => "monotonic",
            Self::Virtual => "virtual",
        })
    }
}

/// The clock as calibrated at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockInfo {
    /// Which clock.
    pub kind: ClockKind,
    /// Cost of one reading, in ns.
    pub overhead_ns: f64,
    /// Smallest step seen between different readings, in ns.
    pub resolution_ns: f64,
}

/// Outcome of a fixed-work-quantum noise probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NoiseSummary {
    /// Quanta timed.
    pub quanta: u64,
    /// Shortest quantum in ns: the work with nothing in its way.
    pub quantum_ns: f64,
    /// Share of all time that was beyond the shortest quantum, 0 to 1.
    pub stolen: f64,
    /// Quanta longer than 1.5 times the shortest.
    pub detours: u64,
    /// Longest detour in ns.
    pub detour_max_ns: f64,
    /// 99th percentile of the quanta over the shortest; `None` below 299 quanta.
    pub p99_ratio: Option<f64>,
}

/// Outcome of an A/A comparison: the same cell measured as if it were two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AaNoise {
    /// Distance from 1 of the farther end of the 95 % interval of the A/A ratio: smaller effects are not detectable.
    pub floor: f64,
    /// The ratio itself; 1 if nothing drifted.
    pub ratio: f64,
    /// Launches on each side.
    pub launches: u64,
}

/// Something that weakens the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The problem.
    pub what: String,
    /// The remedy.
    pub advice: String,
}

/// One effective parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Name as on the command line.
    pub key: String,
    /// Value as text.
    pub value: String,
    /// Unit of the value, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The source of the value.
    pub origin: Origin,
}

/// The source of a parameter's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Given by the user.
    Flag,
    /// Built in.
    #[default]
    Default,
    /// Computed from the machine or from other parameters.
    Derived,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Flag => "flag",
            Self::Default => "default",
            Self::Derived => "derived",
        })
    }
}

/// One result: a metric of one cell (experiment, device, variant, size). Values are in [`unit`](Self::unit).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Experiment, e.g. `latency`.
    pub experiment: String,
    /// Device, e.g. `shm`.
    pub device: String,
    /// Factors other than size, e.g. `{"op":"write","source":"nic","sink":"nic"}`.
    pub variant: Variant,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// The measured quantity: `one_way_latency`, `bandwidth`, `message_rate`, ...
    pub metric: String,
    /// `us`, `MB/s` (MB = 10^6 bytes), `1/s`, `B`, `%` or `pages`.
    pub unit: String,
    /// Clock that timed it.
    pub clock: ClockKind,
    /// Samples in all launches, after the warm-up was cut.
    pub n: u64,
    /// Median of the launch medians; with one launch, the median of its samples.
    pub median: f64,
    /// 95 % interval of the median over launches; `None` with [`ci95_reason`](Self::ci95_reason).
    pub ci95: Option<[f64; 2]>,
    /// Why there is no interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_reason: Option<String>,
    /// The machine's own limit, measured in the same run.
    pub floor: Option<Floor>,
    /// Arithmetic mean of times, harmonic mean of rates.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Smallest sample; nothing is dropped.
    #[serde(default)]
    pub min: Option<f64>,
    /// Largest sample; nothing is dropped.
    #[serde(default)]
    pub max: Option<f64>,
    /// Requested quantiles: supported ones with value, others with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantile>,
    /// First-touch value: the very first operation of the first launch, never part of the rest.
    #[serde(default)]
    pub first: Option<f64>,
    /// Operations per timed sample; 1 if each was timed. Several values over launches: the largest.
    #[serde(default = "one")]
    pub batch: u64,
    /// All samples of all launches, in bins of at most 1 % width.
    #[serde(default)]
    pub histogram: Option<Histogram>,
    /// Interquartile range of the launch medians; `None` below four launches.
    #[serde(default)]
    pub between_launch: Option<f64>,
    /// Median over launches of the interquartile range of the samples within each.
    #[serde(default)]
    pub within_launch: Option<f64>,
    /// Each start of the processes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
    /// A remark for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

const fn one() -> u64 {
    1
}

impl Measurement {
    /// Identifies this result among those of a run, and its counterpart in another run.
    #[must_use]
    pub fn cell(&self) -> Cell {
        Cell {
            experiment: self.experiment.clone(),
            device: self.device.clone(),
            variant: self.variant.clone(),
            size_bytes: self.size_bytes,
            metric: self.metric.clone(),
        }
    }

    /// The variant as `key=value` pairs joined by `sep`, in key order.
    #[must_use]
    pub fn variant_text(&self, sep: &str) -> String {
        let pairs: Vec<String> = self.variant.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(sep)
    }

    /// Whether more is better: true of rates (`MB/s`, `1/s`), of shares and of cache capacities, false of times.
    #[must_use]
    pub fn higher_is_better(&self) -> bool {
        self.unit.ends_with("/s") || matches!(self.unit.as_str(), "%" | "pages")
    }
}

/// Identity of a result: what must be equal for two numbers to be comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// Experiment.
    pub experiment: String,
    /// Device.
    pub device: String,
    /// Factors other than size.
    pub variant: Variant,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Metric.
    pub metric: String,
}

/// The machine's own limit for a result (rule 11 of Hoefler & Belli: show the bound).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Its value.
    pub value: f64,
    /// Its unit, that of the result.
    pub unit: String,
    /// Its description, e.g. `cache-line half round trip`.
    pub what: String,
    /// Median / value: 1.2 is 20 % slower for a time, 0.9 is 10 % slower for a rate.
    pub ratio: f64,
}

/// One quantile of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// Probability, e.g. 0.99.
    pub p: f64,
    /// Value; `None` if refused.
    pub value: Option<f64>,
    /// 95 % interval by order statistics; the samples are taken as independent.
    #[serde(default)]
    pub ci95: Option<[f64; 2]>,
    /// Why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Samples needed for an upper 95 % bound, if too few was the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<u64>,
}

/// Histogram with logarithmic bins; empty bins are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Largest relative width of a bin, e.g. 0.0078.
    pub relative_error: f64,
    /// Bins in ascending order, each `[low, high, count]`.
    pub bins: Vec<Bin>,
}

/// A bin `[low, high, count]`: `count` samples in `low..=high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin(
    /// Lower edge.
    pub f64,
    /// Upper edge.
    pub f64,
    /// Samples.
    pub u64,
);

/// One start of the processes (rule 7: the run is the unit).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Launch {
    /// Samples kept, after the warm-up was cut.
    pub n: u64,
    /// Their median.
    pub median: f64,
    /// 95 % interval of the median within this launch; widened if samples depend on each other.
    pub ci95: Option<[f64; 2]>,
    /// How the interval was made, or why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci95_reason: Option<String>,
    /// The warm-up cut at the start.
    pub warm_up: WarmUp,
    /// Lag-1 autocorrelation, -1 to 1.
    pub lag1: Option<f64>,
    /// Effective sample size; n if independent.
    pub n_eff: Option<f64>,
    /// Tukey's outliers; counted, never dropped.
    pub outliers: Outliers,
    /// How the stop rule ended.
    pub stop: Stop,
    /// Operations per sample in this launch.
    pub batch: u64,
    /// First-touch value of this launch.
    pub first: Option<f64>,
    /// `trend`, `bimodal`, `no steady state`, `context switches`, `frequency change`, ...
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Samples in time order: all, or a uniform reservoir if there were too many to keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// What moved in each interval of time, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<RateInterval>,
}

/// What a stream moved in an interval of a launch (`--interval`), from the first sampled operation on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateInterval {
    /// Its beginning, in seconds.
    pub from_s: f64,
    /// Its end, in seconds.
    pub to_s: f64,
    /// Payload of the messages that ended in it, in all directions.
    pub bytes: u64,
    /// Messages that ended in it.
    pub messages: u64,
    /// Bytes over time, in MB/s (MB = 10^6 bytes).
    pub mb_per_s: f64,
}

/// The samples cut as warm-up (rule 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WarmUp {
    /// Samples cut.
    pub cut: u64,
    /// False if no steady state was found by half of the samples; `None` if there were too few to decide.
    pub steady: Option<bool>,
}

/// Outliers by Tukey's fences (rule 9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outliers {
    /// Beyond 1.5 but not 3 interquartile ranges.
    pub mild: u64,
    /// Beyond 3 interquartile ranges.
    pub severe: u64,
    /// Indices of severe outliers within the launch, after the cut; the first few only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<u64>,
}

/// How the stop rule ended (rule 6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stop {
    /// `reached`, or `not reached: 3.1 %`.
    pub state: String,
    /// Half-width of the 95 % interval over the median, a fraction.
    pub half_width: Option<f64>,
    /// The fraction that was wanted.
    pub target: f64,
    /// Why it ended otherwise: `maximum count`, `maximum time`, `interrupted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Stop {
    /// Whether the wanted precision was reached.
    #[must_use]
    pub fn reached(&self) -> bool {
        self.state == "reached"
    }
}
