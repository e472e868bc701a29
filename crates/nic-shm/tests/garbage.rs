//! Invalid data on the connection sockets of the shared-memory NIC: the device and other connections keep
//! working, errors are reported as typed events, and no descriptor leaks.

#[path = "garbage/clients.rs"]
mod clients;
#[path = "garbage/raw.rs"]
mod raw;
#[path = "garbage/servers.rs"]
mod servers;
mod support;

/// The entry point of child processes; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[("agent", support::agent::role)]);
}
