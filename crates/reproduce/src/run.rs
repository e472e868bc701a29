//! [`run`]: a reproduction on the modelled cards, in virtual time, on all cores.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use super::claims::quantity::Probe;
use super::error::{BadCard, NoValue};
use super::papers::published::Published;
use super::papers::rows::cards;
use super::reproduction::{Reproduction, Request, reproduce};
use super::verdicts::machine::{Machine, options_of, read_machine};
use super::verdicts::moves::Moves;

use bench::launch::{Progress, world};

/// What to compute in addition to the rows, and with which values.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The papers' figures.
    pub figures: bool,
    /// Values of the machine files to change: key and value.
    pub changes: Vec<(String, String)>,
}

/// The values of all cards, with some changed.
///
/// # Errors
/// A machine file that cannot be read, a value that does not exist or is beyond its range.
pub fn machines(changes: &[(String, String)]) -> Result<Vec<Machine>, BadCard> {
    cards().into_iter().map(|card| read_machine(card, changes)).collect()
}

/// Computes the rows on the modelled cards, on all cores. `None` if `stop` was set before all was measured.
///
/// # Errors
/// A machine file that cannot be read, a value that does not exist or is beyond its range.
pub fn run(
    rows: Vec<Published>,
    options: &Options,
    progress: &mut (dyn Progress + Send),
    stop: &AtomicBool,
) -> Result<Option<Reproduction>, BadCard> {
    let machines = machines(&options.changes)?;
    let changes: Vec<String> = options.changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let of_card = |card| Ok::<_, BadCard>((card, options_of(card, &options.changes)?));
    let by_card: BTreeMap<&str, Vec<String>> = cards().into_iter().map(of_card).collect::<Result<_, _>>()?;
    let measure = |probe: &Probe| {
        let changes = by_card.get(probe.card()).map(|own| own.join(",")).unwrap_or_default();
        let measured = world::measure(&probe.device_with(&changes), &probe.cell, &probe.settings());
        measured.map(|measured| measured.value).map_err(|fault| NoValue::Failed(fault.to_string()))
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (moves, figures, changes) = (Moves::stored(), options.figures, changes.clone());
    let request = Request { rows, figures, machines, moves, changes, measure: &measure, threads };
    Ok(reproduce(request, progress, stop))
}
