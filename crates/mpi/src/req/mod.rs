//! Requests: operations under way by number, and those that are more than one operation.
//!
//! | file | what it holds |
//! |---|---|
//! | `request` | [`Request`](crate::Request), and how to wait for one or several |
//! | `special` | persistent and generalized requests |
//! | `partitioned` | messages whose data are given and received in parts (`MPI_Psend_init`) |

pub(crate) mod partitioned;
pub(crate) mod request;
pub(crate) mod special;
