//! Runs schedules in memory, and checks their results and costs.

mod intra;
mod others;
mod run;
