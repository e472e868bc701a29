//! Puts the device of faults in front of the devices of a program that is about to start.

use std::path::Path;

use host::real::remark;

use crate::args::FaultsArgs;
use crate::error::Failure;

/// The names of devices that fail as the options ask. With `is_shown`, the rules that a seed has chosen are printed.
///
/// # Errors
/// If a device has faults already, or the file cannot be part of a name.
pub(super) fn wrap(devices: Vec<String>, args: &FaultsArgs, is_shown: bool) -> Result<Vec<String>, Failure> {
    let mut options = String::new();
    if let Some(file) = &args.faults {
        options.push_str(&format!(",rules={}", rules(file)?));
    }
    if let Some(seed) = args.chaos {
        options.push_str(&format!(",chaos={seed}"));
        if is_shown {
            remark(format_args!("chaos with seed {seed}:"));
            fabric::chaos(seed).iter().for_each(remark);
        }
    }
    if options.is_empty() {
        return Ok(devices);
    }
    let wrap = |device: String| {
        if fabric::has_faults(&device) {
            return Err(Failure::usage(format!(
                "{device} has faults of its own; leave out --faults and --chaos"
            )));
        }
        Ok(format!("faults({device}{options})"))
    };
    devices.into_iter().map(wrap).collect()
}

/// The whole path of the file of rules, as part of a name: the program's directory may be another one.
fn rules(file: &Path) -> Result<String, Failure> {
    let path = file.canonicalize().map_err(|why| {
        Failure::usage(format!("cannot read the file of faults {}: {why}; check its name", file.display()))
    })?;
    let text = path.to_str().filter(|path| !path.contains([',', ';', '(', ')', '"']));
    text.map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!(
            "the path of {} cannot be part of a device name; move it to one without commas, semicolons, quotes and parentheses",
            file.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_put_in_front_of_each_device() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules.toml");
        std::fs::write(&file, "").expect("a file");
        let path = file.canonicalize().expect("a path");
        let two = vec!["shm".to_owned(), "iwarp@127.0.0.1(crc=on)".to_owned()];
        let both = FaultsArgs { faults: Some(file), chaos: Some(7) };
        let devices = wrap(two, &both, false).expect("devices");
        let path = path.display();
        assert_eq!(devices[0], format!("faults(shm,rules={path},chaos=7)"));
        assert_eq!(devices[1], format!("faults(iwarp@127.0.0.1(crc=on),rules={path},chaos=7)"));
        devices.iter().for_each(|device| fabric::check(device).expect("a name"));
        assert!(wrap(devices, &both, false).expect_err("twice").lines[0].contains("leave out --faults"));
        let missing = FaultsArgs { faults: Some("/nowhere.toml".into()), chaos: None };
        let why = wrap(vec!["shm".to_owned()], &missing, false).expect_err("no file");
        assert!(why.lines[0].contains("/nowhere.toml"));
        assert_eq!(wrap(vec!["shm".to_owned()], &FaultsArgs::default(), false), Ok(vec!["shm".to_owned()]));
    }
}
