//! Data path: guarded accesses for aarch64. Copies other than of one aligned value call memmove(3) from a frame that is in
//! the exception table.
//!
//! This processor may make stores visible in any order. A barrier before the last store of each copy keeps what
//! [`copy_last_byte_last`](crate::copy_last_byte_last) promises, for readers that load the last byte with acquire order. Data
//! that arrives in several copies is ordered, too.

use std::arch::{asm, naked_asm};

use crate::extable::asm_extable;
use crate::fault::Fault;

/// Detects nothing: every processor of this architecture has what copies use.
pub(crate) fn detect_features() {}

/// Moves one value of register size: one load and one store, both guarded. The barrier orders earlier copies, as this one may
/// be the last of several.
macro_rules! copy_by_one_register {
    ($src:expr, $dst:expr, $load:literal, $store:literal) => {
        asm!(
            concat!("2: ", $load),
            "dmb ish",
            concat!("3: ", $store),
            "4:",
            asm_extable!("2b", "3b", "{source}", "0"),
            asm_extable!("3b", "4b", "{target}", "0"),
            t = out(reg) _,
            src = in(reg) $src,
            dst = in(reg) $dst,
            source = label { return Err(Fault::Source) },
            target = label { return Err(Fault::Target) },
            options(nostack, preserves_flags)
        )
    };
}

/// Does [`copy_last_byte_last`](crate::copy_last_byte_last).
///
/// # Safety
/// As there.
///
/// # Errors
/// As there.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
    // Other threads may see an unaligned store in parts.
    let is_aligned = |bytes: usize| dst.addr().is_multiple_of(bytes);
    // SAFETY: the caller's contract; the assembly touches the two ranges only, and its faults are in the exception table.
    // Tests: copies_every_size, copy_reports_each_inaccessible_byte.
    unsafe {
        match n {
            0 => {}
            1 => copy_by_one_register!(src, dst, "ldrb {t:w}, [{src}]", "strb {t:w}, [{dst}]"),
            2 if is_aligned(2) => {
                copy_by_one_register!(src, dst, "ldrh {t:w}, [{src}]", "strh {t:w}, [{dst}]")
            }
            4 if is_aligned(4) => copy_by_one_register!(src, dst, "ldr {t:w}, [{src}]", "str {t:w}, [{dst}]"),
            8 if is_aligned(8) => copy_by_one_register!(src, dst, "ldr {t:x}, [{src}]", "str {t:x}, [{dst}]"),
            _ => {
                let last = if n > 8 && is_aligned_end(dst, n) { 8 } else { 1 };
                match copy_by_memmove(dst, src, n - last, last) {
                    0 => {}
                    at => return Err(Fault::side(dst, n, at)),
                }
            }
        }
    }
    Ok(())
}

/// Whether the last eight of `n` bytes are aligned, so that one store makes them visible together.
#[inline]
fn is_aligned_end(dst: *mut u8, n: usize) -> bool {
    dst.addr().wrapping_add(n).is_multiple_of(8)
}

/// Copies `n` bytes by memmove(3), then the `last` bytes behind them, 1 or 8, in one store. Returns 0, or an address that could
/// not be accessed.
///
/// A fault continues in the frame that is set up here: `x19` and `x20` have what
/// [`Registers::frame`](crate::registers::Registers::frame) asks for. `x21` has the destination of the last bytes, `x22` these
/// bytes, loaded before memmove may overwrite them, and `x23` their number.
///
/// # Safety
/// As [`copy`].
#[unsafe(naked)]
unsafe extern "C" fn copy_by_memmove(dst: *mut u8, src: *const u8, n: usize, last: usize) -> usize {
    naked_asm!(
        "stp x29, x30, [sp, #-64]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "str x23, [sp, #48]",
        "mov x29, sp",
        "adr x19, 7f",
        "mov x20, sp",
        "mov x23, x3",
        "add x21, x0, x2",
        "tbz x23, #3, 3f",
        "2: ldr x22, [x1, x2]",
        "b 4f",
        "3: ldrb w22, [x1, x2]",
        "4: bl {memmove}",
        "dmb ish",
        "tbz x23, #3, 6f",
        "5: str x22, [x21]",
        "mov x0, #0",
        "b 7f",
        "6: strb w22, [x21]",
        "mov x0, #0",
        "7: mov sp, x20",
        "ldr x23, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #64",
        "ret",
        asm_extable!("2b", "4b", "7b", "1"),
        asm_extable!("5b", "7b", "7b", "1"),
        asm_extable!("7b", "7b", "7b", "2"),
        memmove = sym libc::memmove,
    )
}

/// Adds to eight bytes; stores their previous value at `old`. False if they could not be accessed. A full barrier, as on
/// x86-64.
///
/// # Safety
/// As [`fetch_add`](crate::fetch_add); `old` is writable.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn fetch_add(at: *mut u64, add: u64, old: *mut u64) -> bool {
    naked_asm!(
        "2: ldaxr x9, [x0]",
        "add x10, x9, x1",
        "stlxr w11, x10, [x0]",
        "cbnz w11, 2b",
        "3: dmb ish",
        "str x9, [x2]",
        "mov w0, #1",
        "ret",
        "4: mov w0, #0",
        "ret",
        asm_extable!("2b", "3b", "4b", "0"),
    )
}

/// Sets eight bytes to `new` if they equal `expected`; stores their previous value at `old`. False if they could not be
/// written, whatever they equal: unequal bytes are stored back. A full barrier, as on x86-64.
///
/// # Safety
/// As [`fetch_add`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn compare_swap(at: *mut u64, expected: u64, new: u64, old: *mut u64) -> bool {
    naked_asm!(
        "2: ldaxr x9, [x0]",
        "cmp x9, x1",
        "csel x10, x2, x9, eq",
        "stlxr w11, x10, [x0]",
        "cbnz w11, 2b",
        "3: dmb ish",
        "str x9, [x3]",
        "mov w0, #1",
        "ret",
        "4: mov w0, #0",
        "ret",
        asm_extable!("2b", "3b", "4b", "0"),
    )
}

/// Reads a byte; false if that faults.
#[inline]
pub(crate) fn touch_to_read(at: usize) -> bool {
    // SAFETY: it reads a byte into nothing, and its faults are in the exception table. Test:
    // check_reports_the_first_bad_address.
    unsafe {
        asm!(
            "2: ldrb {t:w}, [{at}]",
            "3:",
            asm_extable!("2b", "3b", "{fault}", "0"),
            t = out(reg) _,
            at = in(reg) at,
            fault = label { return false },
            options(nostack, preserves_flags)
        );
    }
    true
}

/// Writes a byte's own value back atomically, so that concurrent changes are kept; false if that faults.
#[inline]
pub(crate) fn touch_to_write(at: usize) -> bool {
    // SAFETY: no value changes; otherwise as `touch_to_read`.
    unsafe {
        asm!(
            "2: ldxrb {t:w}, [{at}]",
            "stxrb {failed:w}, {t:w}, [{at}]",
            "cbnz {failed:w}, 2b",
            "3:",
            asm_extable!("2b", "3b", "{fault}", "0"),
            t = out(reg) _,
            failed = out(reg) _,
            at = in(reg) at,
            fault = label { return false },
            options(nostack, preserves_flags)
        );
    }
    true
}
