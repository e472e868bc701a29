//! Runs a job from its first process to its last: serves PMI, forwards input and output, and detects failures, in one loop
//! without threads.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use auth::{JOB_KEY, Key};
use pmi::server::{Departure, Event, Job as Ranks, Placement, RankId, Server};
use pmi::spawn::{Program, Spawn};
use rustix::event::PollFlags;
use rustix::stdio::{stderr, stdin, stdout};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use super::crew::{Crew, ProcessFd};
use super::event_loop::{PollEntry, Signals, wait_ready};
use super::input::Input;
use super::message::{Binding, CrewEvent, ExitReason, Order, ProcessSpec, Stream};
use super::network_check::Networks;
use super::output::{self, Fields, Files};
use super::plan::Plan;
use super::printer::Printer;
use super::profile::Profiles;
use super::remote::{Pipe, Remote};
use super::{hosts, program, texts};
use crate::failure::{FAILED, Failure, OK};
use report::JobProfile;

/// How long a process may run on after it has closed its PMI stream.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// The exit status after `--timeout`, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// The exit status when the reader of the output has gone: 128 + SIGPIPE, as in shells.
const OUTPUT_CLOSED: u8 = 128 + 13;

/// Variables with the rank and the size of a job in turn, by the names of several launchers.
const RANK_VARIABLES: [&str; 4] = ["PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"];

/// A process of a job.
#[derive(Debug)]
struct Rank {
    id: RankId,
    /// The ranks of its job.
    size: u32,
    site: usize,
    start: ProcessSpec,
    pid: u32,
    /// Whether it has sent any PMI command.
    has_used_pmi: bool,
    left: Option<(Departure, Instant)>,
    /// Why it did not join its job, if its MPI library is the reason.
    not_joined: Option<String>,
    end: Option<ExitReason>,
}

/// The crew of a host, or the connection to it.
#[derive(Debug)]
enum HostCrew {
    Local(Box<Crew>),
    Remote(Box<Remote>),
}

/// A host with its processes.
#[derive(Debug)]
struct Site {
    name: String,
    crew: HostCrew,
    is_gone: bool,
}

/// The source of a poll event.
#[derive(Clone, Copy, Debug)]
enum PollSource {
    Signals,
    Input,
    Printer(Stream),
    Crew(usize, u32, ProcessFd),
    Remote(usize, Pipe),
}

/// The state of all jobs of this mpirun.
struct Job {
    server: Server,
    sites: Vec<Site>,
    /// Indexed by process number.
    ranks: Vec<Rank>,
    input: Input,
    out: Printer<File>,
    err: Printer<File>,
    /// What each line of output begins with.
    tag: Option<String>,
    /// Whether standard error of ranks is printed as their standard output is.
    merges_errors: bool,
    files: Files,
    reports_bindings: bool,
    profiles: Option<Profiles>,
    networks: Networks,
    /// The key of all jobs of this mpirun, for programs that get none by PMI.
    key: OsString,
    /// Suppresses the remark about more ranks than cores.
    oversubscribe: bool,
    signals: Signals,
    /// When `--timeout` expires, and its value.
    timeout: Option<(Instant, Duration)>,
    /// MPI calls that ranks waited in when `--timeout` expired, with the indices of these ranks.
    waits: BTreeMap<String, BTreeSet<usize>>,
    /// The exit status of the first failure.
    status: Option<u8>,
    /// Whether all processes were ordered to end.
    is_ending: bool,
    /// The last forwarded signal that requests an end.
    last_signal: Option<i32>,
}

/// The result of a job.
#[derive(Debug)]
pub struct Ended {
    /// The status of the first rank that failed, as a shell reports it; 0 if none failed.
    pub status: u8,
    /// The profiles that ranks left, by job, if [`Options::has_profile`](crate::Options::has_profile). Jobs that ranks started follow
    /// the first.
    pub profiles: Vec<JobProfile>,
}

