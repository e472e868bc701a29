//! The names of devices whose use is recorded: `trace(shm,file=FILE)`, with options in the same list.

use std::path::PathBuf;

use nic_trace::TraceConfig;
use trace::format::{RECORD_BYTES, RECORDS_MAX, RECORDS_MIN};
use verbs::{Device, Result};

use crate::name::{DeviceOption, WrapperName, option_help, parse_choice, parse_size, parse_wrapper};

/// The word that their names begin with.
pub(crate) const WORD: &str = "trace";
/// Records that a file keeps by default: 16 MiB.
const RECORDS: u64 = 1 << 18;

/// The options of a name.
#[derive(Debug, Default)]
pub(crate) struct Options {
    file: Option<PathBuf>,
    records: Option<u64>,
    has_no_control: bool,
}

const OPTIONS: &[DeviceOption<Options>] = &[
    DeviceOption {
        form: "file=FILE",
        about: "where the use of the device is recorded; a second process adds its number (none: it is only counted)",
        set: |options, value| {
            options.file = Some(value.into());
            Ok(())
        },
    },
    DeviceOption {
        form: "size=SIZE",
        about: "the size of the ring of latest records (16M)",
        set: |options, value| {
            let bounds = RECORDS_MIN * RECORD_BYTES as u64..=RECORDS_MAX * RECORD_BYTES as u64;
            let records = parse_size(value, bounds)? / RECORD_BYTES as u64;
            // The largest power of two that the size has room for.
            options.records = Some(1 << records.ilog2());
            Ok(())
        },
    },
    DeviceOption {
        form: "control=on|off",
        about: "whether nicety top can read the counters (on)",
        set: |options, value| {
            options.has_no_control = parse_choice(value, [("on", false), ("off", true)])?;
            Ok(())
        },
    },
];

/// The options in their written form, each with its meaning.
pub(crate) fn options() -> Vec<(&'static str, &'static str)> {
    option_help(OPTIONS)
}

/// The parsed name.
pub(crate) type TraceName<'a> = WrapperName<'a, Options>;

/// Parses the name of a device that is recorded; `None` if it does not have this form.
pub(crate) fn parse(text: &str) -> Option<Result<TraceName<'_>>> {
    parse_wrapper(WORD, OPTIONS, text)
}

impl TraceName<'_> {
    /// Puts the recording device in front of the opened device.
    pub(crate) fn open(&self, below: &Device) -> Result<Device> {
        let Options { file, records, has_no_control } = &self.options;
        let file = file.clone().map(|file| (file, records.unwrap_or(RECORDS)));
        nic_trace::open(below, &TraceConfig { file, has_control: !has_no_control })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_name_the_wrong_part() {
        for (text, hint) in [
            ("trace()", "trace(shm)"),
            ("trace(shm,size=1)", "size=SIZE"),
            ("trace(shm,size=64G)", "size=SIZE"),
            ("trace(trace(shm))", "recorded twice"),
            ("trace(faults(trace(shm)))", "recorded twice"),
            ("faults(trace(faults(shm)))", "not possible"),
            ("trace(shm,path=x)", "file=FILE"),
        ] {
            let error = crate::check(text).expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn recorded_device_is_like_the_one_below() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.trace");
        let name =
            format!("trace(faults(iwarp@127.0.0.1(crc=on),chaos=7),file={},size=100K)", file.display());
        crate::check(&name).expect("a name");
        assert_eq!(crate::below(&name), "iwarp@127.0.0.1(crc=on)");
        assert_eq!((crate::word(&name), crate::without_side(&name).as_str()), ("iwarp", "iwarp(crc=on)"));
        assert!(crate::has_faults(&name) && crate::has_trace(&name) && crate::is_wrapped(&name));
        assert!(!crate::is_wrapped("rails(shm,shm)"));
        let device = crate::open(&name, &host::real::host()).expect("a device");
        assert_eq!(device.name(), name);
        let trace = trace::read(&std::fs::read(&file).expect("a file")).expect("a trace");
        assert_eq!((trace.records.len(), trace.has_ended), (1, false));
        let elsewhere = format!("trace(shm,file={}2)", file.display());
        let error = crate::open(&elsewhere, &host::real::host()).expect_err("a second file").to_string();
        assert!(error.contains("give all of its devices the same file"), "{error}");
        let _ = crate::end_report();
        let trace = trace::read(&std::fs::read(&file).expect("a file")).expect("a trace");
        assert!(trace.has_ended);
        assert!(crate::is_virtual("trace(model:mt23108-nicmem)"));
        crate::attr("trace(model:mt23108-nicmem)").expect("a device in simulated time");
    }
}
