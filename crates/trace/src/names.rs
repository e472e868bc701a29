//! What the numbers in records mean, as words.

/// The codes of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    /// A device was opened.
    Open = 0,
    /// A protection domain was allocated.
    AllocPd,
    /// Memory was registered: its address, its bytes, and both keys.
    RegMr,
    /// A region was deregistered: its local key.
    DeregMr,
    /// A completion queue was created.
    CreateCq,
    /// A completion queue got another size.
    ResizeCq,
    /// A completion queue was destroyed.
    DestroyCq,
    /// A notification of the next completion was asked for.
    ReqNotify,
    /// A poll failed.
    Poll,
    /// A completion channel was created.
    CreateChannel,
    /// A queue pair was created.
    CreateQp,
    /// A queue pair was destroyed.
    DestroyQp,
    /// A queue pair was moved to the error state.
    ToError,
    /// A shared receive queue was created.
    CreateSrq,
    /// A shared receive queue was destroyed.
    DestroySrq,
    /// The limit of a shared receive queue was armed.
    ArmLimit,
    /// Listening at an address began.
    Listen,
    /// A queue pair is being connected.
    Connect,
    /// A connect request was accepted.
    Accept,
    /// A connect request was rejected.
    Reject,
    /// A connection was ended.
    Disconnect,
    /// NIC memory was allocated: its bytes.
    AllocDm,
    /// Memory of the peer was mapped: its address, its key and its bytes.
    Map,
    /// The peer was notified without a write.
    Notify,
    /// A program was loaded onto the NIC.
    Load,
}

/// The calls, by their codes.
const CALLS: [&str; 25] = [
    "open",
    "alloc_pd",
    "reg_mr",
    "dereg_mr",
    "create_cq",
    "resize_cq",
    "destroy_cq",
    "req_notify",
    "poll",
    "create_channel",
    "create_qp",
    "destroy_qp",
    "to_error",
    "create_srq",
    "destroy_srq",
    "arm_limit",
    "listen",
    "connect",
    "accept",
    "reject",
    "disconnect",
    "alloc_dm",
    "map",
    "notify",
    "load",
];

/// The codes of posted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// A send of any form.
    Send = 0,
    /// An RDMA write, with or without immediate data.
    Write,
    /// An RDMA read.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A receive that a send filled.
    Recv,
    /// A receive that a write with immediate data consumed.
    RecvWriteImm,
    /// A receive that the beginning of a longer message filled.
    RecvBegin,
    /// Memory for the rest of that message.
    RecvRest,
    /// The binding of a memory window.
    BindMw,
    /// The invalidation of a memory window.
    LocalInv,
}

/// The operations of requests and completions, by their codes.
const OPERATIONS: [&str; 11] = [
    "send",
    "write",
    "read",
    "compare-swap",
    "fetch-add",
    "recv",
    "recv-write-imm",
    "recv-begin",
    "recv-rest",
    "bind-mw",
    "local-inv",
];

/// The codes of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// A peer requests a connection.
    ConnectRequest = 0,
    /// A connection is established.
    Established,
    /// The peer has rejected the connection.
    Rejected,
    /// The connection was not established.
    ConnectFailed,
    /// The connection has ended.
    Disconnected,
    /// A completion queue has an event for its channel.
    Channel,
    /// An asynchronous event.
    Asynchronous,
}

/// The events, by their codes.
const EVENTS: [&str; 7] = [
    "connect-request",
    "established",
    "rejected",
    "connect-failed",
    "disconnected",
    "channel",
    "asynchronous",
];

/// Statuses of completions, by their codes: those of `ibv_wc_status`, without `IBV_WC_`.
pub const STATUSES: [&str; 12] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "GENERAL_ERR",
    "MW_BIND_ERR",
];

/// A word of a table, or one for a code that it does not have.
fn word(table: &'static [&'static str], code: u16) -> &'static str {
    table.get(usize::from(code)).copied().unwrap_or("unknown")
}

/// The name of a call.
#[must_use]
pub fn call(code: u8) -> &'static str {
    word(&CALLS, code.into())
}

/// The name of an operation.
#[must_use]
pub fn operation(code: u8) -> &'static str {
    word(&OPERATIONS, code.into())
}

/// The name of an event.
#[must_use]
pub fn event(code: u8) -> &'static str {
    word(&EVENTS, code.into())
}

/// The name of a status.
#[must_use]
pub fn status(code: u16) -> &'static str {
    word(&STATUSES, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_codes_have_the_last_names() {
        assert_eq!((call(Call::Load as u8), usize::from(Call::Load as u8)), ("load", CALLS.len() - 1));
        assert_eq!(call(Call::Connect as u8), "connect");
        assert_eq!(operation(Operation::RecvRest as u8), "recv-rest");
        assert_eq!(event(Event::Asynchronous as u8), "asynchronous");
        assert_eq!((call(200), status(999)), ("unknown", "unknown"));
    }
}
