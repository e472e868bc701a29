//! Data path: guarded accesses for x86-64. Copies of up to [`LOOP_MAX`] bytes are done here, with AVX where the processor
//! has it; longer ones call memmove(3) itself from a frame that is in the exception table, except at a slow distance.
//!
//! glibc's memmove may use `rep movsb` from 2 KiB to the size of the second-level cache. AMD processors with FSRM run it at a
//! sixteenth of its speed if the target begins 1 to 15 bytes after the source, modulo 4096, and at half its speed for 16 to 31.
//! A loop of vectors takes the same time at every distance, and where measured it was at no distance slower.

use std::arch::{asm, naked_asm};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::extable::asm_extable;
use crate::fault::Fault;

/// The longest copy that is done here at every distance, in bytes, not counting its last eight. Beyond the second-level
/// cache, memmove has non-temporal stores.
const LOOP_MAX: usize = 1 << 20;

/// Copies at distances from 1 to this number never call memmove. Up to 31 are slow on AMD processors; on Intel's with FSRM,
/// glibc avoids string moves at all of them.
const SLOW_DISTANCES: usize = 63;

/// Whether vectors of 32 bytes are used.
static AVX: AtomicBool = AtomicBool::new(false);

/// Detects the processor's vector instructions.
pub(crate) fn detect_features() {
    AVX.store(std::is_x86_feature_detected!("avx"), Ordering::Relaxed);
}

