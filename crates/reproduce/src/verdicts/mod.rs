//! The verdict on each row: whether it holds, and whether it is a prediction.
//!
//! | file | contents |
//! |---|---|
//! | `judge` | rows with their ratio to the paper, and whether they hold |
//! | `classes` | the class of each row: predicted, fitted and others |
//! | `second_rule` | the class of each row by a second rule |
//! | `machine` | the sources of the machine files' values |
//! | `moves`, `sensitivity` | which values move which rows; the measurements that find out |
//! | `shake` | which claims move if all values change together |
//! | `score` | how close the predictions are |

pub(crate) mod classes;
pub(crate) mod judge;
pub(crate) mod machine;
pub(crate) mod moves;
pub(crate) mod score;
pub(crate) mod second_rule;
pub(crate) mod sensitivity;
pub(crate) mod shake;
