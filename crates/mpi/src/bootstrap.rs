//! [`Bootstrap`]: what a process learns of its job before it can talk to others; and one for ranks of one program.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::Key;
use host::{Bell, Host, Lock};

use crate::error::{Class, Error, Result};

/// Who there is, and a board on which all leave notes for each other: PMI, or arithmetic in a simulated world.
pub trait Bootstrap: Send + Sync {
    /// This process's number, below [`Bootstrap::size`].
    fn rank(&self) -> u32;
    /// The number of processes of the job, at least 1.
    fn size(&self) -> u32;
    /// Processes of other jobs that this one has room for connections with at a time.
    fn strangers(&self) -> u32 {
        0
    }
    /// Leaves a note. Keys and values are of printable characters without blanks; a value has at most 900 bytes.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager refuses or is gone.
    fn put(&self, key: &str, value: &str) -> Result<()>;
    /// The note that somebody left before the last fence.
    ///
    /// # Errors
    /// [`Class::OTHER`] when there is none, or the process manager is gone.
    fn get(&self, key: &str) -> Result<String>;
    /// A new key that no other process knows. In virtual time it follows from the world's seed.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the system gives no random numbers.
    fn random_key(&self) -> Result<Key> {
        Ok(Key::random()?)
    }
    /// Waits until all processes have called it. Notes left before it are seen after it.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the process manager is gone, or somebody ended without calling it.
    fn fence(&self) -> Result<()>;
}

/// The board that ranks of one program share, in real and in virtual time.
#[derive(Debug)]
pub struct Board {
    size: u32,
    number: u64,
    notes: Lock<Notes>,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Notes {
    /// Keys made so far in virtual time.
    keys: u64,
    values: BTreeMap<String, String>,
    /// The machines of the ranks that have come to the present fence: in virtual time each is told by itself.
    arrived: Vec<Host>,
    /// Fences that are over.
    fences: u64,
}

impl Board {
    /// The board of a job of `size` ranks.
    pub fn new(size: u32) -> Arc<Self> {
        Self::numbered(size, 0)
    }

    /// As [`Board::new`], for one of several jobs of a simulated world: each needs another number, or they have the same keys.
    pub fn numbered(size: u32, number: u64) -> Arc<Self> {
        Arc::new(Self { size, number, notes: Lock::default(), bell: Bell::new() })
    }

    /// What rank `rank`, which runs on `host`, is given.
    pub fn seat(self: &Arc<Self>, rank: u32, host: &Host) -> Arc<Seat> {
        Arc::new(Seat { board: self.clone(), rank, host: host.clone() })
    }
}

/// One rank's place at a [`Board`].
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
        let missing = || Error::new(Class::OTHER, format_args!("nobody has left a note named {key}"));
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
                arrived.iter().for_each(|host| host.ring(&board.bell));
                return Ok(());
            }
            notes.fences
        };
        let passed = || (board.notes.lock(&self.host).fences > mine).then_some(());
        let ended = || Error::new(Class::OTHER, "the world ended during a fence");
        self.host.wait("Bootstrap::fence", &board.bell, None, passed).ok_or_else(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Task;

    /// Goal: nobody leaves a fence before all have come, and what was put before it is there after it.
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
