//! One file for each command.

pub(crate) mod compare;
pub(crate) mod doctor;
