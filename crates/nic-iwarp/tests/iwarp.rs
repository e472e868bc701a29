//! The iWARP NIC among peers that mean well, ill or nothing, and with the device's thread and pollers taking turns.
//!
//! Children are this binary again (see `support::child`). Tests run one at a time: some count descriptors or threads.

#[path = "iwarp/allow.rs"]
mod allow;
#[path = "iwarp/clients.rs"]
mod clients;
#[path = "iwarp/crowd.rs"]
mod crowd;
#[path = "iwarp/handover.rs"]
mod handover;
#[path = "iwarp/killed.rs"]
mod killed;
#[path = "iwarp/limits.rs"]
mod limits;
#[path = "iwarp/local.rs"]
mod local;
#[path = "iwarp/memory.rs"]
mod memory;
#[path = "iwarp/mixer.rs"]
mod mixer;
#[path = "iwarp/raw.rs"]
mod raw;
#[path = "iwarp/servers.rs"]
mod servers;
#[path = "iwarp/silence.rs"]
mod silence;
#[path = "../../nic-util/tests/support/mod.rs"]
mod support;

/// The children's way in; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[
        ("mixer", mixer::role),
        ("restless", killed::restless_role),
        ("memory", memory::role),
        ("shortage", limits::shortage_role),
    ]);
}
