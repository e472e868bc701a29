//! From records to a run: replays samplers, joins launches, attaches floors to results, adds noise and warnings.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::journal::{JournalError, Keeping};
use super::sample::Sample;
use crate::experiment::driver::{plan_for, replay};
use crate::experiment::{Cell, Metric, find};
use crate::floor::{FLOOR, Floors};
use crate::machine;
use crate::plan::{CheckedPlan, Chosen};
use crate::sample::{CellFloor, CellHead, Detail, Sampled, aa_noise, measurement};
use results::schema::{
    ClockInfo, ClockKind, DeviceInfo, Environment, Measurement, Missing, NoiseSummary, Origin, Parameter,
    PeerInfo, RailRates, Run, Warning,
};

/// Share of stolen time above which a warning is given.
const NOISY: f64 = 0.01;
/// Share of samples that may have been interrupted before it is worth a flag.
const SWITCHES_SHARE: f64 = 0.05;

/// What is missing and why, with the cells concerned.
type Reasons = BTreeMap<(String, String), Vec<String>>;

/// In what a launch began.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) clock: ClockInfo,
    pub(super) noise: Option<NoiseSummary>,
    /// Cores of this host's processes.
    pub(super) pinned: [Option<usize>; 2],
    /// Hosts of the others.
    pub(super) peers: Vec<PeerInfo>,
}

/// Everything measured so far.
pub(super) struct Collected<'a> {
    cells: Vec<Cell>,
    devices: Vec<Chosen>,
    parameters: Vec<Parameter>,
    keep: usize,
    /// By launch.
    samples: Vec<BTreeMap<u32, Sample>>,
    /// Where they are kept, if anywhere.
    keeping: Option<Keeping<'a>>,
    /// Cells that were given up: in how many launches, and why last.
    skipped: BTreeMap<usize, (u32, String)>,
    /// Of this time.
    environment: Environment,
    /// Of earlier times, in order.
    before: Vec<Environment>,
    launches: u32,
    /// Launches begun, of each device, those of earlier times included.
    begun: Vec<BTreeSet<u32>>,
    /// Devices that were opened this time.
    opened: BTreeSet<usize>,
    /// Cells that were measured or given up, with the launch.
    done: BTreeSet<(usize, u32)>,
    interrupted: bool,
}

impl<'a> Collected<'a> {
    pub(super) fn new(
        plan: &CheckedPlan,
        cores: [Option<usize>; 2],
        launches: u32,
        keeping: Option<Keeping<'a>>,
    ) -> Self {
        let skipped = plan.unfit.iter().map(|(index, why)| (*index, (launches, why.clone()))).collect();
        let pinned: Vec<usize> = cores.iter().flatten().copied().collect();
        let mut environment = machine::environment(&pinned);
        let mut warn = |holds: bool, what: &str, advice: &str| {
            if holds {
                environment.warnings.push(Warning { what: what.to_owned(), advice: advice.to_owned() });
            }
        };
        let one_core = plan.peers.is_empty() && cores[0] == cores[1] && !plan.is_virtual();
        warn(
            one_core,
            "client and server share one core, so they wait for each other to be scheduled",
            "allow the run two cores (taskset, cgroup), or use a peer",
        );
        warn(
            launches < results::stats::LAUNCHES_FOR_95 as u32 && !plan.is_virtual(),
            "fewer than 6 launches carry no 95 % interval",
            "take six or more (--launches 6)",
        );
        environment.devices = plan.devices.iter().map(known).collect();
        let mut all = Self {
            cells: plan.cells.clone(),
            devices: plan.devices.clone(),
            parameters: plan.parameters.clone(),
            keep: plan.values.whole("keep") as usize,
            samples: vec![BTreeMap::new(); plan.cells.len()],
            keeping: None,
            skipped,
            environment,
            before: Vec::new(),
            launches,
            begun: vec![BTreeSet::new(); plan.devices.len()],
            opened: BTreeSet::new(),
            done: BTreeSet::new(),
            interrupted: false,
        };
        if let Some(keeping) = keeping {
            all.restore(keeping);
        }
        all
    }

