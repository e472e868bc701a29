//! The iWARP NIC with correct, hostile and silent peers, and with its thread and pollers taking turns.
//!
//! Child processes run this same binary (see `support::child`). Tests run one at a time: some count descriptors or
//! threads.

#[path = "iwarp/allow.rs"]
mod allow;
#[path = "iwarp/clients.rs"]
mod clients;
#[path = "iwarp/handover.rs"]
mod handover;
#[path = "iwarp/killed.rs"]
mod killed;
#[path = "iwarp/limits.rs"]
mod limits;
#[path = "iwarp/local.rs"]
mod local;
#[path = "iwarp/many_connections.rs"]
mod many_connections;
#[path = "iwarp/memory.rs"]
mod memory;
#[path = "iwarp/mixed_traffic.rs"]
mod mixed_traffic;
#[path = "iwarp/raw.rs"]
mod raw;
#[path = "iwarp/servers.rs"]
mod servers;
#[path = "iwarp/silence.rs"]
mod silence;
#[path = "../../nic-util/tests/support/mod.rs"]
mod support;

/// Entry point of child processes; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[
        ("mixed_traffic", mixed_traffic::mixed_traffic_role),
        ("busy_peer", killed::busy_peer_role),
        ("memory", memory::memory_role),
        ("shortage", limits::shortage_role),
    ]);
}
