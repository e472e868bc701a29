//! Puts the checking device in front of the devices of a program that is about to start.

use crate::args::{CheckArgs, Level};
use crate::cmd::record::part_of_name;
use crate::error::Failure;

/// The names of devices that check the use of these devices.
///
/// # Errors
/// If a device is checked already, or the path of the file cannot be part of a name.
pub(super) fn wrap(devices: Vec<String>, args: &CheckArgs) -> Result<Vec<String>, Failure> {
    let Some(level) = args.check else { return Ok(devices) };
    let mut options = String::new();
    if level == Level::Strict {
        options.push_str(",strict=on");
    }
    if let Some(card) = &args.card {
        options.push_str(&format!(",as={card}"));
    }
    if let Some(file) = &args.check_log {
        options.push_str(&format!(",log={}", part_of_name(file, "--check-log")?));
    }
    if let Some(status) = args.check_exit {
        options.push_str(&format!(",exit={status}"));
    }
    let wrap = |device: String| {
        if fabric::has_check(&device) {
            return Err(Failure::usage(format!("{device} is checked already; leave out --check")));
        }
        Ok(format!("check({device}{options})"))
    };
    devices.into_iter().map(wrap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_checked_once_with_all_options() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().canonicalize().expect("a path").join("found.txt");
        let wrap = |device: &str, args: &CheckArgs| wrap(vec![device.to_owned()], args);
        let all = CheckArgs {
            check: Some(Level::Strict),
            check_log: Some(log.clone()),
            check_exit: Some(9),
            card: Some("mlx5".to_owned()),
        };
        let wrapped = wrap("trace(shm)", &all).expect("a name").remove(0);
        assert_eq!(wrapped, format!("check(trace(shm),strict=on,as=mlx5,log={},exit=9)", log.display()));
        fabric::check(&wrapped).expect("a name");
        assert!(wrap(&wrapped, &all).is_err());
        assert_eq!(wrap("shm", &CheckArgs::default()), Ok(vec!["shm".to_owned()]));
        let normal = CheckArgs { check: Some(Level::Normal), ..CheckArgs::default() };
        assert_eq!(wrap("shm", &normal), Ok(vec!["check(shm)".to_owned()]));
        let nowhere = CheckArgs { check_log: Some("/nowhere/x".into()), ..normal };
        assert!(wrap("shm", &nowhere).expect_err("no folder").lines[0].contains("--check-log"));
    }
}
