//! `nicety mpirun`: the command line, from which `launcher` runs the job.
//!
//! | file | what it holds |
//! |---|---|
//! | `line` | options as other launchers have them, and programs that colons separate |
//! | `options` | what the launcher is asked for |
//! | `profile` | the profiles of ranks, for people |
//! | `call` | the way to another host through `nicety serve` |

mod call;
pub(crate) mod line;
mod options;
mod profile;

use launcher::Plan;
use profile::Page;

use crate::args::MpirunArgs;
use crate::error::{OK, Outcome};
use crate::term::Stream;

/// Runs the job; its first failure is the status.
///
/// # Errors
/// What cannot be started.
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
    let options = options::of(args)?;
    let plan = Plan::new(&options)?;
    let page = args.profile.clone().map(Page::new).transpose()?;
    if args.dry_run {
        Stream::Out.print(&plan.text())?;
        return Ok(OK);
    }
    let ended = launcher::run(plan)?;
    page.iter().try_for_each(|page| page.show(&options.programs, &ended.profiles))?;
    Ok(ended.status)
}