/// Moves one value of register size: one `mov` out and one in, both guarded.
macro_rules! copy_by_one_register {
    ($src:expr, $dst:expr, $load:literal, $store:literal) => {
        asm!(
            concat!("2: ", $load),
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

/// Moves two values that may overlap; the one at the end is written last.
macro_rules! copy_by_two_registers {
    ($src:expr, $dst:expr, $behind:expr, $load:literal, $load_end:literal, $store:literal, $store_end:literal) => {
        asm!(
            concat!("2: ", $load),
            $load_end,
            concat!("3: ", $store),
            $store_end,
            "4:",
            asm_extable!("2b", "3b", "{source}", "0"),
            asm_extable!("3b", "4b", "{target}", "0"),
            t = out(reg) _,
            u = out(reg) _,
            src = in(reg) $src,
            dst = in(reg) $dst,
            behind = in(reg) $behind,
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
    // SAFETY: the caller's contract; the assembly touches the two ranges only, and its faults are in the exception table.
    // Tests: copies_every_size, copy_reports_each_inaccessible_byte.
    unsafe {
        match n {
            0 => {}
            1 => {
                copy_by_one_register!(src, dst, "mov {t:l}, byte ptr [{src}]", "mov byte ptr [{dst}], {t:l}")
            }
            2 => {
                copy_by_one_register!(src, dst, "mov {t:x}, word ptr [{src}]", "mov word ptr [{dst}], {t:x}")
            }
            4 => copy_by_one_register!(
                src,
                dst,
                "mov {t:e}, dword ptr [{src}]",
                "mov dword ptr [{dst}], {t:e}"
            ),
            8 => copy_by_one_register!(src, dst, "mov {t}, qword ptr [{src}]", "mov qword ptr [{dst}], {t}"),
            3 => copy_by_two_registers!(
                src,
                dst,
                n - 2,
                "mov {t:x}, word ptr [{src}]",
                "mov {u:x}, word ptr [{src} + {behind}]",
                "mov word ptr [{dst}], {t:x}",
                "mov word ptr [{dst} + {behind}], {u:x}"
            ),
            5..8 => copy_by_two_registers!(
                src,
                dst,
                n - 4,
                "mov {t:e}, dword ptr [{src}]",
                "mov {u:e}, dword ptr [{src} + {behind}]",
                "mov dword ptr [{dst}], {t:e}",
                "mov dword ptr [{dst} + {behind}], {u:e}"
            ),
            _ => match copy_nine_or_more(dst, src, n) {
                0 => {}
                at => return Err(Fault::side(dst, n, at)),
            },
        }
    }
    Ok(())
}

/// Copies `n` bytes, at least 9, with the last 8 last. Returns 0, or an address that could not be accessed.
///
/// It jumps to the functions below with `rdx` 8 less than `n`, the last 8 bytes in `r9` and their destination
/// in `r8`. All but the loop load everything before they store.
///
/// # Safety
/// As [`copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn copy_nine_or_more(dst: *mut u8, src: *const u8, n: usize) -> usize {
    naked_asm!(
        "2: mov r9, [rsi + rdx - 8]",
        "lea r8, [rdi + rdx - 8]",
        "sub rdx, 8",
        "cmp rdx, 16",
        "ja 4f",
        "cmp rdx, 8",
        "jbe 3f",
        "mov rax, [rsi]",
        "mov rcx, [rsi + rdx - 8]",
        "mov [rdi], rax",
        "mov [rdi + rdx - 8], rcx",
        "mov [r8], r9",
        "xor eax, eax",
        "ret",
        // Up to 8 bytes before the last 8: the bytes written beyond them are overwritten below.
        "3: mov rax, [rsi]",
        "mov [rdi], rax",
        "mov [r8], r9",
        "xor eax, eax",
        "ret",
        "4: cmp rdx, 32",
        "ja 5f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "mov [r8], r9",
        "xor eax, eax",
        "ret",
        "5: cmp byte ptr [rip + {avx}], 0",
        "je {by_memmove}",
        "cmp rdx, 256",
        "jbe {by_vectors}",
        "cmp rdx, {loop_max}",
        "jbe {in_loop}",
        "mov eax, edi",
        "sub eax, esi",
        "and eax, 4095",
        "dec eax",
        "cmp eax, {slow}",
        "jb {in_loop}",
        "jmp {by_memmove}",
        "6: ret",
        asm_extable!("2b", "6b", "6b", "1"),
        avx = sym AVX,
        loop_max = const LOOP_MAX,
        slow = const SLOW_DISTANCES,
        by_vectors = sym copy_by_vectors,
        in_loop = sym copy_in_loop,
        by_memmove = sym copy_by_memmove,
    )
}

/// Does [`copy_nine_or_more`] for 33 to 256 bytes before the last 8.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy_by_vectors(dst: *mut u8, src: *const u8, n: usize) -> usize {
    naked_asm!(
        "2: cmp rdx, 64",
        "ja 3f",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + rdx - 32]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + rdx - 32], ymm1",
        "jmp 5f",
        "3: cmp rdx, 128",
        "ja 4f",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + rdx - 64]",
        "vmovdqu ymm3, [rsi + rdx - 32]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm1",
        "vmovdqu [rdi + rdx - 64], ymm2",
        "vmovdqu [rdi + rdx - 32], ymm3",
        "jmp 5f",
        "4: vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + 64]",
        "vmovdqu ymm3, [rsi + 96]",
        "vmovdqu ymm4, [rsi + rdx - 128]",
        "vmovdqu ymm5, [rsi + rdx - 96]",
        "vmovdqu ymm6, [rsi + rdx - 64]",
        "vmovdqu ymm7, [rsi + rdx - 32]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm1",
        "vmovdqu [rdi + 64], ymm2",
        "vmovdqu [rdi + 96], ymm3",
        "vmovdqu [rdi + rdx - 128], ymm4",
        "vmovdqu [rdi + rdx - 96], ymm5",
        "vmovdqu [rdi + rdx - 64], ymm6",
        "vmovdqu [rdi + rdx - 32], ymm7",
        "5: mov [r8], r9",
        "xor eax, eax",
        "6: vzeroupper",
        "ret",
        asm_extable!("2b", "6b", "6b", "1"),
    )
}

