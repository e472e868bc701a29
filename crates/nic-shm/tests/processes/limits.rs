//! Limited resources: a listener's backlog, descriptors, file sizes, address space.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nic_shm::{CopyPath, ShmConfig, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use verbs::CmEvent;

use crate::support::child::{Child, recv_line, send_line};
use crate::support::endpoint::{Endpoint, at, deadline, within};
use crate::support::{one_at_a_time, traces, until};

/// The socket name of a listener at this port.
fn name_of(port: u16) -> SocketAddrUnix {
    let uid = rustix::process::geteuid().as_raw();
    SocketAddrUnix::new_abstract_name(format!("nicety-shm/{uid}/{port}").as_bytes()).expect("a name")
}

/// Connects to a listener and sends nothing; `None` while its backlog is full.
fn silent(port: u16) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    match connect(&socket, &name_of(port)) {
        Ok(()) => Some(socket),
        Err(Errno::AGAIN) => None,
        Err(e) => panic!("{e}"),
    }
}

/// Goal: connections without a request cannot keep others out. Method: more such connections than the device
/// keeps, which stay open; then a proper client.
#[test]
fn silent_clients_do_not_block_others() {
    let _gate = one_at_a_time();
    let (mut a, mut b) = (Endpoint::new(CopyPath::Auto, 64), Endpoint::new(CopyPath::Auto, 64));
    let listener = a.listen();
    let port = listener.addr().port();
    let _silent: Vec<_> = (0..400).map(|_| until("room", || silent(port))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| a.accept());
        b.connect(port);
    });
}

fn limit(resource: Resource, to: u64) {
    setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) }).expect("a lower limit");
}

/// Child: connects to a port when it has no descriptor left except for the socket; reports the event.
pub(crate) fn no_descriptors_role() {
    let port: u16 = recv_line().and_then(|line| line.parse().ok()).expect("a port");
    let end = Endpoint::new(CopyPath::Auto, 64);
    // All open descriptors are in use, and one more is for the socket.
    let highest = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let highest = highest.filter_map(|e| e.file_name().to_string_lossy().parse::<u64>().ok()).max();
    let spare = usize::from(recv_line().as_deref() == Some("one"));
    let mut fill = Vec::new();
    limit(Resource::Nofile, highest.expect("some") + 1);
    while let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0) {
        fill.push(fd);
    }
    fill.truncate(fill.len() - spare);
    match end.cm.connect(&end.qp, at(port), &end.param()) {
        Ok(()) => send_line(format!("{:?}", end.cm.get_event(deadline()).expect("an event"))),
        Err(why) => send_line(format!("{why}")),
    }
    recv_line();
    drop(fill);
}

/// Goal: a process without free descriptors reports that, and what to do; so does the other side. Method: a
/// child with just enough for its socket, and one with none.
#[test]
fn missing_descriptors_are_reported_on_both_sides() {
    let _gate = one_at_a_time();
    let end = Endpoint::new(CopyPath::Auto, 64);
    let listener = end.listen();
    for spare in ["none", "one"] {
        let mut child = Child::start("pauper");
        child.send_line(listener.addr().port());
        child.send_line(spare);
        if spare == "one" {
            let Ok(CmEvent::ConnectRequest(request)) = end.cm.get_event(deadline()) else {
                panic!("no request")
            };
            end.cm.accept(request, &end.qp, &end.param()).expect("accepted");
            let event = format!("{:?}", end.cm.get_event(deadline()).expect("an event"));
            assert!(event.contains("peer's process has no descriptors left"), "{event}");
        }
        let said = child.recv_line();
        assert!(said.contains("descriptors") && said.contains("ulimit -n"), "{said}");
        child.send_line("end");
        child.end();
    }
}

/// Child: opens a device under a limit, and reports the result.
pub(crate) fn limited_role() {
    let (what, to) = (recv_line(), recv_line().and_then(|line| line.parse().ok()).expect("a number"));
    match what.as_deref() {
        Some("files") => limit(Resource::Fsize, to),
        Some("data") => limit(Resource::Data, traces::data_bytes() + to),
        _ => limit(Resource::As, to),
    }
    send_line(match open(&host::real::host(), &ShmConfig::default()) {
        Ok(device) => format!("{} bytes", device.attr().max_dm_size),
        Err(why) => why.to_string(),
    });
}

/// Goal: a limit on file sizes, address space or data reduces the NIC memory, or is an error that says what
/// to do; never a signal. Method: children under limits, which must all exit with success.
#[test]
fn size_limits_are_respected_or_reported() {
    let _gate = one_at_a_time();
    for (what, to, expected) in [
        ("files", 1_u64 << 20, "ulimit -f"),
        ("files", (1 << 30) + (1 << 21), "bytes"),
        ("space", 1 << 30, "ulimit -v"),
        ("space", 3 << 30, "bytes"),
        ("data", 1 << 20, "ulimit -d"),
    ] {
        let mut child = Child::start("bounded");
        child.send_line(what);
        child.send_line(to);
        let said = child.recv_line();
        assert!(said.contains(expected), "{what} limited to {to}: {said}");
        child.end();
    }
}

/// Goal: connecting to a listener with a full backlog fails with an error that says what to do. Method: a
/// listener that never accepts.
#[test]
fn full_backlog_is_reported() {
    let _gate = one_at_a_time();
    let (port, flags) = (1, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    bind(&listener, &name_of(port)).expect("an unused port");
    listen(&listener, 0).expect("a listener");
    let _waiting: Vec<_> = std::iter::from_fn(|| silent(port)).collect();
    let end = Endpoint::new(CopyPath::Auto, 64);
    end.cm.connect(&end.qp, at(port), &end.param()).expect("failures are reported by an event");
    let CmEvent::ConnectFailed { why, .. } = end.cm.get_event(deadline()).expect("an event") else {
        panic!("connected without a listener")
    };
    assert!(why.to_string().contains("try again later"), "{why}");
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Opens all descriptors that this process may have, including any that a closing thread still frees.
fn all_descriptors() -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    loop {
        let before = taken.len();
        taken.extend(std::iter::from_fn(|| rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0).ok()));
        if before > 0 && taken.len() == before {
            return taken;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Goal: without descriptors a listener pauses, and continues when there are some. Method: a client that
/// cannot be accepted, the processor time used in one second of that, then the client's request after all.
#[test]
fn listener_pauses_without_descriptors() {
    let _gate = one_at_a_time();
    let mut a = Endpoint::new(CopyPath::Auto, 64);
    let listener = a.listen();
    let port = listener.addr().port();
    let (mut child, before) = (Child::start("agent"), getrlimit(Resource::Nofile));
    let lowered = Rlimit { current: Some(traces::descriptors() as u64 + 64), ..before };
    setrlimit(Resource::Nofile, lowered).expect("a lower limit");
    let fill = all_descriptors();
    child.send_line(format!("auto 64 {port}"));
    let began = processor_time();
    assert!(a.cm.get_event(within(Duration::from_secs(1))).is_err(), "no connection can be accepted");
    let spent = processor_time() - began;
    assert!(spent < Duration::from_millis(300), "waiting for a second used {spent:?} of processor time");
    setrlimit(Resource::Nofile, before).expect("the old limit");
    drop(fill);
    a.accept();
}