/// Runs a job to its end. Meanwhile standard input, output and error belong to the ranks.
///
/// # Errors
/// If the system refuses resources that mpirun itself needs.
pub fn run(plan: Plan) -> Result<Ended, Failure> {
    let mut job = Job::new(&plan)?;
    job.start_initial_ranks(plan)?;
    loop {
        job.handle_events();
        job.print_waits();
        if job.is_finished() {
            let profiles = job.profiles.map(Profiles::into_jobs).unwrap_or_default();
            return Ok(Ended { status: job.status.unwrap_or(OK), profiles });
        }
        for watch in job.sleep()? {
            job.serve(watch);
        }
        job.handle_deadlines(Instant::now());
    }
}

impl Job {
    fn new(plan: &Plan) -> Result<Self, Failure> {
        let printer = |fd: std::os::fd::BorrowedFd<'_>| -> io::Result<Printer<File>> {
            let own = fd.try_clone_to_owned()?;
            let is_terminal = own.is_terminal();
            Ok(Printer::new(File::from(own), plan.output.tag.is_some(), is_terminal))
        };
        let failed = |why: io::Error| Failure::run(format!("cannot write: {why}{}", texts::remedy(&why)));
        let signals = Signals::install()?;
        let mut sites = Vec::new();
        for (at, host) in plan.hosts.iter().enumerate() {
            let crew = if plan.is_here(at) {
                HostCrew::Local(Box::new(Crew::new()))
            } else {
                let remote = Remote::start(&plan.connector, &host.name, &plan.version);
                HostCrew::Remote(Box::new(
                    remote.map_err(|why| Failure::run(format!("{}: {why}", host.name)))?,
                ))
            };
            sites.push(Site { name: host.name.clone(), crew, is_gone: false });
        }
        let key = Key::random().map_err(|why| Failure::run(why.to_string()))?;
        let used: BTreeSet<usize> = plan.ranks.iter().map(|rank| rank.host).collect();
        let used = used.into_iter().map(|host| (host, plan.hosts[host].name.clone()));
        let readers = (0..).zip(&plan.ranks).filter(|(_, rank)| rank.start.reads).map(|(number, _)| number);
        Ok(Self {
            server: Server::new(),
            sites,
            ranks: Vec::new(),
            input: Input::new(readers),
            out: printer(stdout()).map_err(failed)?,
            err: printer(stderr()).map_err(failed)?,
            tag: plan.output.tag.clone(),
            merges_errors: plan.output.merges_errors,
            files: Files::new(&plan.output),
            reports_bindings: plan.reports_bindings,
            profiles: plan.has_profile.then(Profiles::default),
            networks: Networks::new(plan.network().as_deref(), used),
            key: key.to_hex().into(),
            oversubscribe: plan.oversubscribe,
            signals,
            timeout: plan.timeout.map(|timeout| (Instant::now() + timeout, timeout)),
            waits: BTreeMap::new(),
            status: None,
            is_ending: false,
            last_signal: None,
        })
    }

    /// Starts the ranks of the command line.
    fn start_initial_ranks(&mut self, plan: Plan) -> Result<(), Failure> {
        let here: Vec<usize> = (0..plan.hosts.len()).filter(|&host| plan.is_here(host)).collect();
        for host in here {
            let count = plan.ranks.iter().filter(|rank| rank.host == host).count();
            self.warn_if_oversubscribed(host, count, host::real::allowed_cores().len());
            self.warn_if_public(host, hosts::own_addresses());
        }
        let ranks = plan.ranks.into_iter().map(|rank| (rank.host, rank.appnum, rank.start)).collect();
        self.start(ranks, Vec::new()).map_err(Failure::run)
    }

    /// Starts a job of processes, each with its site and its application number.
    fn start(
        &mut self,
        ranks: Vec<(usize, u32, ProcessSpec)>,
        preput: Vec<(String, String)>,
    ) -> Result<(), String> {
        let places = ranks.iter().map(|&(site, appnum, _)| Placement { node: site as u32, appnum }).collect();
        let name = texts::job_name(self.ranks.len());
        let job = Ranks { name, ranks: places, universe_size: None, preput };
        let ids = self.server.add_job(job).map_err(|why| why.to_string())?;
        self.profiles.iter_mut().for_each(|profiles| profiles.add_job(ids.len()));
        let (count, size) = (ids.len() as u32, OsString::from(ids.len().to_string()));
        for (id, (site, _, mut start)) in ids.into_iter().zip(ranks) {
            let number = self.ranks.len() as u32;
            for (name, value) in RANK_VARIABLES
                .into_iter()
                .zip([id.rank().to_string().into(), size.clone()].into_iter().cycle())
            {
                start.variables.push((name.into(), value));
            }
            if !start.variables.iter().any(|(name, _)| name == JOB_KEY) {
                start.variables.push((JOB_KEY.into(), self.key.clone()));
            }
            let order = Order::Start(number, Box::new(start.clone()));
            self.ranks.push(Rank {
                id,
                size: count,
                site,
                start,
                pid: 0,
                has_used_pmi: false,
                left: None,
                not_joined: None,
                end: None,
            });
            self.files.create(number, &fields(&self.ranks[number as usize], &self.sites))?;
            self.sites[site].give_order(order);
        }
        Ok(())
    }

    /// Handles all pending events of crews and of PMI, including further events that they cause.
    fn handle_events(&mut self) {
        loop {
            let mut is_quiet = true;
            for site in 0..self.sites.len() {
                while let Some(event) = self.sites[site].next_event() {
                    is_quiet = false;
                    self.handle_crew_event(site, event);
                }
            }
            while let Some(event) = self.server.poll_event() {
                is_quiet = false;
                self.handle_pmi_event(event);
            }
            if is_quiet {
                break;
            }
            self.send_pmi_answers();
            if !self.is_ending && self.ranks.iter().all(|rank| rank.end.is_some()) {
                self.end_all();
            }
        }
    }

    /// Once all ranks have ended after `--timeout`, prints the calls that they waited in.
    fn print_waits(&mut self) {
        if self.sites.iter().all(|site| site.is_gone) {
            for (calls, ranks) in std::mem::take(&mut self.waits) {
                let ranks: Vec<String> = ranks.iter().map(|at| self.ranks[*at].name()).collect();
                self.print_remark(&texts::waits_in(&calls, &ranks));
            }
        }
    }

    /// Whether all crews have finished and all output is written.
    fn is_finished(&self) -> bool {
        let is_written = !self.out.has_output() && !self.err.has_output();
        self.is_ending && is_written && self.sites.iter().all(|site| site.is_gone)
    }

    /// Sleeps until a descriptor is ready or a deadline has passed.
    fn sleep(&self) -> Result<Vec<PollSource>, Failure> {
        let (input, out, err) = (stdin(), stdout(), stderr());
        let mut wanted: Vec<PollEntry<'_, PollSource>> =
            vec![(PollSource::Signals, self.signals.fd(), PollFlags::IN)];
        if self.input.is_wanted() {
            wanted.push((PollSource::Input, input, PollFlags::IN));
        }
        if self.out.has_output() {
            wanted.push((PollSource::Printer(Stream::Out), out.as_fd(), PollFlags::OUT));
        }
        if self.err.has_output() {
            wanted.push((PollSource::Printer(Stream::Err), err.as_fd(), PollFlags::OUT));
        }
        let has_room = self.out.has_room() && self.err.has_room();
        for (site, entry) in self.sites.iter().enumerate() {
            match &entry.crew {
                HostCrew::Local(crew) => wanted
                    .extend(crew.poll_entries(has_room).map(|((number, part), fd, flags)| {
                        (PollSource::Crew(site, number, part), fd, flags)
                    })),
                HostCrew::Remote(remote) => wanted.extend(
                    remote
                        .poll_entries(has_room)
                        .map(|(link, fd, flags)| (PollSource::Remote(site, link), fd, flags)),
                ),
            }
        }
        wait_ready(&wanted, self.deadline()).map_err(|why| {
            Failure::run(format!("cannot wait: {why}; start fewer ranks, or raise `ulimit -n`"))
        })
    }

    /// The earliest time at which something has to be done although no descriptor is ready.
    fn deadline(&self) -> Option<Instant> {
        let crews = self.sites.iter().filter_map(|site| match &site.crew {
            HostCrew::Local(crew) => crew.deadline(),
            HostCrew::Remote(remote) => remote.deadline(),
        });
        let timeout = self.timeout.filter(|_| !self.is_ending).map(|(at, _)| at);
        let exit_deadlines = self.ranks.iter().filter(|_| !self.is_ending).filter_map(Rank::exit_deadline);
        let printers = [self.out.deadline(), self.err.deadline()];
        crews.chain(timeout).chain(exit_deadlines).chain(printers.into_iter().flatten()).min()
    }

    /// Handles a descriptor that is ready.
    fn serve(&mut self, watch: PollSource) {
        match watch {
            PollSource::Signals => {
                for signal in self.signals.take_pending() {
                    self.handle_signal(signal);
                }
            }
            PollSource::Input => {
                if let Some((bytes, readers)) = self.input.read() {
                    for reader in readers {
                        let site = self.ranks[reader as usize].site;
                        self.sites[site].give_order(Order::Input(reader, bytes.clone()));
                    }
                }
            }
            PollSource::Printer(Stream::Out) => {
                if let Err(why) = self.out.flush() {
                    let line = format!("cannot write to standard output: {why}; free space, or redirect it");
                    self.fail_to_write(&why, Some(line));
                }
            }
            PollSource::Printer(Stream::Err) => {
                if let Err(why) = self.err.flush() {
                    self.fail_to_write(&why, None);
                }
            }
            PollSource::Crew(site, number, part) => {
                if let HostCrew::Local(crew) = &mut self.sites[site].crew {
                    crew.handle_ready((number, part));
                }
            }
            PollSource::Remote(site, link) => {
                if let HostCrew::Remote(remote) = &mut self.sites[site].crew {
                    remote.handle_ready(link);
                }
            }
        }
    }

    /// Handles expired deadlines.
    fn handle_deadlines(&mut self, now: Instant) {
        let (ranks, sites, pattern) = (&self.ranks, &self.sites, self.tag.as_deref());
        let tag = |number: u32| {
            let rank = ranks.get(number as usize);
            rank.map(|rank| tag(pattern, &fields(rank, sites))).unwrap_or_default()
        };
        self.out.flush_held(now, tag);
        self.err.flush_held(now, tag);
        for site in &mut self.sites {
            match &mut site.crew {
                HostCrew::Local(crew) if crew.deadline().is_some_and(|at| at <= now) => crew.reap_and_kill(),
                HostCrew::Local(_) => {}
                HostCrew::Remote(remote) => remote.check_deadline(),
            }
        }
        if self.is_ending {
            return;
        }
        if let Some((_, given)) = self.timeout.filter(|(at, _)| *at <= now) {
            let running = self.ranks.iter().filter(|rank| rank.end.is_none()).count();
            let line = texts::timed_out(given, running);
            // Crews report before they end processes.
            self.order_all(&Order::ReportCalls);
            return self.fail(TIMED_OUT, Some(line));
        }
        if let Some(at) = self.ranks.iter().position(|rank| rank.exit_deadline().is_some_and(|at| at <= now))
        {
            self.fail_rank(
                at,
                FAILED,
                "closed its connection to mpirun without MPI_Finalize, but still runs",
            );
        }
    }

    /// Handles a signal that mpirun got: forwards it to the ranks, or ends them.
    fn handle_signal(&mut self, signal: i32) {
        match signal {
            SIGCHLD => {
                for site in &mut self.sites {
                    if let HostCrew::Local(crew) = &mut site.crew {
                        crew.reap_and_kill();
                    }
                }
            }
            // mpirun may be in the foreground again; the next sleep checks that.
            SIGCONT => {}
            SIGUSR1 | SIGUSR2 => self.order_all(&Order::Signal(signal)),
            SIGINT | SIGTERM if self.last_signal.is_some() => {
                self.status.get_or_insert((128 + signal) as u8);
                self.is_ending = true;
                self.order_all(&Order::Kill);
            }
            _ => {
                self.last_signal = Some(signal);
                self.order_all(&Order::Signal(signal));
            }
        }
    }

    /// Handles an event of a host's crew.
    fn handle_crew_event(&mut self, site: usize, event: CrewEvent) {
        let now = Instant::now();
        match event {
            CrewEvent::Hello(hello) => {
                let count = self.ranks.iter().filter(|rank| rank.site == site).count();
                self.warn_if_oversubscribed(site, count, hello.cores as usize);
                self.warn_if_public(site, hello.addresses);
            }
            CrewEvent::Finished => self.sites[site].is_gone = true,
            CrewEvent::Lost(why) => self.handle_lost_host(site, &why),
            CrewEvent::Started(number, ..)
            | CrewEvent::NotStarted(number, ..)
            | CrewEvent::Pmi(number, ..)
            | CrewEvent::Output(number, ..)
            | CrewEvent::InputWritten(number)
            | CrewEvent::Missing(number, ..)
            | CrewEvent::NotJoined(number, ..)
            | CrewEvent::WaitsIn(number, ..)
            | CrewEvent::Ended(number, ..) => {
                // Events of a process that does not run on that host are ignored.
                if self.ranks.get(number as usize).is_some_and(|rank| rank.site == site) {
                    self.handle_rank_event(number, event, now);
                }
            }
        }
    }

    /// Handles an event of a rank, which runs on the host that reported it.
    fn handle_rank_event(&mut self, number: u32, event: CrewEvent, now: Instant) {
        let at = number as usize;
        let id = self.ranks[at].id;
        match event {
            CrewEvent::Started(_, pid, processors) => {
                self.ranks[at].pid = pid;
                if self.reports_bindings {
                    let line = texts::bound(&self.ranks[at].name(), self.site_of(at), &processors);
                    self.print_remark(&line);
                }
            }
            CrewEvent::NotStarted(_, why) => {
                self.ranks[at].end = Some(ExitReason::Exit(FAILED));
                self.input.remove_reader(number);
                self.server.handle_eof(id);
                let line = format!("{} on {}: {why}", self.ranks[at].name(), self.site_of(at));
                self.fail(FAILED, Some(line));
            }
            CrewEvent::Pmi(_, bytes) if bytes.is_empty() => self.server.handle_eof(id),
            CrewEvent::Pmi(_, bytes) => {
                self.server.handle_bytes(id, &bytes);
                if !std::mem::replace(&mut self.ranks[at].has_used_pmi, true) {
                    self.check_silent_ranks(id.job());
                }
            }
            CrewEvent::Output(_, stream, bytes) => {
                self.handle_output(number, stream, &bytes, now);
            }
            CrewEvent::InputWritten(_) => self.input.mark_written(number),
            CrewEvent::Missing(_, text) if !self.is_ending => self.print_remark(&text),
            CrewEvent::Missing(..) => {}
            CrewEvent::NotJoined(_, text) => self.ranks[at].not_joined = Some(text),
            CrewEvent::WaitsIn(_, calls) => {
                self.waits.entry(calls).or_default().insert(at);
            }
            CrewEvent::Ended(_, end) => {
                self.ranks[at].end = Some(end);
                self.input.remove_reader(number);
                // PMI events come first: how the process left PMI decides what its exit means.
                while let Some(event) = self.server.poll_event() {
                    self.handle_pmi_event(event);
                }
                self.report_not_joined(at);
                self.handle_exit(at, end);
            }
            CrewEvent::Hello(_) | CrewEvent::Finished | CrewEvent::Lost(_) => {}
        }
    }

    /// Writes output of a process to its file, or prints it, or both.
    fn handle_output(&mut self, number: u32, stream: Stream, bytes: &[u8], now: Instant) {
        let stream = if self.merges_errors { Stream::Out } else { stream };
        match self.files.write(number, stream, bytes) {
            Ok(false) => return,
            Ok(true) => {}
            Err(why) => {
                let line = format!(
                    "cannot write the output of {}: {why}; free space",
                    self.ranks[number as usize].name()
                );
                return self.fail_to_write(&why, Some(line));
            }
        }
        let tag = tag(self.tag.as_deref(), &fields(&self.ranks[number as usize], &self.sites));
        let printer = if stream == Stream::Out { &mut self.out } else { &mut self.err };
        printer.add_output(number, &tag, bytes, now);
    }

    /// Sends pending PMI answers to the ranks.
    fn send_pmi_answers(&mut self) {
        for (number, rank) in (0..).zip(&self.ranks) {
            let mut bytes = Vec::new();
            while let n @ 1.. = self.server.transmit(rank.id).len() {
                bytes.extend_from_slice(self.server.transmit(rank.id));
                self.server.sent(rank.id, n);
            }
            if !bytes.is_empty() {
                self.sites[rank.site].give_order(Order::Pmi(number, bytes));
            }
        }
    }

    /// Handles what a rank has asked of the PMI server, and what needs more than an answer.
    fn handle_pmi_event(&mut self, event: Event) {
        let at = |job: &Self, id: RankId| job.ranks.iter().position(|rank| rank.id == id);
        match event {
            Event::Finalized(rank) => {
                self.profiles.iter_mut().for_each(|profiles| profiles.add_rank(&self.server, rank));
            }
            Event::Spawn { rank, spawn } => {
                if let Some(asker) = at(self, rank) {
                    self.spawn(asker, spawn);
                }
            }
            Event::Abort { rank, code, message } => {
                if let Some(at) = at(self, rank) {
                    let suffix = if message.is_empty() { message } else { format!(": {message}") };
                    self.fail_rank(
                        at,
                        pmi::abort_status(code),
                        &format!("aborted the job with {code}{suffix}"),
                    );
                }
            }
            Event::Left { rank, how } => {
                let Some(at) = at(self, rank) else { return };
                if let Departure::Broken(violation) = &how {
                    let what = format!("violated the PMI protocol: {violation}; check its MPI library");
                    self.fail_rank(at, FAILED, &what);
                }
                self.ranks[at].left = Some((how, Instant::now()));
            }
        }
    }

    /// Starts the processes that a rank requested (MPI_Comm_spawn), on the same host as this rank.
    fn spawn(&mut self, asker: usize, spawn: Spawn) {
        let Rank { id, site, ref start, .. } = self.ranks[asker];
        let total = spawn.programs.iter().map(|program| program.processes as usize).sum();
        let mut starts = Vec::with_capacity(total);
        for (appnum, program) in (0..).zip(&spawn.programs) {
            let start = spawned_process(start, program, total);
            starts.extend((0..program.processes).map(|_| (site, appnum, start.clone())));
        }
        for (local_rank, (_, _, start)) in (0..).zip(&mut starts) {
            start.local_rank = local_rank;
        }
        let find = |(_, _, start): &(usize, u32, ProcessSpec)| {
            program::find(&start.command[0], Path::new(&start.directory), std::env::var_os("PATH"))
        };
        let is_here = matches!(self.sites[site].crew, HostCrew::Local(_));
        let missing = starts.iter().filter(|_| is_here).find_map(|start| find(start).err());
        let done = match missing {
            _ if self.is_ending => Err("the job is ending".to_owned()),
            Some(why) => Err(why),
            None => self.start(starts, spawn.preput),
        };
        if let Err(why) = &done {
            let name = self.ranks[asker].name();
            self.print_remark(&format!("{name} cannot spawn processes: {why}"));
        }
        self.server.spawned(id, &vec![i32::from(done.is_err()); total]);
    }

    /// Decides what the end of a process means for its job.
    fn handle_exit(&mut self, at: usize, end: ExitReason) {
        let rank = &self.ranks[at];
        let left = rank.left.as_ref().map(|(left, _)| left.clone());
        let is_over = matches!(left, Some(Departure::Finalized));
        let late = if is_over { " after MPI_Finalize" } else { "" };
        let early = if rank.has_used_pmi && !is_over { " without MPI_Finalize" } else { "" };
        let (status, what) = match end {
            ExitReason::Exit(0) if is_over => return,
            ExitReason::Exit(0) if left == Some(Departure::Silent) => {
                return self.check_silent_ranks(rank.id.job());
            }
            ExitReason::Exit(0) => (FAILED, format!("exited with 0{early}")),
            ExitReason::Exit(code) => (code, format!("exited with {code}{early}{late}")),
            ExitReason::Signal(signal) => {
                let status = 128_u8.saturating_add(signal);
                if self.last_signal == Some(i32::from(signal)) {
                    return self.fail(status, None);
                }
                (status, format!("was killed by {}{late}", texts::signal_name(signal)))
            }
        };
        if is_over && !self.is_ending {
            // No other rank waits for it any more.
            self.status.get_or_insert(status);
            let line = self.describe_rank(at, &what);
            return self.print_remark(&line);
        }
        self.fail_rank(at, status, &what);
    }

    /// Prints once why no rank of a job has joined it: when all ranks have ended successfully, or when the first has failed.
    fn report_not_joined(&mut self, at: usize) {
        let Rank { id, end, .. } = self.ranks[at];
        let of_job = || self.ranks.iter().filter(|rank| rank.id.job() == id.job());
        let is_over = end != Some(ExitReason::Exit(0)) || of_job().all(|rank| rank.end.is_some());
        if self.is_ending || !is_over || of_job().count() < 2 || of_job().any(|rank| rank.has_used_pmi) {
            return;
        }
        if let Some(text) = self.ranks[at].not_joined.clone() {
            self.print_remark(&text);
        }
    }

    /// Fails a job in which some ranks wait in vain for a rank that exited with 0 without calling MPI_Init.
    fn check_silent_ranks(&mut self, job: u32) {
        let of_job = |rank: &&Rank| rank.id.job() == job;
        let is_silent =
            |rank: &Rank| of_job(&rank) && !rank.has_used_pmi && rank.end == Some(ExitReason::Exit(0));
        let speakers = self.ranks.iter().filter(of_job).any(|rank| rank.has_used_pmi);
        if let Some(at) = self.ranks.iter().position(is_silent).filter(|_| speakers) {
            self.fail_rank(at, FAILED, "exited with 0 without MPI_Init, which other ranks have called");
        }
    }

    /// Handles the loss of a host: all its ranks have failed.
    fn handle_lost_host(&mut self, site: usize, why: &str) {
        self.sites[site].is_gone = true;
        let name = self.sites[site].name.clone();
        let lost: Vec<usize> = (0..self.ranks.len())
            .filter(|&at| self.ranks[at].site == site && self.ranks[at].end.is_none())
            .collect();
        let was_there = lost.iter().any(|&at| self.ranks[at].pid > 0);
        for at in lost {
            self.ranks[at].end = Some(ExitReason::Exit(FAILED));
            self.input.remove_reader(at as u32);
            self.server.handle_eof(self.ranks[at].id);
        }
        let hint = match &self.sites[site].crew {
            HostCrew::Remote(remote) if !was_there => remote.hint,
            _ => "check that host and its network",
        };
        self.fail(FAILED, Some(format!("the host {name} is lost: {why}; {hint}")));
    }

    /// Fails the job because of a rank; the line that is printed says what it did, and how many others are ended.
    fn fail_rank(&mut self, at: usize, status: u8, what: &str) {
        let is_other = |&(other, rank): &(usize, &Rank)| other != at && rank.end.is_none() && rank.pid > 0;
        let others = self.ranks.iter().enumerate().filter(is_other).count();
        let line = self.describe_rank(at, what) + &texts::ending_others(others);
        self.fail(status, Some(line));
    }

    /// Records the first failure: it decides the status, is printed, and ends all ranks.
    fn fail(&mut self, status: u8, line: Option<String>) {
        if self.is_ending {
            return;
        }
        self.status.get_or_insert(status);
        if let Some(line) = line {
            self.print_remark(&line);
        }
        self.end_all();
    }

    /// Output cannot be written; this is a failure even if its ranks have ended. If the reader has closed the pipe, nothing is
    /// printed.
    fn fail_to_write(&mut self, why: &io::Error, line: Option<String>) {
        let (status, line) =
            if why.kind() == ErrorKind::BrokenPipe { (OUTPUT_CLOSED, None) } else { (FAILED, line) };
        if !self.is_ending {
            return self.fail(status, line);
        }
        self.status.get_or_insert(status);
        line.iter().for_each(|line| self.print_remark(line));
    }

    /// Ends all ranks.
    fn end_all(&mut self) {
        self.is_ending = true;
        self.order_all(&Order::End);
    }

    /// Gives an order to the crews of all hosts.
    fn order_all(&mut self, order: &Order) {
        self.sites.iter_mut().for_each(|site| site.give_order(order.clone()));
    }

    /// Prints a remark of mpirun, after the output that ranks have written.
    fn print_remark(&mut self, text: &str) {
        let line = format!("nicety: {}\n", results::plain::line(text));
        self.err.remark(&line);
    }

    /// A line about a rank: its name, host and process.
    fn describe_rank(&self, at: usize, what: &str) -> String {
        let rank = &self.ranks[at];
        format!("{} on {} (pid {}) {what}", rank.name(), self.site_of(at), rank.pid)
    }

    /// The name of the host of a rank.
    fn site_of(&self, at: usize) -> &str {
        &self.sites[self.ranks[at].site].name
    }

    /// Warns if a host has more ranks than cores.
    fn warn_if_oversubscribed(&mut self, site: usize, ranks: usize, cores: usize) {
        if ranks > cores && cores > 0 && !self.oversubscribe {
            let line = texts::oversubscribed(ranks, cores, &self.sites[site].name);
            self.print_remark(&line);
        }
    }

    /// Warns if the network between hosts is not private.
    fn warn_if_public(&mut self, site: usize, addresses: Vec<IpAddr>) {
        if let Some(line) = self.networks.add_host(site, addresses) {
            self.print_remark(&line);
        }
    }
}

