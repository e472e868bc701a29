//! Portals 4 in C: `portals4.h` and the library that programs written against it run on, on any of our devices.
//!
//! `NICETY_DEVICE` names the device (`shm` if it is not set). A process's node and number are where it listens, so that programs find each
//! other by what they tell each other of that: the reference's own programs do it by PMI, and are started by `nicety mpirun`.
//!
//! Each function checks its handles and pointers, calls [`portals`], and turns what comes back into the header's numbers. No panic leaves it.
//! Handles are integers, as the reference's are, and numbers are its numbers.
//!
//! | file | what it holds |
//! |---|---|
//! | `types` | the header's structures and constants; checked against the header by a test |
//! | `handle` | handles: kind, interface, use and place in 32 bits |
//! | `answer`, `export` | return codes and the firewall; how a function gets its name |
//! | `state`, `limits` | what the process has open; limits by the environment |
//! | `calls` | the functions, by object |

mod answer;
mod calls;
mod export;
mod handle;
mod limits;
mod state;
mod types;
