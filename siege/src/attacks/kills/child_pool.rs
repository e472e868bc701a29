//! [`ChildPool`]: children of a device that are started in advance, and the ledgers that they write.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::child::Child;
use crate::endpoint::Endpoint;

/// The name of the children's role.
pub(crate) const ROLE: &str = "killed";
/// Children that are started in advance, for each device.
const AHEAD: usize = 3;

/// A child with its device open, and the ledger that outlives it.
pub(super) struct Victim {
    pub(super) child: Child,
    pub(super) ledger: Ledger,
}

/// A victim's record of its own progress, kept outside of its process.
pub(super) struct Ledger(File);

impl Ledger {
    /// The number of messages that it knew to be delivered.
    pub(super) fn acknowledged(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        // An empty ledger counts as zero.
        let len = self.0.read_at(&mut bytes, 0)?;
        Ok(if len == 8 { u64::from_le_bytes(bytes) } else { 0 })
    }
}

/// Children of one device, started in advance.
pub(super) struct ChildPool {
    pub(super) device: &'static str,
    ready: VecDeque<(Victim, PathBuf)>,
    count: u64,
}

impl ChildPool {
    pub(super) fn new(device: &'static str) -> Result<Self> {
        let mut child_pool = Self { device, ready: VecDeque::new(), count: 0 };
        for _ in 0..AHEAD {
            child_pool.start_child()?;
        }
        Ok(child_pool)
    }

    fn start_child(&mut self) -> Result<()> {
        self.count += 1;
        let name = format!("siege-{}-{}-{}", std::process::id(), self.device.len(), self.count);
        let path = std::env::temp_dir().join(name);
        let ledger = File::options().create_new(true).read(true).write(true).open(&path)?;
        let mut child = Child::start(ROLE)?;
        child.send(format!("{} {}", self.device, path.display()))?;
        self.ready.push_back((Victim { child, ledger: Ledger(ledger) }, path));
        Ok(())
    }

    /// A child that is ready.
    pub(super) fn take_ready(&mut self) -> Result<Victim> {
        self.start_child()?;
        let (victim, path) = self.ready.pop_front().context("children are started ahead")?;
        let said = victim.child.receive();
        // Both processes have it open.
        std::fs::remove_file(path)?;
        ensure!(said? == "ready", "the child did not get ready on {}", self.device);
        Ok(victim)
    }
}

impl Drop for ChildPool {
    fn drop(&mut self) {
        for (_, path) in &self.ready {
            // Nothing else removes this file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A device under attack.
pub(super) struct AttackedDevice {
    pub(super) end: Endpoint,
    /// Another user of the survivor's memory.
    pub(super) neighbour: Endpoint,
    pub(super) child_pool: ChildPool,
    pub(super) rounds: u64,
    pub(super) late: Duration,
}
