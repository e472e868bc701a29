//! Choice of the way to copy to and from other processes' private memory, with its reason.

use std::path::Path;

use crate::copy::place;
use crate::protocol::token::process_token;

/// How private memory of other processes is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPath {
    /// Directly within a process, by the kernel where allowed, else by the owner; probed for each peer.
    #[default]
    Auto,
    /// By process_vm_readv/writev(2): a single copy.
    Kernel,
    /// By the owner's NIC thread, through a bounce buffer: two copies, and the owner must be running.
    Service,
}

/// The decision for one device.
pub(crate) struct CopyState {
    wanted: CopyPath,
    /// Why the kernel does not allow copies, as far as known before there is a peer.
    obstacle: Option<String>,
}

impl CopyState {
    pub(crate) fn new(wanted: CopyPath) -> Self {
        let obstacle = if wanted == CopyPath::Service { None } else { prepare() };
        Self { wanted, obstacle }
    }

    /// Whether the configuration forces one way, even within a process.
    pub(crate) fn is_forced(&self) -> bool {
        self.wanted != CopyPath::Auto
    }

    /// Whether the kernel allows copies to a peer, according to a probe.
    pub(crate) fn may_copy_by_kernel(&self, ask: impl FnOnce() -> std::io::Result<()>) -> bool {
        self.wanted != CopyPath::Service && ask().is_ok()
    }

    /// The decision as a sentence.
    pub(crate) fn describe(&self) -> String {
        match (self.wanted, &self.obstacle) {
            (CopyPath::Service, _) => {
                "private memory of peers: copied by its owner's NIC thread, as configured (copy=service)"
                    .into()
            }
            (_, None) => "private memory of peers: copied by process_vm_readv/writev, one copy".into(),
            (_, Some(why)) => format!(
                "private memory of peers: copied by its owner's NIC thread, two copies, because {why}; \
                 NIC memory is not affected"
            ),
        }
    }
}

/// The path that a device will try first, and the reason; for `nicety doctor`.
pub fn copy_path() -> (CopyPath, String) {
    let state = CopyState::new(CopyPath::Auto);
    let path = if state.obstacle.is_none() { CopyPath::Kernel } else { CopyPath::Service };
    (path, state.describe())
}

/// Allows peers of the same user to copy where Yama would forbid it; returns the remaining obstacle.
fn prepare() -> Option<String> {
    let token = match process_token() {
        Ok(token) => token,
        Err(why) => return Some(why.to_string()),
    };
    let own = std::process::id() as i32;
    if let Err(e) = place::probe_kernel_copy(own, std::ptr::from_ref(token).addr() as u64, *token) {
        return Some(format!("process_vm_readv does not work here at all ({e})"));
    }
    match yama_scope() {
        Some(1) => {
            // SAFETY: prctl with these arguments changes which processes may trace this one and touches no
            // memory. Yama scope 1 would otherwise allow parents only; "any" still means processes of the
            // same user.
            let done = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
            (done != 0).then(|| "kernel.yama.ptrace_scope is 1 and cannot be lifted for this process".into())
        }
        Some(scope @ 2..) if !rustix::process::geteuid().is_root() => {
            Some(format!("kernel.yama.ptrace_scope is {scope}: set it to 1 or 0 for a single copy"))
        }
        _ => None,
    }
}

/// The number in the Yama module's file that restricts process_vm access; `None` without Yama.
fn yama_scope() -> Option<u8> {
    let file = Path::new("/proc/sys/kernel/yama/ptrace_scope");
    host::bounded::kernel_text(file).ok()?.trim().parse().ok()
}
