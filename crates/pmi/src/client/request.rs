//! [`Request`]: a rank's requests to its process manager.

use crate::spawn::Spawn;

/// Ranks that wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group<'a> {
    /// All ranks of the job.
    World,
    /// The ranks on this rank's node.
    Node,
    /// These ranks, including this one.
    Ranks(&'a [u32]),
}

/// A rank's request, with the event that answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Write into the job's key-value space: [`Event::Done`](super::Event::Done). Other ranks see the value after the next fence.
    Put {
        /// Letters, digits, `_`, `-` and `/`.
        key: &'a str,
        /// Visible ASCII; bytes need [`crate::value::encode`].
        value: &'a str,
    },
    /// Read from the job's key-value space: [`Event::Value`](super::Event::Value).
    Get {
        /// The key of the put.
        key: &'a str,
    },
    /// Wait for all ranks, and see their puts: [`Event::Done`](super::Event::Done).
    Fence,
    /// Wait for a group: [`Event::Barrier`](super::Event::Barrier), which may come after answers to later requests. PMI 1.2 only.
    Barrier {
        /// The members.
        group: Group<'a>,
        /// Equal at all members, not 0, and different from those of this rank's pending barriers.
        tag: u32,
    },
    /// Publish an address under the name of a service, for other jobs: [`Event::Done`](super::Event::Done).
    Publish {
        /// With the same limits as a key.
        service: &'a str,
        /// With the same limits as a value.
        port: &'a str,
    },
    /// Withdraw a published name: [`Event::Done`](super::Event::Done).
    Unpublish {
        /// The published name.
        service: &'a str,
    },
    /// Look up a published address: [`Event::Value`](super::Event::Value).
    Lookup {
        /// The published name.
        service: &'a str,
    },
    /// Start another job: [`Event::Spawned`](super::Event::Spawned).
    Spawn(&'a Spawn),
    /// End the whole job. There is no answer, and it may be sent while another request is pending.
    Abort {
        /// The exit code for the launcher.
        code: i32,
        /// A message for the user.
        message: &'a str,
    },
    /// Leave the job: [`Event::Finalized`](super::Event::Finalized). A rank that closes the descriptor before this ends the job.
    Finalize,
}

/// A request that is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PendingReply {
    Put,
    Get,
    Fence,
    Publish,
    Unpublish,
    Lookup,
    Spawn,
    Finalize,
}

impl PendingReply {
    /// The answer that a request waits for, if it must be answered before the next.
    pub(super) fn for_request(request: &Request<'_>) -> Option<Self> {
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