    /// Takes what was measured before.
    fn restore(&mut self, mut keeping: Keeping<'a>) {
        let kept = keeping.kept();
        self.before = keeping.before();
        for (index, launch, sample) in kept {
            if let Some(device) = self.devices.iter().position(|d| d.cells.contains(&index)) {
                self.begun[device].insert(launch);
                self.environment.devices[device].clock = sample.clock.kind;
            }
            self.samples[index].insert(launch, sample);
            self.done.insert((index, launch));
        }
        for (index, why) in keeping.never() {
            if let Entry::Vacant(entry) = self.skipped.entry(index) {
                entry.insert((self.launches, why));
                self.done.extend((0..self.launches).map(|launch| (index, launch)));
            }
        }
        self.keeping = Some(keeping);
    }

    /// Whether measurements are kept for another run.
    pub(super) fn keeps(&self) -> bool {
        self.keeping.is_some()
    }

    /// Whether a cell needs no measuring in a launch: it was measured before, or cannot be.
    pub(super) fn is_done(&self, index: usize, launch: u32) -> bool {
        self.keeping.as_ref().is_some_and(|k| k.is_done(index, launch))
    }

    /// Cells that no launch can measure, as is known from earlier times.
    pub(super) fn never(&self) -> Vec<usize> {
        self.keeping.iter().flat_map(|k| k.never()).map(|(index, _)| index).collect()
    }

    /// Makes sure that everything is kept that can be; why not, if it cannot.
    pub(super) fn sync(&mut self) -> Result<(), JournalError> {
        let Some(keeping) = &mut self.keeping else { return Ok(()) };
        if !self.opened.is_empty() {
            keeping.surroundings(&self.environment);
        }
        keeping.sync()
    }

    /// A launch of a device has begun; whether it is the device's first this time.
    pub(super) fn begun(
        &mut self,
        (device, launch): (usize, u32),
        Start { clock, noise, pinned, peers }: Start,
    ) -> bool {
        if self.opened.is_empty() {
            self.environment.clock = clock;
            self.environment.noise_before = noise;
            self.environment.pinned_cores = pinned.iter().flatten().map(|c| *c as u32).collect();
            self.environment.peers = peers;
        }
        if let Some(begun) = self.begun.get_mut(device) {
            begun.insert(launch);
        }
        if let Some(info) = self.environment.devices.get_mut(device) {
            info.clock = clock.kind;
        }
        let first = self.opened.insert(device);
        // Persisted at the first measurement, so that the environment survives a crash together with the results.
        if let (Some(keeping), true) = (&mut self.keeping, first) {
            keeping.surroundings(&self.environment);
        }
        first
    }

    /// What a device says of itself.
    pub(super) fn noted(&mut self, device: usize, notes: &[String]) {
        if let Some(info) = self.environment.devices.get_mut(device) {
            info.notes = notes.to_vec();
        }
    }

    /// A launch has ended in order.
    pub(super) fn done(&mut self, noise: Option<NoiseSummary>) {
        self.environment.noise_after = noise;
    }

    /// Records a cell that was measured in a launch, unless it was interrupted.
    pub(super) fn measured(&mut self, index: usize, launch: u32, sample: Sample) {
        // Half a cell is none: its samples would be those of the cold part.
        if sample.record.interrupted {
            return;
        }
        if let Some(samples) = self.samples.get_mut(index) {
            if let Some(keeping) = &mut self.keeping {
                keeping.measured(index, launch, &sample);
            }
            samples.insert(launch, sample);
            self.done.insert((index, launch));
        }
    }

    /// Records that a cell is not measured in these launches: in the first it failed or was dropped, the others need not
    /// try. `never` if no later run needs to try either.
    pub(super) fn skipped(&mut self, index: usize, why: String, (never, launches): (bool, Range<u32>)) {
        if let (Some(keeping), true) = (&mut self.keeping, never) {
            keeping.cannot(index, &why);
        }
        self.done.extend(launches.map(|launch| (index, launch)));
        let times = self.skipped.get(&index).map_or(0, |(times, _)| *times);
        self.skipped.insert(index, (times + 1, why));
    }

    /// Records that the run was interrupted.
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// The number of cells measured or skipped, over all launches. A cell that is measured again in a launch, or dropped
    /// after it was measured, counts once.
    pub(super) fn count(&self) -> u64 {
        self.done.len() as u64
    }

