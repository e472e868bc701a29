//! [`Bootstrap`]: what a process knows of its job before it can communicate; and [`Board`], an implementation for ranks of one
//! program.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::Key;
use host::{EventCount, Host, Lock};

use crate::error::{Class, Error, Result};

/// The job's size and ranks, and a board for notes between its processes: PMI, or an implementation for a simulated world.
pub trait Bootstrap: Send + Sync {
    /// This process's number, below [`Bootstrap::size`].
    fn rank(&self) -> u32;
    /// The number of processes of the job, at least 1.
    fn size(&self) -> u32;
    /// The number of processes of other jobs for which this one reserves connections.
    fn strangers(&self) -> u32 {
        0
    }
    /// Publishes a note. Keys and values consist of printable characters without blanks; a value has at most 900 bytes.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager refuses, or has ended.
    fn put(&self, key: &str, value: &str) -> Result<()>;
    /// Returns a note that was published before the last fence.
    ///
    /// # Errors
    /// [`Class::OTHER`] when there is no such note, or the process manager has ended.
    fn get(&self, key: &str) -> Result<String>;
    /// Creates a key that no other process knows. In virtual time it derives from the world's seed.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the system returns no random numbers.
    fn random_key(&self) -> Result<Key> {
        Ok(Key::random()?)
    }
    /// Waits until all processes have called it. Notes published before it are visible after it.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager has ended, or a process ended without calling it.
    fn fence(&self) -> Result<()>;
}

/// The board that ranks of one program share, in real and in virtual time.
#[derive(Debug)]
pub struct Board {
    size: u32,
    number: u64,
    notes: Lock<Notes>,
    wakeup: EventCount,
}

#[derive(Debug, Default)]
struct Notes {
    /// The number of keys created in virtual time.
    keys: u64,
    values: BTreeMap<String, String>,
    /// The hosts of the ranks that have arrived at the current fence: in virtual time each is notified separately.
    arrived: Vec<Host>,
    /// Completed fences.
    fences: u64,
}

impl Board {
    /// The board of a job of `size` ranks.
    pub fn new(size: u32) -> Arc<Self> {
        Self::numbered(size, 0)
    }

    /// Creates a board as [`Board::new`] does, for one of several jobs of a simulated world: each job needs a different number,
    /// since keys derive from it.
    pub fn numbered(size: u32, number: u64) -> Arc<Self> {
        Arc::new(Self { size, number, notes: Lock::default(), wakeup: EventCount::new() })
    }

    /// The bootstrap of rank `rank`, which runs on `host`.
    pub fn seat(self: &Arc<Self>, rank: u32, host: &Host) -> Arc<Seat> {
        Arc::new(Seat { board: self.clone(), rank, host: host.clone() })
    }
}

/// The bootstrap of one rank, by a [`Board`].
#[derive(Debug)]
pub struct Seat {
    board: Arc<Board>,
    rank: u32,
    host: Host,
}

impl Bootstrap for Seat {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board.size
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        self.board.notes.lock(&self.host).values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&self, key: &str) -> Result<String> {
        let notes = self.board.notes.lock(&self.host);
        let missing =
            || Error::new(Class::OTHER, format_args!("no process has published a note named {key}"));
        notes.values.get(key).cloned().ok_or_else(missing)
    }

    fn random_key(&self) -> Result<Key> {
        let Some(node) = self.host.node() else { return Ok(Key::random()?) };
        let mut notes = self.board.notes.lock(&self.host);
        notes.keys += 1;
        let parts = [node.timeline().seed(), self.board.number, notes.keys].map(u64::to_le_bytes);
        Ok(Key::from_bytes([0; 16]).derive("world", &[parts.as_flattened()]))
    }

    fn fence(&self) -> Result<()> {
        let board = &self.board;
        let mine = {
            let mut notes = board.notes.lock(&self.host);
            notes.arrived.push(self.host.clone());
            if notes.arrived.len() == board.size as usize {
                let arrived = std::mem::take(&mut notes.arrived);
                notes.fences += 1;
                drop(notes);
                arrived.iter().for_each(|host| host.notify(&board.wakeup));
                return Ok(());
            }
            notes.fences
        };
        let passed = || (board.notes.lock(&self.host).fences > mine).then_some(());
        let ended = || Error::new(Class::OTHER, "the world ended during a fence");
        self.host.wait("Bootstrap::fence", &board.wakeup, None, passed).ok_or_else(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Task;

    /// Goal: no rank leaves a fence before all have arrived, and notes published before it are visible after it.
    #[test]
    fn notes_are_seen_behind_the_fence() {
        let (host, board) = (host::real::host(), Board::new(4));
        let body = |rank: u32| {
            let seat = board.seat(rank, &host);
            move || {
                for round in 0..50 {
                    seat.put(&format!("{round}-{rank}"), &(rank * 7).to_string()).expect("put");
                    seat.fence().expect("all come");
                    for other in 0..4 {
                        let value = seat.get(&format!("{round}-{other}")).expect("behind the fence");
                        assert_eq!(value, (other * 7).to_string());
                    }
                }
                seat.put(&format!("done-{rank}"), "yes").expect("put");
            }
        };
        let tasks: Vec<Task> =
            (0..4).map(|rank| host.spawn("rank", None, body(rank)).expect("a thread")).collect();
        tasks.into_iter().for_each(Task::join);
        let seat = board.seat(0, &host);
        assert!((0..4).all(|rank| seat.get(&format!("done-{rank}")).is_ok()), "a rank panicked");
        assert!(seat.get("nothing").is_err());
    }
}
