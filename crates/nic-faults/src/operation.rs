//! [`Operation`]: where a fault can happen.

use verbs::SendOp;

/// What a rule waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send is posted.
    Send,
    /// An RDMA write is posted.
    Write,
    /// An RDMA read is posted.
    Read,
    /// An atomic operation is posted.
    Atomic,
    /// Any request is posted to a send queue.
    Request,
    /// A receive is posted, to a queue pair or to a shared receive queue.
    Recv,
    /// Memory is registered.
    RegMr,
    /// A protection domain is allocated.
    AllocPd,
    /// NIC memory is allocated.
    AllocDm,
    /// A completion queue is created.
    CreateCq,
    /// A queue pair is created.
    CreateQp,
    /// A shared receive queue is created.
    CreateSrq,
    /// A completion channel is created.
    CreateChannel,
    /// The program connects.
    Connect,
    /// A peer's connect request arrives.
    ConnectRequest,
    /// A connection is established.
    Established,
    /// A connection has ended.
    Disconnected,
    /// The time of the rule has come.
    Time,
}

impl Operation {
    /// All operations, with the words of rules, and what they mean.
    pub const ALL: [(Self, &'static str, &'static str); 18] = [
        (Self::Send, "send", "a send is posted"),
        (Self::Write, "write", "an RDMA write is posted"),
        (Self::Read, "read", "an RDMA read is posted"),
        (Self::Atomic, "atomic", "an atomic operation is posted"),
        (Self::Request, "request", "any request is posted to a send queue"),
        (Self::Recv, "recv", "a receive is posted"),
        (Self::RegMr, "reg_mr", "memory is registered"),
        (Self::AllocPd, "alloc_pd", "a protection domain is allocated"),
        (Self::AllocDm, "alloc_dm", "NIC memory is allocated"),
        (Self::CreateCq, "create_cq", "a completion queue is created"),
        (Self::CreateQp, "create_qp", "a queue pair is created"),
        (Self::CreateSrq, "create_srq", "a shared receive queue is created"),
        (Self::CreateChannel, "create_channel", "a completion channel is created"),
        (Self::Connect, "connect", "the program connects"),
        (Self::ConnectRequest, "connect_request", "a peer's connect request arrives"),
        (Self::Established, "established", "a connection is established"),
        (Self::Disconnected, "disconnected", "a connection has ended"),
        (Self::Time, "time", "the time of 'after' has come"),
    ];

    /// The word of rules.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The operation of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own, _)| *own == word).map(|(operation, ..)| operation)
    }

    /// The operation that posts such a request.
    pub(crate) fn of_send(op: SendOp) -> Self {
        match op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => Self::Send,
            SendOp::Write(_) | SendOp::WriteImm(..) => Self::Write,
            SendOp::Read(_) => Self::Read,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => Self::Atomic,
            // Only rules for any request meet them.
            SendOp::BindMw(_) | SendOp::LocalInv(_) => Self::Request,
        }
    }

    /// Whether it posts a request to a send queue.
    pub(crate) fn is_request(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::Read | Self::Atomic | Self::Request)
    }

    /// Whether it posts a request or a receive.
    pub(crate) fn is_post(self) -> bool {
        self.is_request() || self == Self::Recv
    }

    /// Whether it is a call that creates an object.
    pub(crate) fn creates(self) -> bool {
        matches!(
            self,
            Self::RegMr
                | Self::AllocPd
                | Self::AllocDm
                | Self::CreateCq
                | Self::CreateQp
                | Self::CreateSrq
                | Self::CreateChannel
        )
    }

    /// Whether it is an event of a connection.
    pub(crate) fn is_cm_event(self) -> bool {
        matches!(self, Self::ConnectRequest | Self::Established | Self::Disconnected)
    }

    /// Whether a rule on `self` waits for `done`, too.
    pub(crate) fn covers(self, done: Self) -> bool {
        self == done || self == Self::Request && done.is_request()
    }

    /// A set of the one operation, as a bit.
    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// A set of all operations that a rule on it waits for, as bits.
    pub(crate) fn covered_bits(self) -> u32 {
        Self::ALL
            .into_iter()
            .filter(|(done, ..)| self.covers(*done))
            .fold(0, |bits, (done, ..)| bits | done.bit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_operations() {
        for (at, (operation, word, _)) in Operation::ALL.into_iter().enumerate() {
            assert_eq!((operation as usize, operation.word()), (at, word));
            assert_eq!(Operation::of_word(word), Some(operation));
        }
        assert_eq!(Operation::of_word("writes"), None);
    }
}