    /// The reason why nothing requested was measured. Floors for comparison do not count.
    pub(super) fn in_vain(&self, plan: &CheckedPlan) -> Option<String> {
        let asked = |i: &usize| plan.floors_asked || self.cells[*i].experiment != FLOOR;
        if (0..self.cells.len()).filter(asked).any(|i| !self.samples[i].is_empty()) {
            return None;
        }
        let (index, (_, why)) = self.skipped.iter().find(|(i, _)| asked(i))?;
        Some(format!("nothing that was asked for can be measured; {}: {why}", self.cells[*index]))
    }

    /// The run, with all that has been measured.
    pub(super) fn finish(mut self) -> Run {
        let analysed = self.analyse();
        let floors: Vec<Measurement> = self
            .result_cells()
            .filter(|i| self.cells[*i].experiment == FLOOR)
            .filter_map(|i| self.result(i, &analysed[i], &Floors::default()))
            .collect();
        let table = Floors::new(&floors);
        let mut results: Vec<Measurement> = self
            .result_cells()
            .filter(|i| self.cells[*i].experiment != FLOOR)
            .filter_map(|i| self.result(i, &analysed[i], &table))
            .collect();
        results.extend(floors);
        self.recall();
        self.environment.warnings.extend(weaknesses(&self.environment));
        self.compare_twins(&analysed);
        let missing = self.missing();
        self.explain_skipped();
        self.add_derived();
        Run { environment: self.environment, parameters: self.parameters, results, missing, ..Run::default() }
    }

    /// Sets the environment to the combined one of all launches with measurements: a launch without any is ignored,
    /// and one with only simulations is not evidence about the machine.
    fn recall(&mut self) {
        let mut times = std::mem::take(&mut self.before);
        if !self.opened.is_empty() {
            times.push(self.environment.clone());
        }
        let real: Vec<&Environment> = times.iter().filter(|e| e.clock.kind != ClockKind::Virtual).collect();
        let Some(first) = real.first().copied().or(times.first()) else { return };
        let warnings = std::mem::take(&mut self.environment.warnings);
        let mut devices = std::mem::take(&mut self.environment.devices);
        for device in &mut devices {
            let known = times.iter().rev().flat_map(|e| &e.devices).filter(|d| d.name == device.name);
            device.notes = known.map(|d| d.notes.clone()).find(|notes| !notes.is_empty()).unwrap_or_default();
        }
        let noise_after = real.last().and_then(|last| last.noise_after);
        self.environment = Environment { noise_after, devices, warnings, ..first.clone() };
        if real.len() > 1 {
            let what = format!(
                "parts of this run were measured at other times, the first from {} on, as its journal says: what \
                 disturbed the machine then is not what does now",
                first.date
            );
            let advice = "measure all at once (--fresh) where effects are small".to_owned();
            self.environment.warnings.push(Warning { what, advice });
        }
    }

    /// The device of a cell.
    fn device_of(&self, index: usize) -> &str {
        let found = self.devices.iter().find(|d| d.cells.contains(&index));
        found.map_or("", |device| device.name.as_str())
    }

