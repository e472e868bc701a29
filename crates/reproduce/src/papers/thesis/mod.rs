//! The thesis on InfiniBand (under VAPI and IBAL), Myrinet and Quadrics: how its rows are computed.
//!
//! Its MB is 2^20 bytes (`X1` in the contradictions), so bandwidths are converted.
//!
//! | file | sections of the thesis |
//! |---|---|
//! | `constants` | 1, 3.1, 4.1, and what an experiment is run with |
//! | `calls` | 3.2 and 4.2: Tables 3.1 and 4.1 |
//! | `basic` | 3.3.1 to 3.3.3, 4.3.1 to 4.3.3: latency, bandwidth, both ways |
//! | `host` | 3.3.4 to 3.3.6, 4.3.4 to 4.3.6: overhead, notification, blocking |
//! | `features` | 3.3.7 to 3.3.10, 4.3.7, 4.3.8: buffers, connections, pieces, packets, hot spots |
//! | `figures` | all figures |
//! | `setups` | the measured quantities |

mod basic;
mod calls;
mod constants;
mod features;
pub(crate) mod figures;
mod host;
mod setups;

use crate::claims::claim::ClaimTable;
pub(crate) use setups::*;

/// Adds all rows of the thesis.
pub(crate) fn table(table: &mut ClaimTable) {
    constants::table(table);
    calls::table(table);
    basic::table(table);
    host::table(table);
    features::table(table);
}
