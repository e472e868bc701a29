//! [`Request`]: what a rank asks for.

use crate::spawn::Spawn;

/// Ranks that wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group<'a> {
    /// All of the job.
    World,
    /// Those on this rank's node.
    Node,
    /// These, this rank among them.
    Ranks(&'a [u32]),
}

/// What a rank asks for, each with the event that answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Write into the job's key-value space: [`Event::Done`](super::Event::Done). Others see it after the next fence.
    Put {
        /// Letters, digits, `_`, `-` and `/`.
        key: &'a str,
        /// Visible ASCII; bytes need [`crate::value::encode`].
        value: &'a str,
    },
    /// Read from the job's key-value space: [`Event::Value`](super::Event::Value).
    Get {
        /// As it was put.
        key: &'a str,
    },
    /// Wait for all ranks, and see what they put: [`Event::Done`](super::Event::Done).
    Fence,
    /// Wait for a group: [`Event::Barrier`](super::Event::Barrier), which other answers may overtake. PMI 1.2 only.
    Barrier {
        /// Who takes part.
        group: Group<'a>,
        /// Equal for all members, and none that this rank awaits already; not 0.
        tag: u32,
    },
    /// Let other jobs find an address by the name of a service: [`Event::Done`](super::Event::Done).
    Publish {
        /// As keys are.
        service: &'a str,
        /// As values are.
        port: &'a str,
    },
    /// Take a name back: [`Event::Done`](super::Event::Done).
    Unpublish {
        /// As it was published.
        service: &'a str,
    },
    /// Find what was published: [`Event::Value`](super::Event::Value).
    Lookup {
        /// As it was published.
        service: &'a str,
    },
    /// Start another job: [`Event::Spawned`](super::Event::Spawned).
    Spawn(&'a Spawn),
    /// End the whole job; there is no answer, and no other need have come.
    Abort {
        /// What the launcher is to end with.
        code: i32,
        /// For people.
        message: &'a str,
    },
    /// Leave: [`Event::Finalized`](super::Event::Finalized). Whoever closes the descriptor before that ends the job.
    Finalize,
}

/// What was asked for and is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    Put,
    Get,
    Fence,
    Publish,
    Unpublish,
    Lookup,
    Spawn,
    Finalize,
}

impl Awaited {
    /// What a request waits for, if anything in turn.
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        Some(match request {
            Request::Put { .. } => Self::Put,
            Request::Get { .. } => Self::Get,
            Request::Fence => Self::Fence,
            Request::Publish { .. } => Self::Publish,
            Request::Unpublish { .. } => Self::Unpublish,
            Request::Lookup { .. } => Self::Lookup,
            Request::Spawn(_) => Self::Spawn,
            Request::Finalize => Self::Finalize,
            Request::Barrier { .. } | Request::Abort { .. } => return None,
        })
    }
}
