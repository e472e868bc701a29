//! Schedules, run in memory: what they do, and what they cost.

mod intra;
mod others;
mod run;
