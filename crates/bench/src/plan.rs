//! [`Plan`]: what the user asked for; [`CheckedPlan`]: what will be measured, cell by cell.

mod checked;
mod devices;
mod error;
pub mod keys;
mod levels;
mod needs;
mod only;
mod peers;
pub mod sizes;
mod time;
mod words;

use results::variant::{Variant, factor, variant};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::experiment::intervals::is_stream;
use crate::experiment::{Cell, Experiment, MAX_SIZE, all, all_axes, find};
use crate::floor::FLOOR;
use crate::machine::{self, Limits};
pub use checked::{CheckedPlan, Chosen};
pub use error::PlanError;
use keys::Values;
use levels::Levels;
pub use only::Only;
use results::schema::{self, Origin, Parameter};
pub use time::Time;
pub(crate) use time::{SHARE_MIN, WALL};
#[cfg(test)]
pub(crate) use time::{launch_seconds, operation_seconds, setup_seconds};
pub use words::{DEFAULT_PORT, did_you_mean, one_line};
use words::{join, join_numbers};

/// What an overview measures.
const OVERVIEW: [&str; 6] = ["latency", "bandwidth", "bibw", "rate", "park", "memory"];
const OVERVIEW_MORE: [&str; 1] = ["bilat"];
const SIZES_QUICK: [u64; 8] = [1, 8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20];
const SIZES_OVERVIEW: [u64; 11] =
    [1, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const LARGEST_DEFAULT: u64 = 4 << 20;
/// The size of the cells that are measured twice, and of cells that represent many small messages.
const SMALL: u64 = 8;

/// Devices of a plan at most.
const DEVICES_MAX: usize = 64;
/// Sizes of a plan at most.
const SIZES_MAX: usize = 4096;
/// Cells of a plan at most, on all devices: each is a result.
const CELLS_MAX: usize = schema::RESULTS_MAX;
/// Variants of all experiments on all devices at most: each is a curve.
const VARIANTS_MAX: usize = schema::CURVES_MAX;
/// Maximum number of cells before removing duplicates and cells that a device does not support.
const CANDIDATES_MAX: usize = 1 << 20;

/// The device that is measured unless others are named.
pub const DEVICE: &str = "shm";
/// The seed unless another is given.
pub const SEED: u64 = 1;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of experiments; none means an overview.
    pub experiments: Vec<String>,
    /// Devices to measure, with commas between them, e.g. `shm,iwarp,model:mt23108-vapi`; empty for [`DEVICE`].
    pub device: String,
    /// `HOST[:PORT]` of a `nicety serve`, of several with commas between; `None` starts the other processes here.
    pub peer: Option<String>,
    /// Message sizes in bytes; `None` for the usual ones.
    pub sizes: Option<Vec<u64>>,
    /// Fewer sizes, variants and launches: half a minute.
    pub quick: bool,
    /// Seed of order and contents; `None` for [`SEED`].
    pub seed: Option<u64>,
    /// Fresh starts of the processes; `None` for the usual number.
    pub launches: Option<u32>,
    /// Another library with MPI's standard ABI to measure for comparison with ours.
    pub against: Option<PathBuf>,
    /// Values of [`keys::KEYS`].
    pub set: BTreeMap<String, String>,
    /// Factor levels to select: a variant must have one of the listed levels of each factor; empty for all variants.
    pub only: Only,
}

