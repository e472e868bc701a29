//! Experiments, sampling, statistics and the result schema: numbers one can defend.
#![forbid(unsafe_code)]

pub mod report;
pub mod sample;
pub mod schema;
pub mod stats;
