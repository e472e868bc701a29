//! [`Begin`]: counts the connection requests of a job that connects all its processes at its start.

use mpi::{Connect, Process};

use super::super::{Fault, Round, Session, Side};
use super::join::join_by;
use results::variant::factor;

/// The counted quantities.
pub(super) const COUNTS: [&str; 4] = ["requests", "answers", "lower", "disorder"];

/// Counts of one rank; at the client, of all ranks.
pub(super) struct Begin {
    count: f64,
    _process: Process,
}

/// Counts a quantity over the processes that a rank is connected with, in their order, each with whether this rank
/// sent the request.
fn count(of: &str, rank: u32, connected: &[(u32, bool)]) -> Option<u32> {
    let asked: Vec<u32> = connected.iter().filter(|(_, asked)| *asked).map(|(other, _)| *other).collect();
    let number = match of {
        "requests" => asked.len(),
        "answers" => connected.len() - asked.len(),
        "lower" => asked.iter().filter(|other| **other > rank).count(),
        "disorder" => asked.iter().zip((0..rank).rev()).filter(|(other, next)| *other != next).count(),
        _ => return None,
    };
    Some(number as u32)
}

impl Begin {
    pub(super) fn prepare(session: &mut Session<'_>, ranks: u32) -> Result<Self, Fault> {
        let of = session.cell.variant.get(factor::QUANTITY).unwrap_or(COUNTS[0]).to_owned();
        let process = join_by(session, ranks, Connect::All)?;
        let unknown = || Fault::Meaningless(format!("a count of {of}; it has {}", COUNTS.join(", ")));
        let mine = count(&of, session.rank, &process.connected()).ok_or_else(unknown)?;
        let mut all = mine;
        if session.is_client() {
            for rank in 1..ranks as usize {
                all += session.receive_info_from::<u32>(rank)?;
            }
        } else {
            session.send_info(&mine)?;
        }
        Ok(Self { count: f64::from(all), _process: process })
    }
}

impl Side for Begin {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        if s.is_client() {
            readings.extend(std::iter::repeat_n(self.count, round.samples as usize));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_whom_and_in_which_order() {
        let connected = [(4, false), (2, true), (0, true), (1, true), (5, true)];
        let counts = COUNTS.map(|of| count(of, 3, &connected));
        assert_eq!(counts, [Some(4), Some(1), Some(1), Some(2)]);
        assert_eq!(count("nothing", 3, &connected), None);
    }
}