    /// The cells that become results.
    fn result_cells(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.cells.len()).filter(|i| !self.cells[*i].twin)
    }

    /// Replays every sampler, on all cores: nothing is being measured any more.
    fn analyse(&mut self) -> Vec<Vec<Sampled>> {
        let samples = std::mem::take(&mut self.samples);
        let cells = &self.cells;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(16);
        let one = |i: usize| -> Vec<Sampled> {
            let experiment = find(&cells[i].experiment);
            samples[i].values().filter_map(|s| replayed(experiment?, &cells[i], s)).collect()
        };
        let mut all: Vec<Vec<Sampled>> = Vec::new();
        all.resize_with(cells.len(), Vec::new);
        std::thread::scope(|scope| {
            let part = |first: usize| (first..cells.len()).step_by(threads);
            let jobs: Vec<_> = (0..threads)
                .map(|t| scope.spawn(move || part(t).map(|i| (i, one(i))).collect::<Vec<_>>()))
                .collect();
            // A thread that panicked has printed why; its cells are missing, the others are kept.
            for (i, found) in jobs.into_iter().flat_map(|j| j.join().unwrap_or_default()) {
                all[i] = found;
            }
        });
        self.samples = samples;
        all
    }

    /// The result of a cell from its launches.
    fn result(&self, index: usize, launches: &[Sampled], floors: &Floors) -> Option<Measurement> {
        let cell = &self.cells[index];
        let metric = find(&cell.experiment)?.metric(&cell.variant);
        let records = &self.samples[index];
        let messages = records.values().next()?.record.messages.max(1);
        let head = CellHead {
            experiment: cell.experiment.clone(),
            device: if cell.experiment == FLOOR { "machine" } else { self.device_of(index) }.to_owned(),
            variant: cell.variant.clone(),
            size_bytes: cell.size,
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
        };
        let floor: Option<CellFloor> =
            floors.floor_of_cell(fabric::baseline(self.device_of(index)), cell, &metric);
        let detail = Detail { samples: self.keep, ..Detail::default() };
        let map = |ns: f64| metric.value(ns * 1e3, messages, cell.size);
        let mut result = measurement(head, launches, map, floor, &detail)?;
        result.batch = result.batch.saturating_mul(messages);
        // A launch without samples has no entry.
        if records.len() == result.launches.len() {
            for (launch, sample) in result.launches.iter_mut().zip(records.values()) {
                launch.intervals.clone_from(&sample.record.intervals);
            }
        }
        result.note = note(records, &metric);
        if result.clock == ClockKind::Virtual {
            // No noise, so no interval: a second run gives the same.
            result.ci95 = Some([result.median; 2]);
            result.ci95_reason = Some("virtual time is exact".to_owned());
        }
        Some(result)
    }

    /// Compares cells that were measured twice in every launch: what differs is noise.
    fn compare_twins(&mut self, analysed: &[Vec<Sampled>]) {
        let medians = |i: usize| analysed[i].iter().map(Sampled::median_ns).collect::<Vec<_>>();
        for (device, info) in self.devices.iter().zip(&mut self.environment.devices) {
            let cells = &self.cells[device.cells.clone()];
            let Some(twin) = cells.iter().position(|c| c.twin) else { continue };
            let wanted = Cell { twin: false, ..cells[twin].clone() };
            let Some(original) = cells.iter().position(|c| *c == wanted) else { continue };
            let first = device.cells.start;
            info.aa_noise = aa_noise(&medians(first + original), &medians(first + twin));
        }
        let all = self.environment.devices.iter().filter_map(|info| info.aa_noise);
        self.environment.aa_noise = all.max_by(|a, b| a.floor.total_cmp(&b.floor));
    }

    /// Cells without a sample, with the reason.
    fn missing(&self) -> Vec<Missing> {
        let lost = self.skipped.iter().filter(|(i, _)| self.samples[**i].is_empty() && !self.cells[**i].twin);
        let one = |(index, (_, why)): (&usize, &(u32, String))| {
            let cell = &self.cells[*index];
            let metric = find(&cell.experiment).map(|e| e.metric(&cell.variant).name);
            Missing {
                experiment: cell.experiment.clone(),
                device: self.device_of(*index).to_owned(),
                variant: cell.variant.clone(),
                size_bytes: cell.size,
                metric: metric.unwrap_or_default().to_owned(),
                why: why.clone(),
            }
        };
        lost.map(one).collect()
    }

    /// Warns about cells that were not measured in all launches, one warning for each reason.
    fn explain_skipped(&mut self) {
        let mut reasons = Reasons::new();
        for (index, (times, why)) in &self.skipped {
            let lost = match self.samples[*index].is_empty() {
                true => "not measured".to_owned(),
                false => format!("missing from {times} of {} launches", self.launches),
            };
            let kind = (lost, why.clone());
            let on =
                if self.devices.len() > 1 { format!("{}: ", self.device_of(*index)) } else { String::new() };
            reasons.entry(kind).or_default().push(format!("{on}{}", self.cells[*index]));
        }
        for ((lost, why), cells) in reasons {
            let more = if cells.len() > 1 { format!(" and {} more", cells.len() - 1) } else { String::new() };
            let advice = match lost.as_str() {
                "not measured" => "leave it out, or use a device or machine that can",
                _ => "measure it again; if it fails again, see `nicety doctor`",
            };
            self.environment.warnings.push(Warning {
                what: format!("{lost}: {}{more}: {why}", cells[0]),
                advice: advice.to_owned(),
            });
        }
    }

    /// Adds parameters that follow from others or from the machine.
    fn add_derived(&mut self) {
        let mut add = |key: &str, value: String| {
            self.parameters.push(Parameter {
                key: key.to_owned(),
                value,
                unit: None,
                origin: Origin::Derived,
            });
        };
        let bursts: BTreeSet<(u64, u64)> = self
            .samples
            .iter()
            .enumerate()
            .filter_map(|(i, s)| Some((self.cells[i].size, s.values().next()?.record.messages)))
            .filter(|(_, messages)| *messages > 1)
            .collect();
        if !bursts.is_empty() {
            let text: Vec<String> = bursts.iter().map(|(size, n)| format!("{size} B: {n}")).collect();
            add("burst-messages", text.join(", "));
        }
        let begun: Vec<String> = self.begun.iter().map(|launches| launches.len().to_string()).collect();
        let of = |d: &Chosen| if d.is_virtual { 1 } else { self.launches };
        let of: Vec<String> = self.devices.iter().map(|d| of(d).to_string()).collect();
        add("launches-begun", format!("{} of {}", begun.join(", "), of.join(", ")));
        if self.interrupted {
            add("interrupted", "yes: only finished cells are in the results".to_owned());
        }
    }
}

