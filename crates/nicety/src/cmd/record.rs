//! Puts a recording device in front of the devices of a program that is about to start.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::faulty;
use crate::args::{FaultsArgs, RecordArgs};
use crate::error::Failure;

/// Whether something is recorded, captured or counted.
pub(crate) fn is_wanted(args: &RecordArgs) -> bool {
    args.trace.is_some() || args.count || args.pcap.is_some()
}

/// The names of devices that record, capture or count the use of these devices.
///
/// # Errors
/// If a device is recorded already, none can be captured, or a path cannot be part of a name.
pub(crate) fn wrap(devices: &[&str], args: &RecordArgs) -> Result<Vec<String>, Failure> {
    let mut devices: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
    if let Some(file) = &args.pcap {
        let path = part_of_name(file, "--pcap")?;
        let mut captured = 0;
        for device in &mut devices {
            if let Some(name) = fabric::with_capture(device, &path) {
                (*device, captured) = (name, captured + 1);
            }
        }
        if captured == 0 {
            return Err(Failure::usage(
                "--pcap captures what goes over iwarp; for other devices, record by --trace FILE, and then make a capture by nicety trace FILE --pcap FILE",
            ));
        }
    }
    devices.iter().map(|device| wrap_one(device, args)).collect()
}

/// As [`wrap`], with devices of faults in between: a capture is an option of the device itself, and a trace has what the program sees.
/// With `is_shown`, the rules that a seed has chosen are printed.
///
/// # Errors
/// As [`wrap`] and [`faulty::wrap`].
pub(crate) fn wrap_all(
    devices: Vec<String>,
    args: &RecordArgs,
    faults: &FaultsArgs,
    is_shown: bool,
) -> Result<Vec<String>, Failure> {
    let wrapped = |devices: Vec<String>, args: &RecordArgs| {
        wrap(&devices.iter().map(String::as_str).collect::<Vec<_>>(), args)
    };
    let captured = wrapped(devices, &RecordArgs { trace: None, count: false, ..args.clone() })?;
    let faulty = faulty::wrap(captured, faults, is_shown)?;
    wrapped(faulty, &RecordArgs { pcap: None, ..args.clone() })
}

fn wrap_one(device: &str, args: &RecordArgs) -> Result<String, Failure> {
    if args.trace.is_none() && !args.count {
        return Ok(device.to_owned());
    }
    if fabric::has_trace(device) {
        return Err(Failure::usage(format!("{device} is recorded already; leave out --trace and --count")));
    }
    let Some(file) = &args.trace else { return Ok(format!("trace({device})")) };
    let path = part_of_name(file, "--trace")?;
    Ok(format!("trace({device},file={path},size={})", args.trace_size.0))
}

/// A path from the root that can be part of a device's name.
pub(super) fn part_of_name(file: &Path, option: &str) -> Result<String, Failure> {
    let path = whole_path(file, option)?;
    let text = path.to_str().filter(|path| !path.contains([',', ';', '(', ')', '"']));
    text.map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!(
            "the path of {} cannot be part of a device name; name one without commas, semicolons, quotes and parentheses",
            file.display()
        ))
    })
}

/// The first bytes of a capture: its block type.
const CAPTURE_MAGIC: [u8; 4] = 0x0a0d_0d0a_u32.to_le_bytes();

/// Removes the traces and captures of an earlier run under these names, so that those of this run are not mixed with them.
///
/// # Errors
/// If a file exists and is something else.
pub(crate) fn remove_old(args: &RecordArgs) -> Result<(), Failure> {
    let magic = trace::format::MAGIC.to_le_bytes();
    let wanted = [(&args.trace, &magic[..], "trace"), (&args.pcap, &CAPTURE_MAGIC, "capture")];
    for (file, magic, what) in wanted {
        let Some(file) = file else { continue };
        if file.exists() && !begins_with(file, magic) {
            return Err(Failure::usage(format!(
                "{} exists and is no {what}; name another file",
                file.display()
            )));
        }
        for old in processes(file).into_iter().filter(|old| begins_with(old, magic)) {
            fs::remove_file(&old).map_err(|why| {
                Failure::usage(format!(
                    "cannot replace the {what} {}: {why}; name another file",
                    old.display()
                ))
            })?;
        }
    }
    Ok(())
}

