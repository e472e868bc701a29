//! Portals 4 in C: `portals4.h` and its library, on any of our devices (Portals 4.3, chapter 3).
//!
//! `NICETY_DEVICE` selects the device (`shm` if unset). The node and number of a process are the address
//! where it listens, so programs find each other by exchanging these: the reference's own programs use PMI,
//! and are started by `nicety mpirun`.
//!
//! Each function checks its handles and pointers, calls [`portals`], and converts the result to the header's
//! types. Panics do not leave it. Handles and constants are integers with the reference's values.
//!
//! | file | contents |
//! |---|---|
//! | `types` | the header's structures and constants; checked against the header by a test |
//! | `handle` | handles: kind, interface, generation and slot in 32 bits |
//! | `answer`, `export` | return codes and the panic barrier; C names of functions |
//! | `state`, `limits` | open interfaces of the process; limits from the environment |
//! | `calls` | the functions, by object |

mod answer;
mod calls;
mod export;
mod handle;
mod limits;
mod state;
mod types;
