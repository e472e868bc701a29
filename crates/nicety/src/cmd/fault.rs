//! `nicety fault`: sends a rule of faults to a running program.

use crate::args::FaultArgs;
use crate::error::{Failure, OK, Outcome};
use crate::term::Stream;

/// Sends the rule, and prints the answer.
///
/// # Errors
/// If the process takes no rules, or refuses this one.
pub(crate) fn run(args: &FaultArgs) -> Outcome {
    let answer = fabric::fault_request(args.pid, &args.rule.join(" ")).map_err(Failure::usage)?;
    Stream::Out.data(&answer)?;
    Ok(OK)
}