impl Plan {
    /// Checks everything and says all that is wrong.
    ///
    /// # Errors
    /// One [`PlanError`] for each mistake.
    pub fn check(&self) -> Result<CheckedPlan, Vec<PlanError>> {
        self.check_counts()?;
        let mut wrong = Vec::new();
        let names = self.names(&mut wrong);
        self.check_sizes(&mut wrong);
        let mut set = self.set.clone();
        if let Some(launches) = self.launches {
            set.insert("launches".to_owned(), launches.to_string());
        }
        let names_of = self.device_names();
        let chosen = devices::with_options(&names_of, &mut set);
        let levels = levels::take(&mut set, &names, &mut wrong);
        // The cells themselves would not fit into the memory.
        let count = self.count_cells(&names, &levels, chosen.len());
        if count > CANDIDATES_MAX {
            wrong.push(PlanError::TooMany { what: "cells", count, most: CELLS_MAX });
            return Err(wrong);
        }
        check_set(&mut set, &names, &mut wrong);
        wrong.extend(only::mistakes(&names, &levels, &self.only));
        self.check_devices(&chosen, &mut wrong);
        let peers = self.peer.as_deref().map_or_else(Vec::new, |text| peers::read(text, &mut wrong));
        if self.peer.is_some() {
            let explicit = if self.experiments.is_empty() { &[][..] } else { &names };
            peers::enough(explicit, &levels, self.count_peers(), &mut wrong);
        }
        wrong.extend(self.against_nothing(&names, &chosen));
        let values = Values::new(self.quick, &set);
        wrong.extend(self.without_rate(&names, &chosen));
        let mut cells = Vec::new();
        let choose = |name| self.choose(name, &names, &levels, &mut cells);
        let devices: Vec<Chosen> = chosen.into_iter().map(choose).collect();
        wrong.extend(too_many(&cells, &devices));
        let mut parameters = self.parameters(&devices, &names, &values, &peers);
        parameters.extend(only::parameter(&self.only));
        parameters.extend(levels.iter().map(|(factor, list)| Parameter {
            key: factor.name().to_owned(),
            value: join_numbers(list),
            unit: None,
            origin: Origin::Flag,
        }));
        let mut checked = CheckedPlan {
            parameters,
            unfit: BTreeMap::new(),
            devices,
            peers,
            seed: self.seed.unwrap_or(SEED),
            quick: self.quick,
            floors_asked: names.iter().any(|e| e.name() == FLOOR),
            cells,
            values,
            against: None,
            token: None,
        };
        // What else is wrong does not hide what is too much.
        wrong.extend(self.fit(&mut checked, &levels));
        if wrong.is_empty() { Ok(checked) } else { Err(wrong) }
    }

