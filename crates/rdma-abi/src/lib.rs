//! The types and numbers of libibverbs and librdmacm, as C lays them out; nothing is linked and nothing is called.
//!
//! Names are those of `infiniband/verbs.h` and `rdma/rdma_cma.h`, so that whoever knows these finds his way. Each type says its own
//! layout ([`Layout`]); `tests/layout.rs` holds it against a compiler that reads the installed headers, and against `offsets.txt`
//! where there are none. What lies behind a pointer that only its owner follows is [`c_void`](std::ffi::c_void).
//!
//! | file | what it holds |
//! |---|---|
//! | `layout` | the macro that declares a type and keeps its offsets |
//! | `verbs` | `infiniband/verbs.h`: objects, requests, completions, attributes, and the tables of functions of a context |
//! | `cma` | `rdma/rdma_cma.h` |
//! | `numbers` | constants of both |
#![forbid(unsafe_code)]
#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "the names are C's, and so is their documentation"
)]

pub mod cma;
mod layout;
pub mod numbers;
pub mod verbs;

pub use layout::{Field, Layout};

/// The layouts of all types.
pub fn layouts() -> Vec<Layout> {
    [verbs::layouts(), cma::layouts()].concat()
}
