//! The processes of one host: starts them, forwards their input and output, and ends them with all their descendants.
//!
//! Each process leads its own process group. A process that has ended stays a zombie until its group is killed, so that its id
//! cannot be reused before that. A process whose core is being written counts as ended: the crew neither waits for the core nor
//! cuts it short.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process_group, setrlimit, waitid,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::calls::{CALLS_FD, CallNotes};
use super::dump;
use super::event_loop::PollEntry;
use super::guard::Guard;
use super::linked::LinkedMpi;
use super::message::{CrewEvent, ExitReason, Library, Order, ProcessSpec, Stream};
use super::texts::remedy;
use super::{program, topology};
use crate::install_paths;
use crate::options::Abi;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// Interval of the check for core dumps in progress; each check reads a file of /proc per process.
const DUMP_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Limit of PMI bytes that a process has not read yet; above it, its PMI stream is closed.
const PMI_UNREAD_MAX: usize = 256 << 10;
/// Size of one read, in bytes.
const PIECE: usize = 64 << 10;
/// Descriptors per process: PMI, input, output, errors and calls. Those used only while it starts are not counted.
const FDS_PER_PROCESS: u64 = 5;
/// Descriptors for everything else.
const FDS_OTHER: u64 = 32;
/// The exit status when the loader does not find a library of the program.
const NOT_LOADED: u8 = 127;
/// The loader's search path for libraries.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Variables removed from the environment: they name another launcher, or describe another job.
const OTHER_LAUNCHERS_VARIABLES: [&str; 6] =
    ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMIX_NAMESPACE", "PMIX_RANK", CALLS_FD];

/// A descriptor of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProcessFd {
    Pmi,
    Input,
    Output(Stream),
}

/// The pipe of an output stream.
#[derive(Debug)]
enum OutputPipe {
    Out(ChildStdout),
    Err(ChildStderr),
}

impl OutputPipe {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Out(pipe) => pipe.as_fd(),
            Self::Err(pipe) => pipe.as_fd(),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Out(pipe) => pipe.read(bytes),
            Self::Err(pipe) => pipe.read(bytes),
        }
    }
}

/// A started program; the key under which its MPI library is cached.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ProgramKey {
    name: String,
    file: PathBuf,
    /// Its LD_LIBRARY_PATH.
    search: Option<OsString>,
}

/// A process, and our ends of its streams; each is dropped when it closes.
#[derive(Debug)]
struct Process {
    child: Child,
    started: ProgramKey,
    /// Whether it has sent any PMI command.
    has_used_pmi: bool,
    group: Pid,
    pmi: Option<UnixStream>,
    to_pmi: Vec<u8>,
    input: Option<ChildStdin>,
    to_input: Vec<u8>,
    output_pipes: BTreeMap<Stream, OutputPipe>,
    calls: Option<CallNotes>,
    has_ended: bool,
    /// Its core was still being written when its end was reported.
    is_dumped: bool,
}

/// The processes of this host.
#[derive(Debug)]
pub(super) struct Crew {
    /// The path of this program, or why it is unknown.
    own_executable: Result<PathBuf, String>,
    guard: Option<Guard>,
    processes: BTreeMap<u32, Process>,
    /// The MPI libraries of programs that ended without any PMI command.
    mpi_libraries: BTreeMap<ProgramKey, Option<LinkedMpi>>,
    events: VecDeque<CrewEvent>,
    has_failed: bool,
    /// Set once the processes were asked to end: when to kill the remaining ones, or to repeat the kill.
    kill_at: Option<Instant>,
    was_killed: bool,
    is_gone: bool,
    /// While processes run: the next check for core dumps, as no signal announces one.
    dumps_at: Option<Instant>,
}

impl Crew {
    /// A crew without processes.
    pub(super) fn new() -> Self {
        Self {
            own_executable: install_paths::own_program().map_err(|failure| failure.to_string()),
            guard: None,
            processes: BTreeMap::new(),
            mpi_libraries: BTreeMap::new(),
            events: VecDeque::new(),
            has_failed: false,
            kill_at: None,
            was_killed: false,
            is_gone: false,
            dumps_at: None,
        }
    }

    /// The next event for mpirun, in the order in which they happened.
    pub(super) fn next_event(&mut self) -> Option<CrewEvent> {
        self.events.pop_front()
    }

