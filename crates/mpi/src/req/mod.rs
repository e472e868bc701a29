//! Requests: operations in progress by number, and requests that are more than one operation (MPI 5.0, sections 3.7 to 3.9).
//!
//! | file | purpose |
//! |---|---|
//! | `request` | [`Request`](crate::Request), and waiting for one or several |
//! | `special` | persistent and generalized requests |
//! | `partitioned` | partitioned communication (`MPI_Psend_init`) |

pub(crate) mod partitioned;
pub(crate) mod request;
pub(crate) mod special;
