//! Modelled cards: what they are made of.
#![forbid(unsafe_code)]

pub mod machine;

pub use machine::{Machine, MachineError, Parameter, Source, machines};
