//! One file an attack, and their list.

mod iwarp;
mod serve;

use anyhow::{Result, bail};

use crate::attack::Attack;

/// All attacks, in order.
pub(crate) const ALL: &[Attack] = &[
    iwarp::flips::ATTACK,
    iwarp::cuts::ATTACK,
    iwarp::hostile::ATTACK,
    iwarp::floods::ATTACK,
    serve::ATTACK,
];

/// What children may be: a name, and what it does until it ends or is killed.
const ROLES: &[(&str, fn() -> Result<()>)] =
    &[("serve-server", serve::server), ("serve-worker", serve::worker)];

/// Is a child in the role of that name.
pub(crate) fn role(name: &str) -> Result<()> {
    let Some((_, body)) = ROLES.iter().find(|(known, _)| *known == name) else { bail!("no role `{name}`") };
    crate::child::begin()?;
    body()
}
