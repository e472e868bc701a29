//! Datatypes and operators (MPI 5.0, chapter 5 and section 6.9).
//!
//! | file | what it holds |
//! |---|---|
//! | `datatype` | construction, names, freeing |
//! | `layout` | queries of datatypes |
//! | `pack` | packing |
//! | `op` | operators |

pub(super) mod datatype;
pub(super) mod layout;
pub(super) mod op;
pub(super) mod pack;

pub(crate) use datatype::*;
pub(crate) use layout::*;
pub(crate) use op::*;
pub(crate) use pack::*;
