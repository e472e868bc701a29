//! Safe owners of the C objects of libibverbs and librdmacm: each destroys its object when it is dropped, and keeps
//! alive what the object depends on. All unsafe code of this crate is here.
//!
//! | file | contents |
//! |---|---|
//! | `library` | the loaded libraries: their functions, and whose they are |
//! | `context` | opened cards: attributes, and asynchronous events |
//! | `memory` | protection domains and regions |
//! | `cq` | completion queues, each with a completion channel |
//! | `srq` | shared receive queues |
//! | `request` | requests in C's layout |
//! | `qp` | queue pairs: states and requests |
//! | `cm` | identifiers and events of librdmacm |

pub(crate) mod cm;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod qp;
mod request;
pub(crate) mod srq;

use std::ffi::c_int;
use std::io;

/// The error of a function that returns an error number, or -1 and sets errno(3).
fn check(returned: c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        // Error numbers are positive; some functions and providers return them negated.
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}
