//! The exception table: which instructions may fault on the program's memory, and where execution continues
//! if one does.
//!
//! Linux handles faults of its own copy_from_user the same way (Documentation/arch/x86/exception-tables.rst).
//! The guarded assembly itself writes each entry into a separate section, so that there is one entry for each
//! place where the compiler has inlined that assembly. It costs no instruction unless a fault happens.

use libc::ucontext_t;

use crate::registers::Registers;

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
    /// The register of a function's result gets the address that faulted, and never 0.
    pub(super) const ADDRESS: i32 = 1;
    /// As `ADDRESS`, for the frame of a function that calls a function of the C library. The frame holds the
    /// fixup's address and its stack pointer in two registers ([`Registers::frame`]). The called function preserves
    /// both, as the ABI demands, and does not use them, as it needs few registers.
    ///
    /// [`Registers::frame`]: crate::registers::Registers::frame
    pub(super) const FRAME: i32 = 2;
}

/// Maximum stack depth of the called function in bytes. A signal handler that interrupted it is deeper: a
/// fault of that handler is then not recovered, whatever the two registers still contain.
const FRAME_MAX: usize = 256;

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
fn absolute_address(field: &i32) -> usize {
    std::ptr::from_ref(field).addr().wrapping_add_signed(*field as isize)
}

/// Continues execution at the fixup if the fault at `at` is in guarded code; returns whether it is.
///
/// # Safety
/// `context` is that of the signal handler which calls this, in the thread that faulted.
pub(crate) unsafe fn fixup_exception(context: *mut ucontext_t, at: usize) -> bool {
    // SAFETY: the caller's contract.
    let mut registers = Registers::of(unsafe { &mut (*context).uc_mcontext });
    let (instruction, frame) = (registers.instruction(), registers.frame());
    let found = exception_table().iter().find(|entry| match entry.kind {
        kind::FRAME => frame.fixup == absolute_address(&entry.fixup) && frame.depth < FRAME_MAX,
        _ => (absolute_address(&entry.from)..absolute_address(&entry.to)).contains(&instruction),
    });
    let Some(entry) = found else { return false };
    if matches!(entry.kind, kind::ADDRESS | kind::FRAME) {
        registers.set_result(at.max(1));
    }
    registers.continue_at(absolute_address(&entry.fixup));
    true
}
