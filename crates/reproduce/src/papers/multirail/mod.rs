//! The paper about uDAPL over several rails: how its rows are computed.
//!
//! | file | sections of the paper |
//! |---|---|
//! | `constants` | 1 to 5.1: the machine, what an experiment is run with, the bounds |
//! | `latency` | 5.2 and 5.5: Figures 4, 9 and 10 |
//! | `streams` | 5.3, 5.4 and 6: Figures 5 to 8 |
//! | `figures` | all figures |
//! | `setups` | the measured quantities |
//!
//! Criteria that the paper leaves open, the same for all rows:
//!
//! - A peak is the largest bandwidth from 32 KiB to 2 MiB.
//! - An improvement is at least 5 %: less is not visible in a figure. "Above N" is the largest size, from the
//!   smallest on, without one; "from N" is the next size. Sizes are the powers of two.
//! - Of "in the range of 2 to 4 us" both ends are compared, as in the other papers.

mod constants;
pub(crate) mod figures;
mod latency;
mod setups;
mod streams;

use crate::claims::claim::ClaimTable;
pub(crate) use setups::*;

/// Adds all rows of the paper.
pub(crate) fn table(table: &mut ClaimTable) {
    constants::table(table);
    latency::table(table);
    streams::table(table);
}
