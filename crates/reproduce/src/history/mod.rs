//! The criteria as they were frozen, and later changes to criteria and fitted values.
//!
//! | file | contents |
//! |---|---|
//! | `criteria`, `spelling` | the frozen criteria; a criterion as one line of text |
//! | `fits` | fit lists that have become shorter |

pub(crate) mod criteria;
pub(crate) mod fits;
pub(crate) mod spelling;
