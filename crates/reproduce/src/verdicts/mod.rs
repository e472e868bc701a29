//! What each row is to the model: whether it holds, and whether it is a prediction.
//!
//! | file | what it holds |
//! |---|---|
//! | `judge` | rows with their ratio to the paper, and whether they hold |
//! | `classes` | the class of each row: predicted, fitted and others |
//! | `machine` | where the values of the machine files come from |
//! | `moves`, `sensitivity` | which values move which rows; the measurements that find out |
//! | `score` | how close the predictions are |

pub(crate) mod classes;
pub(crate) mod judge;
pub(crate) mod machine;
pub(crate) mod moves;
pub(crate) mod score;
pub(crate) mod sensitivity;
