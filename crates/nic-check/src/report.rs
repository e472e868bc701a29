//! The kinds of findings, with their remedies.

use findings::Stack;

/// What a finding is about; its word begins the finding, for tests and for searches in the guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    BufferChanged,
    ReceiveTouched,
    ReceiveOverwritten,
    Overlap,
    KeyDeregistered,
    KeyUnknown,
    OutsideRegion,
    MissingRight,
    MemoryGone,
    RegionInUse,
    AtomicOperand,
    NeverSignaled,
    CqTooSmall,
    NoReceive,
    ReceiveTooShort,
    RemoteAccess,
    Unacknowledged,
    NotArmed,
    CardLimit,
    Leak,
}

impl Kind {
    /// The word in brackets that begins a finding of this kind.
    fn word(self) -> &'static str {
        match self {
            Self::BufferChanged => "buffer-changed",
            Self::ReceiveTouched => "receive-touched",
            Self::ReceiveOverwritten => "receive-overwritten",
            Self::Overlap => "overlap",
            Self::KeyDeregistered => "key-deregistered",
            Self::KeyUnknown => "key-unknown",
            Self::OutsideRegion => "outside-region",
            Self::MissingRight => "missing-right",
            Self::MemoryGone => "memory-gone",
            Self::RegionInUse => "region-in-use",
            Self::AtomicOperand => "atomic-operand",
            Self::NeverSignaled => "never-signaled",
            Self::CqTooSmall => "cq-too-small",
            Self::NoReceive => "no-receive",
            Self::ReceiveTooShort => "receive-too-short",
            Self::RemoteAccess => "remote-access",
            Self::Unacknowledged => "unacknowledged",
            Self::NotArmed => "not-armed",
            Self::CardLimit => "card-limit",
            Self::Leak => "leak",
        }
    }

    /// What to do about it.
    fn remedy(self) -> &'static str {
        match self {
            Self::BufferChanged => {
                "write to the buffer only after ibv_poll_cq has returned this request's completion, or that of a later signaled one; or send from another buffer, or inline"
            }
            Self::ReceiveTouched => {
                "leave the buffer alone until ibv_poll_cq has returned the receive's completion; prepare it before ibv_post_recv"
            }
            Self::ReceiveOverwritten => "post each receive with a buffer of its own",
            Self::Overlap => "let each outstanding request write to memory of its own",
            Self::KeyDeregistered => {
                "deregister a region after the last completion of the requests that use it"
            }
            Self::KeyUnknown => {
                "use the lkey of a region of this process, in the protection domain of the queue pair"
            }
            Self::OutsideRegion => {
                "register all of the memory, or correct the address or the length of the element"
            }
            Self::MissingRight => "register the region with IBV_ACCESS_LOCAL_WRITE",
            Self::MemoryGone => "call ibv_dereg_mr before free, munmap, or the end of the buffer's life",
            Self::RegionInUse => {
                "poll the completions of all requests that use the region first, or move the queue pair to the error state"
            }
            Self::AtomicOperand => {
                "let atomics use 8 bytes at an address that is a multiple of 8, on both sides"
            }
            Self::NeverSignaled => {
                "set IBV_SEND_SIGNALED on some requests (each max_send_wr / 2-th, for example), and poll their completions: only they free the places of unsignaled ones"
            }
            Self::CqTooSmall => {
                "create the completion queue with as many entries as all of its queue pairs can complete: signaled sends and receives"
            }
            Self::NoReceive => {
                "post receives before the peer sends, and let the peer keep count of them; rnr_retry 7 retries for ever"
            }
            Self::ReceiveTooShort => "post receives that are as long as the longest message of the peer",
            Self::RemoteAccess => {
                "let the owner of the region announce its end to the peers that have the key, and wait for their answer"
            }
            Self::Unacknowledged => {
                "acknowledge each event that was taken: ibv_ack_cq_events, ibv_ack_async_event, rdma_ack_cm_event"
            }
            Self::NotArmed => "call ibv_req_notify_cq, and poll the queue once more, before ibv_get_cq_event",
            Self::CardLimit => "query the limit (ibv_query_device) and keep within it",
            Self::Leak => "end each object by the call that is named, in the reverse order of creation",
        }
    }
}

/// Reports a finding, unless the same kind was found at the same place, that of the first stack. The other stacks show more
/// places, each with its label.
#[cold]
pub(crate) fn find(kind: Kind, what: &str, about: &[(&str, String)], stacks: &[(&str, Stack)]) {
    findings::find(findings::Kind { word: kind.word(), remedy: kind.remedy() }, what, about, stacks);
}
