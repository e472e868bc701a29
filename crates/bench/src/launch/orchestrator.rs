//! [`run`]: launches one after the other, until all are done, somebody stops it, or something breaks.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use verbs::host::Time;
use verbs::host::real::allowed_cores;

use super::collect::{Collected, Start};
use super::crew::{Worker, WorkerEvent, wait_for_event};
use super::deadline::{Deadline, Pace};
use super::job::{ClientJob, Job, News, Sampling};
use super::journal::{Journal, Keeping};
use super::sample::Sample;
use super::{BenchError, CellEvent, CellState, Moved, Progress, WorkerCommand};
use crate::experiment::driver::Record;
use crate::experiment::{Cell, find};
use crate::machine::{now, since};
use crate::plan::{CheckedPlan, SHARE_MIN, Time as PlanTime, WALL};
use crate::sample::{Calibration, interleaved};
use crate::token::Token;
use results::schema::{ClockInfo, Run};
use results::stats::{LAUNCHES_FOR_95, median};

/// Interval between two checks of the stop flag.
const TICK: Duration = Duration::from_millis(100);
/// For a worker to start, calibrate and open its device.
const START: Duration = Duration::from_secs(30);
/// For the client to end in order once it was asked to.
const STOP: Duration = Duration::from_secs(5);
/// For the client to say what it saw, once another process has died.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// For another process's end to be reported, once the client has failed.
const A_MOMENT: Duration = Duration::from_millis(300);
/// Readings of a record that the displayed value is taken from.
const SHOWN: usize = 64;

/// Measures a plan with workers of this very program.
///
/// # Errors
/// [`BenchError`] with what was measured until then.
pub fn run(plan: &CheckedPlan, progress: &mut dyn Progress, stop: &AtomicBool) -> Result<Run, BenchError> {
    run_with(&WorkerCommand::own()?, plan, progress, stop)
}

/// As [`run`], with another program as worker.
///
/// Launches of several devices take turns, each round in another order, so that what disturbs the machine for a while
/// disturbs all of them alike. Modelled cards come last: simulating takes all cores.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    command: &WorkerCommand,
    plan: &CheckedPlan,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Run, BenchError> {
    run_keeping(command, plan, None, progress, stop)
}

