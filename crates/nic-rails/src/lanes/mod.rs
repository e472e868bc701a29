//! Failure and reconnection of lanes.

pub(crate) mod failover;
pub(crate) mod lane_reports;
pub(crate) mod reconnect;
pub(crate) mod srq_move;