/// What weakens numbers that were measured in these surroundings.
fn weaknesses(env: &Environment) -> Vec<Warning> {
    if env.clock.kind == ClockKind::Virtual {
        return Vec::new();
    }
    let mut all: Vec<(String, &str)> = Vec::new();
    if env.pinned_cores.is_empty() {
        let advice = "pin them, or results change with the scheduler's mood";
        all.push(("the processes were not pinned".to_owned(), advice));
    }
    if let Some(governor) = env.governor.as_deref().filter(|governor| *governor != "performance") {
        all.push((format!("the frequency governor is {governor}"), "set it to performance"));
    }
    for (when, noise) in [("before", env.noise_before), ("after", env.noise_after)] {
        if let Some(noise) = noise.filter(|noise| noise.stolen > NOISY) {
            let what = format!("other work took {:.1} % of the time {when} the run", 100.0 * noise.stolen);
            all.push((what, "stop other work, or leave the system a core"));
        }
    }
    for peer in env.peers.iter().filter(|peer| peer.nicety_version != env.nicety_version) {
        let what =
            format!("{} runs nicety {}, this is {}", peer.address, peer.nicety_version, env.nicety_version);
        all.push((what, "install the same on both sides"));
    }
    all.into_iter().map(|(what, advice)| Warning { what, advice: advice.to_owned() }).collect()
}

/// The rates of a modelled device's rails; `None` for devices that are no models.
fn rates(rails: &[String]) -> Option<RailRates> {
    let machine = fabric::machine(rails.first()?).ok()?.params;
    Some(RailRates { link: machine.link.rate_mbps, card: machine.bus.width_bytes * machine.bus.clock_mhz })
}

/// What is known of a device before it is opened.
fn known(device: &Chosen) -> DeviceInfo {
    let clock = if device.is_virtual { ClockKind::Virtual } else { ClockKind::default() };
    // A device without a name has none; that it does not open is said when it is measured.
    let rails = fabric::rails_of(&device.name).unwrap_or_default();
    let rail_rates = rates(&rails);
    DeviceInfo { name: device.name.clone(), clock, rails, rail_rates, ..DeviceInfo::default() }
}

/// A launch's samples of a cell, from what the worker has recorded.
fn replayed(experiment: &dyn crate::experiment::Experiment, cell: &Cell, sample: &Sample) -> Option<Sampled> {
    let plan = plan_for(experiment, &cell.variant, &sample.sampling.plan(sample.clock));
    let mut found = replay(&sample.record, plan)?;
    // Of fewer the median knows nothing; the first operation and the pilots had their share too.
    if sample.switches as f64 > SWITCHES_SHARE * found.n as f64 {
        found.flags.push(format!("context switches: {}", sample.switches));
    }
    Some(found)
}