impl Site {
    /// Gives an order to the host's crew, if that is not gone.
    fn give_order(&mut self, order: Order) {
        match &mut self.crew {
            _ if self.is_gone => {}
            HostCrew::Local(crew) => crew.give_order(order),
            HostCrew::Remote(remote) => remote.give_order(&order),
        }
    }

    /// The next event of the host's crew.
    fn next_event(&mut self) -> Option<CrewEvent> {
        match &mut self.crew {
            HostCrew::Local(crew) => crew.next_event(),
            HostCrew::Remote(remote) => remote.next_event(),
        }
    }
}

impl Rank {
    /// The name in messages: `rank 3`, or `rank 0 of job 1` for a spawned job.
    fn name(&self) -> String {
        match self.id.job() {
            0 => format!("rank {}", self.id.rank()),
            job => format!("rank {} of job {job}", self.id.rank()),
        }
    }

    /// The time by which its process must have ended, if its PMI stream ended without MPI_Finalize.
    fn exit_deadline(&self) -> Option<Instant> {
        let (_, since) = self.left.as_ref().filter(|(left, _)| *left == Departure::Vanished)?;
        Some(*since + EXIT_GRACE).filter(|_| self.end.is_none())
    }
}

/// The values of the fields of tags and file names for output of this rank.
fn fields<'a>(rank: &Rank, sites: &'a [Site]) -> Fields<'a> {
    let (id, site) = (rank.id, rank.site);
    Fields { rank: id.rank(), size: rank.size, job: id.job(), host: &sites[site].name, site }
}

