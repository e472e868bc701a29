//! Measuring: experiments, sampling, launches and the server that runs workers for other hosts. Result files and the statistics on
//! them are the crate `results`.
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
