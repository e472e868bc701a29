//! The signal handler together with handlers of the program, and programs that crash on their own. Each case
//! is a child process.
#![allow(unsafe_code, reason = "signals and fork(2) have no safe form")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{SIGBUS, SIGSEGV, siginfo_t};
use uaccess::{Fault, arm, copy_last_byte_last};

const PAGE: usize = 4096;

/// How a child ended.
#[derive(Debug, PartialEq)]
enum ChildExit {
    Exit(i32),
    Signal(i32),
}

/// Runs a body in a forked child, which exits with 0 if nothing panics.
fn in_child(body: impl FnOnce()) -> ChildExit {
    // SAFETY: the child has a single thread, uses its own objects only, and leaves without running what
    // belongs to the parent.
    match unsafe { libc::fork() } {
        0 => {
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!fine)) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            if libc::WIFSIGNALED(status) {
                ChildExit::Signal(libc::WTERMSIG(status))
            } else {
                ChildExit::Exit(libc::WEXITSTATUS(status))
            }
        }
    }
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Sets the action of a signal by sigaction(2) and returns the previous one.
fn set_action(signal: c_int, handler: usize, flags: c_int, mask: &[c_int]) -> libc::sigaction {
    // SAFETY: actions are plain data, and handlers are functions of this file.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        for signal in mask {
            libc::sigaddset(&raw mut action.sa_mask, *signal);
        }
        assert_eq!(libc::sigaction(signal, &raw const action, &raw mut before), 0);
        before
    }
}

/// A page that may not be accessed.
fn closed_page() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

/// An access by the program itself, outside of guarded code.
fn write_unguarded(at: *mut u8) {
    // SAFETY: none: this crash is what is tested.
    unsafe { at.write_volatile(1) };
}

/// A guarded access.
fn copy_guarded(at: *mut u8) -> Result<(), Fault> {
    // SAFETY: memory of this test alone.
    unsafe { copy_last_byte_last(at, [1; 100].as_ptr(), 100) }
}

fn reset_handlers() {
    for signal in [SIGSEGV, SIGBUS] {
        set_action(signal, libc::SIG_DFL, 0, &[]);
    }
}

#[test]
fn crash_without_handlers_ends_the_process_by_its_signal() {
    let crashed = in_child(|| {
        reset_handlers();
        arm().expect("a handler");
        assert_eq!(copy_guarded(closed_page()), Err(Fault::Target));
        write_unguarded(closed_page());
    });
    assert_eq!(crashed, ChildExit::Signal(SIGSEGV));
    for signal in [SIGSEGV, SIGBUS] {
        let sent = in_child(|| {
            reset_handlers();
            arm().expect("a handler");
            // SAFETY: sends this process a signal.
            unsafe { libc::kill(libc::getpid(), signal) };
        });
        assert_eq!(sent, ChildExit::Signal(signal), "sent by a process");
    }
}

#[test]
fn ignored_signal_is_ignored_unless_caused_by_a_fault() {
    let end = in_child(|| {
        set_action(SIGSEGV, libc::SIG_IGN, 0, &[]);
        arm().expect("a handler");
        // SAFETY: as above.
        unsafe { libc::kill(libc::getpid(), SIGSEGV) };
        assert_eq!(copy_guarded(closed_page()), Err(Fault::Target));
        write_unguarded(closed_page());
    });
    assert_eq!(end, ChildExit::Signal(SIGSEGV));
}

/// Calls of a handler that the program installed before this crate did.
static EARLIER_CALLS: AtomicUsize = AtomicUsize::new(0);
/// Calls of a handler that the program installed afterwards.
static LATER_CALLS: AtomicUsize = AtomicUsize::new(0);

/// The address of the interrupted instruction.
///
/// # Safety
/// `context` is that of a signal handler.
unsafe fn interrupted_at(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the caller's contract.
    let registers = unsafe { &(*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return registers.gregs[libc::REG_RIP as usize] as u64;
    #[cfg(target_arch = "aarch64")]
    return registers.pc;
}

/// A handler as in a language runtime: repairs the fault, and checks its arguments.
extern "C" fn repairing_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    EARLIER_CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: what the kernel gives a handler.
    unsafe {
        let at = (*info).si_addr();
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        let is_as_asked = signal == SIGSEGV
            && (*info).si_code == 2 // SEGV_ACCERR
            && libc::sigismember(&raw const mask, libc::SIGUSR1) == 1
            && libc::sigismember(&raw const mask, SIGSEGV) == 1
            && interrupted_at(context.cast()) != 0;
        if !is_as_asked || libc::mprotect(at, 1, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            libc::_exit(77);
        }
    }
}

#[test]
fn earlier_handler_repairs_faults() {
    let end = in_child(|| {
        set_action(SIGSEGV, repairing_handler as Handler as usize, libc::SA_SIGINFO, &[libc::SIGUSR1]);
        arm().expect("a handler");
        let page = closed_page();
        assert_eq!(copy_guarded(page), Err(Fault::Target));
        assert_eq!(EARLIER_CALLS.load(Ordering::Relaxed), 0, "the program's handler was not called");
        write_unguarded(page);
        assert_eq!((EARLIER_CALLS.load(Ordering::Relaxed), copy_guarded(page)), (1, Ok(())));
    });
    assert_eq!(end, ChildExit::Exit(0));
}

extern "C" fn exiting_handler(signal: c_int) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(40 + signal) }
}

