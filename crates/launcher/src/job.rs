//! Runs a job from its first process to its last: serves PMI, forwards input and output, and detects failures, in one loop
//! without threads.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use auth::{JOB_KEY, Key};
use pmi::server::{Event, Job as Ranks, Left, Placement, RankId, Server};
use pmi::spawn::{Program, Spawn};
use rustix::event::PollFlags;
use rustix::stdio::{stderr, stdin, stdout};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use super::crew::{Crew, Part};
use super::input::Input;
use super::message::{Binding, End, News, Order, Start, Stream};
use super::plan::Plan;
use super::printer::Printer;
use super::private::Networks;
use super::profile::Profiles;
use super::remote::{Pipe, Remote};
use super::wake::{Signals, Wanted, wait};
use super::{hosts, program, words};
use crate::failure::{FAILED, Failure, OK};
use report::JobProfile;

/// How long a process may run on after it has closed its PMI stream.
const FAREWELL: Duration = Duration::from_secs(1);
/// The exit status after `--timeout`, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// The exit status when the reader of the output has gone: 128 + SIGPIPE, as in shells.
const UNREAD: u8 = 128 + 13;

/// A process of a job.
#[derive(Debug)]
struct Rank {
    id: RankId,
    site: usize,
    start: Start,
    pid: u32,
    /// Whether it has sent any PMI command.
    has_spoken: bool,
    left: Option<(Left, Instant)>,
    /// Why it did not join its job, if its MPI library is the reason.
    alone: Option<String>,
    end: Option<End>,
}

/// The crew of a host, or the connection to it.
#[derive(Debug)]
enum Crewed {
    Here(Box<Crew>),
    There(Box<Remote>),
}

/// A host with its processes.
#[derive(Debug)]
struct Site {
    name: String,
    crew: Crewed,
    is_gone: bool,
}

/// The source of a poll event.
#[derive(Clone, Copy, Debug)]
enum Watch {
    Signals,
    Input,
    Printer(Stream),
    Crew(usize, u32, Part),
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
    profiles: Option<Profiles>,
    networks: Networks,
    /// The key of all jobs of this mpirun, for programs that get none by PMI.
    key: OsString,
    /// Suppresses the remark about more ranks than cores.
    may_share_cores: bool,
    signals: Signals,
    /// When `--timeout` expires, and its value.
    timeout: Option<(Instant, Duration)>,
    /// The exit status of the first failure.
    status: Option<u8>,
    /// Whether all processes were ordered to end.
    is_ending: bool,
    /// The last forwarded signal that requests an end.
    asked: Option<i32>,
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
    job.begin(plan)?;
    loop {
        job.settle();
        if job.is_over() {
            let profiles = job.profiles.map(Profiles::into_jobs).unwrap_or_default();
            return Ok(Ended { status: job.status.unwrap_or(OK), profiles });
        }
        for watch in job.sleep()? {
            job.serve(watch);
        }
        job.look(Instant::now());
    }
}

