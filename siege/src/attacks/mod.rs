//! The attacks, each in a file or folder of its own, and their list.

mod crowds;
mod false_values;
mod forks;
mod impostors;
mod iwarp;
mod kills;
mod limits;
mod memory;
mod namespaces;
mod serve;
mod soak;
mod stopped;
mod strangers;

use anyhow::{Result, bail};

use crate::attack::Attack;

/// All attacks, in order.
pub(crate) const ALL: &[Attack] = &[
    kills::ATTACK,
    stopped::ATTACK,
    soak::ATTACK,
    false_values::ATTACK,
    crowds::ATTACK,
    iwarp::flips::ATTACK,
    iwarp::cuts::ATTACK,
    iwarp::hostile::ATTACK,
    iwarp::floods::ATTACK,
    serve::ATTACK,
    impostors::mpi::ATTACK,
    impostors::portals::ATTACK,
    impostors::ports::ATTACK,
    impostors::serve::ATTACK,
    limits::ATTACK,
    forks::ATTACK,
    namespaces::ATTACK,
    memory::ATTACK,
    strangers::ATTACK,
];

/// The code of a child, which runs until it ends or is killed.
type Role = fn() -> Result<()>;

/// The roles of children.
const ROLES: &[(&str, Role)] = &[
    (kills::ROLE, kills::victim),
    (soak::ROLE, soak::partner),
    ("bystander", false_values::bystander_role),
    ("injector", false_values::injector_role),
    ("victim", false_values::victim_role),
    ("crowd", crowds::crowd_role),
    (limits::ROLE, limits::limited_child),
    (forks::ROLE, forks::parent),
    (impostors::mpi::ROLE, impostors::mpi::job),
    (namespaces::ROLE, namespaces::resident),
    ("serve-server", serve::server),
    ("serve-worker", serve::worker),
];

/// Runs this process as a child in the role of that name.
pub(crate) fn role(name: &str) -> Result<()> {
    let Some((_, body)) = ROLES.iter().find(|(known, _)| *known == name) else { bail!("no role `{name}`") };
    crate::child::die_with_parent()?;
    body()
}
