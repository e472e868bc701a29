//! The data path: requests and completions.
//!
//! | file | what it holds |
//! |---|---|
//! | `post` | chains of requests |
//! | `builder` | requests that are made by calls |
//! | `poll` | completions, in arrays and one by one |

pub(crate) mod builder;
pub(crate) mod poll;
pub(crate) mod post;
