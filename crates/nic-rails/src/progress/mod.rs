//! The threads that make progress: pollers, the threads of the threaded engine, the service.

pub(crate) mod poll;
pub(crate) mod service;
pub(crate) mod threads;
pub(crate) mod wake;
pub(crate) mod worker;
