//! Claims: how a published row is computed from measurements, as data. The tables of the papers are written in these terms.
//!
//! | file | contents |
//! |---|---|
//! | `claim` | how one row is computed, or why it is not |
//! | `quantity` | a number computed from measurements |
//! | `check` | a statement without a number, as comparisons of numbers |
//! | `setup` | the cells that the tables measure |
//! | `whatif` | values of machine files, and changes that test a stated cause |

pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod quantity;
pub(crate) mod setup;
pub(crate) mod whatif;
