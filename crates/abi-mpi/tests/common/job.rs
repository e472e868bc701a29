//! A job of ranks on this host with a `pmi` server: one thread per rank transfers its bytes. The server also starts spawned jobs.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use pmi::profile::Profile;
use pmi::server::{Event, Job, Placement, RankId, Server};
use pmi::spawn::Spawn;

/// The server, and its ends of the ranks' streams.
struct Shared {
    server: Server,
    variables: Vec<(String, String)>,
    streams: Vec<(RankId, UnixStream)>,
    /// Spawn requests of ranks, and the processes that were spawned.
    wanted: Vec<(RankId, Spawn)>,
    spawned: Vec<Child>,
    /// The profiles that ranks sent before they left.
    profiles: BTreeMap<u32, Profile>,
}

impl Shared {
    /// Stores the profile of each rank that leaves, and queues spawn requests.
    fn act(&mut self) {
        while let Some(event) = self.server.poll_event() {
            let id = match event {
                Event::Finalized(id) => id,
                Event::Spawn { rank, spawn } => {
                    self.wanted.push((rank, spawn));
                    continue;
                }
                _ => continue,
            };
            let note = |key: &str| self.server.value(id, key);
            if let Some(profile) = Profile::from_notes(id.rank(), self.streams.len(), note) {
                self.profiles.insert(id.rank(), profile.expect("a profile"));
            }
        }
    }

    fn write_all(&mut self) {
        for (id, stream) in &mut self.streams {
            while let [_, ..] = self.server.transmit(*id) {
                // A rank that has exited reads no more.
                let Ok(n) = stream.write(self.server.transmit(*id)) else { break };
                self.server.sent(*id, n);
            }
        }
    }
}

/// The output of a job's ranks, sorted by lines; all must succeed.
pub(crate) fn run_job(program: &Path, size: usize, variables: &[(&str, &str)]) -> Vec<String> {
    let (ended, _) = run_job_to_its_end(program, size, variables);
    let said = |rank: &Output| format!("{}: {}", rank.status, String::from_utf8_lossy(&rank.stderr));
    let all_well = ended.iter().all(|rank| rank.status.success());
    assert!(all_well, "ranks end with {:#?}", ended.iter().map(said).collect::<Vec<_>>());
    let mut lines: Vec<String> = ended.into_iter().flat_map(lines_of).collect();
    lines.sort();
    lines
}

/// The output of each rank of a job, and their profiles.
pub(crate) fn run_job_to_its_end(
    program: &Path,
    size: usize,
    variables: &[(&str, &str)],
) -> (Vec<Output>, BTreeMap<u32, Profile>) {
    run_job_on_hosts(program, size, 1, variables)
}

/// As [`run_job_to_its_end`], with ranks distributed round-robin over this many hosts, according to the server.
pub(crate) fn run_job_on_hosts(
    program: &Path,
    size: usize,
    hosts: usize,
    variables: &[(&str, &str)],
) -> (Vec<Output>, BTreeMap<u32, Profile>) {
    let mut server = Server::new();
    let ranks = (0..size).map(|rank| Placement { node: (rank % hosts) as u32, appnum: 0 }).collect();
    let name = format!("test-{}-{size}", std::process::id());
    let ids = server.add_job(Job { name, ranks, universe_size: None, preput: Vec::new() }).expect("a job");
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let shared = Arc::new(Mutex::new(Shared {
        server,
        variables: variables.iter().map(owned).collect(),
        streams: Vec::new(),
        wanted: Vec::new(),
        spawned: Vec::new(),
        profiles: BTreeMap::new(),
    }));
    let children = start(&shared, &ids, (0..size).map(|_| Command::new(program)));
    let end = |child: Child| child.wait_with_output().expect("it ends");
    let mut ended: Vec<Output> = children.into_iter().map(end).collect();
    let spawned = std::mem::take(&mut shared.lock().expect("no panic").spawned);
    ended.extend(spawned.into_iter().map(end));
    let profiles = std::mem::take(&mut shared.lock().expect("no panic").profiles);
    (ended, profiles)
}

/// Starts the processes of a job, one per command, with a thread for each.
fn start(
    shared: &Arc<Mutex<Shared>>,
    ids: &[RankId],
    commands: impl IntoIterator<Item = Command>,
) -> Vec<Child> {
    let one = |(id, mut command): (&RankId, Command)| {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).expect("it is open");
        command.env("PMI_FD", theirs.as_raw_fd().to_string()).env("PMI_RANK", id.rank().to_string());
        command.env("PMI_SIZE", ids.len().to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = {
            let mut shared = shared.lock().expect("no panic");
            command.envs(shared.variables.iter().cloned());
            shared.streams.push((*id, ours.try_clone().expect("a descriptor")));
            command.spawn().expect("it starts")
        };
        let (shared, id) = (shared.clone(), *id);
        thread::spawn(move || serve(&shared, id, ours));
        child
    };
    ids.iter().zip(commands).map(one).collect()
}

/// Starts the processes that a rank spawns, unless the program does not exist.
fn spawn(shared: &Arc<Mutex<Shared>>, asker: RankId, spawn: Spawn) {
    let of = |(appnum, program): (u32, &pmi::spawn::Program)| {
        let command = || {
            let mut command = Command::new(&program.file);
            command.args(&program.arguments).env("PMI_SPAWNED", "1");
            (Placement { node: 0, appnum }, command)
        };
        (0..program.processes).map(|_| command()).collect::<Vec<_>>()
    };
    let (ranks, commands): (Vec<_>, Vec<_>) = (0..).zip(&spawn.programs).flat_map(of).unzip();
    let errors =
        vec![i32::from(spawn.programs.iter().any(|one| !Path::new(&one.file).is_file())); ranks.len()];
    if errors[0] == 0 {
        let ids = {
            let mut shared = shared.lock().expect("no panic");
            let name = format!("test-{}-spawned-{}", std::process::id(), shared.spawned.len());
            shared
                .server
                .add_job(Job { name, ranks, universe_size: None, preput: spawn.preput })
                .expect("a job")
        };
        let children = start(shared, &ids, commands);
        shared.lock().expect("no panic").spawned.extend(children);
    }
    let mut shared = shared.lock().expect("no panic");
    shared.server.spawned(asker, &errors);
    shared.write_all();
}

fn serve(shared: &Arc<Mutex<Shared>>, id: RankId, mut stream: UnixStream) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        let wanted = {
            let mut shared = shared.lock().expect("no panic");
            shared.server.handle_bytes(id, &bytes[..n]);
            shared.act();
            shared.write_all();
            std::mem::take(&mut shared.wanted)
        };
        wanted.into_iter().for_each(|(asker, wanted)| spawn(shared, asker, wanted));
    }
}

pub(crate) fn finished(child: Child) -> Vec<String> {
    lines_of(child.wait_with_output().expect("it ends"))
}

fn lines_of(output: Output) -> Vec<String> {
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a rank ends with {}: {wrong}", output.status);
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}