    /// When [`Crew::reap_and_kill`] has to be called although nothing is ready.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.kill_at.into_iter().chain(self.dumps_at).min()
    }

    /// The descriptors to poll; the output pipes only if `with_output`.
    pub(super) fn poll_entries(
        &self,
        with_output: bool,
    ) -> impl Iterator<Item = PollEntry<'_, (u32, ProcessFd)>> {
        self.processes.iter().flat_map(move |(&number, process)| {
            let writes = |waits: bool| if waits { PollFlags::OUT } else { PollFlags::empty() };
            let pmi = process.pmi.iter().map(move |stream| {
                ((number, ProcessFd::Pmi), stream.as_fd(), PollFlags::IN | writes(!process.to_pmi.is_empty()))
            });
            let input = process.input.iter().filter(|_| !process.to_input.is_empty());
            let input = input.map(move |pipe| ((number, ProcessFd::Input), pipe.as_fd(), PollFlags::OUT));
            let output_pipes = process.output_pipes.iter().filter(move |_| with_output);
            let output_pipes = output_pipes.map(move |(&stream, output_pipe)| {
                ((number, ProcessFd::Output(stream)), output_pipe.fd(), PollFlags::IN)
            });
            pmi.chain(input).chain(output_pipes)
        })
    }

    /// Handles a ready descriptor, without blocking.
    pub(super) fn handle_ready(&mut self, (number, part): (u32, ProcessFd)) {
        match part {
            ProcessFd::Pmi => {
                self.read_pmi(number);
                self.write_pmi(number);
            }
            ProcessFd::Input => self.write_input(number),
            ProcessFd::Output(stream) => _ = self.read_output(number, stream),
        }
    }

    /// Executes an order.
    pub(super) fn give_order(&mut self, order: Order) {
        match order {
            Order::Start(number, start) => {
                let event = match self.start(number, &start) {
                    Ok((pid, processors)) => CrewEvent::Started(number, pid, processors),
                    Err(why) => {
                        self.has_failed = true;
                        CrewEvent::NotStarted(number, why)
                    }
                };
                self.events.push_back(event);
            }
            Order::Pmi(number, bytes) => {
                if let Some(process) = self.processes.get_mut(&number) {
                    process.to_pmi.extend_from_slice(&bytes);
                    self.write_pmi(number);
                }
            }
            Order::Input(number, bytes) => self.queue_input(number, &bytes),
            Order::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal(signal);
                }
            }
            Order::ReportCalls => self.report_calls(),
            Order::End => self.end(),
            Order::Kill => self.kill(),
        }
        self.finish_if_ended();
    }

    /// Reaps processes that have ended, and kills the others once the grace period has passed.
    pub(super) fn reap_and_kill(&mut self) {
        let running: Vec<(u32, Pid)> = self
            .processes
            .iter()
            .filter(|(_, process)| !process.has_ended)
            .map(|(number, process)| (*number, process.group))
            .collect();
        let is_time = self.dumps_at.is_some_and(|at| at <= Instant::now());
        for (number, pid) in running {
            if let Some(end) = exit_reason(pid) {
                self.report_end(number, end);
            } else if let Some(signal) = if is_time { dump::signal(pid) } else { None } {
                self.report_end(number, ExitReason::Signal(signal));
                self.process(number).into_iter().for_each(|process| process.is_dumped = true);
            }
        }
        if is_time {
            let is_any_left = self.processes.values().any(|process| !process.has_ended);
            self.dumps_at = is_any_left.then(|| Instant::now() + DUMP_CHECK_INTERVAL);
        }
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill();
        }
        self.finish_if_ended();
    }

    /// Starts a process; returns its process id, and the processors that it is bound to.
    fn start(&mut self, number: u32, start: &ProcessSpec) -> Result<(u32, Vec<u32>), String> {
        if self.has_failed {
            return Err(
                "not started, because another process could not be started; fix that first".to_owned()
            );
        }
        let (name, arguments) = start.command.split_first().ok_or("no program is given; name one")?;
        let file = program::find(name, Path::new(&start.directory), self.variable(start, "PATH"))?;
        let processors = topology::processors(start)?;
        raise_fd_limit(start.local_size)?;
        let count = self.processes.len();
        let failed = |why: io::Error| spawn_error(name, &why, count);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&file);
        command.arg0(name).args(arguments).current_dir(&start.directory).process_group(0);
        self.set_environment(&mut command, start, theirs.as_raw_fd());
        let calls = if start.notes_calls { Some(CallNotes::new().map_err(failed)?) } else { None };
        if let Some(calls) = &calls {
            command.env(CALLS_FD, calls.number_for_rank().to_string());
        }
        command.stdin(if start.reads { Stdio::piped() } else { Stdio::null() });
        let output = || if start.inherits_output { Stdio::inherit() } else { Stdio::piped() };
        command.stdout(output()).stderr(output());
        let guard = self.guard()?;
        let inherited = [theirs.as_fd()].into_iter().chain(calls.as_ref().map(CallNotes::for_rank));
        let child = spawn(&mut command, inherited, &processors).map_err(failed)?;
        let pid = child.id();
        guard.watch(Pid::from_child(&child));
        let search = command.get_envs().find(|(variable, _)| *variable == LIBRARY_PATH);
        let search =
            search.map_or_else(|| std::env::var_os(LIBRARY_PATH), |(_, value)| value.map(OsString::from));
        let started = ProgramKey { name: Path::new(name).display().to_string(), file, search };
        let calls = calls.map(CallNotes::without_ranks_end);
        self.processes.insert(number, Process::new(child, started, ours, calls));
        self.dumps_at.get_or_insert_with(|| Instant::now() + DUMP_CHECK_INTERVAL);
        Ok((pid, processors.into_iter().map(|number| number as u32).collect()))
    }

    /// The guard process, started at the first call; it kills the processes if this one dies.
    fn guard(&mut self) -> Result<&mut Guard, String> {
        if self.guard.is_none() {
            let program = self.own_executable.as_ref().map_err(String::clone)?;
            let guard = Guard::start(program).map_err(|why| {
                format!("the guard process, {}, cannot be started: {why}{}", program.display(), remedy(&why))
            });
            self.guard = Some(guard?);
        }
        self.guard.as_mut().ok_or_else(|| "there is no guard process; please report this bug".to_owned())
    }

    /// The value of a variable in the environment of the process.
    fn variable(&self, start: &ProcessSpec, name: &str) -> Option<OsString> {
        let set = start.variables.iter().rev().find(|(variable, _)| variable == name);
        set.map(|(_, value)| value.clone()).or_else(|| std::env::var_os(name))
    }

    /// Sets the environment of a process.
    fn set_environment(&self, command: &mut Command, start: &ProcessSpec, pmi_fd: i32) {
        OTHER_LAUNCHERS_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
        let [before, after] = self.mpi_directories(&start.mpi);
        command.envs(start.variables.iter().map(|(name, value)| (name, value)));
        if !before.is_empty() || !after.is_empty() {
            let chosen = self.variable(start, LIBRARY_PATH).filter(|chosen| !chosen.is_empty());
            let chosen = chosen.iter().flat_map(|chosen| std::env::split_paths(chosen));
            if let Ok(all) = std::env::join_paths(before.into_iter().chain(chosen).chain(after)) {
                command.env(LIBRARY_PATH, all);
            }
        }
        command
            .env("PMI_FD", pmi_fd.to_string())
            .env("MPI_LOCALRANKID", start.local_rank.to_string())
            .env("MPI_LOCALNRANKS", start.local_size.to_string())
            .env("OMPI_COMM_WORLD_LOCAL_RANK", start.local_rank.to_string())
            .env("OMPI_COMM_WORLD_NODE_RANK", start.local_rank.to_string())
            .env("OMPI_COMM_WORLD_LOCAL_SIZE", start.local_size.to_string());
    }

    /// The directories of MPI libraries before and after the user's own, all before the program's RUNPATH and the default directories.
    fn mpi_directories(&self, library: &Library) -> [Vec<PathBuf>; 2] {
        let own = self.own_executable.as_deref().ok().and_then(Path::parent);
        let standard = || own.and_then(install_paths::mpi_directory);
        let mpich = || own.and_then(install_paths::mpich_directory);
        let all = |places: [Option<PathBuf>; 2]| places.into_iter().flatten().collect();
        match library {
            Library::None => [vec![], vec![]],
            Library::In(directory) => [vec![], vec![PathBuf::from(directory)]],
            Library::Bundled(Abi::Standard) => [vec![], all([standard(), None])],
            // The folder of MPICH's ABI has nothing else; that of the standard's may also hold an installed MPICH.
            Library::Bundled(Abi::Any) => [vec![], all([mpich(), standard()])],
            Library::Bundled(Abi::Mpich) => [all([mpich(), None]), all([standard(), None])],
        }
    }

    /// The process of a rank; `None` if it has ended or was never started.
    fn process(&mut self, number: u32) -> Option<&mut Process> {
        self.processes.get_mut(&number)
    }

    /// Forwards PMI commands of a process to the server.
    fn read_pmi(&mut self, number: u32) {
        let mut bytes = [0; 4096];
        loop {
            let Some(stream) = self.process(number).and_then(|process| process.pmi.as_mut()) else { return };
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => {
                    self.process(number).into_iter().for_each(|process| process.has_used_pmi = true);
                    self.events.push_back(CrewEvent::Pmi(number, bytes[..n].to_vec()));
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                // The stream is reset if a process was killed before it read all answers.
                Err(_) => break,
            }
        }
        self.close_pmi(number);
    }

    /// Closes the PMI stream of a process, and reports its end once.
    fn close_pmi(&mut self, number: u32) {
        let Some(process) = self.process(number) else { return };
        process.to_pmi.clear();
        if process.pmi.take().is_some() {
            self.events.push_back(CrewEvent::Pmi(number, Vec::new()));
        }
    }

    /// Writes answers to a process, as many bytes as its PMI stream accepts.
    /// A process that reads too little loses its stream.
    fn write_pmi(&mut self, number: u32) {
        let Some(process) = self.process(number) else { return };
        let Some(stream) = process.pmi.as_mut() else { return process.to_pmi.clear() };
        // A write error is ignored: the next read reports the end of the stream.
        write_some(stream, &mut process.to_pmi);
        if process.to_pmi.len() > PMI_UNREAD_MAX {
            self.close_pmi(number);
        }
    }

    /// Queues input for a process; an empty slice closes its standard input.
    fn queue_input(&mut self, number: u32, bytes: &[u8]) {
        let Some(process) = self.process(number) else {
            return self.events.push_back(CrewEvent::InputWritten(number));
        };
        if bytes.is_empty() {
            process.input = None;
        }
        process.to_input.extend_from_slice(bytes);
        self.write_input(number);
    }

    /// Writes queued input to a process, as many bytes as its pipe accepts, and reports when all is written.
    fn write_input(&mut self, number: u32) {
        let Some(process) = self.process(number) else { return };
        let is_open = process.input.as_mut().is_some_and(|pipe| write_some(pipe, &mut process.to_input));
        if !is_open {
            process.input = None;
            process.to_input.clear();
        }
        if process.to_input.is_empty() {
            self.events.push_back(CrewEvent::InputWritten(number));
        }
    }

    /// Forwards output of a process; returns whether another read may succeed without waiting.
    fn read_output(&mut self, number: u32, stream: Stream) -> bool {
        let Some(output_pipe) =
            self.process(number).and_then(|process| process.output_pipes.get_mut(&stream))
        else {
            return false;
        };
        let mut bytes = vec![0; PIECE];
        match output_pipe.read(&mut bytes) {
            Ok(n) if n > 0 => {
                bytes.truncate(n);
                self.events.push_back(CrewEvent::Output(number, stream, bytes));
                return true;
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return false,
            _ => {}
        }
        if let Some(process) = self.process(number) {
            process.output_pipes.remove(&stream);
        }
        self.events.push_back(CrewEvent::Output(number, stream, Vec::new()));
        false
    }

    /// Reports that a process has ended, after the PMI commands and output that it left in its streams.
    fn report_end(&mut self, number: u32, end: ExitReason) {
        self.read_pmi(number);
        self.close_pmi(number);
        self.drain(number);
        if let Some(process) = self.process(number) {
            process.has_ended = true;
            process.input = None;
            process.to_input.clear();
        }
        let hint = self.hint(number, end);
        self.events.extend(hint);
        self.events.push_back(CrewEvent::Ended(number, end));
    }

    /// A hint about the MPI library of a process that ended without any PMI command.
    fn hint(&mut self, number: u32, end: ExitReason) -> Option<CrewEvent> {
        let (ExitReason::Exit(code), process) = (end, self.processes.get(&number)?) else { return None };
        if process.has_used_pmi {
            return None;
        }
        let ProgramKey { name, file, search } = &process.started;
        let find = || LinkedMpi::examine(file, search.as_deref());
        let library = self.mpi_libraries.entry(process.started.clone()).or_insert_with(find).as_ref()?;
        match code {
            NOT_LOADED => Some(CrewEvent::Missing(number, library.missing_hint(name)?)),
            _ => Some(CrewEvent::NotJoined(number, library.not_joined_hint(name)?)),
        }
    }

    /// Reports the MPI calls that running processes have noted.
    fn report_calls(&mut self) {
        for (&number, process) in self.processes.iter().filter(|(_, process)| !process.has_ended) {
            let calls = process.calls.as_ref().and_then(CallNotes::read);
            self.events.extend(calls.map(|calls| CrewEvent::WaitsIn(number, calls)));
        }
    }

    /// Forwards the output written so far, at most the capacity of a pipe: a child of the process may go on writing.
    fn drain(&mut self, number: u32) {
        for stream in [Stream::Out, Stream::Err] {
            for _ in 0..16 {
                if !self.read_output(number, stream) {
                    break;
                }
            }
        }
    }

    /// Asks all processes to end (SIGTERM), unless all have ended already. Processes that still run after [`GRACE`] are killed.
    fn end(&mut self) {
        let is_quiet = |process: &Process| process.has_ended && process.output_pipes.is_empty();
        if self.kill_at.is_none() && !self.processes.values().all(is_quiet) {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
        }
        self.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
    }

    /// Kills all processes now.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.was_killed = true;
        self.kill_at = Some(Instant::now() + GRACE);
    }

    /// Sends a signal to the process groups of all ranks.
    fn signal(&self, signal: Signal) {
        for process in self.processes.values() {
            if signal == Signal::KILL && process.is_being_dumped() {
                dump::signal_others(process.group, signal);
                continue;
            }
            // Fails if the only process left in the group is a zombie.
            let _ = kill_process_group(process.group, signal);
        }
    }

    /// Once an end was requested, all processes have ended, and no output is expected any more: kills the remaining groups and
    /// reaps the processes.
    fn finish_if_ended(&mut self) {
        let is_quiet =
            |process: &Process| process.has_ended && (self.was_killed || process.output_pipes.is_empty());
        if self.is_gone || self.kill_at.is_none() || !self.processes.values().all(is_quiet) {
            return;
        }
        self.signal(Signal::KILL);
        let numbers: Vec<u32> = self.processes.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.drain(number));
        for (_, mut process) in std::mem::take(&mut self.processes) {
            if !process.is_being_dumped() {
                // Already ended, so this does not block.
                let _ = process.child.wait();
            }
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        self.is_gone = true;
        self.kill_at = None;
        self.events.push_back(CrewEvent::Finished);
    }
}

