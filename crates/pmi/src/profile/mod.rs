//! [`Profile`]: the profile of a rank, and its text form. A rank stores the text at its process manager as `profile-RANK-N` values;
//! the launcher reads them when the rank ends. `traffic` has the counts of messages by protocol.

mod traffic;

use std::collections::BTreeMap;
use std::fmt;

use host::Span;

pub use traffic::{MessageTotals, Proto, Traffic};

/// Totals for the calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Number of calls.
    pub calls: u64,
    /// Time from call to return, in total.
    pub time: Span,
    /// Bytes of messages sent during the calls.
    pub bytes: u64,
}

/// The profile of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The profiled time.
    pub watched: Span,
    /// Calls, by the name of the function.
    pub calls: BTreeMap<String, CallStats>,
    /// Messages sent to each process of its job, and in the last entry to processes of other jobs.
    pub sent: Vec<Traffic>,
}

/// A text that is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no part of a profile")]
pub struct NotAProfile(String);

/// Maximum bytes of a note.
const NOTE_LEN: usize = 900;

fn note_key(rank: u32, at: usize) -> String {
    format!("profile-{rank}-{at}")
}

impl Profile {
    /// The profile as notes with their keys, in the form in which a rank stores them for its launcher.
    pub fn to_notes(&self, rank: u32) -> Vec<(String, String)> {
        let text = self.to_string();
        let notes = text.as_bytes().chunks(NOTE_LEN).map(String::from_utf8_lossy);
        notes.enumerate().map(|(at, note)| (note_key(rank, at), note.into_owned())).collect()
    }

    /// Reads a rank's profile from its notes, if there are any, for a job of `size` ranks.
    ///
    /// # Errors
    /// [`NotAProfile`] names the first record that cannot be read.
    pub fn from_notes<'a>(
        rank: u32,
        size: usize,
        note: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Result<Self, NotAProfile>> {
        let notes: Vec<&str> = (0..).map_while(|at| note(&note_key(rank, at))).collect();
        (!notes.is_empty()).then(|| Self::parse(&notes.concat(), size))
    }

    /// Parses a profile written by [`Display`](fmt::Display), for a job of `size` ranks.
    fn parse(text: &str, size: usize) -> Result<Self, NotAProfile> {
        let mut profile = Self { sent: vec![Traffic::default(); size + 1], ..Self::default() };
        for record in text.split(',') {
            let fields: Vec<&str> = record.split(':').collect();
            let wrong = || NotAProfile(record.to_owned());
            profile.parse_record(&fields).ok_or_else(wrong)?;
        }
        Ok(profile)
    }

    fn parse_record(&mut self, fields: &[&str]) -> Option<()> {
        match *fields {
            ["watched", ps] => self.watched = Span::from_ps(ps.parse().ok()?),
            ["call", name, calls, ps, bytes] if is_function_name(name) => {
                let (calls, time) = (calls.parse().ok()?, Span::from_ps(ps.parse().ok()?));
                self.calls.insert(name.to_owned(), CallStats { calls, time, bytes: bytes.parse().ok()? });
            }
            ["sent", to, proto, messages, bytes] => {
                let proto = Proto::ALL.into_iter().find(|known| known.name() == proto)?;
                let to = self.sent.get_mut(to.parse::<usize>().ok()?)?;
                to.set(proto, MessageTotals { messages: messages.parse().ok()?, bytes: bytes.parse().ok()? });
            }
            _ => return None,
        }
        Some(())
    }
}

/// Whether it may be the name of an MPI function.
fn is_function_name(text: &str) -> bool {
    text.starts_with("MPI_")
        && text.len() < 64
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// Comma-separated records of colon-separated fields, without blanks; zero entries are omitted.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watched:{}", self.watched.as_ps())?;
        for (name, CallStats { calls, time, bytes }) in &self.calls {
            write!(f, ",call:{name}:{calls}:{}:{bytes}", time.as_ps())?;
        }
        for (to, traffic) in self.sent.iter().enumerate() {
            for proto in Proto::ALL.into_iter().filter(|proto| traffic.for_protocol(*proto).messages > 0) {
                let MessageTotals { messages, bytes } = traffic.for_protocol(proto);
                write!(f, ",sent:{to}:{}:{messages}:{bytes}", proto.name())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_profile_is_read_back() {
        let mut sent = vec![Traffic::default(); 3];
        sent[1].count(Proto::EagerRing, 100);
        sent[1].count(Proto::RndvGet, 1 << 20);
        sent[2].count(Proto::EagerInline, 0);
        let stats = |calls| CallStats { calls, time: Span::from_us(calls), bytes: 7 * calls };
        let calls = BTreeMap::from([("MPI_Send".to_owned(), stats(3)), ("MPI_Barrier".to_owned(), stats(0))]);
        let profile = Profile { watched: Span::from_ms(5), calls, sent };
        let text = profile.to_string();
        assert!(text.bytes().all(|c| c.is_ascii_graphic() && !b";\\%".contains(&c)), "{text}");
        assert_eq!(Profile::parse(&text, 2).expect("its own"), profile);
        assert!(Profile::parse(&text, 1).is_err(), "there is no process 2 in a job of one");
        let own = Profile { sent: vec![Traffic::default()], ..Profile::default() };
        assert_eq!(Profile::parse(&own.to_string(), 0).expect("its own"), own);
    }

    #[test]
    fn a_long_profile_takes_several_notes() {
        let mut sent = vec![Traffic::default(); 301];
        sent.iter_mut().for_each(|to| to.count(Proto::EagerCopy, 12_345));
        let profile = Profile { sent, ..Profile::default() };
        let notes: BTreeMap<String, String> = profile.to_notes(7).into_iter().collect();
        assert!(notes.len() > 5 && notes.values().all(|note| note.len() <= NOTE_LEN), "{}", notes.len());
        let of = |rank| Profile::from_notes(rank, 300, |key| notes.get(key).map(String::as_str));
        assert_eq!((of(7), of(0)), (Some(Ok(profile)), None));
    }

    #[test]
    fn malformed_profiles_are_refused() {
        for text in [
            "",
            "watched",
            "watched:-1",
            "watched:1,",
            "call:MPI_Send:1:2",
            "call:rm -rf:1:2:3",
            "call:MPI_<b>:1:2:3",
            "sent:0:pigeon:1:2",
            "sent:4294967296:ring:1:2",
            "sent:0:ring:1:99999999999999999999",
        ] {
            assert!(Profile::parse(text, 4).is_err(), "{text:?}");
        }
    }
}
