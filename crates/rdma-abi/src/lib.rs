//! The C types and constants of libibverbs and librdmacm; this crate links and calls nothing.
//!
//! Names are those of `infiniband/verbs.h` and `rdma/rdma_cma.h`. Each type has a description of its layout ([`Layout`]).
//! `tests/layout.rs` compares it with a C compiler's layout of the installed headers, or with `offsets.txt` where they are not
//! installed. Types behind pointers that only their owner dereferences are [`c_void`](std::ffi::c_void).
//!
//! | file | contents |
//! |---|---|
//! | `layout` | the macro that declares a type and records its offsets |
//! | `verbs` | `infiniband/verbs.h`: objects, requests, completions, attributes, and the function tables of a context |
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
