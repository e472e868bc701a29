//! The hosts of a communicator's members.

use std::sync::Arc;

use crate::comm::communicator::Comm;
use crate::error::Result;

impl Comm {
    /// The host of each member of the local group, as numbers from 0 on; empty if all are on one host. The same at all members.
    ///
    /// Also empty in simulated time: the libraries of the papers did not distinguish hosts.
    ///
    /// # Errors
    /// The process manager's.
    pub(crate) fn hosts(&self) -> Result<Arc<[usize]>> {
        if let Some(known) = self.known_hosts().get() {
            return Ok(known.clone());
        }
        let is_simulated = self.core().host().node().is_some();
        let hosts = if is_simulated { Vec::new() } else { self.number_hosts(self.size() as usize)? };
        let hosts = if hosts.iter().max() > Some(&0) { hosts } else { Vec::new() };
        Ok(self.known_hosts().get_or_init(|| hosts.into()).clone())
    }

    /// Whether all members are processes of this process's job. The same at all members of one job.
    pub(crate) fn is_of_own_job(&self) -> bool {
        let size = self.core().bootstrap().size();
        self.group().members().iter().all(|process| *process < size)
    }

    /// The host number of each of the first members.
    ///
    /// # Errors
    /// The process manager's.
    pub(crate) fn number_hosts(&self, size: usize) -> Result<Vec<usize>> {
        let mut names = Vec::new();
        let mut hosts = Vec::with_capacity(size);
        for process in &self.group().members()[..size] {
            let node = self.core().with(|engine| engine.transport.address_of(*process))?.node;
            hosts.push(names.iter().position(|name| *name == node).unwrap_or(names.len()));
            if hosts.last() == Some(&names.len()) {
                names.push(node);
            }
        }
        Ok(hosts)
    }
}
