//! The built command, end to end: what a user types and what comes of it.

mod common;
mod compare;
mod doctor;
mod usage;
