//! Converts options of the command line to those of the launcher.

use std::path::Path;
use std::time::Duration;

use launcher::{Connector, Hosts, MpiLibrary, Options, Program};

use super::{checked, command_line};
use crate::args::mpi::seconds;
use crate::args::{MpirunArgs, ProgramArgs};
use crate::cmd::record;
use crate::cmd::run::check_log;
use crate::error::Failure;

/// The variable for the time limit.
const TIMEOUT: &str = "MPIEXEC_TIMEOUT";

/// The version of this program, with the commit if it is known.
pub(super) fn version() -> String {
    let commit = option_env!("NICETY_COMMIT").unwrap_or_default();
    format!("{} {commit}", env!("CARGO_PKG_VERSION")).trim().to_owned()
}

/// The options of the launcher.
///
/// # Errors
/// If options are invalid or contradict each other.
pub(super) fn launcher_options(args: &MpirunArgs) -> Result<Options, Failure> {
    let programs = command_line::programs(&args.program)?;
    let hosts = match &args.hostfile {
        Some(path) => Hosts::File(path.clone()),
        None if args.host.is_empty() => Hosts::Own,
        None => Hosts::Words(args.host.clone()),
    };
    let mpi = match &args.mpi_library {
        None => MpiLibrary::Bundled(args.abi.unwrap_or_default()),
        Some(name) if name == Path::new("none") => MpiLibrary::None,
        Some(path) => MpiLibrary::At(path.clone()),
    };
    let device = device(args, &hosts)?;
    let mut variables = args.genv.clone();
    variables.extend(checked::variables(args, &programs)?);
    if let Some(asked) = &args.log {
        check_log(asked)?;
        variables.push(checked::variable(ffi::log::VARIABLE, asked));
    }
    check_devices(device.as_deref())?;
    let (placement, mapping) = (&args.placement, args.placement.mapping());
    let bind = placement.bind;
    Ok(Options {
        programs: programs.into_iter().map(program).collect(),
        variables,
        hosts,
        connector: connector(args)?,
        readers: args.streams.stdin,
        output: args.streams.output(),
        timeout: time_limit(args)?,
        per_host: placement.per_host.or(mapping.per_host),
        map_by: mapping.order,
        rank_by: placement.rank_by,
        rankfile: placement.rankfile.clone(),
        bind: bind.map(|bind| bind.to),
        width: bind.and_then(|bind| bind.width).or(mapping.width),
        reports_bindings: placement.report_bindings,
        oversubscribe: placement.oversubscribe || mapping.oversubscribe,
        device,
        transport: args.lane,
        mpi,
        has_profile: args.profile.is_some(),
        version: version(),
    })
}

/// The time limit, from the option, or from the variable that other launchers use.
fn time_limit(args: &MpirunArgs) -> Result<Option<Duration>, Failure> {
    let set = std::env::var(TIMEOUT).ok().filter(|set| !set.is_empty() && args.timeout.is_none());
    let Some(set) = set else { return Ok(args.timeout) };
    seconds(&set).map(Some).map_err(|why| Failure::usage(format!("{TIMEOUT}: {why}")))
}

fn program(args: ProgramArgs) -> Program {
    let ProgramArgs { ranks, variables, wdir, command } = args;
    Program { ranks, variables, directory: wdir, command }
}

/// The devices of the MPI library, with devices of faults and recording devices in front of each if options ask for that.
fn device(args: &MpirunArgs, hosts: &Hosts) -> Result<Option<String>, Failure> {
    let is_faulty = args.faults.faults.is_some() || args.faults.chaos.is_some();
    if !record::is_wanted(&args.record) && !is_faulty {
        return Ok(args.device.clone());
    }
    // The default is that of the library.
    let unset = if matches!(hosts, Hosts::Own) { "shm" } else { "shm+iwarp" };
    let set = std::env::var("NICETY_DEVICE").ok().filter(|set| !set.is_empty());
    let names = args.device.clone().or(set).unwrap_or_else(|| unset.to_owned());
    let names: Vec<String> = fabric::split(&names, '+').into_iter().map(str::to_owned).collect();
    let wrapped = record::wrap_all(names, &args.record, &args.faults, !args.dry_run)?;
    Ok(Some(wrapped.join("+")))
}

/// Rejects devices that other programs cannot use.
fn check_devices(names: Option<&str>) -> Result<(), Failure> {
    for device in names.iter().flat_map(|names| fabric::split(names, '+')) {
        fabric::check(device).map_err(Failure::usage)?;
        if fabric::is_virtual(device) {
            return Err(Failure::usage(format!(
                "{device} runs in virtual time only, where other programs cannot run; use shm or iwarp"
            )));
        }
    }
    Ok(())
}

/// How agents on other hosts are reached.
fn connector(args: &MpirunArgs) -> Result<Connector, Failure> {
    if let Some(port) = args.via {
        let none = "--via serve needs the secret of the servers; give it by --token-file or NICETY_TOKEN";
        args.token.read()?.ok_or_else(|| Failure::usage(none))?;
        return Ok(Connector::Server { port, token: args.token.command_options() });
    }
    let words: Vec<String> = args.rsh.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() {
        return Err(Failure::usage("--rsh is empty; name a command such as ssh"));
    }
    Ok(Connector::Shell(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(words: &[&str]) -> Failure {
        let plan = |options| launcher::Plan::new(&options).map_err(Failure::from);
        launcher_options(&command_line::parsed(words)).and_then(plan).expect_err("a job that cannot start")
    }

    #[test]
    fn job_that_cannot_start_is_refused_before_any_process_starts() {
        for (words, hint) in [
            (&["no-such-program-here"][..], "there is no program no-such-program-here in PATH; "),
            (&["-n", "2", "sh", ":", "./missing"], "there is no such file; "),
            (&["--wdir", "/nowhere", "sh"], "there is no directory /nowhere; "),
            (&["--stdin", "2", "-n", "2", "sh"], "there are only ranks 0 to 1; "),
            (&["--bind", "share", "--map-by", "socket", "sh"], "has no order"),
            (&["--rankfile", "/nowhere", "sh"], "the rank file /nowhere cannot be read"),
            (&["-x", "NO_SUCH_VARIABLE_HERE", "sh"], "the variable is not set here; "),
            (&["-x", "=1", "sh"], "names no variable; "),
            (&["--device", "smh", "sh"], "shm"),
            (&["--device", "shm+smh", "sh"], "shm"),
            (&["--device", "model:mt23108-vapi", "sh"], "virtual time"),
            (&["--library", "/nowhere", "sh"], "there is no libmpi_abi.so.1; "),
            (&["--rsh", " ", "sh"], "--rsh is empty; "),
            (&["--via", "serve", "--token-file", "/nowhere", "sh"], "cannot read the token in /nowhere"),
            (&["--host", "a:0", "sh"], "is not a number of ranks; "),
            (&["-n", "1048576", "sh", ":", "sh"], "too many; "),
        ] {
            let failure = failure(words);
            assert!(failure.lines[0].contains(hint), "{words:?}: {failure:?}");
            assert_eq!(failure.status, crate::error::USAGE, "{words:?}");
        }
    }
}
