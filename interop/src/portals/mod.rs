//! Our Portals under third-party tests and libraries, from checkouts, on this machine.
//!
//! | file | what it holds |
//! |---|---|
//! | `basic`, `xml` | the tests of Sandia's reference: basic ones, and those in XML |
//! | `openshmem` | Sandia's OpenSHMEM and its tests |
//! | `library` | the names of our library |

pub(crate) mod basic;
mod library;
pub(crate) mod openshmem;
pub(crate) mod xml;
