//! [`Bootstrap`]: what a process knows of its job before it can communicate; and [`LocalKvs`], an implementation for ranks of one
//! program.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::Key;
use host::{EventCount, Host, Lock};

use crate::error::{Class, Error, Result};

/// The job's size and ranks, and a key-value space that its processes share: PMI, or an implementation for a simulated world.
pub trait Bootstrap: Send + Sync {
    /// This process's number, below [`Bootstrap::size`].
    fn rank(&self) -> u32;
    /// The number of processes of the job, at least 1.
    fn size(&self) -> u32;
    /// The number of processes of other jobs for which this one reserves connections.
    fn remote_procs_max(&self) -> u32 {
        0
    }
    /// Publishes a value under a key. Keys and values consist of printable characters without blanks; a value has at most 900
    /// bytes.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager refuses, or has ended.
    fn put(&self, key: &str, value: &str) -> Result<()>;
    /// Returns a value that was published before the last fence.
    ///
    /// # Errors
    /// [`Class::OTHER`] when there is no such key, or the process manager has ended.
    fn get(&self, key: &str) -> Result<String>;
    /// Creates a key that no other process knows. In virtual time it derives from the world's seed.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the system returns no random numbers.
    fn random_key(&self) -> Result<Key> {
        Ok(Key::random()?)
    }
    /// Waits until all processes have called it. Values published before it are visible after it.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager has ended, or a process ended without calling it.
    fn fence(&self) -> Result<()>;
}

/// The key-value space that ranks of one program share, in real and in virtual time.
#[derive(Debug)]
pub struct LocalKvs {
    size: u32,
    number: u64,
    pairs: Lock<Pairs>,
    wakeup: EventCount,
}

#[derive(Debug, Default)]
struct Pairs {
    /// The number of keys created in virtual time.
    keys: u64,
    values: BTreeMap<String, String>,
    /// The hosts of the ranks that have arrived at the current fence: in virtual time each is notified separately.
    arrived: Vec<Host>,
    /// Completed fences.
    fences: u64,
}

impl LocalKvs {
    /// The key-value space of a job of `size` ranks.
    pub fn new(size: u32) -> Arc<Self> {
        Self::with_job_number(size, 0)
    }

    /// Creates a key-value space as [`LocalKvs::new`] does, for one of several jobs of a simulated world: each job needs a
    /// different number, since keys derive from it.
    pub fn with_job_number(size: u32, number: u64) -> Arc<Self> {
        Arc::new(Self { size, number, pairs: Lock::default(), wakeup: EventCount::new() })
    }

    /// The bootstrap of rank `rank`, which runs on `host`.
    pub fn bootstrap(self: &Arc<Self>, rank: u32, host: &Host) -> Arc<LocalBootstrap> {
        Arc::new(LocalBootstrap { kvs: self.clone(), rank, host: host.clone() })
    }
}

/// The bootstrap of one rank, by a [`LocalKvs`].
#[derive(Debug)]
pub struct LocalBootstrap {
    kvs: Arc<LocalKvs>,
    rank: u32,
    host: Host,
}

impl Bootstrap for LocalBootstrap {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.kvs.size
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        self.kvs.pairs.lock(&self.host).values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&self, key: &str) -> Result<String> {
        let pairs = self.kvs.pairs.lock(&self.host);
        let missing = || Error::new(Class::OTHER, format_args!("no process has published the key {key}"));
        pairs.values.get(key).cloned().ok_or_else(missing)
    }

    fn random_key(&self) -> Result<Key> {
        let Some(node) = self.host.node() else { return Ok(Key::random()?) };
        let mut pairs = self.kvs.pairs.lock(&self.host);
        pairs.keys += 1;
        let parts = [node.timeline().seed(), self.kvs.number, pairs.keys].map(u64::to_le_bytes);
        Ok(Key::from_bytes([0; 16]).derive("world", &[parts.as_flattened()]))
    }

    fn fence(&self) -> Result<()> {
        let kvs = &self.kvs;
        let mine = {
            let mut pairs = kvs.pairs.lock(&self.host);
            pairs.arrived.push(self.host.clone());
            if pairs.arrived.len() == kvs.size as usize {
                let arrived = std::mem::take(&mut pairs.arrived);
                pairs.fences += 1;
                drop(pairs);
                arrived.iter().for_each(|host| host.notify(&kvs.wakeup));
                return Ok(());
            }
            pairs.fences
        };
        let passed = || (kvs.pairs.lock(&self.host).fences > mine).then_some(());
        let ended = || Error::new(Class::OTHER, "the world ended during a fence");
        self.host.wait("Bootstrap::fence", &kvs.wakeup, None, passed).ok_or_else(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Task;

    /// Goal: no rank leaves a fence before all have arrived, and values published before it are visible after it.
    #[test]
    fn values_are_visible_after_the_fence() {
        let (host, kvs) = (host::real::host(), LocalKvs::new(4));
        let body = |rank: u32| {
            let bootstrap = kvs.bootstrap(rank, &host);
            move || {
                for round in 0..50 {
                    bootstrap.put(&format!("{round}-{rank}"), &(rank * 7).to_string()).expect("put");
                    bootstrap.fence().expect("all come");
                    for other in 0..4 {
                        let value = bootstrap.get(&format!("{round}-{other}")).expect("behind the fence");
                        assert_eq!(value, (other * 7).to_string());
                    }
                }
                bootstrap.put(&format!("done-{rank}"), "yes").expect("put");
            }
        };
        let tasks: Vec<Task> =
            (0..4).map(|rank| host.spawn("rank", None, body(rank)).expect("a thread")).collect();
        tasks.into_iter().for_each(Task::join);
        let bootstrap = kvs.bootstrap(0, &host);
        assert!((0..4).all(|rank| bootstrap.get(&format!("done-{rank}")).is_ok()), "a rank panicked");
        assert!(bootstrap.get("nothing").is_err());
    }
}
