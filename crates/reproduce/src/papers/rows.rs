//! How all rows are computed, and the cards that they are computed on.

use super::published::{ACCEL, IWARP, MULTIRAIL, NICMEM, THESIS};
use super::{accel, iwarp, multirail, nicmem, thesis};
use crate::claims::claim::{Claim, ClaimTable};

/// How each row is computed, or why it is not.
pub(crate) fn table() -> Vec<Claim> {
    let mut table = ClaimTable::default();
    nicmem::table(&mut table);
    thesis::table(&mut table);
    iwarp::table(&mut table);
    multirail::table(&mut table);
    accel::table(&mut table);
    table.0
}

/// The paper that a card belongs to.
pub(crate) fn paper_of(card: &str) -> &'static str {
    let multirail = [multirail::SINGLE, multirail::PORTS, multirail::CARDS];
    match card {
        _ if card == nicmem::MT23108.card => NICMEM,
        _ if [iwarp::CARD.card, iwarp::SOCKETS.card].contains(&card) => IWARP,
        _ if card == accel::CARD => ACCEL,
        _ if multirail.iter().any(|setup| setup.card == card) => MULTIRAIL,
        _ => THESIS,
    }
}

/// The cards that rows are computed with. Cards of one group have the same values, except for the number of cards and
/// ports.
pub const GROUPS: [&[&str]; 9] = [
    &[nicmem::MT23108.card],
    &[thesis::VAPI.card],
    &[thesis::IBAL.card],
    &[thesis::MYRINET.card],
    &[thesis::QUADRICS.card],
    &[iwarp::CARD.card],
    &[iwarp::SOCKETS.card],
    &[multirail::SINGLE.card, multirail::PORTS.card, multirail::CARDS.card],
    &[accel::CARD],
];

/// The cards that rows are computed with.
#[must_use]
pub fn cards() -> Vec<&'static str> {
    GROUPS.concat()
}
