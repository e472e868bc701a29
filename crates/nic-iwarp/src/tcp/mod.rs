//! TCP sockets: creation, addresses, silent peers, faults on the wire, the outbox and the read-ahead buffer.

pub(crate) mod capture;
pub(crate) mod conn_info;
pub(crate) mod impaired;
pub(crate) mod keepalive;
pub(crate) mod outbox;
pub(crate) mod receive_buffer;
pub(crate) mod socket;
