//! Failure and reconnection of lanes.

pub(crate) mod letters;
pub(crate) mod reconnect;
pub(crate) mod settle;
pub(crate) mod srq_move;
