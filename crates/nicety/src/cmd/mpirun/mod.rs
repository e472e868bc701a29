//! `nicety mpirun`: the command line of `launcher`, which runs the job.
//!
//! | file | contents |
//! |---|---|
//! | `habits`, `translate` | options of other launchers, and how they become ours |
//! | `command_line` | programs separated by colons |
//! | `options` | the options of the launcher |
//! | `checked` | the variables by which ranks are checked |
//! | `profile` | output of the profiles of ranks |
//! | `call` | the connection to another host through `nicety serve` |

mod call;
mod checked;
mod command_line;
pub(crate) mod habits;
mod options;
mod profile;
pub(crate) mod translate;

use launcher::Plan;
use profile::Page;

use super::record;
use crate::args::MpirunArgs;
use crate::error::{OK, Outcome};
use crate::term::Stream;

/// Runs the job; its first failure determines the exit status.
///
/// # Errors
/// If something cannot be started.
pub(crate) fn run(args: &MpirunArgs) -> Outcome {
    if args.agent {
        return Ok(launcher::agent(options::version())?);
    }
    if let Some(to) = &args.call {
        return call::run(to, args.token.read()?.as_ref());
    }
    if args.guard {
        return Ok(launcher::guard()?);
    }
    let options = options::launcher_options(args)?;
    let plan = Plan::new(&options)?;
    let page = args.profile.clone().map(Page::new).transpose()?;
    if args.dry_run {
        Stream::Out.print(&plan.text())?;
        return Ok(OK);
    }
    record::remove_old(&args.record)?;
    let ended = launcher::run(plan)?;
    page.iter().try_for_each(|page| page.write_and_report(&options.programs, &ended.profiles))?;
    Ok(ended.status)
}