/// The path from the root: the program may run in another directory.
pub(super) fn whole_path(file: &Path, option: &str) -> Result<PathBuf, Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|why| {
        Failure::usage(format!(
            "cannot write {option} {}: {why}; name a file in a folder that exists",
            file.display()
        ))
    })?;
    let name = file.file_name();
    Ok(folder.join(name.ok_or_else(|| {
        Failure::usage(format!(
            "'{}' names no file; write, for example, {option} program.trace",
            file.display()
        ))
    })?))
}

/// The files of all processes of a run: FILE itself, and FILE.PID.
pub(crate) fn processes(file: &Path) -> Vec<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let prefix = file.file_name().map(|name| format!("{}.", name.to_string_lossy())).unwrap_or_default();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let others = entries
        .filter(|entry| entry.file_name().to_string_lossy().strip_prefix(&prefix).is_some_and(is_number));
    let mut files: Vec<_> = others.map(|entry| entry.path()).collect();
    files.sort();
    files.splice(..0, file.exists().then(|| file.to_owned()));
    files
}

fn begins_with(file: &Path, magic: &[u8]) -> bool {
    let mut first = vec![0; magic.len()];
    let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == magic
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Bytes;

    fn args(trace: Option<PathBuf>) -> RecordArgs {
        RecordArgs { trace, trace_size: Bytes(1 << 20), ..RecordArgs::default() }
    }

    #[test]
    fn devices_are_recorded_once_by_a_whole_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a path").join("a.trace");
        let wrap = |device: &str, args: &RecordArgs| wrap(&[device], args).map(|names| names[0].clone());
        let recorded = wrap("shm", &args(Some(path.clone()))).expect("a name");
        assert_eq!(recorded, format!("trace(shm,file={},size=1048576)", path.display()));
        fabric::check(&recorded).expect("a name");
        assert!(wrap(&recorded, &args(Some(path.clone()))).is_err());
        assert_eq!(wrap("shm", &args(None)), Ok("shm".to_owned()));
        assert_eq!(wrap("shm", &RecordArgs { count: true, ..args(None) }), Ok("trace(shm)".to_owned()));
        for wrong in ["/nowhere/a.trace", "..", "a,b"] {
            assert!(wrap("shm", &args(Some(wrong.into()))).is_err(), "{wrong}");
        }
        let pcap = RecordArgs { pcap: Some(path.clone()), ..args(None) };
        let captured = wrap("iwarp@127.0.0.1(crc=on)", &pcap).expect("a name");
        assert_eq!(captured, format!("iwarp@127.0.0.1(crc=on,pcap={})", path.display()));
        fabric::check(&captured).expect("a name");
        assert!(wrap("shm", &pcap).expect_err("no iwarp").lines[0].contains("nicety trace FILE --pcap"));
    }

    #[test]
    fn old_traces_are_removed_and_other_files_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.trace");
        let magic = trace::format::MAGIC.to_le_bytes();
        let names = ["a.trace", "a.trace.12", "a.trace.txt", "a.trace.13"];
        for (name, bytes) in names.into_iter().zip([&magic[..], &magic, &magic, b"notes"]) {
            fs::write(folder.path().join(name), bytes).expect("a file");
        }
        assert_eq!(processes(&file).len(), 3);
        remove_old(&args(Some(file.clone()))).expect("removed");
        let left = |name: &str| folder.path().join(name).exists();
        assert_eq!(names.map(left), [false, false, true, true]);
        fs::write(&file, "a letter").expect("a file");
        assert!(remove_old(&args(Some(file))).is_err());
    }
}
