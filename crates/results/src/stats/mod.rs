//! Statistics for communication benchmarks: pure functions on slices, one rule per file.
//!
//! Values are in any one unit. "Sorted" arguments ascend. Nothing here assumes normality, averages ratios or
//! drops a sample. Rules are those of Hoefler & Belli (SC'15), Hunold & Carpen-Amarie (TPDS 27(12), 2016),
//! Kalibera & Jones (ISMM'13); the files name others.

mod bimodal;
mod compare;
mod dependence;
#[cfg(any(test, feature = "testing"))]
mod draw;
mod histogram;
mod launches;
mod matrix;
mod order;
mod outliers;
mod reservoir;
mod special;
mod summary;
mod trend;
mod warmup;

pub use bimodal::{Modes, bimodal};
pub use compare::{
    Direction, RatioInterval, Verdict, benjamini_hochberg, drift, p_beyond, ratio_interval, verdict,
};
pub use dependence::{block_bootstrap_median, effective_size, lag1, lag1_clipped, widened_median_interval};
#[cfg(any(test, feature = "testing"))]
pub use draw::Draw;
pub use histogram::LogHistogram;
pub use host::Rng;
pub use launches::{LAUNCHES_FOR_95, LaunchMedian, Spread, over_launches, spread};
pub use matrix::{CellComparison, CompareOptions, Comparison, compare_runs};
pub use order::{Interval, Ranks, median_interval, median_ranks, needed, quantile_interval, quantile_ranks};
pub use outliers::{Fences, OutlierClass, count_outliers};
pub use reservoir::Reservoir;
pub use summary::{harmonic_mean, iqr, mean, median, quantile, rank, sort, standard_deviation};
pub use trend::{Trend, trend};
pub use warmup::{MSER_BLOCK, WarmUpCut, mser5};
