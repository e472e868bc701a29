//! A job of ranks on this host, served by `pmi`: a thread for each rank moves its bytes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use mpi::Profile;
use pmi::server::{Event, Job, Place, RankId, Server};

/// The server, and our ends of the ranks' streams.
struct Shared {
    server: Server,
    streams: Vec<(RankId, UnixStream)>,
    /// What ranks have told before they left.
    profiles: BTreeMap<u32, Profile>,
}

impl Shared {
    /// Takes the profile of each rank that leaves.
    fn act(&mut self) {
        while let Some(event) = self.server.poll_event() {
            let Event::Finalized(id) = event else { continue };
            let note = |key: &str| self.server.value(id, key);
            if let Some(profile) = Profile::of_notes(id.rank(), self.streams.len(), note) {
                self.profiles.insert(id.rank(), profile.expect("a profile"));
            }
        }
    }

    fn write_all(&mut self) {
        for (id, stream) in &mut self.streams {
            while let [_, ..] = self.server.transmit(*id) {
                // A rank that is gone reads nothing more.
                let Ok(n) = stream.write(self.server.transmit(*id)) else { break };
                self.server.sent(*id, n);
            }
        }
    }
}

/// What the ranks of a job say, sorted by lines; all must succeed.
pub(crate) fn run_job(program: &Path, size: usize, variables: &[(&str, &str)]) -> Vec<String> {
    let (ended, _) = run_job_to_its_end(program, size, variables);
    let said = |rank: &Output| format!("{}: {}", rank.status, String::from_utf8_lossy(&rank.stderr));
    let all_well = ended.iter().all(|rank| rank.status.success());
    assert!(all_well, "ranks end with {:#?}", ended.iter().map(said).collect::<Vec<_>>());
    let mut lines: Vec<String> = ended.into_iter().flat_map(lines_of).collect();
    lines.sort();
    lines
}

/// How each rank of a job ends, and the profiles that they have left.
pub(crate) fn run_job_to_its_end(
    program: &Path,
    size: usize,
    variables: &[(&str, &str)],
) -> (Vec<Output>, BTreeMap<u32, Profile>) {
    run_job_on_hosts(program, size, 1, variables)
}

/// As [`run_job_to_its_end`], with ranks on so many hosts in turn, as far as they are told.
pub(crate) fn run_job_on_hosts(
    program: &Path,
    size: usize,
    hosts: usize,
    variables: &[(&str, &str)],
) -> (Vec<Output>, BTreeMap<u32, Profile>) {
    let mut server = Server::new();
    let ranks = (0..size).map(|rank| Place { node: (rank % hosts) as u32, appnum: 0 }).collect();
    let name = format!("test-{}-{size}", std::process::id());
    let ids = server.add_job(Job { name, ranks, universe_size: None, preput: Vec::new() }).expect("a job");
    let shared = Arc::new(Mutex::new(Shared { server, streams: Vec::new(), profiles: BTreeMap::new() }));
    let mut children = Vec::new();
    for id in ids {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).expect("it is open");
        let mut command = Command::new(program);
        command.env("PMI_FD", theirs.as_raw_fd().to_string()).env("PMI_RANK", id.rank().to_string());
        command.env("PMI_SIZE", size.to_string()).envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        children.push(command.spawn().expect("it starts"));
        shared.lock().expect("no panic").streams.push((id, ours.try_clone().expect("a descriptor")));
        let shared = shared.clone();
        thread::spawn(move || serve(&shared, id, ours));
    }
    let ended = children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    let profiles = std::mem::take(&mut shared.lock().expect("no panic").profiles);
    (ended, profiles)
}

fn serve(shared: &Mutex<Shared>, id: RankId, mut stream: UnixStream) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        let mut shared = shared.lock().expect("no panic");
        shared.server.handle_bytes(id, &bytes[..n]);
        shared.act();
        shared.write_all();
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