impl Process {
    fn new(mut child: Child, started: ProgramKey, pmi: UnixStream, calls: Option<CallNotes>) -> Self {
        let group = Pid::from_child(&child);
        let output_pipes = [
            child.stdout.take().map(|pipe| (Stream::Out, OutputPipe::Out(pipe))),
            child.stderr.take().map(|pipe| (Stream::Err, OutputPipe::Err(pipe))),
        ];
        let output_pipes: BTreeMap<Stream, OutputPipe> = output_pipes.into_iter().flatten().collect();
        let input = child.stdin.take();
        let streams = output_pipes.values().map(OutputPipe::fd).chain(input.iter().map(AsFd::as_fd));
        for fd in streams.chain([pmi.as_fd()]) {
            // Cannot fail on an open descriptor.
            let _ = rustix::io::ioctl_fionbio(fd, true);
        }
        Self {
            child,
            started,
            has_used_pmi: false,
            group,
            pmi: Some(pmi),
            to_pmi: Vec::new(),
            input,
            to_input: Vec::new(),
            output_pipes,
            calls,
            has_ended: false,
            is_dumped: false,
        }
    }

    /// Whether the kernel is still writing the core of this process.
    fn is_being_dumped(&self) -> bool {
        self.is_dumped && exit_reason(self.group).is_none()
    }
}

