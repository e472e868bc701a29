//! The paper about an accelerated Portals on SeaStar: how its rows are computed.
//!
//! | file | sections of the paper |
//! |---|---|
//! | `constants` | I to III, V: the machine, its firmware, what an experiment is run with |
//! | `posting` | IV: posting receives and sends |
//! | `pairs` | VI-A, VI-C to VI-E: Figures 1, 2, 4 and 7 |
//! | `groups` | VI-B and VI-D: Figures 3 and 6 |
//! | `figures` | all figures |
//! | `setups` | the measured quantities |
//!
//! The paper prints few numbers, and its figures are lost. Criteria that it leaves open, the same for all rows:
//!
//! - An extremely small message has 8 bytes, a larger one 1 KiB.
//! - A major or dramatic advantage is one of 25 % at least, a significant one 5 %, a noticeable difference 2 %. What has no
//!   significant or only a minimal effect changes a value by 5 % at most.
//! - Two shares of a profile are comparable if they differ by a quarter at most. A major contributor has a fifth of the whole, a
//!   sliver a tenth at most.
//! - Collectives have 64 nodes unless the paper states a number; larger numbers are 256 and 1024.

mod constants;
pub(crate) mod figures;
mod groups;
mod pairs;
mod posting;
mod setups;

use crate::claims::claim::ClaimTable;
pub(crate) use setups::CARD;

/// Adds all rows of the paper.
pub(crate) fn table(table: &mut ClaimTable) {
    constants::table(table);
    posting::table(table);
    pairs::table(table);
    groups::table(table);
}
