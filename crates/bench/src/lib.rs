//! Experiments, sampling, statistics and the result schema: numbers one can defend.
#![forbid(unsafe_code)]

pub mod against;
pub mod experiment;
pub mod floor;
pub mod launch;
mod machine;
pub mod plain;
pub mod plan;
pub mod planfile;
pub mod sample;
pub mod schema;
pub mod stats;
pub mod token;
pub mod variant;