/// What is special about a result, over its launches; what is timed, where the name does not say it.
fn note(samples: &BTreeMap<u32, Sample>, metric: &Metric) -> Option<String> {
    let notes: BTreeSet<&str> = samples.values().filter_map(|s| s.record.note.as_deref()).collect();
    let mut all = vec![metric.about.to_owned()];
    all.extend(notes.into_iter().map(str::to_owned));
    Some(all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a run that has measured only the floors of its results is no success. Method: every cell but the floors
    /// is given up, floors are measured, then one cell after all.
    #[test]
    fn floors_alone_are_measured_in_vain() {
        let of = |experiment: &str| crate::plan::Plan {
            experiments: vec![experiment.to_owned()],
            sizes: Some(vec![8]),
            quick: true,
            ..crate::plan::Plan::default()
        };
        let sample = || Sample {
            clock: ClockInfo::default(),
            sampling: crate::launch::world::plan(1).into(),
            record: crate::experiment::driver::Record::default(),
            switches: 0,
        };
        let plan = of("latency").check().expect("sound");
        let mut all = Collected::new(&plan, [None, None], 1, None);
        for (index, cell) in plan.cells.iter().enumerate() {
            match cell.experiment == FLOOR {
                true => all.measured(index, 0, sample()),
                false => all.skipped(index, "no way".to_owned(), (true, 0..1)),
            }
        }
        let why = all.in_vain(&plan).expect("in vain");
        assert!(why.contains("can be measured; latency") && why.ends_with("no way"), "{why}");
        all.measured(0, 0, sample());
        assert_eq!(all.in_vain(&plan), None);
        let plan = of(FLOOR).check().expect("sound");
        let mut floors = Collected::new(&plan, [None, None], 1, None);
        floors.measured(0, 0, sample());
        assert_eq!(floors.in_vain(&plan), None, "they were asked for");
    }

    #[test]
    fn cell_measured_twice_and_then_dropped_counts_once_for_each_launch() {
        let plan = crate::plan::Plan { quick: true, ..Default::default() }.check().expect("sound");
        let mut all = Collected::new(&plan, [None, None], 6, None);
        let sample = || Sample {
            clock: ClockInfo::default(),
            sampling: crate::launch::world::plan(1).into(),
            record: crate::experiment::driver::Record::default(),
            switches: 0,
        };
        all.measured(0, 0, sample());
        all.measured(0, 0, sample());
        assert_eq!(all.count(), 1);
        all.skipped(0, "dropped".to_owned(), (false, 0..6));
        all.skipped(1, "dropped".to_owned(), (false, 1..6));
        assert_eq!(all.count(), 6 + 5);
    }

    /// Goal: whatever weakens the numbers is in the file, so that readers see it without our report.
    #[test]
    fn a_quiet_pinned_machine_has_no_weakness_and_others_have_advice() {
        let quiet = Environment {
            pinned_cores: vec![0, 1],
            governor: Some("performance".to_owned()),
            nicety_version: "1".to_owned(),
            ..Environment::default()
        };
        assert_eq!(weaknesses(&quiet), []);
        let peer = PeerInfo { address: "10.0.0.2:7471".to_owned(), ..PeerInfo::default() };
        let weak = Environment {
            pinned_cores: Vec::new(),
            governor: Some("powersave".to_owned()),
            noise_after: Some(NoiseSummary { stolen: 0.2, ..NoiseSummary::default() }),
            peers: vec![peer],
            ..quiet.clone()
        };
        let all = weaknesses(&weak);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(
            all[2].what.contains("20.0 % of the time after") && all[3].what.contains("10.0.0.2:7471 runs")
        );
        let simulated = ClockInfo { kind: ClockKind::Virtual, ..ClockInfo::default() };
        assert_eq!(weaknesses(&Environment { clock: simulated, ..weak }), []);
    }

    /// Goal: what a report says of a device's rails is in the result, so that nothing is opened to read it.
    #[test]
    fn a_result_says_what_the_rails_are_and_could_carry() {
        let of = |name: &str, is_virtual| known(&Chosen { name: name.to_owned(), is_virtual, cells: 0..0 });
        let card = of("model:connectx-multihca", true);
        assert_eq!(card.rails, ["model:connectx-multihca@0", "model:connectx-multihca@1"]);
        let rates = card.rail_rates.expect("a machine file");
        assert!(rates.link > 0.0 && rates.card > 0.0, "{rates:?}");
        let real = of("rails(iwarp@10.0.0.1,iwarp@10.1.0.1)", false);
        assert_eq!((real.rails.len(), real.rail_rates), (2, None));
        assert_eq!(of("shm", false).rails, ["shm"]);
    }
}
