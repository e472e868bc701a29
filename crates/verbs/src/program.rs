//! [`Program`]: the host's handle of a program that a NIC runs ([`Firmware`]).

use std::net::SocketAddr;

use host::{Source, Wakes};

use crate::firmware::{Firmware, FirmwareCap};
use crate::provider::ProgramOps;
use crate::{Device, Error, Pd, Result};

/// The host's handle of a program that a NIC runs; dropping it unloads the program. When that returns, no call of the
/// program is running any more, and it has been dropped. To wait for results of the program, sleep on this
/// ([`host::Host::wait`]) and poll the memory that [`NicCtx::event`](crate::NicCtx::event) writes;
/// [`NicCtx::interrupt`](crate::NicCtx::interrupt) wakes the waiter.
pub struct Program {
    ops: Box<dyn ProgramOps>,
    cap: FirmwareCap,
    pd: Pd,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({})", self.addr())
    }
}

impl Program {
    /// The address to which other programs send.
    pub fn addr(&self) -> SocketAddr {
        self.ops.addr()
    }

    /// The domain whose memory it can access.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// The limits of the program.
    pub fn cap(&self) -> FirmwareCap {
        self.cap
    }

    /// Passes a command to the program. It has been queued when this returns, not executed.
    ///
    /// # Errors
    /// [`Error::Limit`] for too long a command; [`Error::QueueFull`] if too many wait; retry later.
    pub fn command(&self, command: &[u8]) -> Result<()> {
        Error::check_limit("bytes of a command", command.len() as u64, self.cap.max_command.into())?;
        self.ops.command(command)
    }
}

/// Waits for interrupts of the program.
impl Source for Program {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(self.ops.prepare_wait());
    }
}

impl Device {
    /// Loads a program into the NIC, at an address of the device: port 0 lets the device choose one, an unspecified
    /// address means the first. These ports are not those of [`crate::Cm`]. From now on the program receives messages
    /// sent to that address.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if [`DeviceAttr::firmware`](crate::DeviceAttr::firmware) is `None`; [`Error::Address`] if
    /// the address is taken or does not belong to this device; [`Error::Foreign`] for another device's domain;
    /// [`Error::Limit`] for too many programs.
    pub fn load(&self, pd: &Pd, addr: SocketAddr, firmware: Box<dyn Firmware>) -> Result<Program> {
        let Some(cap) = self.attr().firmware else { return self.unsupported("code that the NIC runs") };
        self.check_own(pd.device(), "the protection domain")?;
        Ok(Program { ops: self.ops().load(pd.ops(), addr, firmware)?, cap, pd: pd.clone() })
    }
}
