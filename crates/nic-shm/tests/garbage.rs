//! Garbage on the connection sockets of the shared-memory NIC: the device lives on, other connections go on, what
//! is wrong becomes a typed event, and no descriptor stays open.

#[path = "garbage/clients.rs"]
mod clients;
#[path = "garbage/raw.rs"]
mod raw;
#[path = "garbage/servers.rs"]
mod servers;
mod support;

/// The children's way in; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[("agent", support::agent::role)]);
}
