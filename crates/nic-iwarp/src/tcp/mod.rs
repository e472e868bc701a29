//! TCP sockets: making them, where their ends are, peers that fall silent, bytes that wait to go or came early.

pub(crate) mod ends;
pub(crate) mod keepalive;
pub(crate) mod outbox;
pub(crate) mod receive_buffer;
pub(crate) mod socket;