    /// As [`check`](Self::check), and refuses experiments that were asked for by name and that none of the devices has.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_strictly(&self) -> Result<CheckedPlan, Vec<PlanError>> {
        self.check_counts()?;
        let impossible = devices::impossible(&self.experiments, &self.device_names());
        match self.check() {
            Ok(plan) if impossible.is_empty() => Ok(plan),
            Ok(_) => Err(impossible),
            Err(wrong) => Err(wrong.into_iter().chain(impossible).collect()),
        }
    }

    /// Finds out what this machine cannot measure: errors where it was asked for, else left out with its reason.
    fn fit(&self, plan: &mut CheckedPlan, levels: &Levels) -> Vec<PlanError> {
        let settings = plan.settings();
        let needs = |cell: &Cell| find(&cell.experiment).map(|e| e.needs(cell, &settings));
        for device in &plan.devices {
            let pairs =
                plan.cells[device.cells.clone()].iter().any(|c| needs(c).is_some_and(|n| n.connections > 0));
            let limits = Limits {
                is_virtual: device.is_virtual,
                queue_pairs: if pairs { devices::queue_pairs(&device.name) } else { None },
                ..machine::limits()
            };
            let found = needs::unfit(&plan.cells[device.cells.clone()], &limits, needs);
            plan.unfit.extend(found.into_iter().map(|(i, why)| (device.cells.start + i, why)));
        }
        let asked = |cell: &Cell| {
            let named = matches!(&self.sizes, Some(sizes) if sizes.contains(&cell.size));
            let counted = cell.experiment == "memory" && self.set.contains_key("connections");
            cell.experiment != FLOOR && (named || counted || levels::is_given(&cell.variant, levels))
        };
        let refused = plan.unfit.iter().map(|(index, why)| (&plan.cells[*index], why));
        needs::errors(refused.filter(|(cell, _)| asked(cell)))
    }

    /// Experiments and devices that no other MPI library has, if one is named.
    fn against_nothing(&self, names: &[&'static dyn Experiment], devices: &[String]) -> Vec<PlanError> {
        if self.against.is_none() {
            return Vec::new();
        }
        let strange = names.iter().filter(|experiment| experiment.outside(true).is_empty());
        let experiments = strange.map(|experiment| PlanError::Against { experiment: experiment.name() });
        let modelled = devices.iter().filter(|device| fabric::is_virtual(device));
        experiments
            .chain(modelled.map(|device| PlanError::AgainstVirtual { device: device.clone() }))
            .collect()
    }

    /// Whether the user wants reports of rates over time.
    fn is_watched(&self) -> bool {
        self.set.get("interval").and_then(|text| text.parse().ok()).is_some_and(|seconds: f64| seconds > 0.0)
    }

    /// The variants whose rate is reported over time: the usual ones, unless others are asked for.
    fn watched_variants(&self, experiment: &dyn Experiment) -> Vec<Variant> {
        let usual = experiment.variants(true);
        let is_enough = usual.iter().any(|variant| only::has(variant, &self.only));
        if is_enough { usual } else { experiment.variants(false) }
    }

    /// If rates over time are wanted: the experiments and devices that have none.
    fn without_rate(&self, names: &[&'static dyn Experiment], devices: &[String]) -> Vec<PlanError> {
        if !self.is_watched() {
            return Vec::new();
        }
        let is_rate =
            |e: &&&'static dyn Experiment| e.variants(false).iter().all(|v| is_stream(&e.metric(v)));
        let others = names.iter().filter(|e| !is_rate(e));
        let simulated = devices.iter().filter(|device| fabric::is_virtual(device));
        others
            .map(|e| PlanError::Interval { experiment: e.name() })
            .chain(simulated.map(|device| PlanError::IntervalVirtual { device: device.clone() }))
            .collect()
    }

    fn check_devices(&self, chosen: &[String], wrong: &mut Vec<PlanError>) {
        for (i, name) in chosen.iter().enumerate() {
            if chosen[..i].contains(name) {
                wrong.push(PlanError::Twice { name: name.clone() });
            }
            if let Err(why) = fabric::check(name) {
                let devices = fabric::list();
                let hint = did_you_mean(name, devices.iter().map(|entry| entry.name.as_str()));
                wrong.push(PlanError::Device { name: name.clone(), why: why.to_string(), hint });
            }
        }
        if self.peer.is_some() && chosen.iter().all(|name| fabric::is_virtual(name)) {
            wrong.push(PlanError::VirtualPeer);
        }
    }

    /// Adds what is measured on a device. A floor shared with an earlier device is already present.
    fn choose(
        &self,
        name: String,
        names: &[&'static dyn Experiment],
        levels: &Levels,
        cells: &mut Vec<Cell>,
    ) -> Chosen {
        let is_virtual = fabric::is_virtual(&name);
        let floors = fabric::baseline(&name);
        let first = cells.len();
        let mut floors_seen: BTreeSet<Cell> =
            cells.iter().filter(|cell| cell.experiment == FLOOR).cloned().collect();
        for cell in self.cells(names, levels, floors) {
            // The machine's own floors and noise say nothing of a simulated one.
            let meaningless = is_virtual && (cell.experiment == FLOOR || cell.twin);
            let known = cell.experiment == FLOOR && !floors_seen.insert(cell.clone());
            if !meaningless && !known {
                cells.push(cell);
            }
        }
        Chosen { name, is_virtual, cells: first..cells.len() }
    }

    fn names(&self, wrong: &mut Vec<PlanError>) -> Vec<&'static dyn Experiment> {
        if self.experiments.is_empty() {
            let more = OVERVIEW_MORE.iter().filter(|_| !self.quick);
            return OVERVIEW.iter().chain(more).filter_map(|n| find(n)).collect();
        }
        let mut found: Vec<&'static dyn Experiment> = Vec::new();
        for name in &self.experiments {
            match find(name) {
                Some(e) if found.iter().any(|f| f.name() == e.name()) => {}
                Some(e) => found.push(e),
                None => wrong.push(PlanError::Experiment {
                    name: name.clone(),
                    hint: did_you_mean(name, all().iter().map(|e| e.name())),
                    known: join(all().iter().map(|e| e.name())),
                }),
            }
        }
        found
    }

    /// Refuses what would take too long even to check.
    fn check_counts(&self) -> Result<(), Vec<PlanError>> {
        let sizes = self.sizes.as_ref().map_or(0, Vec::len);
        let counts = [("devices", self.device_names().len(), DEVICES_MAX), ("sizes", sizes, SIZES_MAX)];
        let wrong = counts.into_iter().filter(|(_, count, most)| count > most);
        let wrong: Vec<PlanError> =
            wrong.map(|(what, count, most)| PlanError::TooMany { what, count, most }).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Upper bound of the cells on `devices` devices: every level of every factor with every size.
    fn count_cells(&self, names: &[&'static dyn Experiment], levels: &Levels, devices: usize) -> usize {
        let of = |experiment: &&'static dyn Experiment| {
            let given = all_axes(*experiment).filter_map(|axis| levels.get(&axis.factor));
            let variants = experiment.variants(false).len();
            let levels = given.fold(variants, |count, list| count.saturating_mul(list.len()));
            levels.saturating_mul(self.sizes_of(*experiment).len())
        };
        let all = names.iter().map(of).fold(0, usize::saturating_add);
        all.saturating_mul(devices)
    }

    fn check_sizes(&self, wrong: &mut Vec<PlanError>) {
        let Some(sizes) = &self.sizes else { return };
        if sizes.is_empty() {
            wrong.push(PlanError::NoSizes);
        }
        let bad = sizes.iter().filter(|s| !(1..=MAX_SIZE).contains(*s));
        wrong.extend(bad.map(|size| PlanError::Size { size: *size }));
    }

    fn sizes(&self) -> Vec<u64> {
        let mut sizes = match &self.sizes {
            Some(sizes) => sizes.iter().copied().filter(|s| (1..=MAX_SIZE).contains(s)).collect(),
            None if self.quick => SIZES_QUICK.to_vec(),
            None if self.experiments.is_empty() => SIZES_OVERVIEW.to_vec(),
            None => (0..).map(|k| 1 << k).take_while(|s| *s <= LARGEST_DEFAULT).collect(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The devices by name.
    fn device_names(&self) -> Vec<String> {
        let names = if self.device.is_empty() { DEVICE } else { &self.device };
        fabric::split(names, ',').into_iter().map(str::to_owned).collect()
    }

    /// Peers that were given, sound or not.
    fn count_peers(&self) -> usize {
        self.peer.as_deref().map_or(0, |text| text.split(',').count())
    }

    /// The sizes that an experiment is measured with.
    fn sizes_of(&self, experiment: &dyn Experiment) -> Vec<u64> {
        match experiment.usual_sizes(self.quick) {
            Some(usual) if self.sizes.is_none() => usual.to_vec(),
            _ => self.sizes(),
        }
    }

    /// Every cell of the experiments, then the floors of all sizes that occur, then the twin.
    fn cells(
        &self,
        names: &[&'static dyn Experiment],
        levels: &Levels,
        floors: fabric::Baseline,
    ) -> Vec<Cell> {
        let sizes = self.sizes();
        // An overview shows every experiment and not every variant, unless some are asked for.
        let short = (self.quick || self.experiments.is_empty()) && self.only.is_empty();
        let mut cells = Vec::new();
        for experiment in names.iter().filter(|e| e.name() != FLOOR) {
            let most = self.peer.as_ref().map(|_| self.count_peers());
            let variants = match self.against {
                Some(_) => experiment.outside(short),
                None if self.is_watched() => self.watched_variants(*experiment),
                None => experiment.variants(short),
            };
            add(&mut cells, *experiment, &self.sizes_of(*experiment), (variants, most), levels);
        }
        if self.against.is_some() {
            // These results are compared with the other library, not with floors.
            return cells;
        }
        cells.retain(|cell| only::has(&cell.variant, &self.only));
        if self.is_watched() {
            // The streams have all the time.
            return cells;
        }
        match names.iter().any(|e| e.name() == FLOOR) {
            // Requested by name: includes floors that no result needs.
            true => {
                let own: BTreeSet<u64> = cells.iter().map(|c| c.size).filter(|s| *s > 0).collect();
                let own: Vec<u64> = if cells.is_empty() { sizes } else { own.into_iter().collect() };
                cells.extend(crate::floor::every_cell(&own));
            }
            false => cells.extend(crate::floor::cells(floors, &cells)),
        }
        let factors = variant(&[(factor::OP, "write"), (factor::SOURCE, "nic"), (factor::SINK, "nic")]);
        let same = |c: &&Cell| c.experiment == "latency" && c.size == SMALL && c.variant == factors;
        if let Some(cell) = cells.iter().find(same).cloned() {
            cells.push(Cell { twin: true, ..cell });
        }
        cells
    }

    fn parameters(
        &self,
        devices: &[Chosen],
        names: &[&'static dyn Experiment],
        values: &Values,
        peers: &[String],
    ) -> Vec<Parameter> {
        let own = |key: &str, value: String, given: bool| Parameter {
            key: key.to_owned(),
            value,
            unit: None,
            origin: if given { Origin::Flag } else { Origin::Default },
        };
        let second = match devices.iter().all(|d| d.is_virtual) {
            true => "a second simulated machine",
            false => "a second process of this machine",
        };
        let sizes: BTreeSet<u64> = names.iter().flat_map(|e| self.sizes_of(*e)).collect();
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let mut all = vec![
            own("experiments", join(names.iter().map(|e| e.name())), !self.experiments.is_empty()),
            own("device", join(devices.iter().map(|d| d.name.as_str())), !self.device.is_empty()),
            own(
                "peer",
                if peers.is_empty() { second.to_owned() } else { peers.join(", ") },
                !peers.is_empty(),
            ),
            Parameter { unit: Some("B".into()), ..own("sizes", sizes.join(","), self.sizes.is_some()) },
            own("quick", if self.quick { "on" } else { "off" }.to_owned(), self.quick),
            own("seed", self.seed.unwrap_or(SEED).to_string(), self.seed.is_some()),
        ];
        all.extend(self.against.iter().map(|library| own("against", library.display().to_string(), true)));
        all.extend(values.parameters());
        all
    }
}

fn add(
    cells: &mut Vec<Cell>,
    experiment: &dyn Experiment,
    sizes: &[u64],
    (variants, peers): (Vec<Variant>, Option<usize>),
    levels: &Levels,
) {
    let variants = levels::replaced(experiment, variants, levels);
    for variant in peers.map_or(variants.clone(), |most| peers::fitted(experiment, variants, most)) {
        let one = experiment.only_size(&variant).map(|s| vec![s]);
        for size in one.as_deref().unwrap_or(sizes) {
            cells.push(Cell {
                experiment: experiment.name().to_owned(),
                variant: variant.clone(),
                size: *size,
                twin: false,
            });
        }
    }
}

/// More cells or variants than results may have.
fn too_many(cells: &[Cell], devices: &[Chosen]) -> Option<PlanError> {
    let variants = |device: &Chosen| {
        let own = cells[device.cells.clone()].iter().map(|cell| (&cell.experiment, &cell.variant));
        own.collect::<BTreeSet<_>>().len()
    };
    let counts =
        [("cells", cells.len(), CELLS_MAX), ("variants", devices.iter().map(variants).sum(), VARIANTS_MAX)];
    let (what, count, most) = counts.into_iter().find(|(_, count, most)| count > most)?;
    Some(PlanError::TooMany { what, count, most })
}

/// Keeps what is sound.
fn check_set(set: &mut BTreeMap<String, String>, of: &[&'static dyn Experiment], wrong: &mut Vec<PlanError>) {
    set.retain(|name, value| {
        let key = match keys::find(name) {
            None => {
                wrong.push(levels::unknown(name, of));
                return false;
            }
            Some(key) => key,
        };
        let range = if key.takes(value) { keys::absent_cores(key, value) } else { Some(key.range()) };
        if let Some(range) = &range {
            wrong.push(PlanError::Value { key: name.clone(), value: value.clone(), range: range.clone() });
        }
        range.is_none()
    });
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
