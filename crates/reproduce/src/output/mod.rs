//! The reproduction for people.
//!
//! | file | contents |
//! |---|---|
//! | `page`, `plots` | as a page; its plots |
//! | `terminal` | as text |
//! | `tables` | the papers' tables, with the model's numbers next to the printed ones |

pub(crate) mod page;
pub(crate) mod plots;
pub(crate) mod tables;
pub(crate) mod terminal;
