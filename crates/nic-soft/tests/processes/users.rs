//! Other users reach nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nic_soft::shm::CopyPath;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket};
use verbs::{CmEvent, CmFailure, MemoryKind, SendOp};

use crate::support::agent::Agent;
use crate::support::child::{Child, hear, say};
use crate::support::end::{End, at, deadline};
use crate::support::one_at_a_time;

const NOBODY: u32 = 65_534;

/// Child, as another user: `PORT PID FD UID`; says what it managed to do.
pub(crate) fn stranger_role() {
    let line = hear().expect("a line");
    let words: Vec<&str> = line.split(' ').collect();
    let port: u16 = words[0].parse().expect("a port");
    let mut did = Vec::new();
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let end = End::new(CopyPath::Auto, 4096);
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
        // Refused already, or in a moment; an answer it must not give.
        let _ = send(&raw, b"let me in", SendFlags::NOSIGNAL);
        let mut answer = [0; 600];
        if let Ok((n, _)) = recv(&raw, &mut answer, rustix::net::RecvFlags::empty())
            && n > 0
        {
            did.push(format!("was answered {n} bytes"));
        }
    }
    say(format!("did {did:?}"));
    hear();
}

/// Starts the stranger, from a copy of this binary where the other user may not go.
fn stranger() -> std::io::Result<Child> {
    let exe = std::env::current_exe()?;
    if let Ok(child) = Child::try_start("stranger", &exe, Some(NOBODY)) {
        return Ok(child);
    }
    let copy = std::env::temp_dir().join(format!("nic-soft-test-{}", std::process::id()));
    std::fs::copy(&exe, &copy)?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
    let child = Child::try_start("stranger", &copy, Some(NOBODY));
    std::fs::remove_file(&copy)?;
    child
}

/// Which descriptor of this process is a segment.
fn segment_fd() -> String {
    let mut fds = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let is_segment = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("memfd:nicety-shm"))
    };
    let found = fds.find(|e| is_segment(&e.path())).expect("a segment");
    found.file_name().to_string_lossy().into_owned()
}

/// Goal: a process of another user can neither connect, nor open the segment or this process's memory, and does
/// not disturb those who may. Method: a child that runs as nobody tries each, also with a raw socket on the very
/// name; afterwards a child of this user connects and works.
#[test]
fn another_user_reaches_nothing() {
    let _gate = one_at_a_time();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED another_user_reaches_nothing: only root can start a process of another user");
        return;
    }
    let mut end = End::new(CopyPath::Auto, 4096);
    let listener = end.listen();
    let mut child = stranger().expect("a child of another user");
    let (port, pid, uid) = (listener.addr().port(), std::process::id(), rustix::process::geteuid().as_raw());
    assert_eq!(child.ask(format!("{port} {pid} {} {uid}", segment_fd())), "did []");
    assert!(end.cm.poll_event().is_none(), "the listener heard of it");
    child.tell("end");
    child.end();
    let agent = Agent::start(&mut end, CopyPath::Auto, 4096);
    end.post(1, SendOp::Write(end.peer.host), MemoryKind::Host, 0, 64);
    end.sent_ok(1);
    agent.end();
}
