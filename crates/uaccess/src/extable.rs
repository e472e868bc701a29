//! The exception table: which instructions may fault on the program's memory, and where execution continues
//! if one does.
//!
//! Linux handles faults of its own copy_from_user the same way (Documentation/arch/x86/exception-tables.rst).
//! The guarded assembly itself writes each entry into a separate section, so that there is one entry for each
//! place where the compiler has inlined that assembly. It costs no instruction unless a fault happens.

use libc::{REG_R12, REG_R13, REG_RAX, REG_RIP, REG_RSP, greg_t, ucontext_t};

/// One entry. Addresses are relative to the field that holds them, so that the section needs no relocation.
#[repr(C)]
struct ExtableEntry {
    /// The first byte of the instructions.
    from: i32,
    /// The address after the last byte.
    to: i32,
    /// Where execution continues.
    fixup: i32,
    /// A number of [`kind`], or 0.
    kind: i32,
}

/// Kinds of entries. Kind 0 only continues at the fixup.
mod kind {
    /// `rax` gets the address that faulted, and never 0.
    pub(super) const ADDRESS: i32 = 1;
    /// As `ADDRESS`, for the frame of a function that calls a function of the C library. The frame holds the
    /// fixup's address in `r12` and its stack pointer in `r13`. The called function preserves both, as the
    /// ABI demands, and does not use them, as it needs few registers.
    pub(super) const FRAME: i32 = 2;
}

/// Maximum stack depth of the called function in bytes. A signal handler that interrupted it is deeper: a
/// fault of that handler is then not recovered, whatever `r12` still contains.
const FRAME_MAX: greg_t = 256;

/// The assembly of an entry, for code between two local labels; the kind is a number of [`kind`].
macro_rules! asm_extable {
    ($from:literal, $to:literal, $fixup:literal, $kind:literal) => {
        concat!(
            ".pushsection nicety_uaccess, \"aR\", @progbits\n.balign 4\n",
            ".long ",
            $from,
            " - .\n.long ",
            $to,
            " - .\n.long ",
            $fixup,
            " - .\n.long ",
            $kind,
            "\n.popsection"
        )
    };
}
pub(crate) use asm_extable;

unsafe extern "C" {
    /// The bounds of the section, which the linker defines by its name.
    #[link_name = "__start_nicety_uaccess"]
    static START: ExtableEntry;
    #[link_name = "__stop_nicety_uaccess"]
    static STOP: ExtableEntry;
}

fn exception_table() -> &'static [ExtableEntry] {
    let (start, stop) = (&raw const START, &raw const STOP);
    // SAFETY: the section holds entries and nothing else, and the linker defines its bounds. Test: all of
    // `copy`.
    unsafe { std::slice::from_raw_parts(start, (stop.addr() - start.addr()) / size_of::<ExtableEntry>()) }
}

/// The absolute address that a relative field of an entry refers to.
fn absolute_address(field: &i32) -> greg_t {
    std::ptr::from_ref(field).addr() as greg_t + greg_t::from(*field)
}

/// Continues execution at the fixup if the fault at `at` is in guarded code; returns whether it is.
///
/// # Safety
/// `context` is that of the signal handler which calls this, in the thread that faulted.
pub(crate) unsafe fn fixup_exception(context: *mut ucontext_t, at: usize) -> bool {
    // SAFETY: the caller's contract.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let get = |register: i32| registers[register as usize];
    let ip = get(REG_RIP);
    let depth = get(REG_R13).wrapping_sub(get(REG_RSP));
    let found = exception_table().iter().find(|entry| match entry.kind {
        kind::FRAME => get(REG_R12) == absolute_address(&entry.fixup) && (0..FRAME_MAX).contains(&depth),
        _ => (absolute_address(&entry.from)..absolute_address(&entry.to)).contains(&ip),
    });
    let Some(entry) = found else { return false };
    if matches!(entry.kind, kind::ADDRESS | kind::FRAME) {
        registers[REG_RAX as usize] = at.max(1) as greg_t;
    }
    registers[REG_RIP as usize] = absolute_address(&entry.fixup);
    true
}
