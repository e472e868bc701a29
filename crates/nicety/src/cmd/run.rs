//! `nicety run`: runs an existing program on our devices. It replaces its own process by the program, so that signals and the
//! exit status are the program's own.

mod checked;
mod verbs;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

use super::record;
use crate::args::RunArgs;
use crate::error::{Failure, NOT_EXECUTABLE, NOT_FOUND, OK, Outcome};
use crate::term::Stream;
use launcher::install_paths;
use launcher::quote::shell_words;

/// The provider library of uDAPL, as cargo names it.
const LIBRARY: &str = "libnicety_dat.so";

/// Replaces this process by the program; returns only on failure.
///
/// # Errors
/// If a device does not exist or works in virtual time only, or if a library or the program is missing.
pub(crate) fn run(mut args: RunArgs) -> Outcome {
    args.devices = record::wrap_all(args.devices, &args.record, &args.faults, !args.print_env)?;
    args.devices = checked::wrap(args.devices, &args.check)?;
    let args = &args;
    for device in &args.devices {
        fabric::check(device).map_err(Failure::usage)?;
        if fabric::is_virtual(device) {
            return Err(Failure::usage(format!(
                "{device} runs in virtual time only, where other programs cannot run; use shm or iwarp"
            )));
        }
    }
    record::remove_old(&args.record)?;
    let log = log(args)?;
    if args.dat {
        return with_dat(args, log);
    }
    let [search, preload] = ["LD_LIBRARY_PATH", "LD_PRELOAD"].map(std::env::var_os);
    let own = install_paths::own_directory()?;
    let library = args.provider.as_deref();
    let (search, preload) = (search.as_deref(), preload.as_deref());
    let mut variables = verbs::environment(&own, library, &args.devices, args.rnic, search, preload)?;
    variables.extend(log);
    if args.print_env {
        for (name, value) in variables {
            Stream::Out.data(&format!("export {name}={}\n", shell_words(&[value])))?;
        }
        return Ok(OK);
    }
    Err(become_program(args, variables))
}

/// The variable that makes the libraries say why calls fail, if they should. What the environment has stays, unless there is an option.
fn log(args: &RunArgs) -> Result<Option<(&'static str, OsString)>, Failure> {
    if let Some(asked) = &args.log {
        check_log(asked)?;
        return Ok(Some((ffi::log::VARIABLE, asked.clone())));
    }
    let is_default =
        !args.print_env && std::env::var_os(ffi::log::VARIABLE).is_none() && Stream::Err.is_terminal();
    Ok(is_default.then(|| (ffi::log::VARIABLE, "errors".into())))
}

/// Rejects a value of --log that is none.
pub(super) fn check_log(asked: &OsStr) -> Result<(), Failure> {
    ffi::log::check(asked).map_err(|wrong| Failure::usage(format!("--log {wrong}")))
}

