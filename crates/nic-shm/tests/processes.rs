//! The shared-memory NIC between processes: its operations, and its behaviour when a process is stopped or
//! killed.
//!
//! Children are this binary again (see `support::child`). Tests run one at a time: some count descriptors.

#[path = "processes/basics.rs"]
mod basics;
#[path = "processes/dereg.rs"]
mod dereg;
#[path = "processes/descriptors.rs"]
mod descriptors;
#[path = "processes/killed.rs"]
mod killed;
#[path = "processes/limits.rs"]
mod limits;
#[path = "processes/namespaces.rs"]
mod namespaces;
#[path = "processes/rounds.rs"]
mod rounds;
#[path = "processes/shared.rs"]
mod shared;
#[path = "processes/stopped.rs"]
mod stopped;
mod support;
#[path = "processes/users.rs"]
mod users;
#[path = "processes/waking.rs"]
mod waking;

/// The entry point of child processes; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[
        ("agent", support::agent::role),
        ("storm", rounds::storm_role),
        ("churn", rounds::churn_role),
        ("listen", killed::listen_role),
        ("pingpong", waking::pingpong_role),
        ("writer", dereg::writer_role),
        ("stranger", users::other_user_role),
        ("squatter", users::squatter_role),
        ("pauper", limits::no_descriptors_role),
        ("bounded", limits::limited_role),
    ]);
}