#[test]
fn handler_with_one_argument_is_called() {
    for signal in [SIGSEGV, SIGBUS] {
        let end = in_child(|| {
            set_action(signal, exiting_handler as extern "C" fn(c_int) as usize, 0, &[]);
            arm().expect("a handler");
            assert_eq!(copy_guarded(closed_page()), Err(Fault::Target));
            // SAFETY: sends this thread a signal.
            unsafe { libc::raise(signal) };
        });
        assert_eq!(end, ChildExit::Exit(40 + signal));
    }
}

extern "C" fn counting_handler(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    EARLIER_CALLS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn reset_handler_is_called_once() {
    let end = in_child(|| {
        set_action(SIGSEGV, counting_handler as Handler as usize, libc::SA_SIGINFO | libc::SA_RESETHAND, &[]);
        arm().expect("a handler");
        // SAFETY: as above.
        unsafe { libc::raise(SIGSEGV) };
        assert_eq!(EARLIER_CALLS.load(Ordering::Relaxed), 1);
        write_unguarded(closed_page());
    });
    assert_eq!(end, ChildExit::Signal(SIGSEGV), "the second signal has the default action");
}

/// An address on the stack of the last call of `stack_recording_handler`.
static HANDLER_STACK: AtomicUsize = AtomicUsize::new(0);

/// Stores the address of a local variable of the handler.
extern "C" fn stack_recording_handler(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let local = 0_u8;
    HANDLER_STACK.store((&raw const local).addr(), Ordering::Relaxed);
}

#[test]
fn handler_runs_on_its_requested_stack() {
    for wants_own in [false, true] {
        let end = in_child(|| {
            let mut stack = vec![0_u8; 64 << 10];
            let own = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
            // SAFETY: memory that outlives the signals of this child.
            assert_eq!(unsafe { libc::sigaltstack(&raw const own, std::ptr::null_mut()) }, 0);
            let flags = libc::SA_SIGINFO | if wants_own { libc::SA_ONSTACK } else { 0 };
            set_action(SIGSEGV, stack_recording_handler as Handler as usize, flags, &[]);
            arm().expect("a handler");
            // SAFETY: as above.
            unsafe { libc::raise(SIGSEGV) };
            let is_on_own = stack
                .as_ptr_range()
                .contains(&std::ptr::without_provenance(HANDLER_STACK.load(Ordering::Relaxed)));
            assert_eq!(is_on_own, wants_own);
            assert_eq!(copy_guarded(closed_page()), Err(Fault::Target));
        });
        assert_eq!(end, ChildExit::Exit(0));
    }
}

/// The action that `chaining_handler` has replaced.
static mut REPLACED: Option<libc::sigaction> = None;

/// A handler as in a crash reporter: counts the crash and passes it on.
extern "C" fn chaining_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    LATER_CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: written before the handler was installed; it contains a handler with three arguments.
    unsafe {
        let Some(replaced) = (&raw const REPLACED).read() else { libc::_exit(78) };
        let handler: Handler = std::mem::transmute(replaced.sa_sigaction);
        handler(signal, info, context);
    }
}

/// Goal: handlers of the program are called in order, each once, whether they were installed before this one
/// or after it.
#[test]
fn earlier_and_later_handlers_are_called() {
    let end = in_child(|| {
        set_action(SIGSEGV, repairing_handler as Handler as usize, libc::SA_SIGINFO, &[libc::SIGUSR1]);
        arm().expect("a handler");
        let replaced =
            set_action(SIGSEGV, chaining_handler as Handler as usize, libc::SA_SIGINFO, &[libc::SIGUSR1]);
        // SAFETY: nobody reads it yet.
        unsafe { (&raw mut REPLACED).write(Some(replaced)) };
        for round in 1..20 {
            arm().expect("reinstalled on top");
            let page = closed_page();
            assert_eq!(copy_guarded(page), Err(Fault::Target));
            let called = || (EARLIER_CALLS.load(Ordering::Relaxed), LATER_CALLS.load(Ordering::Relaxed));
            assert_eq!(called(), (round - 1, round - 1));
            write_unguarded(page);
            assert_eq!(called(), (round, round));
            // The program installs its handler again, without passing on to its predecessor.
            set_action(SIGSEGV, chaining_handler as Handler as usize, libc::SA_SIGINFO, &[libc::SIGUSR1]);
        }
    });
    assert_eq!(end, ChildExit::Exit(0));
}