/// Runs a program that is built against uDAPL.
fn with_dat(args: &RunArgs, log: Option<(&'static str, OsString)>) -> Outcome {
    let [device] = &args.devices[..] else {
        return Err(Failure::usage("a dat.conf has one device; give --device once"));
    };
    let library = match &args.provider {
        Some(path) => {
            let missing = |why| {
                Failure::usage(format!("cannot read the library {}: {why}; check its name", path.display()))
            };
            path.canonicalize().map_err(missing)?
        }
        None => find_library(&install_paths::own_directory()?)?,
    };
    let config = write_config(&dat_conf(&args.ia, device, &library)?)?;
    // Through the process id, which exec keeps: children that close their descriptors can still open it.
    let path = format!("/proc/{}/fd/{}", std::process::id(), config.as_raw_fd());
    Err(become_program(args, [("DAT_OVERRIDE", path.into())].into_iter().chain(log).collect()))
}

/// Replaces this process by the program with these variables. Returns only on failure, with the exit status of shells and
/// env(1).
fn become_program(args: &RunArgs, variables: Vec<(&str, OsString)>) -> Failure {
    let Some((program, rest)) = args.command.split_first() else {
        return Failure::usage("no command is given");
    };
    let why = Command::new(program).args(rest).envs(variables).exec();
    let (status, hint) = match why.kind() {
        std::io::ErrorKind::NotFound => (NOT_FOUND, "check its name and PATH"),
        _ => (NOT_EXECUTABLE, "check that it is a program that you may execute"),
    };
    let program = Path::new(program).display();
    Failure { status, ..Failure::usage(format!("cannot start {program}: {why}; {hint}")) }
}

/// Finds the provider library relative to this program.
fn find_library(own: &Path) -> Result<PathBuf, Failure> {
    install_paths::find(own, &install_paths::LIBRARIES, &[LIBRARY]).ok_or_else(|| {
        let place = own.parent().unwrap_or(own).join("lib").join(LIBRARY);
        Failure::usage(format!(
            "{LIBRARY} is neither next to this program nor in ../lib; in the sources: cargo build --release -p abi-dapl && \
             install -D target/release/{LIBRARY} {}; or give --library PATH",
            place.display()
        ))
    })
}

/// A dat.conf with one adapter, in two entries: for programs that promise to use it from one thread only, and for others.
fn dat_conf(ia: &str, device: &str, library: &Path) -> Result<String, Failure> {
    let library = library.display().to_string();
    for (what, text) in [("name", ia), ("device", device), ("library", library.as_str())] {
        if text.is_empty() || text.contains(['"', '\n', '\\', '#']) || what != "device" && text.contains(' ')
        {
            return Err(Failure::usage(format!(
                "a dat.conf cannot contain the {what} '{text}'; use one without blanks, quotes, \\ and #"
            )));
        }
    }
    let line = |threads| format!("{ia} u2.0 {threads} default {library} nicety.2.0 \"{device}\" \"\"\n");
    Ok(line("nonthreadsafe") + &line("threadsafe"))
}

/// An anonymous file that stays open in the program: nothing has to be removed after its end.
fn write_config(text: &str) -> Result<File, Failure> {
    let write = || {
        let mut file = File::from(memfd_create("dat.conf", MemfdFlags::empty())?);
        file.write_all(text.as_bytes())?;
        Ok(file)
    };
    write().map_err(|why: std::io::Error| {
        Failure::run(format!("cannot create a dat.conf in memory: {why}; check the limits of the process"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{CheckArgs, FaultsArgs, RecordArgs};

    fn args(device: &str, command: &[&str]) -> RunArgs {
        RunArgs {
            dat: true,
            devices: vec![device.to_owned()],
            faults: FaultsArgs::default(),
            check: CheckArgs::default(),
            ia: "nicety".to_owned(),
            log: None,
            record: RecordArgs::default(),
            print_env: false,
            rnic: false,
            provider: Some(std::env::current_exe().expect("this test")),
            command: command.iter().map(Into::into).collect(),
        }
    }

    #[test]
    fn program_that_cannot_start_gives_the_status_of_shells() {
        let text = tempfile::NamedTempFile::new().expect("a file that is no program");
        for (program, status) in [
            ("/nonexistent", 127),
            ("no-such-program-in-path", 127),
            (text.path().to_str().expect("a path"), 126),
        ] {
            let failure = become_program(&args("shm", &[program]), Vec::new());
            assert_eq!(failure.status, status, "{failure:?}");
            assert!(failure.lines[0].contains(program), "{failure:?}");
        }
    }

    #[test]
    fn invalid_options_are_refused_before_the_program_starts() {
        for (device, hint) in
            [("smh", "shm, iwarp"), ("model:mt23108-vapi", "virtual time"), ("iwarp@x", "10.0.0.1")]
        {
            let failure = run(args(device, &["true"])).expect_err(device);
            assert!(failure.lines[0].contains(hint), "{device}: {failure:?}");
        }
        let log = RunArgs { log: Some("error".into()), ..args("shm", &["true"]) };
        assert!(run(log).expect_err("no such level").lines[0].contains("expected off, errors or calls"));
        let none = RunArgs { provider: Some("/nowhere/at/all.so".into()), ..args("shm", &["true"]) };
        assert!(run(none).is_err());
        let two = RunArgs { devices: vec!["shm".into(), "iwarp".into()], ..args("shm", &["true"]) };
        assert!(run(two).expect_err("one too many").lines[0].contains("once"));
        let empty = tempfile::tempdir().expect("a directory");
        let own = empty.path().join("bin");
        let told = find_library(&own).expect_err("nothing is there");
        assert!(told.status == crate::error::USAGE && told.lines[0].contains("cargo build"), "{told:?}");
        // The library is found at the place that the error message names.
        let place = told.lines[0].split(' ').find(|word| word.starts_with('/')).expect("a path");
        let place = Path::new(place.trim_end_matches(';'));
        for folder in [&own, place.parent().expect("a folder")] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(place, "").expect("a file");
        assert_eq!(find_library(&own), Ok(place.canonicalize().expect("it is there")));
        assert!(dat_conf("a b", "shm", Path::new("/x.so")).is_err());
        assert!(dat_conf("a", "shm\"", Path::new("/x.so")).is_err());
    }
}
