//! The handler of SIGSEGV and SIGBUS: turns a fault in guarded code into an error and passes on every other
//! signal.
//!
//! A program may install handlers of its own (sanitizers, language runtimes, crash reporters), before or
//! after this one. A handler that was there before is called as the kernel would have called it. A handler
//! installed afterwards replaces this one; [`arm`] notices that at the next registration and installs this
//! handler on top again, as a new *level*. Each level is a separate function with its own predecessor. A
//! program's handler that passes faults on to its predecessor thus reaches a lower level and not itself.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{sigaction, siginfo_t, sigset_t};

use crate::extable;

/// The signals of inaccessible memory: unmapped or protected (SIGSEGV), mapped beyond the end of a file
/// (SIGBUS).
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// How often, for each signal, this handler can be installed on top of different handlers. If a program
/// installs more handlers than this, one after the other, its last one stays on top.
const LEVELS_MAX: usize = 8;

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

const HANDLERS: [Handler; LEVELS_MAX] = [
    on_fault::<0>,
    on_fault::<1>,
    on_fault::<2>,
    on_fault::<3>,
    on_fault::<4>,
    on_fault::<5>,
    on_fault::<6>,
    on_fault::<7>,
];

/// The handlers that the levels of a signal have replaced.
struct ReplacedActions {
    used: AtomicUsize,
    replaced: [UnsafeCell<MaybeUninit<sigaction>>; LEVELS_MAX],
}

// SAFETY: an element is written before its level is installed, by the thread that arms, and only read
// afterwards.
// Test: earlier_and_later_handlers_are_called.
unsafe impl Sync for ReplacedActions {}

static REPLACED_ACTIONS: [ReplacedActions; SIGNALS.len()] = [const {
    ReplacedActions {
        used: AtomicUsize::new(0),
        replaced: [const { UnsafeCell::new(MaybeUninit::uninit()) }; LEVELS_MAX],
    }
}; SIGNALS.len()];

static ARMED: AtomicBool = AtomicBool::new(false);

/// The pid of the process in which a thread installs handlers, or 0. Not a lock of the standard library:
/// another thread may fork while it is held, and the child must not wait for a thread that it does not have.
static INSTALLER_PID: AtomicI32 = AtomicI32::new(0);

/// Whether faults in guarded code become errors: true once [`arm`] has been called.
#[inline]
pub fn is_armed() -> bool {
    ARMED.load(Ordering::Relaxed)
}

/// Turns faults in functions of this crate into errors from now on. Installs the handlers, or reinstalls them
/// on top of handlers that the program has installed since the last call; two system calls if there is
/// nothing to do.
///
/// This does not protect a thread that blocks SIGSEGV or SIGBUS: Linux ends a process that faults with the
/// signal blocked.
///
/// # Errors
/// Where sigaction(2) is forbidden.
pub fn arm() -> io::Result<()> {
    for (signal, levels) in SIGNALS.into_iter().zip(&REPLACED_ACTIONS) {
        if level_of(&current_action(signal)?).is_none() {
            install(signal, levels)?;
        }
    }
    ARMED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Unblocks both signals in the calling thread and returns the previous mask. For threads that copy on behalf
/// of others: they inherit the mask of the thread that started them.
pub fn unblock() -> Unblocked {
    let (mut set, mut before) = (empty_sigset(), empty_sigset());
    // SAFETY: sets of this function's own. Test: check_unblocks_signals_temporarily.
    unsafe {
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before);
    }
    Unblocked(before)
}

/// The signal mask of a thread before [`unblock`].
pub struct Unblocked(sigset_t);