/// Does [`copy_nine_or_more`] for more than 256 bytes before the last 8.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy_in_loop(dst: *mut u8, src: *const u8, n: usize) -> usize {
    naked_asm!(
        // A forward loop must not overwrite bytes that it has yet to read.
        "mov rax, rdi",
        "sub rax, rsi",
        "cmp rax, rdx",
        "jb {by_memmove}",
        // The unaligned ends, then 128 bytes at a time to aligned addresses between them.
        "2: vmovdqu ymm4, [rsi]",
        "vmovdqu ymm5, [rsi + rdx - 32]",
        "vmovdqu ymm6, [rsi + rdx - 64]",
        "vmovdqu ymm7, [rsi + rdx - 96]",
        "vmovdqu ymm8, [rsi + rdx - 128]",
        "mov rcx, rdi",
        "lea rdx, [rdi + rdx - 128]",
        "add rdi, 32",
        "and rdi, -32",
        "sub rsi, rcx",
        "add rsi, rdi",
        ".p2align 4",
        "3: vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + 64]",
        "vmovdqu ymm3, [rsi + 96]",
        "sub rsi, -128",
        "vmovdqa [rdi], ymm0",
        "vmovdqa [rdi + 32], ymm1",
        "vmovdqa [rdi + 64], ymm2",
        "vmovdqa [rdi + 96], ymm3",
        "sub rdi, -128",
        "cmp rdx, rdi",
        "ja 3b",
        "vmovdqu [rdx], ymm8",
        "vmovdqu [rdx + 32], ymm7",
        "vmovdqu [rdx + 64], ymm6",
        "vmovdqu [rdx + 96], ymm5",
        "vmovdqu [rcx], ymm4",
        "mov [r8], r9",
        "xor eax, eax",
        "6: vzeroupper",
        "ret",
        asm_extable!("2b", "6b", "6b", "1"),
        by_memmove = sym copy_by_memmove,
    )
}

/// Does [`copy_nine_or_more`] for any size by memmove(3), from a frame that can be restored after a fault.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy_by_memmove(dst: *mut u8, src: *const u8, n: usize) -> usize {
    naked_asm!(
        "push r12",
        "push r13",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "lea r12, [rip + 4f]",
        "mov r13, rsp",
        "call {memmove}",
        "mov r9, [rsp + 8]",
        "mov r8, [rsp + 16]",
        "2: mov [r8], r9",
        "3: xor eax, eax",
        "jmp 5f",
        "4: mov rsp, r13",
        "cld",
        "5: add rsp, 24",
        "pop r13",
        "pop r12",
        "ret",
        asm_extable!("2b", "3b", "4b", "1"),
        asm_extable!("4b", "4b", "4b", "2"),
        memmove = sym libc::memmove,
    )
}

/// Adds to eight bytes; stores their previous value at `old`. False if they could not be accessed.
///
/// # Safety
/// As [`fetch_add`](crate::fetch_add); `old` is writable.
#[unsafe(naked)]
pub(crate) unsafe extern "sysv64" fn fetch_add(at: *mut u64, add: u64, old: *mut u64) -> bool {
    naked_asm!(
        "2: lock xadd qword ptr [rdi], rsi",
        "3: mov qword ptr [rdx], rsi",
        "mov eax, 1",
        "ret",
        "4: xor eax, eax",
        "ret",
        asm_extable!("2b", "3b", "4b", "0"),
    )
}

/// Sets eight bytes to `new` if they equal `expected`; stores their previous value at `old`. False if they could not be
/// written, whatever they equal.
///
/// # Safety
/// As [`fetch_add`].
#[unsafe(naked)]
pub(crate) unsafe extern "sysv64" fn compare_swap(
    at: *mut u64,
    expected: u64,
    new: u64,
    old: *mut u64,
) -> bool {
    naked_asm!(
        "mov rax, rsi",
        "2: lock cmpxchg qword ptr [rdi], rdx",
        "3: mov qword ptr [rcx], rax",
        "mov eax, 1",
        "ret",
        "4: xor eax, eax",
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
            "2: mov {t:l}, byte ptr [{at}]",
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
            "2: lock or byte ptr [{at}], 0",
            "3:",
            asm_extable!("2b", "3b", "{fault}", "0"),
            at = in(reg) at,
            fault = label { return false },
            options(nostack)
        );
    }
    true
}
