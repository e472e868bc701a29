//! Data path: copies that report a fault as an error, at the cost of memmove(3). Copies of up to [`COPY_MAX`]
//! bytes are done here, with AVX where the processor has it; longer ones call memmove itself from a frame
//! that is in the exception table.

use std::arch::{asm, naked_asm};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::extable::asm_extable;

/// The side of a copy that could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The memory that was read.
    Source,
    /// The memory that was written.
    Target,
}

/// The longest copy that is done here, in bytes, not counting its last eight. Up to this size, calling
/// memmove and setting up the frame around it cost 0.5 to 2 ns more than the copy itself.
const COPY_MAX: usize = 4096;

/// Whether vectors of 32 bytes are used.
static AVX: AtomicBool = AtomicBool::new(false);

/// Detects the processor's vector instructions for copies. Called when a device is opened; earlier copies are
/// slower, but correct.
pub fn detect_avx() {
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

/// Copies `n` bytes, which may overlap. A thread that sees the last byte sees all `n`.
///
/// # Safety
/// Both ranges belong to this process's memory and contain no Rust object that is accessed other than through
/// raw pointers and atomics. They need not be mapped once [`arm`](crate::arm) has been called, and other
/// threads may write them meanwhile.
///
/// # Errors
/// [`Fault`] if a byte could not be accessed; the target may then hold any part of the source.
#[inline]
pub unsafe fn copy_last_byte_last(dst: *mut u8, src: *const u8, n: usize) -> Result<(), Fault> {
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
                at => return Err(fault_side(dst, n, at)),
            },
        }
    }
    Ok(())
}

/// The side that an address belongs to.
#[cold]
fn fault_side(dst: *mut u8, n: usize, at: usize) -> Fault {
    if at.wrapping_sub(dst.addr()) < n { Fault::Target } else { Fault::Source }
}

/// Copies `n` bytes, at least 9, with the last 8 last. Returns 0, or an address that could not be accessed.
///
/// It jumps to the functions below with `rdx` 8 less than `n`, the last 8 bytes in `r9` and their destination
/// in `r8`. All but the loop load everything before they store.
///
/// # Safety
/// As [`copy_last_byte_last`].
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
        "cmp rdx, {long}",
        "jbe {in_loop}",
        "jmp {by_memmove}",
        "6: ret",
        asm_extable!("2b", "6b", "6b", "1"),
        avx = sym AVX,
        long = const COPY_MAX,
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

