//! [`Process`] and [`Source`]: process addresses, and the initiators that an entry admits (Portals 4.3, section 3.9).

/// The address of a process on one interface: node and number, or rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// The node, or the rank on a logical interface.
    pub nid: u32,
    /// The process on its node; 0 on a logical interface.
    pub pid: u32,
}

impl Process {
    /// A process of a logical interface.
    #[must_use]
    pub const fn rank(rank: u32) -> Self {
        Self { nid: rank, pid: 0 }
    }

    /// A process of a physical interface.
    #[must_use]
    pub const fn physical(nid: u32, pid: u32) -> Self {
        Self { nid, pid }
    }
}

/// The initiators that an entry admits; `None` is any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The node, or the rank.
    pub nid: Option<u32>,
    /// The process on its node.
    pub pid: Option<u32>,
}

impl Source {
    /// Admits any process.
    pub const ANY: Self = Self { nid: None, pid: None };

    /// Exactly this process.
    #[must_use]
    pub const fn exactly(process: Process) -> Self {
        Self { nid: Some(process.nid), pid: Some(process.pid) }
    }

    /// The process, if this admits exactly one.
    #[must_use]
    pub const fn one(self) -> Option<Process> {
        match (self.nid, self.pid) {
            (Some(nid), Some(pid)) => Some(Process { nid, pid }),
            _ => None,
        }
    }

    /// Whether it admits a process.
    #[must_use]
    pub fn admits(self, process: Process) -> bool {
        self.nid.is_none_or(|nid| nid == process.nid) && self.pid.is_none_or(|pid| pid == process.pid)
    }
}