/// What each line of output of a rank begins with.
fn tag(pattern: Option<&str>, fields: &Fields<'_>) -> String {
    pattern.map(|pattern| output::expand(pattern, fields)).unwrap_or_default()
}

/// The start description of a process that a rank spawns: settings that the request does not name are those of the rank.
fn spawned_process(asker: &ProcessSpec, program: &Program, total: usize) -> ProcessSpec {
    let is_own = |name: &str| name == "PMI_SPAWNED" || RANK_VARIABLES.contains(&name);
    let is_inherited = |(name, _): &&(OsString, OsString)| !name.to_str().is_some_and(is_own);
    let mut variables: Vec<_> = asker.variables.iter().filter(is_inherited).cloned().collect();
    variables.push(("PMI_SPAWNED".into(), "1".into()));
    let directory = program.info.iter().find(|(key, _)| key == "wdir");
    ProcessSpec {
        command: [&program.file].into_iter().chain(&program.arguments).map(OsString::from).collect(),
        directory: directory.map_or_else(|| asker.directory.clone(), |(_, wdir)| wdir.into()),
        variables,
        local_rank: 0,
        local_size: total as u32,
        bind: Binding::None,
        mpi: asker.mpi.clone(),
        reads: false,
        inherits_output: asker.inherits_output,
        notes_calls: asker.notes_calls,
    }
}
