//! Processes of other users get no access.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nic_shm::CopyPath;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketType, bind, connect, listen, recv, send, socket,
};
use verbs::{CmEvent, CmFailure, MemoryKind, SendOp};

use crate::support::agent::Agent;
use crate::support::child::{Child, recv_line, send_line};
use crate::support::endpoint::{Endpoint, at, deadline};
use crate::support::netns::Space;
use crate::support::one_at_a_time;

const NOBODY: u32 = 65_534;

/// Child, as another user: `PORT PID FD UID`; reports what it managed to do.
pub(crate) fn other_user_role() {
    let line = recv_line().expect("a line");
    let words: Vec<&str> = line.split(' ').collect();
    let port: u16 = words[0].parse().expect("a port");
    let mut did = Vec::new();
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let end = Endpoint::new(CopyPath::Auto, 4096);
    end.cm.connect(&end.qp, at(port), &end.param()).expect("asked");
    match end.cm.get_event(deadline()) {
        Ok(CmEvent::ConnectFailed { why: CmFailure::Refused(_), .. }) => {}
        other => did.push(format!("connected: {other:?}")),
    }
    for path in [format!("/proc/{}/fd/{}", words[1], words[2]), format!("/proc/{}/mem", words[1])] {
        if std::fs::File::open(&path).is_ok() {
            did.push(format!("opened {path}"));
        }
    }
    let name = SocketAddrUnix::new_abstract_name(format!("nicety-shm/{}/{port}", words[3]).as_bytes());
    let raw = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    if connect(&raw, &name.expect("a name")).is_ok() {
        // Already refused, or soon; it must not be answered.
        let _ = send(&raw, b"let me in", SendFlags::NOSIGNAL);
        let mut answer = [0; 600];
        if let Ok((n, _)) = recv(&raw, &mut answer, rustix::net::RecvFlags::empty())
            && n > 0
        {
            did.push(format!("was answered {n} bytes"));
        }
    }
    send_line(format!("did {did:?}"));
    recv_line();
}

/// Child, as another user: `UID FIRST END`; takes the names that listeners of that user have at these ports,
/// and reports how many. It also listens at every second port.
pub(crate) fn squatter_role() {
    let line = recv_line().expect("a line");
    let words: Vec<u32> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let take = |port: u32| {
        let name = SocketAddrUnix::new_abstract_name(format!("nicety-shm/{}/{port}", words[0]).as_bytes());
        let taker = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).ok()?;
        bind(&taker, &name.expect("a name")).ok()?;
        (port.is_multiple_of(2) || listen(&taker, 0).is_ok()).then_some(taker)
    };
    let taken: Vec<_> = (words[1]..words[2]).filter_map(take).collect();
    send_line(format!("took {}", taken.len()));
    recv_line();
}

/// Starts a child as another user, from a copy of this binary if that user cannot access it.
fn start_as_nobody(role: &str) -> std::io::Result<Child> {
    let exe = std::env::current_exe()?;
    if let Ok(child) = Child::try_start(role, &exe, Some(NOBODY)) {
        return Ok(child);
    }
    let copy = std::env::temp_dir().join(format!("nic-shm-test-{}", std::process::id()));
    std::fs::copy(&exe, &copy)?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
    let child = Child::try_start(role, &copy, Some(NOBODY));
    std::fs::remove_file(&copy)?;
    child
}

/// The number of a descriptor of this process that is a segment.
fn segment_fd() -> String {
    let mut fds = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let is_segment = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("memfd:nicety-shm"))
    };
    let found = fds.find(|e| is_segment(&e.path())).expect("a segment");
    found.file_name().to_string_lossy().into_owned()
}

/// Goal: a process of another user can neither connect, nor open the segment or this process's memory, and
/// does not disturb permitted processes. Method: a child that runs as nobody tries each, also with a raw
/// socket on the same name; afterwards a child of this user connects and works.
#[test]
fn another_user_gets_no_access() {
    let _gate = one_at_a_time();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED another_user_gets_no_access: only root can start a process of another user");
        return;
    }
    let mut end = Endpoint::new(CopyPath::Auto, 4096);
    let listener = end.listen();
    let mut child = start_as_nobody("stranger").expect("a child of another user");
    let (port, pid, uid) = (listener.addr().port(), std::process::id(), rustix::process::geteuid().as_raw());
    assert_eq!(child.request(format!("{port} {pid} {} {uid}", segment_fd())), "did []");
    assert!(end.cm.poll_event().is_none(), "the listener got an event");
    child.send_line("end");
    child.end();
    let agent = Agent::start(&mut end, CopyPath::Auto, 4096);
    end.post(1, SendOp::Write(end.peer.host), MemoryKind::Host, 0, 64);
    end.sent_ok(1);
    agent.end();
}

/// Goal: a user who takes the names of another user's listeners cannot prevent that user from listening, at
/// any port or at a chosen one, or from being found. Method: children that run as nobody take every dynamic
/// port's name and a lower one; then this user listens. All in a separate network namespace, which shares no
/// names with other tests.
#[test]
fn listen_works_when_another_user_takes_all_names() {
    let _gate = one_at_a_time();
    match Space::alone() {
        Ok(space) => space.within(listen_with_all_names_taken),
        Err(why) => {
            println!("SKIPPED listen_works_when_another_user_takes_all_names, which needs root: {why}")
        }
    }
}

fn listen_with_all_names_taken() {
    const CHOSEN: u16 = 14_711;
    const EACH: u32 = 4096;
    let uid = rustix::process::geteuid().as_raw();
    let parts = (0..4).map(|part| (49_152 + part * EACH, 49_152 + (part + 1) * EACH));
    let taken = |(first, end): (u32, u32)| {
        let mut child = start_as_nobody("squatter").expect("a child of another user");
        let said = child.request(format!("{uid} {first} {end}"));
        (child, said.strip_prefix("took ").and_then(|count| count.parse::<u32>().ok()).expect("a count"))
    };
    let (children, counts): (Vec<_>, Vec<_>) =
        parts.chain([(CHOSEN.into(), u32::from(CHOSEN) + 1)]).map(taken).unzip();
    assert_eq!(counts.iter().sum::<u32>(), 4 * EACH + 1, "{counts:?}");
    for requested_port in [0, CHOSEN] {
        let mut end = Endpoint::new(CopyPath::Auto, 4096);
        let listener = end.cm.listen(at(requested_port), 1).expect("it listens");
        assert!(requested_port == 0 || listener.addr().port() == requested_port);
        drop(listener);
        let agent = Agent::start(&mut end, CopyPath::Auto, 4096);
        end.post(1, SendOp::Write(end.peer.host), MemoryKind::Host, 0, 64);
        end.sent_ok(1);
        agent.end();
    }
    for mut child in children {
        child.send_line("end");
        child.end();
    }
}
