//! Measuring: experiments, sampling, launches. Result files and the statistics on them are the crate `results`; the server that
//! runs workers for other hosts is `bench-server`.
#![forbid(unsafe_code)]

pub mod against;
pub mod experiment;
pub mod floor;
pub mod launch;
mod machine;
pub mod plan;
pub mod planfile;
pub mod sample;
pub mod token;
