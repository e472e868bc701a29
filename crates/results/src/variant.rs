//! [`Variant`]: the factors of a cell other than its size, each with a level, e.g. `op=write source=nic sink=nic`.
//!
//! Code names factors by [`Factor`], so that a nonexistent one does not compile. Files and peers may have factors of
//! another version; they are kept, shown and compared, but never used by name.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A factor, by the name that it has in results and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(&'static str);

impl Factor {
    /// Its name in results and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl AsRef<str> for Factor {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

macro_rules! factors {
    ($($(#[$about:meta])* $name:ident = $text:literal;)*) => {
        /// The factors of all experiments.
        pub mod factor {
            use super::Factor;
            $($(#[$about])* pub const $name: Factor = Factor($text);)*
        }
    };
}

factors! {
    /// What is done: an operation of the device, or a way of packing.
    OP = "op";
    /// Where data come from: `host` or `nic` memory.
    SOURCE = "source";
    /// Where data go: `host` or `nic` memory.
    SINK = "sink";
    /// Bytes from the beginning of a page to the source.
    SOURCE_OFFSET = "source-offset";
    /// Bytes from the beginning of a page to the sink.
    SINK_OFFSET = "sink-offset";
    /// Over how many ports a message is split.
    PORTS = "ports";
    /// Messages in flight.
    WINDOW = "window";
    /// Processes of a chain.
    NODES = "nodes";
    /// The processor that forwards in a chain: `host` or `nic`.
    VIA = "via";
    /// Which of its quantities an experiment measures.
    QUANTITY = "quantity";
    /// How often buffers are used again, in percent.
    REUSE = "reuse";
    /// Which step of a connection is timed.
    STEP = "step";
    /// Whether memory is touched before it is registered.
    TOUCH = "touch";
    /// How a receiver waits.
    WAIT = "wait";
    /// Which part of a whole is timed.
    PART = "part";
    /// How the peer is notified.
    BY = "by";
    /// Which scheme of reuse.
    SCHEME = "scheme";
    /// Buffers that messages use in turn.
    BUFFERS = "buffers";
    /// Maximum number of pages in the search for a translation cache.
    PAGES = "pages";
    /// Queue pairs that messages rotate over.
    QPS = "qps";
    /// SGEs that a request may have.
    SGE = "sge";
    /// Equal pieces of a message.
    SEGMENTS = "segments";
    /// Bytes of data in a packet.
    MTU = "mtu";
    /// The threads that drive the rails.
    ENGINE = "engine";
    /// Which floor of the machine.
    WHAT = "what";
    /// Whether a queue that is polled is `full` or `empty`.
    STATE = "state";
    /// How much of the time a program computes.
    COMPUTE = "compute";
    /// Processes that one serves.
    SLAVES = "slaves";
    /// How large the problem of a kernel is.
    CLASS = "class";
    /// Ranks of a parallel program.
    RANKS = "ranks";
    /// Which interface a program calls: that of `mpi`, or `verbs` below it.
    LAYER = "layer";
    /// Under which library of MPI a program runs: ours, or the `other`.
    LIBRARY = "library";
    /// How an MPI message that is short goes where memory cannot be mapped: it is a `send`, or a write into a `ring`.
    PATH = "path";
    /// Ranks that share a machine and its card, in virtual time.
    PER_NODE = "per-node";
    /// The device between ranks of one machine, if it is not the measured one.
    INSIDE = "inside";
    /// Whether calls begin when all ranks have come, or one behind the other in a `row`.
    CALLS = "calls";
    /// How one-sided operations of MPI go: as `messages`, as `writes` and reads, or the short ones as messages: `both`.
    SIDED = "sided";
    /// How deep queues are.
    QUEUES = "queues";
}

/// The factors of a cell other than its size, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variant(BTreeMap<String, String>);

impl Variant {
    /// The level of a factor, if it has one.
    #[must_use]
    pub fn get(&self, factor: Factor) -> Option<&str> {
        self.0.get(factor.0).map(String::as_str)
    }

    /// Whether a factor has this level.
    #[must_use]
    pub fn is(&self, factor: Factor, level: &str) -> bool {
        self.get(factor) == Some(level)
    }

    /// Whether it has a level of the factor at all.
    #[must_use]
    pub fn has(&self, factor: Factor) -> bool {
        self.0.contains_key(factor.0)
    }

    /// This variant with another level of a factor, or with one more factor.
    #[must_use]
    pub fn with(&self, factor: Factor, level: impl Into<String>) -> Self {
        let mut more = self.clone();
        more.0.insert(factor.0.to_owned(), level.into());
        more
    }

    /// This variant without some of its factors.
    #[must_use]
    pub fn without(&self, factors: &[Factor]) -> Self {
        let kept = self.iter().filter(|(name, _)| factors.iter().all(|factor| factor.0 != *name));
        kept.collect()
    }

    /// Names and levels, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, level)| (name.as_str(), level.as_str()))
    }

    /// Whether it has no factors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A variant in words, as a file or a peer says it.
impl<N: Into<String>, L: Into<String>> FromIterator<(N, L)> for Variant {
    fn from_iter<T: IntoIterator<Item = (N, L)>>(pairs: T) -> Self {
        Self(pairs.into_iter().map(|(name, level)| (name.into(), level.into())).collect())
    }
}

/// A variant from pairs of a factor, or the name of one, and its level.
#[must_use]
pub fn variant<F: AsRef<str>>(pairs: &[(F, &str)]) -> Variant {
    pairs.iter().map(|(factor, level)| (factor.as_ref(), *level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_another_version_are_kept() {
        let said = r#"{"op":"write","tomorrow":"yes"}"#;
        let read: Variant = serde_json::from_str(said).expect("a variant");
        assert!(read.is(factor::OP, "write") && !read.has(factor::SINK));
        assert_eq!(serde_json::to_string(&read).expect("JSON"), said);
        assert_eq!(read.without(&[factor::OP]), variant(&[("tomorrow", "yes")]));
        assert_eq!(read.with(factor::OP, "read"), variant(&[("op", "read"), ("tomorrow", "yes")]));
    }
}