impl Unblocked {
    /// Restores the previous mask, if it blocked one of the two signals.
    pub fn restore(self) {
        // SAFETY: the set is initialised. Test: as `unblock`.
        let was = |signal: &c_int| unsafe { libc::sigismember(&raw const self.0, *signal) } == 1;
        if SIGNALS.iter().any(was) {
            // SAFETY: as above.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        }
    }
}

fn empty_sigset() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// The current action of a signal.
fn current_action(signal: c_int) -> io::Result<sigaction> {
    set_action(signal, None)
}

/// Sets the action of a signal, or only queries it for `None`; returns the previous action.
fn set_action(signal: c_int, to: Option<&sigaction>) -> io::Result<sigaction> {
    let mut before = MaybeUninit::<sigaction>::zeroed();
    let to = to.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both are actions, or null; the handlers are functions of this file, or were installed before.
    match unsafe { libc::sigaction(signal, to, before.as_mut_ptr()) } {
        // SAFETY: sigaction(2) has written it, and all zeros would be an action, too.
        0 => Ok(unsafe { before.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The level whose handler this action has.
fn level_of(action: &sigaction) -> Option<usize> {
    HANDLERS.iter().position(|handler| *handler as usize == action.sa_sigaction)
}

/// Installs this handler on top of the current one.
fn install(signal: c_int, levels: &ReplacedActions) -> io::Result<()> {
    let own = std::process::id() as i32;
    loop {
        match INSTALLER_PID.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => break,
            // Left behind by a thread of the parent process, before this process was forked.
            Err(other) if other != own => {
                let _ = INSTALLER_PID.compare_exchange(other, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            Err(_) => std::thread::yield_now(),
        }
    }
    let result = install_while_alone(signal, levels);
    INSTALLER_PID.store(0, Ordering::Release);
    result
}

/// Installs this handler; one thread at a time may call it.
fn install_while_alone(signal: c_int, levels: &ReplacedActions) -> io::Result<()> {
    let current = current_action(signal)?;
    let used = levels.used.load(Ordering::Relaxed);
    if level_of(&current).is_some() {
        return Ok(());
    }
    // A handler that the program installs again gets its earlier level.
    let level = (0..used).find(|&level| is_same_handler(&levels.action_of(level), &current)).unwrap_or(used);
    let Some(place) = levels.replaced.get(level) else { return Ok(()) };
    if level == used {
        // SAFETY: nobody reads it before its level is installed, and one thread at a time is here.
        unsafe { (*place.get()).write(current) };
        levels.used.store(used + 1, Ordering::Release);
    }
    set_action(signal, Some(&chained_action(&current, HANDLERS[level]))).map(drop)
}

impl ReplacedActions {
    /// The action that a used level has replaced.
    fn action_of(&self, level: usize) -> sigaction {
        // SAFETY: written before the level was counted, or installed, and not changed since.
        unsafe { (*self.replaced[level].get()).assume_init_read() }
    }
}

fn is_same_handler(one: &sigaction, other: &sigaction) -> bool {
    (one.sa_sigaction, one.sa_flags) == (other.sa_sigaction, other.sa_flags)
}

/// The action of a handler in place of another one: with the same stack and mask, so that it can call the
/// other as a function.
fn chained_action(other: &sigaction, handler: Handler) -> sigaction {
    let mut action = *other;
    action.sa_sigaction = handler as usize;
    action.sa_flags = if has_handler(other) {
        (other.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND
    } else {
        action.sa_mask = empty_sigset();
        libc::SA_SIGINFO | libc::SA_ONSTACK
    };
    action
}

fn has_handler(action: &sigaction) -> bool {
    action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN
}

extern "C" fn on_fault<const LEVEL: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel, or a handler that passes the signal on, gives valid arguments. Tests: those of
    // `copy`.
    let is_recovered = unsafe {
        is_fault(signal, (*info).si_code)
            && extable::fixup_exception(context.cast(), (*info).si_addr().addr())
    };
    if !is_recovered {
        // SAFETY: as above.
        unsafe { run_replaced_action(LEVEL, signal, info, context) };
    }
}

/// Whether the interrupted instruction caused the signal and would cause it again. Not so if a process sent
/// the signal, or if the kernel reports a memory error elsewhere.
fn is_fault(signal: c_int, code: c_int) -> bool {
    code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO)
}

/// Does what the process would have done without the handler of this level (see the head of this file).
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn run_replaced_action(level: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(index) = SIGNALS.iter().position(|own| *own == signal) else { return };
    let before = REPLACED_ACTIONS[index].action_of(level);
    if has_handler(&before) {
        if before.sa_flags & libc::SA_RESETHAND != 0 {
            reset_to_default(signal);
        }
        // SAFETY: the handler that was installed, called as it has asked for.
        unsafe {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: Handler = std::mem::transmute(before.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
                handler(signal);
            }
        }
        return;
    }
    // SAFETY: as above.
    if is_fault(signal, unsafe { (*info).si_code }) {
        // Ignoring a fault ends the process, too (sigaction(2)). The fault repeats when this returns, with
        // its full context.
        reset_to_default(signal);
    } else if before.sa_sigaction == libc::SIG_DFL {
        reset_to_default(signal);
        // The signal is blocked until this returns and is delivered then, as if it came only now.
        // SAFETY: the kernel copies the information that it gave this process.
        unsafe {
            let (process, thread) = (libc::getpid(), libc::gettid());
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info);
        }
    }
}

/// Resets a signal to its default action. Called within signal handlers.
fn reset_to_default(signal: c_int) {
    // SAFETY: all zeros is the default action without flags.
    let action: sigaction = unsafe { std::mem::zeroed() };
    // It cannot fail: the signal number is valid, and this process was allowed to install this handler.
    let _ = set_action(signal, Some(&action));
}
