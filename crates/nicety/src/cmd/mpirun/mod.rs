//! `nicety mpirun`: ranks of a parallel program, started on this host and on others, served, listened to and ended together.
//!
//! | file | what it holds |
//! |---|---|
//! | `line` | the command line: `-np`, and programs that colons separate |
//! | `hosts`, `topology`, `program` | hosts and who goes where; cores; files of programs |
//! | `linked` | the MPI library that a program was linked to, for hints |
//! | `plan` | what is to be started where |
//! | `job` | a job from its first process to its last: PMI is served, output passed on, failures judged |
//! | `crew`, `dump`, `guard` | the processes of one host; those whose core is being written; who ends them if nobody else can |
//! | `remote`, `agent`, `message` | the crew of another host, from both sides, and what they say to each other |
//! | `call` | the way to it through `nicety serve` |
//! | `private` | whether the network between hosts is private |
//! | `profile` | what ranks tell of their calls |
//! | `printer`, `input`, `wake`, `words` | output in whole lines; input; what the loops sleep on; sentences |

mod agent;
mod call;
mod crew;
mod dump;
mod guard;
mod hosts;
mod input;
mod job;
pub(crate) mod line;
mod linked;
mod message;
mod plan;
mod printer;
mod private;
mod profile;
mod program;
mod remote;
mod topology;
mod wake;
mod words;

use crate::args::MpirunArgs;
use crate::error::{OK, Outcome};
use crate::term::Stream;

/// Runs the job; its first failure is the status.
///
/// # Errors
/// What cannot be started.
pub(crate) fn run(args: &MpirunArgs) -> Outcome {
    if args.agent {
        return agent::run();
    }
    if let Some(to) = &args.call {
        return call::run(to, args.token.read()?.as_ref());
    }
    if args.guard {
        return guard::run();
    }
    let plan = plan::Plan::new(args)?;
    if args.dry_run {
        Stream::Out.print(&plan.text())?;
        return Ok(OK);
    }
    job::run(plan)
}
