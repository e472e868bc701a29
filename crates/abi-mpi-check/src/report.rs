//! The kinds of findings, with their remedies.

use findings::{Kind, Stack};

use crate::active;

pub(crate) const BUFFER_CHANGED: Kind = Kind {
    word: "buffer-changed",
    remedy: "write to the buffer of a nonblocking send only after MPI_Wait or MPI_Test has completed it, or send from another buffer",
};
pub(crate) const MEMORY_GONE: Kind = Kind {
    word: "memory-gone",
    remedy: "free a buffer only after MPI_Wait or MPI_Test has completed its requests",
};
pub(crate) const OVERLAP: Kind = Kind {
    word: "overlap",
    remedy: "let each outstanding receive write to memory that no other request uses",
};
pub(crate) const TYPE_MISMATCH: Kind = Kind {
    word: "type-mismatch",
    remedy: "receive with the types that were sent, in the same order (MPI 5.0, section 3.3.1)",
};
pub(crate) const COLLECTIVE_MISMATCH: Kind = Kind {
    word: "collective-mismatch",
    remedy: "let all ranks of a communicator call the same collectives in the same order, with the same root, operator and amount of data",
};
pub(crate) const REQUEST_LEFT: Kind = Kind {
    word: "request-left",
    remedy: "complete each request with MPI_Wait or MPI_Test, also that of a send",
};
pub(crate) const NOT_RECEIVED: Kind =
    Kind { word: "not-received", remedy: "receive each message before MPI_Finalize, or do not send it" };
pub(crate) const LEAK: Kind =
    Kind { word: "leak", remedy: "free each object by the call that is named, before MPI_Finalize" };

/// Reports a finding of this rank.
#[cold]
pub(crate) fn find(kind: Kind, what: &str, about: &[(&str, String)], stacks: &[(&str, Stack)]) {
    let mut all = vec![("rank", active::rank().to_string())];
    all.extend(about.iter().map(|(label, line)| (*label, line.clone())));
    findings::find(kind, what, &all, stacks);
}
