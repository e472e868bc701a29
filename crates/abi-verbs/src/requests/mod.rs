//! The data path: requests and completions.
//!
//! | file | contents |
//! |---|---|
//! | `post` | chains of requests |
//! | `builder` | requests built by calls |
//! | `poll` | completions, in arrays or one by one |

pub(crate) mod builder;
pub(crate) mod poll;
pub(crate) mod post;
