//! The toolkit for writing experiments.
//!
//! | file | contents |
//! |---|---|
//! | `contract`, `variants` | an experiment's description; the usual lists of variants |
//! | `cell`, `session` | what is measured; one side of a measurement, and the messages between the sides |
//! | `limits`, `fault` | limits of numbers from the other side; why a cell could not be measured |
//! | `endpoint`, `hub`, `edge` | connections and registered memory, between two ranks and among many |
//! | `timing`, `pattern` | samples of a round; contents that can be checked |
//! | `compute` | work for the processor that is no communication |

pub(crate) mod cell;
pub(crate) mod compute;
pub(crate) mod contract;
pub(crate) mod edge;
pub(crate) mod endpoint;
pub(crate) mod fault;
pub(crate) mod hub;
pub(crate) mod limits;
pub(crate) mod pattern;
pub(crate) mod session;
pub(crate) mod timing;
pub(crate) mod variants;
