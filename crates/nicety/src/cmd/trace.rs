//! `nicety trace`: shows what `--trace` has recorded.

use std::path::{Path, PathBuf};

use ::trace::{Job, Selection, Trace, read};
use host::bounded;

use super::record::processes;
use crate::args::{Target, TraceArgs};
use crate::error::{Failure, OK, Outcome};
use crate::output::{self, Wanted};
use crate::term::Stream;

/// Prints the records, or writes what the options ask for.
///
/// # Errors
/// If a file cannot be read or is no trace, or an output cannot be written.
pub(crate) fn run(args: &TraceArgs) -> Outcome {
    let wanted = |option, target| Wanted { option, target };
    let html = args.html.as_ref().map(|target| wanted("--html", target));
    let chrome = args.chrome.as_ref().map(|target| wanted("--chrome", target));
    let pcap_target = args.pcap.clone().map(Target::File);
    let pcap = pcap_target.as_ref().map(|target| wanted("--pcap", target));
    let outputs: Vec<_> = html.into_iter().chain(chrome).chain(pcap).collect();
    output::check(&outputs)?;
    let job = Job::new(read_all(&args.files)?);
    let selection = Selection {
        from_ps: args.from.map_or(0, |from| from.as_ps()),
        to_ps: args.to.map(|to| to.as_ps()),
        qp: args.qp,
        rank: args.rank,
        is_failures: args.failures,
        last: args.last,
    };
    if outputs.is_empty() {
        Stream::Out.print(&::trace::text(&job, &selection))?;
    }
    if let Some(html) = html {
        output::write(html, &report::trace_page(&job, &selection).map_err(Failure::run)?)?;
    }
    if let Some(path) = &args.pcap {
        output::write_bytes("--pcap", path, &::trace::roce(&job, &selection))?;
    }
    if let Some(chrome) = chrome {
        output::write(chrome, &::trace::chrome(&job, &selection))?;
    }
    Ok(OK)
}

/// Reads the files, and those of further processes next to them.
fn read_all(files: &[PathBuf]) -> Result<Vec<(String, Trace)>, Failure> {
    let mut paths: Vec<PathBuf> = files.iter().flat_map(|file| processes(file)).collect();
    if let Some(missing) = files.iter().find(|file| processes(file).is_empty()) {
        return Err(Failure::usage(format!(
            "there is no trace {}; record one by nicety run --trace {0} -- PROGRAM",
            missing.display()
        )));
    }
    paths.sort();
    paths.dedup();
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<(String, Trace), Failure> {
    let limit = ::trace::format::file_bytes(::trace::format::RECORDS_MAX);
    let bytes = bounded::read(path, limit)
        .map_err(|why| Failure::usage(format!("cannot read {}: {why}; check its name", path.display())))?;
    let trace = read(&bytes).map_err(|why| Failure::usage(format!("{}: {why}", path.display())))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, trace))
}
