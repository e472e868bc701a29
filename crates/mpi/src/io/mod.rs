//! Files that the processes of a communicator open together: [`File`] (MPI 5.0, chapter 14).
//!
//! A view defines which bytes of a file a process sees. Their offsets are computed without any input or output (`view`), and all
//! input and output is in one place (`disk`). Independent operations complete immediately in the calling thread. In collective
//! operations, processes whose pieces interleave exchange them first, so that each reads or writes one range of the file in large
//! steps (`collective`).
//!
//! The shared pointer is a word in a window at the first process, to which all add. ROMIO uses a hidden file under a lock instead.
//! That needs a writable directory and a file system with locks, and the file remains when a process is killed. The window needs
//! neither, on one host and on several; where the device has atomics, the first process does not take part.
//!
//! | file | contents |
//! |---|---|
//! | `object` | [`File`]: its properties and settings |
//! | `open`, `mode` | opening, closing and deleting files; access modes |
//! | `view`, `representation` | the visible bytes, and their representation in the file |
//! | `access`, `position` | the operations, and their start |
//! | `independent` | independent input and output |
//! | `collective`, `domains` | collective input and output, and its file domains |
//! | `pointer` | the shared pointer |
//! | `disk` | the descriptor: all input and output, and its error classes |
//! | `hints` | the hints that have an effect |

mod access;
mod collective;
mod disk;
mod domains;
mod hints;
mod independent;
mod mode;
mod object;
mod open;
mod pointer;
mod position;
mod representation;
mod view;

pub use mode::FileMode;
pub use object::File;
pub use position::{Position, Whence};
pub use representation::{Conversion, Representation};
pub use view::View;