/// Explains why the system refused to start a program, with a remedy.
fn spawn_error(name: &OsStr, why: &io::Error, started: usize) -> String {
    let shown = Path::new(name).display();
    match why.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => format!(
            "{shown} cannot be started: {why}; this mpirun has started {started} processes: start fewer{}",
            remedy(why).replacen(';', ", or", 1)
        ),
        Some(Errno::NOENT) => format!(
            "{shown} cannot be started: its interpreter does not exist; check its first line, or the output of `file` for it"
        ),
        _ => format!("{shown} cannot be started: {why}; check that it is a program for this machine"),
    }
}

/// Starts a process bound to its processors. It inherits its end of the PMI stream and of its other files; no other process does.
fn spawn<'a>(
    command: &mut Command,
    inherited: impl Iterator<Item = BorrowedFd<'a>>,
    processors: &[usize],
) -> io::Result<Child> {
    for fd in inherited {
        fcntl_setfd(fd, FdFlags::empty())?;
    }
    if processors.is_empty() {
        return command.spawn();
    }
    // The child inherits the affinity, so it is bound from its first instruction.
    let before = sched_getaffinity(None)?;
    let mut wanted = CpuSet::new();
    processors.iter().for_each(|&processor| wanted.set(processor));
    sched_setaffinity(None, &wanted)?;
    let child = command.spawn();
    sched_setaffinity(None, &before)?;
    child
}