/// As [`run`], but what the journal has is not measured again, and what is measured is added to it.
///
/// # Errors
/// As [`run`].
pub fn run_keeping(
    command: &WorkerCommand,
    plan: &CheckedPlan,
    journal: Option<&mut Journal>,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Run, BenchError> {
    let real: Vec<usize> = (0..plan.devices.len()).filter(|d| !plan.devices[*d].is_virtual).collect();
    let launches = if real.is_empty() { 0 } else { plan.launches() };
    let simulated: usize = plan.devices.iter().filter(|d| d.is_virtual).map(|d| plan.fitting(d)).sum();
    progress.plan(u64::from(launches) * plan.real_cells() as u64 + simulated as u64);
    within_reach(plan)?;
    let cores = if real.is_empty() { [None, None] } else { choose_cores(plan) };
    let mut all = Collected::new(plan, cores, plan.launches(), journal.map(|j| Keeping::new(j, plan)));
    let launching =
        Launching { command, plan, cores, launches, progress: &mut *progress, stop, all: &mut all };
    let done = launching.all(&real);
    let synced = all.sync();
    let done = done.and(synced.map_err(BenchError::from));
    let virtuals = (0..plan.devices.len()).filter(|d| plan.devices[*d].is_virtual);
    let done = done.and_then(|()| {
        for device in virtuals {
            if !stop.load(Ordering::Relaxed) {
                super::simulated::run(plan, device, &mut all, progress, stop)?;
                all.sync()?;
            }
        }
        Ok(())
    });
    let stopped = stop.load(Ordering::Relaxed);
    if done.is_err() || stopped {
        all.interrupt();
    }
    // Floors alone are no result.
    if let (Ok(()), false, Some(why)) = (&done, stopped, all.in_vain(plan)) {
        return Err(BenchError::new(why));
    }
    match done {
        Ok(()) => Ok(all.finish()),
        Err(BenchError { what, .. }) => {
            let partial = all.finish();
            Err(BenchError { what: kept(what, &partial), partial: Some(Box::new(partial)) })
        }
    }
}

/// With what becomes of the results until then, where there are any.
fn kept(what: String, partial: &Run) -> String {
    if partial.results.is_empty() { what } else { format!("{what}; what was measured before is kept") }
}

/// Whether every device reaches every peer that there is; where one has no address, calling it says so.
fn within_reach(plan: &CheckedPlan) -> Result<(), BenchError> {
    let Some(device) = plan.devices.iter().find(|d| fabric::is_local(&d.name)) else { return Ok(()) };
    let elsewhere = |peer: &&String| {
        peer.to_socket_addrs().is_ok_and(|mut addrs| addrs.all(|addr| !addr.ip().is_loopback()))
    };
    match plan.peers.iter().find(elsewhere) {
        Some(peer) => Err(BenchError::new(format!(
            "{} reaches processes of this machine only, at loopback addresses, and {peer} is none; take --device iwarp",
            device.name
        ))),
        None => Ok(()),
    }
}

/// What the launches of a run have in common.
struct Launching<'a, 'k> {
    command: &'a WorkerCommand,
    plan: &'a CheckedPlan,
    cores: [Option<usize>; 2],
    launches: u32,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
    all: &'a mut Collected<'k>,
}

impl Launching<'_, '_> {
    /// Runs every launch of the given devices; returns the error if one failed.
    fn all(mut self, devices: &[usize]) -> Result<(), BenchError> {
        let (plan, launches) = (self.plan, self.launches);
        let orders: Vec<Vec<usize>> = devices
            .iter()
            .map(|d| interleaved(plan.devices[*d].cells.len(), launches as usize, plan.seed))
            .collect();
        let turns = interleaved(devices.len(), launches as usize, plan.seed);
        let (began, mut last) = (now(), Duration::ZERO);
        let mut run = Schedule {
            began,
            share: 1.0,
            pace: None,
            deadline: Deadline::of(plan),
            never: plan.unfit.keys().copied().chain(self.all.never()).collect(),
        };
        for (number, turn) in turns.chunks(devices.len().max(1)).enumerate() {
            let number = number as u32;
            if number > 0 {
                let took = since(began) - last;
                last = since(began);
                if !plan.values.is_set("launches")
                    && is_enough(plan.values.real("budget"), number, (last, took))
                {
                    self.progress.note(&given_up(number, launches));
                    return Ok(());
                }
                self.share_time(&mut run, number, (last, took));
            }
            for which in turn {
                let device = devices[*which];
                let Range { start, end } = plan.devices[device].cells;
                let (cells, at) = (end - start, number as usize);
                let order = orders[*which][at * cells..(at + 1) * cells].iter().map(|i| start + i);
                let order: Vec<usize> = order.collect();
                match self.launch(&mut run, (number, device, devices.len()), &order)? {
                    After::GoesOn => {}
                    After::Stopped => return Ok(()),
                    After::OutOfTime => {
                        self.progress.note(&given_up(number, launches));
                        return Ok(());
                    }
                }
            }
            let hopeless = plan.devices.len() == devices.len() && self.all.in_vain(plan).is_some();
            if hopeless {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Decides how much the next launch may sample, after the last one took `took` out of a total of `gone`; after the first, says how long all
    /// will take.
    fn share_time(&mut self, run: &mut Schedule, number: u32, (gone, took): (Duration, Duration)) {
        let (budget, launches) = (self.plan.values.real("budget"), self.launches);
        let share = next_share(budget, (number, launches), run.share, (gone, took));
        // Of what was measured before, it is not known how long it took.
        if number == 1 && !self.all.keeps() {
            let all = forecast(budget, (number, launches), [run.share, share], (gone, took));
            let all = run.deadline.as_ref().map_or(all, |deadline| deadline.cap(all));
            let said = forecast_remark(PlanTime::of(self.plan).seconds, took, all);
            let warning = if run.deadline.is_none() { overrun(budget, launches, took) } else { None };
            warning.or(said).iter().for_each(|text| self.progress.note(text));
        }
        run.share = share;
    }

    /// Launch `number` of a device, of so many devices. If the first launch of a run is cut, as the machine is too slow for all cells, the
    /// cells that stay are measured by another.
    fn launch(
        &mut self,
        run: &mut Schedule,
        (number, device, devices): (u32, usize, usize),
        order: &[usize],
    ) -> Result<After, BenchError> {
        let (plan, launches) = (self.plan, self.launches);
        loop {
            self.drop_cells(run, number, devices);
            let is_due = |i: &usize| !run.never.contains(i) && !self.all.is_done(*i, number);
            let order: Vec<usize> = order.iter().copied().filter(is_due).collect();
            if order.is_empty() {
                return Ok(After::GoesOn);
            }
            let own = |i: &&usize| {
                plan.device_of(**i).is_some_and(|d| !d.is_virtual) && !plan.unfit.contains_key(i)
            };
            let sharing = plan.real_cells() - run.never.iter().filter(own).count();
            let limit = run.deadline.as_ref().map(|deadline| Limit {
                began: run.began,
                after: deadline.limit(run.pace.is_some()),
                patience: deadline.stop_patience(),
            });
            let mut launch = Launch {
                command: self.command,
                plan,
                device,
                cores: self.cores,
                number,
                share: run.share,
                sharing,
                limit,
                progress: &mut *self.progress,
                stop: self.stop,
                all: &mut *self.all,
                never: &mut run.never,
            };
            let done = launch.run(&order);
            if self.stop.load(Ordering::Relaxed) && done.is_ok() {
                return Ok(After::Stopped);
            }
            let on = named(plan, device).map_or_else(String::new, |name| format!(" on {name}"));
            self.all.sync()?;
            let pace = done.map_err(|e| {
                BenchError::new(format!("launch {} of {launches}{on}: {}", number + 1, advised(e.what)))
            })?;
            let (cut, before) = (pace.cut, run.pace.take());
            let is_known = before.is_some();
            run.pace = Some(pace.since(before));
            match (cut, is_known) {
                (false, _) => return Ok(After::GoesOn),
                (true, false) => {}
                (true, true) => return Ok(After::OutOfTime),
            }
        }
    }

    /// Drops the cells for which there is no time, and says so.
    fn drop_cells(&mut self, run: &mut Schedule, number: u32, devices: usize) {
        let (Some(deadline), Some(pace)) = (&run.deadline, &run.pace) else { return };
        let dropped = deadline.dropped((number, devices), since(run.began), (pace, run.share), &run.never);
        if dropped.is_empty() {
            return;
        }
        self.progress.note(&deadline.remark(dropped.len(), self.plan.real_cells()));
        for index in dropped {
            run.never.insert(index);
            self.all.skipped(index, deadline.reason(), (false, number..self.launches));
        }
    }
}

/// How far the launches of a run are, and what the next ones may take.
struct Schedule {
    began: Time,
    /// The share of its time that a launch may sample.
    share: f64,
    /// Of the last launch.
    pace: Option<Pace>,
    deadline: Option<Deadline>,
    /// Cells that no further launch measures.
    never: BTreeSet<usize>,
}

/// What to do after a launch.
enum After {
    GoesOn,
    Stopped,
    OutOfTime,
}

/// The share of its time that launch `number` of `launches` may sample, so that the run ends in time: the previous
/// launch had `share`, and took `took` out of a total of `gone`. Everything else, such as set-up and comparing
/// contents, takes as long again.
fn next_share(
    budget: f64,
    (number, launches): (u32, u32),
    share: f64,
    (gone, took): (Duration, Duration),
) -> f64 {
    let whole = budget / f64::from(launches);
    let rest = (took.as_secs_f64() - share * whole).max(0.0);
    let left = (WALL * budget - gone.as_secs_f64()) / f64::from(launches - number);
    ((left - rest) / whole).clamp(SHARE_MIN, 1.0)
}

/// Seconds of the whole run, from the launches so far: those to come take as long as the last one did, which sampled `shares[0]` of its
/// time, with `shares[1]` instead.
fn forecast(
    budget: f64,
    (number, launches): (u32, u32),
    shares: [f64; 2],
    (gone, took): (Duration, Duration),
) -> f64 {
    let [sampled, sampling] = shares.map(|share| share * budget / f64::from(launches));
    let took = took.as_secs_f64();
    let each = if took < sampled { took.min(sampling) } else { took - sampled + sampling };
    gone.as_secs_f64() + f64::from(launches - number) * each
}

/// Corrects the estimate of the plan after the first launch, where the run takes longer by more than a third.
fn forecast_remark(estimate: f64, took: Duration, all: f64) -> Option<String> {
    (all > 4.0 / 3.0 * estimate).then(|| {
        let took = took.as_secs_f64();
        format!("the first launch took {took:.1} s, so all take about {all:.0} s, more than the estimate of {estimate:.0} s")
    })
}

/// Whether this number of launches is enough: they support an interval, and another launch like the last, which took
/// `took` out of a total of `gone`, would exceed the run's time limit.
fn is_enough(budget: f64, launches: u32, (gone, took): (Duration, Duration)) -> bool {
    launches >= LAUNCHES_FOR_95 as u32 && (gone + took).as_secs_f64() > WALL * budget
}

/// The warning after the first launch, which took `took`, if as many launches as an interval needs cannot end in
/// time: set-up and the fewest samples take as long in each.
fn overrun(budget: f64, launches: u32, took: Duration) -> Option<String> {
    let sampling = (1.0 - SHARE_MIN) * budget / f64::from(launches);
    let each = (took.as_secs_f64() - sampling).max(0.0);
    let least = took.as_secs_f64() + f64::from(launches.min(LAUNCHES_FOR_95 as u32) - 1) * each;
    (least > WALL * budget).then(|| {
        format!(
            "the budget of {budget:.0} s cannot be kept: the first launch took {:.0} s, as other work has the cores, and all \
             will take {least:.0} s or more; Ctrl-C ends the run and keeps what was measured",
            took.as_secs_f64()
        )
    })
}

/// The remark when no further launches are started because the time is up.
fn given_up(done: u32, launches: u32) -> String {
    let when = if done == 0 { "in the first".to_owned() } else { format!("after {done}") };
    format!(
        "ending {when} of {launches} launches: the machine is too busy for more in the time there is; --launches \
         {launches} insists"
    )
}

/// How another process ended, if one did: the client may have noticed it first.
fn ended(others: &mut [Worker]) -> Option<String> {
    if others.is_empty() {
        return None;
    }
    let (who, event) = wait_for_event(others, A_MOMENT)?;
    loss(others[who].name(), event)
}

/// Why a process other than the client is lost, if what it did means that.
fn loss(name: &str, event: WorkerEvent) -> Option<String> {
    match event {
        WorkerEvent::Lost(how) => Some(how),
        WorkerEvent::News(News::Failed { why, .. }) => Some(format!("the {name} process says: {why}")),
        // It ends before the client, which measures the noise after that: under load for seconds.
        WorkerEvent::Finished | WorkerEvent::News(_) => None,
    }
}

/// With what to do, where it does not say.
fn advised(what: String) -> String {
    let advice = "measure again, and see `nicety doctor` if it fails again";
    if what.contains("; ") { what } else { format!("{what}; {advice}") }
}

/// The cores of client and server.
fn choose_cores(plan: &CheckedPlan) -> [Option<usize>; 2] {
    let allowed = allowed_cores();
    match plan.values.cores() {
        Some(cores) => cores.map(Some),
        None => [allowed.first().copied(), allowed.get(1).or(allowed.first()).copied()],
    }
}

struct Launch<'a, 'k> {
    command: &'a WorkerCommand,
    plan: &'a CheckedPlan,
    /// Of the plan's.
    device: usize,
    cores: [Option<usize>; 2],
    number: u32,
    /// Of its time for sampling.
    share: f64,
    /// Cells of all devices that share the time.
    sharing: usize,
    limit: Option<Limit>,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
    all: &'a mut Collected<'k>,
    /// Cells that cannot be measured in any launch.
    never: &'a mut BTreeSet<usize>,
}

/// When a launch is cut, once it has measured something.
#[derive(Clone, Copy)]
struct Limit {
    /// When the run began.
    began: Time,
    /// How long after that the launch is cut.
    after: Duration,
    /// How long the client may then take to end in order.
    patience: Duration,
}

impl Limit {
    fn is_reached(&self) -> bool {
        since(self.began) > self.after
    }
}

/// How far a launch is.
struct State {
    clock: ClockInfo,
    sampling: Sampling,
    current: Option<usize>,
    /// A process other than the client that has gone, and when.
    lost: Option<(String, Time)>,
    asked: Option<Time>,
    silent_since: Time,
    began: Time,
    /// When the current cell began.
    cell_began: Time,
    pace: Pace,
}

impl State {
    /// The current cell has ended.
    fn has_ended(&mut self, index: usize) {
        self.pace.cells.insert(index, since(self.cell_began));
        self.current = None;
    }
}

impl Launch<'_, '_> {
    /// Measures all cells once; returns early if it is stopped, or cut at its limit.
    fn run(&mut self, order: &[usize]) -> Result<Pace, BenchError> {
        let began = now();
        let own = self.plan.peers.is_empty();
        let token = if own { Some(secret()?) } else { self.plan.token.clone() };
        let mut crew = Vec::new();
        let mut connect = Vec::new();
        connect.extend(self.plan.peers.iter().cloned());
        if let (true, Some(token)) = (own, &token) {
            self.add_server("server", self.cores[1], token, &mut crew, &mut connect)?;
            let ranks = |c: &Cell| find(&c.experiment).map(|e| e.ranks(&c.variant));
            for rank in 2..order.iter().filter_map(|i| ranks(&self.plan.cells[*i])).max().unwrap_or(2) {
                let core = self.cores[rank as usize % 2];
                self.add_server("helper", core, token, &mut crew, &mut connect)?;
            }
        }
        let mut sampling =
            Sampling::from(self.plan.sampling(self.number, self.sharing, Calibration::default()));
        sampling.time_max_ns *= self.share;
        sampling.time_min_ns *= self.share;
        let job = ClientJob {
            token,
            own,
            core: self.cores[0],
            peer_core: self.plan.values.cores().map(|c| c[1]),
            connect,
            device: self.plan.devices[self.device].name.clone(),
            against: self.plan.against.clone(),
            settings: self.plan.settings(),
            cells: order.iter().map(|i| (*i, self.plan.cells[*i].clone())).collect(),
            sampling,
            interval_ms: self.plan.interval_ms(),
        };
        crew.push(Worker::start("client", self.command, &Job::Client(job))?);
        let state = State {
            clock: ClockInfo::default(),
            sampling,
            current: None,
            lost: None,
            asked: None,
            silent_since: now(),
            began,
            cell_began: began,
            pace: Pace::default(),
        };
        self.watch(&mut crew, state)
    }

    /// Starts a process that the client will connect to, and learns where it waits.
    fn add_server(
        &mut self,
        name: &'static str,
        core: Option<usize>,
        token: &Token,
        crew: &mut Vec<Worker>,
        connect: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        let job = Job::Server { token: token.clone(), core };
        let mut worker = Worker::start(name, self.command, &job)?;
        match wait_for_event(std::slice::from_mut(&mut worker), START) {
            Some((_, WorkerEvent::News(News::Listening { addr }))) => connect.push(addr),
            Some((_, WorkerEvent::News(News::Failed { why, .. }))) => {
                return Err(BenchError::new(format!("the {name} process says: {why}")));
            }
            Some((_, WorkerEvent::Lost(how))) => return Err(BenchError::new(how)),
            _ => return Err(BenchError::new(format!("the {name} process does not start within 30 s"))),
        }
        crew.push(worker);
        Ok(())
    }

    /// Listens to all processes until the client is done; it is the last of the crew.
    fn watch(&mut self, crew: &mut [Worker], mut state: State) -> Result<Pace, BenchError> {
        let client = crew.len() - 1;
        loop {
            match wait_for_event(crew, TICK) {
                Some((who, WorkerEvent::News(news))) if who == client => {
                    state.silent_since = now();
                    if matches!(news, News::Failed { .. }) && state.lost.is_none() {
                        state.lost = ended(&mut crew[..client]).map(|how| (how, now()));
                    }
                    if self.take(news, &mut state)? {
                        return Ok(state.pace);
                    }
                }
                Some((who, event)) if who != client => {
                    let Some(how) = loss(crew[who].name(), event) else { continue };
                    state.lost.get_or_insert((how, now()));
                }
                Some((_, WorkerEvent::Lost(how))) => {
                    let lost = state.lost.take().map(|(other, _)| format!(" (before that {other})"));
                    return Err(self.broken(&state, &format!("{how}{}", lost.unwrap_or_default())));
                }
                _ => {}
            }
            state.pace.cut |=
                !state.pace.cells.is_empty() && self.limit.as_ref().is_some_and(Limit::is_reached);
            if state.asked.is_none() && (state.pace.cut || self.stop.load(Ordering::Relaxed)) {
                crew[client].ask_to_stop();
                state.asked = Some(now());
            }
            let patience = self.limit.filter(|_| state.pace.cut).map_or(STOP, |limit| limit.patience);
            if state.asked.is_some_and(|at| since(at) > patience) {
                // What it was doing takes too long; the crew is killed, what it sent is kept.
                return Ok(state.pace);
            }
            if let Some((how, at)) = &state.lost
                && since(*at) > LAST_WORDS
            {
                return Err(self.broken(&state, how));
            }
            if since(state.silent_since) > self.longest_silence() {
                return Err(self.broken(&state, "the client process sends nothing any more"));
            }
        }
    }

    /// A cell with all its rounds, the contents of 1 GiB compared, and every wait in it run to its end.
    fn longest_silence(&self) -> Duration {
        let timed = Duration::from_secs_f64(self.plan.values.real("budget").min(86_400.0));
        START + timed + Duration::from_millis(3 * self.plan.settings().patience_ms)
    }

    /// The error of a launch that failed, with the cell that was being measured.
    fn broken(&self, state: &State, how: &str) -> BenchError {
        match state.current.and_then(|i| self.plan.cells.get(i)) {
            Some(cell) => BenchError::new(format!("{cell}: {how}")),
            None => BenchError::new(how),
        }
    }

    /// Takes news of the client; whether it was the last.
    fn take(&mut self, news: News, state: &mut State) -> Result<bool, BenchError> {
        match news {
            News::Begun { clock, noise, core, notes, peers } => {
                state.clock = clock;
                state.pace.start = since(state.began);
                let pinned = [core, self.cores[1].filter(|_| self.plan.peers.is_empty())];
                let start = Start { clock, noise, pinned, peers };
                let first = self.all.begun((self.device, self.number), start);
                if first {
                    self.all.noted(self.device, &notes);
                    let on =
                        named(self.plan, self.device).map_or_else(String::new, |name| format!("{name}: "));
                    notes.iter().for_each(|n| self.progress.chosen(&format!("{on}{n}")));
                }
            }
            News::Cell { index } => {
                (state.current, state.cell_began) = (Some(index), now());
                self.report_cell(index, CellState::Began);
            }
            News::Moved { index, interval } => {
                if let Some(cell) = self.plan.cells.get(index) {
                    let device = named(self.plan, self.device);
                    self.progress.moved(&Moved {
                        launch: self.number + 1,
                        device,
                        cell,
                        interval: &interval,
                    });
                }
            }
            News::Measured { index, record, switches } => {
                let shown = self.plan.cells.get(index).and_then(|cell| displayed(cell, &record));
                let sample = Sample { clock: state.clock, sampling: state.sampling, record, switches };
                self.all.measured(index, self.number, sample);
                if let Some((value, unit)) = shown {
                    self.report_cell(index, CellState::Measured { value, unit });
                }
                state.has_ended(index);
            }
            News::Skipped { index, why, never } => {
                self.report_cell(index, CellState::Skipped { why: &why });
                let end =
                    if never && self.never.insert(index) { self.plan.launches() } else { self.number + 1 };
                self.all.skipped(index, why, (never, self.number..end));
                state.has_ended(index);
            }
            News::Done { noise } => {
                self.all.done(noise);
                return Ok(true);
            }
            News::Failed { why, index, .. } => {
                state.current = index.or(state.current);
                let lost = state.lost.take().map(|(how, _)| format!(" ({how})")).unwrap_or_default();
                return Err(self.broken(state, &format!("{why}{lost}")));
            }
            News::Waiting { what } => self.progress.note(&what),
            News::Listening { .. } => {}
        }
        Ok(false)
    }

    /// Reports the progress of a cell to the user.
    fn report_cell(&mut self, index: usize, state: CellState<'_>) {
        if let Some(cell) = self.plan.cells.get(index) {
            let (launch, launches) = (self.number + 1, self.plan.launches());
            let (done, device) = (self.all.count(), named(self.plan, self.device));
            self.progress.cell(&CellEvent { launch, launches, done, device, cell, state });
        }
    }
}

/// The device of a launch, where there are several.
fn named(plan: &CheckedPlan, device: usize) -> Option<&str> {
    (plan.devices.len() > 1).then(|| plan.devices[device].name.as_str())
}

/// About the median of a record, from its last readings.
fn displayed(cell: &Cell, record: &Record) -> Option<(f64, &'static str)> {
    let metric = find(&cell.experiment)?.metric(&cell.variant);
    let last = record.rounds.last()?;
    let mut readings = last[last.len().saturating_sub(SHOWN)..].to_vec();
    results::stats::sort(&mut readings);
    let operations = record.batch.max(1) * record.messages.max(1);
    Some((metric.value(median(&readings)?, operations, cell.size), metric.unit))
}

/// What only the processes of one run know.
fn secret() -> Result<Token, BenchError> {
    Token::random().map_err(|e| BenchError::new(format!("cannot read /dev/urandom: {e}")))
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod estimate;

#[cfg(test)]
mod tests {
    use super::*;
    use results::schema::Measurement;

    /// Goal: the run ends in time even if set-up is slow, and samples all it may if it is not. Method: ten launches
    /// with a budget of 100 s, with this many seconds of other work in each.
    #[test]
    fn a_run_keeps_to_its_time_as_far_as_it_can() {
        let run = |besides: f64| {
            let (mut gone, mut share) = (0.0, 1.0);
            for number in 0..10 {
                let took = if number == 0 { 10.0 + besides } else { 10.0 * share + besides };
                gone += took;
                if number < 9 {
                    let spent = (Duration::from_secs_f64(gone), Duration::from_secs_f64(took));
                    share = next_share(100.0, (number + 1, 10), share, spent);
                }
            }
            (gone.round(), share)
        };
        assert_eq!(run(1.0), (110.0, 1.0));
        assert_eq!(run(6.0).0, 120.0);
        assert_eq!(run(100.0).1, SHARE_MIN);
    }

    /// Goal: an overview ends in its time where it can without losing its intervals. Method: launches that take what they
    /// should, launches that take too long, before and after there are enough.
    #[test]
    fn who_waits_longer_than_the_budget_is_told_after_the_first_launch() {
        let after = |seconds: f64| overrun(22.0, 6, Duration::from_secs_f64(seconds));
        assert_eq!((after(3.7), after(7.0)), (None, None));
        let told = after(75.1).expect("too slow");
        assert!(told.contains("the first launch took 75 s") && told.contains("434 s or more"), "{told}");
    }

    /// Goal: the forecast is the time of the run if all launches are alike. Method: launches that sample less than they may, as they should,
    /// and launches with other work.
    #[test]
    fn forecast_follows_from_the_first_launch() {
        let secs = Duration::from_secs_f64;
        let all = |took: f64, share| forecast(24.0, (1, 6), [1.0, share], (secs(took), secs(took))).round();
        assert_eq!((all(2.0, 1.0), all(4.0, 1.0), all(5.0, 1.0)), (12.0, 24.0, 30.0));
        assert_eq!(all(14.0, SHARE_MIN), 14.0 + 5.0 * 10.4);
        assert_eq!(forecast_remark(22.0, secs(4.0), 24.0), None);
        let said = forecast_remark(22.0, secs(14.0), 66.0).expect("off");
        assert!(
            said.contains("took 14.0 s") && said.contains("about 66 s, more than the estimate of 22 s"),
            "{said}"
        );
    }

    #[test]
    fn launches_beyond_the_sixth_are_given_up_where_time_is_up() {
        let secs = |gone, took| (Duration::from_secs(gone), Duration::from_secs(took));
        assert!(!is_enough(240.0, 6, secs(180, 30)) && !is_enough(240.0, 7, secs(210, 30)));
        assert!(is_enough(240.0, 6, secs(280, 47)) && !is_enough(240.0, 5, secs(2000, 400)));
        assert!(given_up(6, 8).contains("after 6 of 8"));
        assert!(given_up(0, 8).contains("in the first of 8"));
    }

    #[test]
    fn server_that_has_finished_is_not_lost() {
        assert_eq!(loss("server", WorkerEvent::Finished), None);
        assert_eq!(loss("server", WorkerEvent::News(News::Done { noise: None })), None);
        let ended = "the server process ended early".to_owned();
        assert_eq!(loss("server", WorkerEvent::Lost(ended.clone())), Some(ended));
        let failed = News::Failed { why: "no device".to_owned(), index: None, corrupt: false };
        assert_eq!(
            loss("server", WorkerEvent::News(failed)),
            Some("the server process says: no device".to_owned())
        );
    }

    #[test]
    fn every_failure_says_what_to_do_once() {
        let said = advised("the client process was killed (signal 9)".to_owned());
        assert!(said.contains("; ") && said.contains("nicety doctor"), "{said}");
        assert_eq!(advised("no; try another".to_owned()), "no; try another");
    }

    #[test]
    fn a_failure_says_what_is_kept_if_anything_is() {
        let (nothing, some) =
            (Run::default(), Run { results: vec![Measurement::default()], ..Run::default() });
        assert_eq!(kept("no; try another".to_owned(), &nothing), "no; try another");
        assert!(kept("no; try another".to_owned(), &some).ends_with("is kept"));
    }
}
