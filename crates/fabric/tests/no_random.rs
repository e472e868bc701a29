//! A process that gets no random numbers: opening a device fails with a clear error, and no default numbers are used
//! instead.
#![allow(unsafe_code, reason = "a filter of system calls has no safe form")]

#[path = "../../nic-util/tests/support/mod.rs"]
mod support;

use verbs::Error;

use crate::support::child::{Child, recv_line, send_line};
use crate::support::one_at_a_time;

/// Makes getrandom(2) fail with this error number in this process from now on.
fn refuse_random(errno: u16) {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
    let step = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the system call is the first word of a filter's input.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, libc::SYS_getrandom as u32),
        step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | u32::from(errno)),
        step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a program of four steps; the process belongs to the test.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// The child: opens each device, and reports the errors.
fn no_random_role() {
    let errno = recv_line().and_then(|line| line.parse().ok()).expect("a number");
    let host = host::real::host();
    let rail = || nic_iwarp::open(&host, &Default::default()).expect("a rail");
    let (rails, early) = (vec![rail(), rail()], rail());
    let pd = early.alloc_pd().expect("a domain");
    refuse_random(errno);
    let refused = |result: verbs::Result<()>| match result {
        Err(Error::System { what, why, .. }) => format!("{what}: {why}"),
        other => panic!("{other:?}"),
    };
    send_line(refused(nic_shm::open(&host, &Default::default()).map(drop)));
    send_line(refused(nic_iwarp::open(&host, &Default::default()).map(drop)));
    send_line(refused(nic_rails::open(rails, &Default::default()).map(drop)));
    let buf = verbs::Buf::alloc(64).expect("memory");
    send_line(refused(pd.reg_mr(&buf, verbs::Access::ALL).map(drop)));
    send_line(nic_util::floor::nonces().expect_err("nothing random"));
}

/// Goal: without random numbers no device is opened and no key is created, and the error names the reason. Method: a filter
/// of system calls as in containers, which rejects getrandom(2) as forbidden and as unknown.
#[test]
fn without_random_numbers_no_device_is_opened() {
    let _gate = one_at_a_time();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let mut child = Child::start("no_random");
        child.send_line(errno);
        let system = std::io::Error::from_raw_os_error(errno).to_string();
        for what in ["device's token", "steering tag", "", "steering tag", ""] {
            let said = child.recv_line();
            assert!(said.contains(what) && said.contains("no random numbers (getrandom"), "{said}");
            assert!(said.contains(&system) && said.contains("allow getrandom(2)"), "{said}");
        }
    }
}

/// The children's entry point; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[("no_random", no_random_role)]);
}
