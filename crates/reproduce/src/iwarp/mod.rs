//! The rows of the paper on MPI over iWARP: for each how it is computed from our MPI on the modelled cards, or why not.
//!
//! | file | what it holds |
//! |---|---|
//! | `constants` | the machine, the versions, how connections are made |
//! | `messages` | 4.1: Figure 4 |
//! | `figures` | all of its figures |
//! | `setups` | what is measured of it |
//!
//! Criteria that the paper leaves open, the same for all rows:
//!
//! - A small message has 4 bytes.
//! - A peak is the largest bandwidth from 16 KiB to 1 MiB, with a window of 64 messages.
//! - MPICH2 is our MPI on the machine of sockets, with the costs of MPICH2's library.

mod constants;
pub(super) mod figures;
mod messages;
mod setups;

use super::claim::Table;
pub(super) use setups::*;

/// Adds all rows of the paper.
pub(super) fn table(table: &mut Table) {
    constants::table(table);
    messages::table(table);
    let why = "its experiment is not among those of this program";
    table.none(
        &[
            "IW-036", "IW-037", "IW-038", "IW-039", "IW-040", "IW-041", "IW-042", "IW-043", "IW-044",
            "IW-045", "IW-046", "IW-047", "IW-048", "IW-049", "IW-050", "IW-051", "IW-052", "IW-053",
            "IW-054", "IW-055", "IW-056", "IW-057", "IW-058", "IW-090",
        ],
        why,
    );
    table.none(
        &[
            "IW-003", "IW-006", "IW-061", "IW-062", "IW-063", "IW-064", "IW-065", "IW-066", "IW-067",
            "IW-069", "IW-072", "IW-073", "IW-076",
        ],
        why,
    );
}
