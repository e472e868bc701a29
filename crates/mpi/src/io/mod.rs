//! Files that the processes of a communicator open together: [`File`].
//!
//! A view says which bytes of a file a process sees; where they lie is worked out without any input or output (`view`), and all of
//! that is in one place (`disk`). A process that reads or writes for itself does so at once, in the calling thread. Together,
//! processes whose pieces interleave exchange them first, so that each reads or writes one range of the file in large steps
//! (`collective`).
//!
//! The shared pointer is a word in a window at the first process, which all add to. Instead: a hidden file under a lock, as ROMIO has
//! it. Why not: it needs a directory in which a file may be made and a file system with locks, and is left behind by whoever is
//! killed. The window needs neither, on one host and on several; where the device has atomics, the first process takes no part.
//!
//! | file | what it holds |
//! |---|---|
//! | `object` | [`File`] itself: what is asked and said of it |
//! | `opening`, `mode` | how files are opened, closed and deleted; access modes |
//! | `view`, `representation` | which bytes are seen; what form they have in the file |
//! | `access`, `place` | the operations; where they begin |
//! | `alone` | reading and writing for oneself |
//! | `collective`, `domains` | reading and writing together; who of them has which bytes |
//! | `pointer` | the shared pointer |
//! | `disk` | the descriptor: all input and output, and what its errors are called |
//! | `hints` | hints that change something |

mod access;
mod alone;
mod collective;
mod disk;
mod domains;
mod hints;
mod mode;
mod object;
mod opening;
mod place;
mod pointer;
mod representation;
mod view;

pub use mode::FileMode;
pub use object::File;
pub use place::{Position, Whence};
pub use representation::{Conversion, Representation};
pub use view::View;
