//! The verdict on each row: whether it holds, and whether it is a prediction.
//!
//! | file | contents |
//! |---|---|
//! | `judge` | rows with their ratio to the paper, and whether they hold |
//! | `classes` | the class of each row: predicted, fitted and others |
//! | `machine` | the sources of the machine files' values |
//! | `moves`, `sensitivity` | which values move which rows; the measurements that find out |
//! | `score` | how close the predictions are |

pub(crate) mod classes;
pub(crate) mod judge;
pub(crate) mod machine;
pub(crate) mod moves;
pub(crate) mod score;
pub(crate) mod sensitivity;
