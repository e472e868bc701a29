//! MPI's datatypes as layouts of bytes, and its reduction operators.
//!
//! There is no I/O, no environment and no pointer here. A caller's buffer is accessed through [`Memory`], or by runs of bytes that
//! this crate returns and the caller copies. A type is described by its constructors' arguments, flattened once into runs and loops
//! over them. A message is then packed and unpacked piece by piece without walking it from the start.
//!
//! | module | contents |
//! |---|---|
//! | `basic` | the predefined types of the standard ABI, their handles, sizes, and sizes in external32 |
//! | `construct`, `arrays` | the constructors |
//! | `bounds` | size, bounds and alignment, computed from those of the parts |
//! | `datatype` | [`Datatype`]: bounds, commit, and the byte ranges of its elements |
//! | `layout` | the flattened form: runs, and loops over lists of runs |
//! | `cursor` | a position in the packed form, for pack and unpack; merged runs |
//! | `external32` | the representation for heterogeneous machines |
//! | `combiner`, `contents` | the constructor of a type; envelope and contents |
//! | `signature` | sequences of basic types, compared without walking them |
//! | `received` | the number of elements in received bytes |
//! | `operator`, `op`, `arithmetic` | predefined operators, any operators, and their arithmetic |
//! | `float`, `integer` | numbers without a Rust type |
//!
//! # What the standard leaves open
//!
//! - The extent of a type without set bounds is padded to the strictest alignment inside, as C pads a struct, for every
//!   constructor. A part of another type includes its padding, so that `count` extents of it fit in the whole.
//! - Bounds that were set have priority: if any part has set bounds, those of parts without are ignored.
//! - `long double` is the local C type: x87's 80 bits in 16 bytes on x86-64, quad elsewhere. Fortran's `INTEGER`, `REAL` and
//!   `LOGICAL` have 4 bytes.
//! - Predefined operators accept predefined types, their duplicates, and the results of `MPI_Type_get_value_index` and
//!   `MPI_Type_create_f90_*`. Logical operators return 1 for true.

#![deny(unsafe_code)]

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
pub use basic::{Basic, BasicKind, TypeClass};
pub use combiner::Combiner;
pub use contents::Envelope;
pub use cursor::{Cursor, Memory, Runs};
pub use datatype::{Contents, Datatype};
pub use error::{Error, ErrorKind, Result};
pub use layout::Run;
pub use op::{Op, UserFunction};
pub use operator::Operator;
pub use signature::Signature;
