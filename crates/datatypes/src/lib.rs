//! MPI's datatypes as layouts of bytes, and its reduction operators.
//!
//! There is no I/O, no environment and no pointer here. A caller's buffer is reached through [`Memory`], or by runs of bytes that
//! are handed out; who has the pointer copies. A type is described by its constructors' arguments, flattened once into runs and
//! loops over them, and from then on a message is packed and unpacked piece by piece without walking it from the start.
//!
//! | module | what it holds |
//! |---|---|
//! | `basic` | the predefined types of the standard ABI, their handles, sizes, and sizes in external32 |
//! | `construct`, `arrays` | the constructors |
//! | `bounds` | size, bounds and alignment, computed from the parts' |
//! | `datatype` | [`Datatype`] itself: bounds, commit, where the bytes of some elements are |
//! | `layout` | the flattened form: runs, and loops over lists of runs |
//! | `cursor` | a place in the packed form; pack and unpack from it; merged runs |
//! | `external32` | the form between unlike machines |
//! | `combiner`, `contents` | which constructor made a type; envelope and contents |
//! | `signature` | sequences of basic types, compared without walking them |
//! | `received` | elements in bytes that came |
//! | `operator`, `op`, `arithmetic` | operators: the standard's, any, and what they do to bytes |
//! | `float`, `integer` | numbers that Rust has no type for |
//!
//! # What the standard leaves open
//!
//! - The extent of a type whose bounds nobody set is padded to the strictest alignment inside, as C pads a struct, whichever
//!   constructor made it, and a type that is a part of another counts with its padding: so `count` extents of it fit in it.
//! - Bounds that were set stay: where a part of a type has them, those of the parts without do not count.
//! - `long double` is what C has here: x87's 80 bits in 16 bytes on x86-64, quad elsewhere. Fortran's `INTEGER`, `REAL` and
//!   `LOGICAL` have 4 bytes.
//! - Predefined operators take predefined types, their duplicates, and what `MPI_Type_get_value_index` and
//!   `MPI_Type_create_f90_*` return. Logical operators give 1 for true.

#![forbid(unsafe_code)]

mod arithmetic;
mod arrays;
mod basic;
mod bounds;
mod combiner;
mod construct;
mod contents;
mod cursor;
mod datatype;
mod error;
mod external32;
mod float;
mod integer;
mod layout;
mod op;
mod operator;
mod received;
mod signature;

pub use arrays::{Distribution, Order};
pub use basic::{Basic, Kind, TypeClass};
pub use combiner::Combiner;
pub use contents::Envelope;
pub use cursor::{Cursor, Memory, Runs};
pub use datatype::{Contents, Datatype};
pub use error::{Error, ErrorKind, Result};
pub use layout::Run;
pub use op::{Op, UserFunction};
pub use operator::Operator;
pub use signature::Signature;