/// A handler in which a guarded access fails.
extern "C" fn guarded_access_handler(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: what the kernel gives a handler.
    unsafe {
        if copy_guarded((*info).si_addr().cast()) != Err(Fault::Target) {
            libc::_exit(79);
        }
        EARLIER_CALLS.fetch_add(1, Ordering::Relaxed);
        libc::mprotect((*info).si_addr(), 1, libc::PROT_READ | libc::PROT_WRITE);
    }
}

#[test]
fn guarded_access_in_a_handler_may_fail() {
    let end = in_child(|| {
        set_action(
            SIGSEGV,
            guarded_access_handler as Handler as usize,
            libc::SA_SIGINFO | libc::SA_NODEFER,
            &[],
        );
        arm().expect("a handler");
        write_unguarded(closed_page());
        assert_eq!(EARLIER_CALLS.load(Ordering::Relaxed), 1);
    });
    assert_eq!(end, ChildExit::Exit(0));
}

/// A handler that crashes during a long copy, while the registers still hold the copy's frame.
extern "C" fn crashing_handler(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: none; as little as possible, so that the registers of the copy's frame keep their values.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov byte ptr [0], 1")
    };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("strb wzr, [{nowhere}]", nowhere = in(reg) 0_usize)
    };
}

/// Goal: a crash in a signal handler that interrupted a guarded copy is not mistaken for a fault of the copy.
#[test]
fn crash_in_a_handler_during_a_copy_is_not_recovered() {
    let end = in_child(|| {
        reset_handlers();
        arm().expect("a handler");
        set_action(libc::SIGALRM, crashing_handler as Handler as usize, libc::SA_SIGINFO, &[]);
        let (source, mut target) = (vec![1_u8; 64 << 20], vec![0_u8; 64 << 20]);
        let soon = libc::itimerval {
            it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
            it_value: libc::timeval { tv_sec: 0, tv_usec: 5000 },
        };
        // SAFETY: a timer of this child.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const soon, std::ptr::null_mut()) };
        loop {
            // SAFETY: both have this length.
            let done = unsafe { copy_last_byte_last(target.as_mut_ptr(), source.as_ptr(), source.len()) };
            assert_eq!(done, Ok(()));
        }
    });
    assert_eq!(end, ChildExit::Signal(SIGSEGV));
}

#[test]
fn stack_overflow_is_reported_by_the_standard_library() {
    #[allow(unconditional_recursion)]
    fn recurse(depth: u64) -> u64 {
        std::hint::black_box([depth; 64])[7] + recurse(depth + 1)
    }
    let end = in_child(|| {
        arm().expect("a handler");
        assert_eq!(copy_guarded(closed_page()), Err(Fault::Target));
        let _ = std::thread::spawn(|| recurse(0)).join();
    });
    assert_eq!(end, ChildExit::Signal(libc::SIGABRT));
}

#[test]
fn check_unblocks_signals_temporarily() {
    let end = in_child(|| {
        arm().expect("a handler");
        let blocked = || {
            // SAFETY: a set of this function's own.
            unsafe {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
                [SIGSEGV, SIGBUS, libc::SIGUSR1].map(|signal| libc::sigismember(&raw const mask, signal))
            }
        };
        assert!(uaccess::check(closed_page(), 1, true).is_err());
        assert_eq!(blocked(), [0, 0, 0]);
        // SAFETY: as above.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        }
        assert!(uaccess::check(closed_page(), 1, true).is_err());
        assert_eq!(blocked(), [1, 1, 1], "the mask is restored");
        let _ = uaccess::unblock();
        assert_eq!((blocked(), copy_guarded(closed_page())), ([0, 0, 1], Err(Fault::Target)));
    });
    assert_eq!(end, ChildExit::Exit(0));
}

#[test]
fn forked_child_stays_armed() {
    let end = in_child(|| {
        reset_handlers();
        arm().expect("a handler");
        let end = in_child(|| {
            assert_eq!(copy_guarded(closed_page()), Err(Fault::Target));
            arm().expect("a handler");
            write_unguarded(closed_page());
        });
        assert_eq!(end, ChildExit::Signal(SIGSEGV));
    });
    assert_eq!(end, ChildExit::Exit(0));
}
