//! Our libibverbs and librdmacm under third-party programs, on this machine.
//!
//! | file | what it holds |
//! |---|---|
//! | `programs` | Debian's programs |
//! | `pyverbs` | rdma-core's tests of both libraries |
//! | `crates` | Rust crates that wrap both libraries |
//! | `fabtests` | libfabric's own tests, from a checkout |

pub(crate) mod crates;
pub(crate) mod fabtests;
pub(crate) mod programs;
pub(crate) mod pyverbs;