/// Does [`copy_nine_or_more`] for 257 to [`COPY_MAX`] bytes before the last 8.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PAGE, Pages};

    /// Sizes around every branch of the copy.
    fn sizes() -> impl Iterator<Item = usize> {
        let long = [511, 512, 513, 1000, 4095, 4096, 4097, 4103, 4104, 4105, 4112, 5000, 70_000];
        (0..300).chain(long)
    }

    #[test]
    fn copies_every_size() {
        for with_avx in [false, true] {
            if with_avx {
                detect_avx();
            }
            let src: Vec<u8> = (0..80_000_u32).map(|i| (i * 31 + i / 251) as u8).collect();
            for n in sizes() {
                for shift in [0, 1, 7, 31, 32, 33] {
                    let mut dst = vec![0_u8; n + 100];
                    // SAFETY: both have the bytes.
                    let done =
                        unsafe { copy_last_byte_last(dst.as_mut_ptr().add(shift), src.as_ptr().add(5), n) };
                    assert_eq!(done, Ok(()));
                    assert_eq!(dst[shift..shift + n], src[5..5 + n], "{n} bytes at {shift}");
                    assert!(dst[..shift].iter().chain(&dst[shift + n..]).all(|&b| b == 0), "{n} at {shift}");
                }
            }
        }
    }

    /// Goal: overlapping ranges are copied as by memmove. Method: every size, forward and backward, by small
    /// and large distances.
    #[test]
    fn overlapping_ranges_are_copied_as_by_memmove() {
        detect_avx();
        let original: Vec<u8> = (0..90_000_u32).map(|i| (i * 7 + i / 253) as u8).collect();
        for n in sizes() {
            for (from, to) in
                [(100, 101), (101, 100), (100, 108), (108, 100), (100, 164), (164, 100), (500, 100)]
            {
                let (mut memory, mut expected) = (original.clone(), original.clone());
                expected.copy_within(from..from + n, to);
                let at = memory.as_mut_ptr();
                // SAFETY: both ranges are inside.
                let done = unsafe { copy_last_byte_last(at.add(to), at.add(from), n) };
                assert_eq!(done, Ok(()));
                assert!(memory == expected, "{n} bytes from {from} to {to}");
            }
        }
    }

    /// Goal: whichever byte is inaccessible, on whichever side, the copy reports it and the thread continues.
    /// Method: a range ends at an inaccessible page or begins in one, for each size and each number of
    /// inaccessible bytes.
    #[test]
    fn copy_reports_each_inaccessible_byte() {
        crate::arm().expect("a handler");
        detect_avx();
        let (near, far) = (Pages::new(80), Pages::new(80));
        near.protect(40..44, libc::PROT_NONE);
        let (hole, behind) = (near.ptr_at(40 * PAGE), near.ptr_at(44 * PAGE));
        for n in sizes().filter(|n| *n > 0) {
            let missing = (1..=n).filter(|m| *m <= 70 || n - m <= 70 || m % 97 == 0);
            for missing in missing {
                for at in [hole.wrapping_sub(n - missing), behind.wrapping_sub(missing)] {
                    if missing > 4 * PAGE {
                        continue;
                    }
                    // SAFETY: memory of this test alone.
                    unsafe {
                        assert_eq!(
                            copy_last_byte_last(far.ptr_at(1), at, n),
                            Err(Fault::Source),
                            "{missing} of {n}"
                        );
                        assert_eq!(
                            copy_last_byte_last(at, far.ptr_at(1), n),
                            Err(Fault::Target),
                            "{missing} of {n}"
                        );
                    }
                }
            }
            // SAFETY: as above; all bytes are accessible here.
            unsafe {
                assert_eq!(copy_last_byte_last(far.ptr_at(1), hole.wrapping_sub(n), n), Ok(()));
                assert_eq!(copy_last_byte_last(behind, far.ptr_at(1), n), Ok(()));
            }
        }
    }

    /// Goal: memory that becomes inaccessible in the middle of a long copy is an error, too. Method: a thread
    /// protects the second half meanwhile.
    #[test]
    fn copy_reports_memory_that_becomes_inaccessible() {
        crate::arm().expect("a handler");
        let len = 4096 * PAGE;
        let is_cut = (0..1000).any(|_| {
            let (near, far) = (Pages::new(4096), Pages::new(4096));
            let result = std::thread::scope(|threads| {
                threads.spawn(|| near.protect(2048..4096, libc::PROT_NONE));
                // SAFETY: memory of this test alone.
                unsafe { copy_last_byte_last(far.ptr_at(0), near.ptr_at(0), len) }
            });
            assert!(matches!(result, Ok(()) | Err(Fault::Source)));
            result.is_err()
        });
        assert!(is_cut, "the memory never became inaccessible in time");
    }

    #[test]
    fn copy_reports_a_truncated_file() {
        crate::arm().expect("a handler");
        let (file, bytes) = (Pages::map_new_file(2), [7; 2 * PAGE]);
        file.truncate(PAGE);
        // SAFETY: memory of this test alone.
        unsafe {
            assert_eq!(copy_last_byte_last(file.ptr_at(0), bytes.as_ptr(), PAGE), Ok(()));
            for n in [1, 2, 3, 4, 8, 9, 100, PAGE] {
                assert_eq!(copy_last_byte_last(file.ptr_at(PAGE), bytes.as_ptr(), n), Err(Fault::Target));
            }
            file.truncate(0);
            let mut back = [0; 8];
            assert_eq!(copy_last_byte_last(back.as_mut_ptr(), file.ptr_at(0), 8), Err(Fault::Source));
        }
    }
}