/// How a process ended; `None` while it runs. Leaves it a zombie.
fn exit_reason(pid: Pid) -> Option<ExitReason> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options).ok()??;
    let small = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    match status.exit_status() {
        Some(code) => Some(ExitReason::Exit(small(code))),
        None => status.terminating_signal().map(|signal| ExitReason::Signal(small(signal))),
    }
}

/// Writes as much as possible without blocking; returns whether the reader's end is still open.
pub(super) fn write_some(to: &mut impl Write, bytes: &mut Vec<u8>) -> bool {
    let mut done = 0;
    let is_open = loop {
        if done == bytes.len() {
            break true;
        }
        match to.write(&bytes[done..]) {
            Ok(n) => done += n,
            Err(why) if why.kind() == ErrorKind::WouldBlock => break true,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(_) => break false,
        }
    };
    bytes.drain(..done);
    is_open
}

/// Raises the soft limit of open descriptors if it is too small for this many processes.
fn raise_fd_limit(processes: u32) -> Result<(), String> {
    let needed = u64::from(processes) * FDS_PER_PROCESS + FDS_OTHER;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = maximum.filter(|maximum| *maximum < needed) {
        return Err(format!(
            "{processes} ranks on one host need {needed} descriptors, but the limit is {maximum}; start fewer ranks, or raise \
             `ulimit -Hn`"
        ));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .map_err(|why| format!("{processes} ranks need {needed} descriptors: {why}; raise `ulimit -n`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: &str = "NICETY_TEST_LARGE";

    /// Helper for the test below: run as a child with [`LARGE`] set, this process crashes with a large core.
    #[test]
    fn large_process_crashes() {
        if std::env::var_os(LARGE).is_some() {
            let memory = vec![1_u8; 1 << 30];
            std::hint::black_box(&memory);
            std::process::abort();
        }
    }

    /// Goal: a process counts as ended as soon as it crashes; the crew finishes while the core is being written, and the core
    /// becomes complete. Method: a process with 1 GiB of memory, and a crew whose deadlines are set to now.
    #[test]
    fn crew_ends_without_waiting_for_a_core_dump() {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let (folder, exe) =
            (tempfile::tempdir().expect("a folder"), std::env::current_exe().expect("this test"));
        let name = "crew::tests::large_process_crashes";
        let shell = format!("ulimit -c unlimited || exit 7; exec \"$0\" --exact {name} --nocapture");
        let start = ProcessSpec {
            command: ["sh".into(), "-c".into(), shell.into(), exe.into()].to_vec(),
            directory: folder.path().into(),
            variables: vec![(LARGE.into(), "1".into())],
            local_size: 1,
            ..ProcessSpec::default()
        };
        let mut crew = Crew::new();
        crew.give_order(Order::Start(0, Box::new(start)));
        let group = crew.processes[&0].group;
        let end = loop {
            crew.dumps_at = Some(Instant::now());
            crew.reap_and_kill();
            match crew.next_event() {
                Some(CrewEvent::Ended(0, end)) => break end,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if pattern.trim() != "core" || end == ExitReason::Exit(7) {
            eprintln!("SKIPPED: no core is written to a file here");
            return;
        }
        assert_eq!(end, ExitReason::Signal(6));
        assert!(exit_reason(group).is_none(), "its core is still being written");
        crew.give_order(Order::End);
        crew.kill_at = Some(Instant::now());
        crew.reap_and_kill();
        let is_gone =
            std::iter::from_fn(|| crew.next_event()).any(|event| matches!(event, CrewEvent::Finished));
        assert!(is_gone && exit_reason(group).is_none(), "the crew has waited for the core");
        let status = rustix::process::waitpid(Some(group), rustix::process::WaitOptions::empty());
        assert!(
            status
                .is_ok_and(|status| status.is_some_and(|(_, status)| status.terminating_signal() == Some(6)))
        );
        let core = std::fs::read_dir(folder.path()).expect("a folder").flatten().next().expect("a core");
        assert!(core.metadata().expect("a file").len() > 1 << 30, "the core is incomplete");
    }
}