impl Job {
    fn new(plan: &Plan) -> Result<Self, Failure> {
        let printer = |fd: std::os::fd::BorrowedFd<'_>| -> io::Result<Printer<File>> {
            let own = fd.try_clone_to_owned()?;
            let is_terminal = own.is_terminal();
            Ok(Printer::new(File::from(own), plan.is_tagged, is_terminal))
        };
        let failed = |why: io::Error| Failure::run(format!("cannot write: {why}{}", words::remedy(&why)));
        let signals = Signals::install()?;
        let mut sites = Vec::new();
        for (at, host) in plan.hosts.iter().enumerate() {
            let crew = if plan.is_here(at) {
                Crewed::Here(Box::new(Crew::new()))
            } else {
                let remote = Remote::start(&plan.way, &host.name, &plan.version);
                Crewed::There(Box::new(remote.map_err(|why| Failure::run(format!("{}: {why}", host.name)))?))
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
            profiles: plan.has_profile.then(Profiles::default),
            networks: Networks::new(plan.network().as_deref(), used),
            key: key.to_hex().into(),
            may_share_cores: plan.may_share_cores,
            signals,
            timeout: plan.timeout.map(|timeout| (Instant::now() + timeout, timeout)),
            status: None,
            is_ending: false,
            asked: None,
        })
    }

    /// Starts the ranks of the command line.
    fn begin(&mut self, plan: Plan) -> Result<(), Failure> {
        let here: Vec<usize> = (0..plan.hosts.len()).filter(|&host| plan.is_here(host)).collect();
        for host in here {
            let count = plan.ranks.iter().filter(|rank| rank.host == host).count();
            self.note_sharing(host, count, host::real::allowed_cores().len());
            self.note_networks(host, hosts::own_addresses());
        }
        let ranks = plan.ranks.into_iter().map(|rank| (rank.host, rank.appnum, rank.start)).collect();
        self.start(ranks, Vec::new()).map_err(Failure::run)
    }

    /// Starts a job of processes, each with its site and its application number.
    fn start(
        &mut self,
        ranks: Vec<(usize, u32, Start)>,
        preput: Vec<(String, String)>,
    ) -> Result<(), String> {
        let places = ranks.iter().map(|&(site, appnum, _)| Placement { node: site as u32, appnum }).collect();
        let name = words::job_name(self.ranks.len());
        let job = Ranks { name, ranks: places, universe_size: None, preput };
        let ids = self.server.add_job(job).map_err(|why| why.to_string())?;
        self.profiles.iter_mut().for_each(|profiles| profiles.begin(ids.len()));
        let size = OsString::from(ids.len().to_string());
        for (id, (site, _, mut start)) in ids.into_iter().zip(ranks) {
            let number = self.ranks.len() as u32;
            start.variables.push(("PMI_RANK".into(), id.rank().to_string().into()));
            start.variables.push(("PMI_SIZE".into(), size.clone()));
            if !start.variables.iter().any(|(name, _)| name == JOB_KEY) {
                start.variables.push((JOB_KEY.into(), self.key.clone()));
            }
            let order = Order::Start(number, Box::new(start.clone()));
            self.ranks.push(Rank {
                id,
                site,
                start,
                pid: 0,
                has_spoken: false,
                left: None,
                alone: None,
                end: None,
            });
            self.sites[site].order(order);
        }
        Ok(())
    }

    /// Handles all pending news and events, including further events that they cause.
    fn settle(&mut self) {
        loop {
            let mut is_quiet = true;
            for site in 0..self.sites.len() {
                while let Some(news) = self.sites[site].news() {
                    is_quiet = false;
                    self.hear(site, news);
                }
            }
            while let Some(event) = self.server.poll_event() {
                is_quiet = false;
                self.act(event);
            }
            if is_quiet {
                break;
            }
            self.answer();
            if !self.is_ending && self.ranks.iter().all(|rank| rank.end.is_some()) {
                self.end_all();
            }
        }
    }

    fn is_over(&self) -> bool {
        let is_written = !self.out.has_news() && !self.err.has_news();
        self.is_ending && is_written && self.sites.iter().all(|site| site.is_gone)
    }

    /// Sleeps until a descriptor is ready or a deadline has passed.
    fn sleep(&self) -> Result<Vec<Watch>, Failure> {
        let (input, out, err) = (stdin(), stdout(), stderr());
        let mut wanted: Vec<Wanted<'_, Watch>> = vec![(Watch::Signals, self.signals.fd(), PollFlags::IN)];
        if self.input.is_wanted() {
            wanted.push((Watch::Input, input, PollFlags::IN));
        }
        if self.out.has_news() {
            wanted.push((Watch::Printer(Stream::Out), out.as_fd(), PollFlags::OUT));
        }
        if self.err.has_news() {
            wanted.push((Watch::Printer(Stream::Err), err.as_fd(), PollFlags::OUT));
        }
        let has_room = self.out.has_room() && self.err.has_room();
        for (site, entry) in self.sites.iter().enumerate() {
            match &entry.crew {
                Crewed::Here(crew) => wanted.extend(
                    crew.wanted(has_room)
                        .map(|((number, part), fd, flags)| (Watch::Crew(site, number, part), fd, flags)),
                ),
                Crewed::There(remote) => wanted.extend(
                    remote.wanted(has_room).map(|(link, fd, flags)| (Watch::Remote(site, link), fd, flags)),
                ),
            }
        }
        wait(&wanted, self.deadline()).map_err(|why| {
            Failure::run(format!("cannot wait: {why}; start fewer ranks, or raise `ulimit -n`"))
        })
    }

    fn deadline(&self) -> Option<Instant> {
        let crews = self.sites.iter().filter_map(|site| match &site.crew {
            Crewed::Here(crew) => crew.deadline(),
            Crewed::There(remote) => remote.deadline(),
        });
        let timeout = self.timeout.filter(|_| !self.is_ending).map(|(at, _)| at);
        let farewells = self.ranks.iter().filter(|_| !self.is_ending).filter_map(Rank::farewell);
        let printers = [self.out.deadline(), self.err.deadline()];
        crews.chain(timeout).chain(farewells).chain(printers.into_iter().flatten()).min()
    }

    fn serve(&mut self, watch: Watch) {
        match watch {
            Watch::Signals => {
                for signal in self.signals.come() {
                    self.take_signal(signal);
                }
            }
            Watch::Input => {
                if let Some((bytes, readers)) = self.input.read() {
                    for reader in readers {
                        let site = self.ranks[reader as usize].site;
                        self.sites[site].order(Order::Input(reader, bytes.clone()));
                    }
                }
            }
            Watch::Printer(Stream::Out) => {
                if let Err(why) = self.out.flush() {
                    let line = format!("cannot write to standard output: {why}; free space, or redirect it");
                    self.fail_to_write(&why, Some(line));
                }
            }
            Watch::Printer(Stream::Err) => {
                if let Err(why) = self.err.flush() {
                    self.fail_to_write(&why, None);
                }
            }
            Watch::Crew(site, number, part) => {
                if let Crewed::Here(crew) = &mut self.sites[site].crew {
                    crew.ready((number, part));
                }
            }
            Watch::Remote(site, link) => {
                if let Crewed::There(remote) = &mut self.sites[site].crew {
                    remote.ready(link);
                }
            }
        }
    }

    /// Handles expired deadlines.
    fn look(&mut self, now: Instant) {
        let ranks = &self.ranks;
        let tag = |number: u32| ranks.get(number as usize).map(Rank::tag).unwrap_or_default();
        self.out.show(now, tag);
        self.err.show(now, tag);
        for site in &mut self.sites {
            match &mut site.crew {
                Crewed::Here(crew) if crew.deadline().is_some_and(|at| at <= now) => crew.look(),
                Crewed::Here(_) => {}
                Crewed::There(remote) => remote.look(),
            }
        }
        if self.is_ending {
            return;
        }
        if let Some((_, given)) = self.timeout.filter(|(at, _)| *at <= now) {
            let running = self.ranks.iter().filter(|rank| rank.end.is_none()).count();
            let line = words::timed_out(given, running);
            return self.fail(TIMED_OUT, Some(line));
        }
        if let Some(at) = self.ranks.iter().position(|rank| rank.farewell().is_some_and(|at| at <= now)) {
            self.fail_rank(
                at,
                FAILED,
                "closed its connection to mpirun without MPI_Finalize, but still runs",
            );
        }
    }

    fn take_signal(&mut self, signal: i32) {
        match signal {
            SIGCHLD => {
                for site in &mut self.sites {
                    if let Crewed::Here(crew) = &mut site.crew {
                        crew.look();
                    }
                }
            }
            // mpirun may be in the foreground again; the next sleep checks that.
            SIGCONT => {}
            SIGUSR1 | SIGUSR2 => self.order_all(&Order::Signal(signal)),
            SIGINT | SIGTERM if self.asked.is_some() => {
                self.status.get_or_insert((128 + signal) as u8);
                self.is_ending = true;
                self.order_all(&Order::Kill);
            }
            _ => {
                self.asked = Some(signal);
                self.order_all(&Order::Signal(signal));
            }
        }
    }

    fn hear(&mut self, site: usize, news: News) {
        let now = Instant::now();
        match news {
            News::Hello(hello) => {
                let count = self.ranks.iter().filter(|rank| rank.site == site).count();
                self.note_sharing(site, count, hello.cores as usize);
                self.note_networks(site, hello.addresses);
            }
            News::Gone => self.sites[site].is_gone = true,
            News::Lost(why) => self.lose(site, &why),
            News::Started(number, ..)
            | News::NotStarted(number, ..)
            | News::Pmi(number, ..)
            | News::Output(number, ..)
            | News::InputTaken(number)
            | News::Missing(number, ..)
            | News::Alone(number, ..)
            | News::Ended(number, ..) => {
                // News about a process that does not run on that host is ignored.
                if self.ranks.get(number as usize).is_some_and(|rank| rank.site == site) {
                    self.hear_rank(number, news, now);
                }
            }
        }
    }

    fn hear_rank(&mut self, number: u32, news: News, now: Instant) {
        let at = number as usize;
        let id = self.ranks[at].id;
        match news {
            News::Started(_, pid) => self.ranks[at].pid = pid,
            News::NotStarted(_, why) => {
                self.ranks[at].end = Some(End::Exit(FAILED));
                self.input.gone(number);
                self.server.handle_eof(id);
                let line = format!("{} on {}: {why}", self.ranks[at].name(), self.site_of(at));
                self.fail(FAILED, Some(line));
            }
            News::Pmi(_, bytes) if bytes.is_empty() => self.server.handle_eof(id),
            News::Pmi(_, bytes) => {
                self.server.handle_bytes(id, &bytes);
                if !std::mem::replace(&mut self.ranks[at].has_spoken, true) {
                    self.judge_silent(id.job());
                }
            }
            News::Output(_, stream, bytes) => {
                let tag = self.ranks[at].tag();
                let printer = if stream == Stream::Out { &mut self.out } else { &mut self.err };
                printer.take(number, &tag, &bytes, now);
            }
            News::InputTaken(_) => self.input.taken(number),
            News::Missing(_, text) if !self.is_ending => self.say(&text),
            News::Missing(..) => {}
            News::Alone(_, text) => self.ranks[at].alone = Some(text),
            News::Ended(_, end) => {
                self.ranks[at].end = Some(end);
                self.input.gone(number);
                // PMI events come first: how the process left PMI decides what its exit means.
                while let Some(event) = self.server.poll_event() {
                    self.act(event);
                }
                self.note_alone(at);
                self.judge(at, end);
            }
            News::Hello(_) | News::Gone | News::Lost(_) => {}
        }
    }

    /// Sends pending PMI answers to the ranks.
    fn answer(&mut self) {
        for (number, rank) in (0..).zip(&self.ranks) {
            let mut bytes = Vec::new();
            while let n @ 1.. = self.server.transmit(rank.id).len() {
                bytes.extend_from_slice(self.server.transmit(rank.id));
                self.server.sent(rank.id, n);
            }
            if !bytes.is_empty() {
                self.sites[rank.site].order(Order::Pmi(number, bytes));
            }
        }
    }

    fn act(&mut self, event: Event) {
        let at = |job: &Self, id: RankId| job.ranks.iter().position(|rank| rank.id == id);
        match event {
            Event::Finalized(rank) => {
                self.profiles.iter_mut().for_each(|profiles| profiles.take(&self.server, rank));
            }
            Event::Spawn { rank, spawn } => {
                if let Some(asker) = at(self, rank) {
                    self.spawn(asker, spawn);
                }
            }
            Event::Abort { rank, code, message } => {
                if let Some(at) = at(self, rank) {
                    let said = if message.is_empty() { message } else { format!(": {message}") };
                    self.fail_rank(
                        at,
                        pmi::abort_status(code),
                        &format!("aborted the job with {code}{said}"),
                    );
                }
            }
            Event::Left { rank, how } => {
                let Some(at) = at(self, rank) else { return };
                if let Left::Broken(violation) = &how {
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
            let start = spawned(start, program, total);
            starts.extend((0..program.processes).map(|_| (site, appnum, start.clone())));
        }
        for (local_rank, (_, _, start)) in (0..).zip(&mut starts) {
            start.local_rank = local_rank;
        }
        let find = |(_, _, start): &(usize, u32, Start)| {
            program::find(&start.command[0], Path::new(&start.directory), std::env::var_os("PATH"))
        };
        let is_here = matches!(self.sites[site].crew, Crewed::Here(_));
        let missing = starts.iter().filter(|_| is_here).find_map(|start| find(start).err());
        let done = match missing {
            _ if self.is_ending => Err("the job is ending".to_owned()),
            Some(why) => Err(why),
            None => self.start(starts, spawn.preput),
        };
        if let Err(why) = &done {
            let name = self.ranks[asker].name();
            self.say(&format!("{name} cannot spawn processes: {why}"));
        }
        self.server.spawned(id, &vec![i32::from(done.is_err()); total]);
    }

    /// Decides what the end of a process means for its job.
    fn judge(&mut self, at: usize, end: End) {
        let rank = &self.ranks[at];
        let left = rank.left.as_ref().map(|(left, _)| left.clone());
        let is_over = matches!(left, Some(Left::Finalized));
        let late = if is_over { " after MPI_Finalize" } else { "" };
        let early = if rank.has_spoken && !is_over { " without MPI_Finalize" } else { "" };
        let (status, what) = match end {
            End::Exit(0) if is_over => return,
            End::Exit(0) if left == Some(Left::Silent) => return self.judge_silent(rank.id.job()),
            End::Exit(0) => (FAILED, format!("exited with 0{early}")),
            End::Exit(code) => (code, format!("exited with {code}{early}{late}")),
            End::Signal(signal) => {
                let status = 128_u8.saturating_add(signal);
                if self.asked == Some(i32::from(signal)) {
                    return self.fail(status, None);
                }
                (status, format!("was killed by {}{late}", words::signal(signal)))
            }
        };
        if is_over && !self.is_ending {
            // No other rank waits for it any more.
            self.status.get_or_insert(status);
            let line = self.sentence(at, &what);
            return self.say(&line);
        }
        self.fail_rank(at, status, &what);
    }

    /// Prints once why no rank of a job has joined it: when all ranks have ended successfully, or when the first has failed.
    fn note_alone(&mut self, at: usize) {
        let Rank { id, end, .. } = self.ranks[at];
        let of_job = || self.ranks.iter().filter(|rank| rank.id.job() == id.job());
        let is_over = end != Some(End::Exit(0)) || of_job().all(|rank| rank.end.is_some());
        if self.is_ending || !is_over || of_job().count() < 2 || of_job().any(|rank| rank.has_spoken) {
            return;
        }
        if let Some(text) = self.ranks[at].alone.clone() {
            self.say(&text);
        }
    }

    /// Fails a job in which some ranks wait in vain for a rank that exited with 0 without calling MPI_Init.
    fn judge_silent(&mut self, job: u32) {
        let of_job = |rank: &&Rank| rank.id.job() == job;
        let is_silent = |rank: &Rank| of_job(&rank) && !rank.has_spoken && rank.end == Some(End::Exit(0));
        let speakers = self.ranks.iter().filter(of_job).any(|rank| rank.has_spoken);
        if let Some(at) = self.ranks.iter().position(is_silent).filter(|_| speakers) {
            self.fail_rank(at, FAILED, "exited with 0 without MPI_Init, which other ranks have called");
        }
    }

    /// Handles the loss of a host: all its ranks have failed.
    fn lose(&mut self, site: usize, why: &str) {
        self.sites[site].is_gone = true;
        let name = self.sites[site].name.clone();
        let lost: Vec<usize> = (0..self.ranks.len())
            .filter(|&at| self.ranks[at].site == site && self.ranks[at].end.is_none())
            .collect();
        let was_there = lost.iter().any(|&at| self.ranks[at].pid > 0);
        for at in lost {
            self.ranks[at].end = Some(End::Exit(FAILED));
            self.input.gone(at as u32);
            self.server.handle_eof(self.ranks[at].id);
        }
        let hint = match &self.sites[site].crew {
            Crewed::There(remote) if !was_there => remote.hint,
            _ => "check that host and its network",
        };
        self.fail(FAILED, Some(format!("the host {name} is lost: {why}; {hint}")));
    }

    fn fail_rank(&mut self, at: usize, status: u8, what: &str) {
        let is_other = |&(other, rank): &(usize, &Rank)| other != at && rank.end.is_none() && rank.pid > 0;
        let others = self.ranks.iter().enumerate().filter(is_other).count();
        let line = self.sentence(at, what) + &words::others(others);
        self.fail(status, Some(line));
    }

    /// Records the first failure: it decides the status, is printed, and ends all ranks.
    fn fail(&mut self, status: u8, line: Option<String>) {
        if self.is_ending {
            return;
        }
        self.status.get_or_insert(status);
        if let Some(line) = line {
            self.say(&line);
        }
        self.end_all();
    }

    /// Output cannot be written; this is a failure even if its ranks have ended. If the reader has closed the pipe, nothing is
    /// printed.
    fn fail_to_write(&mut self, why: &io::Error, line: Option<String>) {
        let (status, line) =
            if why.kind() == ErrorKind::BrokenPipe { (UNREAD, None) } else { (FAILED, line) };
        if !self.is_ending {
            return self.fail(status, line);
        }
        self.status.get_or_insert(status);
        line.iter().for_each(|line| self.say(line));
    }

    fn end_all(&mut self) {
        self.is_ending = true;
        self.order_all(&Order::End);
    }

    fn order_all(&mut self, order: &Order) {
        self.sites.iter_mut().for_each(|site| site.order(order.clone()));
    }

    /// Prints a remark of mpirun, after the output that ranks have written.
    fn say(&mut self, text: &str) {
        let line = format!("nicety: {}\n", results::plain::line(text));
        self.err.remark(&line);
    }

    fn sentence(&self, at: usize, what: &str) -> String {
        let rank = &self.ranks[at];
        format!("{} on {} (pid {}) {what}", rank.name(), self.site_of(at), rank.pid)
    }

    fn site_of(&self, at: usize) -> &str {
        &self.sites[self.ranks[at].site].name
    }

    fn note_sharing(&mut self, site: usize, ranks: usize, cores: usize) {
        if ranks > cores && cores > 0 && !self.may_share_cores {
            let line = words::sharing(ranks, cores, &self.sites[site].name);
            self.say(&line);
        }
    }

    /// Warns if the network between hosts is not private.
    fn note_networks(&mut self, site: usize, addresses: Vec<IpAddr>) {
        if let Some(line) = self.networks.report(site, addresses) {
            self.say(&line);
        }
    }
}

impl Site {
    fn order(&mut self, order: Order) {
        match &mut self.crew {
            _ if self.is_gone => {}
            Crewed::Here(crew) => crew.order(order),
            Crewed::There(remote) => remote.order(&order),
        }
    }

    fn news(&mut self) -> Option<News> {
        match &mut self.crew {
            Crewed::Here(crew) => crew.news(),
            Crewed::There(remote) => remote.news(),
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

    fn tag(&self) -> String {
        match self.id.job() {
            0 => format!("[{}] ", self.id.rank()),
            job => format!("[{job}.{}] ", self.id.rank()),
        }
    }

    /// The time by which its process must have ended, if its PMI stream ended without MPI_Finalize.
    fn farewell(&self) -> Option<Instant> {
        let (_, since) = self.left.as_ref().filter(|(left, _)| *left == Left::Vanished)?;
        Some(*since + FAREWELL).filter(|_| self.end.is_none())
    }
}

/// The start description of a process that a rank spawns: settings that the request does not name are those of the rank.
fn spawned(asker: &Start, program: &Program, total: usize) -> Start {
    let own: BTreeSet<&str> = ["PMI_RANK", "PMI_SIZE", "PMI_SPAWNED"].into();
    let is_inherited =
        |(name, _): &&(OsString, OsString)| !name.to_str().is_some_and(|name| own.contains(name));
    let mut variables: Vec<_> = asker.variables.iter().filter(is_inherited).cloned().collect();
    variables.push(("PMI_SPAWNED".into(), "1".into()));
    let directory = program.info.iter().find(|(key, _)| key == "wdir");
    Start {
        command: [&program.file].into_iter().chain(&program.arguments).map(OsString::from).collect(),
        directory: directory.map_or_else(|| asker.directory.clone(), |(_, wdir)| wdir.into()),
        variables,
        local_rank: 0,
        local_size: total as u32,
        bind: Binding::None,
        mpi: asker.mpi.clone(),
        reads: false,
        writes_itself: asker.writes_itself,
    }
}
