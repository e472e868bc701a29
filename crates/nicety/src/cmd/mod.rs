//! One file for each command.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fault;
mod faulty;
mod fortran_modules;
pub(crate) mod man;
pub(crate) mod mpicc;
pub(crate) mod mpirun;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod serve;
mod shown;
pub(crate) mod survey;
pub(crate) mod top;
pub(crate) mod trace;
