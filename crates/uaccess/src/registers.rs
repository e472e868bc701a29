//! The registers of code that a signal has interrupted, as far as the exception table reads and changes them.

use libc::mcontext_t;
#[cfg(target_arch = "x86_64")]
use libc::{REG_R12, REG_R13, REG_RAX, REG_RIP, REG_RSP};

/// Registers of interrupted code, which continues with changed ones when the signal handler returns.
pub(crate) struct Registers<'a>(&'a mut mcontext_t);

/// What a frame of guarded code holds in two registers while it calls a function of the C library.
pub(crate) struct Frame {
    /// Where execution continues after a fault (`r12`, `x19`).
    pub(crate) fixup: usize,
    /// How far the stack pointer is below that of the frame (`r13`, `x20`), in bytes; a very large number if it is above.
    pub(crate) depth: usize,
}

impl<'a> Registers<'a> {
    pub(crate) fn of(context: &'a mut mcontext_t) -> Self {
        Self(context)
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers<'_> {
    fn get(&self, register: i32) -> usize {
        self.0.gregs[register as usize] as usize
    }

    /// The address of the interrupted instruction.
    pub(crate) fn instruction(&self) -> usize {
        self.get(REG_RIP)
    }

    /// The two registers of a frame, whatever they hold in other code.
    pub(crate) fn frame(&self) -> Frame {
        Frame { fixup: self.get(REG_R12), depth: self.get(REG_R13).wrapping_sub(self.get(REG_RSP)) }
    }

    /// Sets the register of a function's result.
    pub(crate) fn set_result(&mut self, value: usize) {
        self.0.gregs[REG_RAX as usize] = value as i64;
    }

    /// Sets the address where execution continues.
    pub(crate) fn continue_at(&mut self, address: usize) {
        self.0.gregs[REG_RIP as usize] = address as i64;
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers<'_> {
    /// The address of the interrupted instruction.
    pub(crate) fn instruction(&self) -> usize {
        self.0.pc as usize
    }

    /// The two registers of a frame, whatever they hold in other code.
    pub(crate) fn frame(&self) -> Frame {
        Frame {
            fixup: self.0.regs[19] as usize,
            depth: (self.0.regs[20] as usize).wrapping_sub(self.0.sp as usize),
        }
    }

    /// Sets the register of a function's result.
    pub(crate) fn set_result(&mut self, value: usize) {
        self.0.regs[0] = value as u64;
    }

    /// Sets the address where execution continues.
    pub(crate) fn continue_at(&mut self, address: usize) {
        self.0.pc = address as u64;
    }
}
