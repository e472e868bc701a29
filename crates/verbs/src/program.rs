//! [`Program`]: the host's hold on a program that a NIC runs ([`Firmware`]).

use std::net::SocketAddr;

use host::{Source, Wakes};

use crate::firmware::{Firmware, FirmwareCap};
use crate::provider::ProgramOps;
use crate::{Device, Error, Pd, Result};

/// The host's hold on a program that a NIC runs; dropping it unloads the program. When that returns, no call of it runs any more,
/// and it is dropped. Whoever waits for what the program does sleeps on this ([`host::Host::wait`]) and looks at the memory that
/// [`NicCtx::event`](crate::NicCtx::event) writes; [`NicCtx::interrupt`](crate::NicCtx::interrupt) wakes it.
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
    /// Where other programs send to.
    pub fn addr(&self) -> SocketAddr {
        self.ops.addr()
    }

    /// The domain whose memory it reaches.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// What it may say and be told.
    pub fn cap(&self) -> FirmwareCap {
        self.cap
    }

    /// Gives the program a command. It has been taken when this returns, not carried out.
    ///
    /// # Errors
    /// [`Error::Limit`] for too long a command; [`Error::QueueFull`] when too many wait, to be given again later.
    pub fn command(&self, command: &[u8]) -> Result<()> {
        Error::check_limit("bytes of a command", command.len() as u64, self.cap.max_command.into())?;
        self.ops.command(command)
    }
}

/// Its interrupts.
impl Source for Program {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(self.ops.prepare_wait());
    }
}

impl Device {
    /// Loads a program into the NIC, at an address of the device's: port 0 chooses one, an unspecified address means the first.
    /// These ports are not those of [`crate::Cm`]. From now on the program gets what is sent there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where [`DeviceAttr::firmware`](crate::DeviceAttr::firmware) is `None`; [`Error::Address`] when the
    /// address is taken or not this device's; [`Error::Foreign`] for another device's domain; [`Error::Limit`] for too many.
    pub fn load(&self, pd: &Pd, addr: SocketAddr, firmware: Box<dyn Firmware>) -> Result<Program> {
        let Some(cap) = self.attr().firmware else { return self.unsupported("code that the NIC runs") };
        self.check_own(pd.device(), "the protection domain")?;
        Ok(Program { ops: self.ops().load(pd.ops(), addr, firmware)?, cap, pd: pd.clone() })
    }
}
