//! The names of devices whose use is checked: `check(shm,strict=on)`, with options in the same list.

use nic_check::CheckConfig;
use verbs::{Device, Result};

use crate::name::{BadValue, DeviceOption, WrapperName, option_help, parse_choice, parse_wrapper};

/// The word that their names begin with.
pub(crate) const WORD: &str = "check";

const OPTIONS: &[DeviceOption<CheckConfig>] = &[
    DeviceOption {
        form: "strict=on|off",
        about: "whether what may go wrong is a finding, too, though nothing has (off)",
        set: |config, value| {
            config.is_strict = parse_choice(value, [("on", true), ("off", false)])?;
            Ok(())
        },
    },
    DeviceOption {
        form: "as=CARD",
        about: "the card whose limits apply: mlx5 or irdma (none)",
        set: |config, value| {
            config.card = Some(value.to_owned());
            Ok(())
        },
    },
    DeviceOption {
        form: "log=FILE",
        about: "the file to which findings are appended (standard error)",
        set: |config, value| {
            config.log = Some(value.into());
            Ok(())
        },
    },
    DeviceOption {
        form: "exit=N",
        about: "the exit status of a process with findings (its own)",
        set: |config, value| {
            config.exit = Some(value.parse::<u8>().map_err(|_| BadValue::Value)?.into());
            Ok(())
        },
    },
];

/// The options in their written form, each with its meaning.
pub(crate) fn options() -> Vec<(&'static str, &'static str)> {
    option_help(OPTIONS)
}

/// The parsed name.
pub(crate) type CheckedName<'a> = WrapperName<'a, CheckConfig>;

/// Parses the name of a device that is checked; `None` if it does not have this form.
pub(crate) fn parse(text: &str) -> Option<Result<CheckedName<'_>>> {
    parse_wrapper(WORD, OPTIONS, text)
}

impl CheckedName<'_> {
    /// Puts the checking device in front of the opened device.
    pub(crate) fn open(&self, below: &Device) -> Result<Device> {
        nic_check::open(below, &self.options)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_name_the_wrong_part() {
        for (text, hint) in [
            ("check()", "check(shm)"),
            ("check(shm,strict=1)", "strict=on|off"),
            ("check(shm,exit=256)", "exit=N"),
            ("check(shm,as=mlx9)", "there are mlx5"),
            ("check(check(shm))", "checked twice"),
            ("check(trace(check(shm)))", "checked twice"),
        ] {
            let error = crate::check(text).expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn checked_device_is_like_the_one_below() {
        let name = "check(faults(iwarp@127.0.0.1(crc=on),chaos=7),strict=on,as=irdma)";
        crate::check(name).expect("a name");
        assert_eq!(crate::below(name), "iwarp@127.0.0.1(crc=on)");
        assert_eq!(crate::without_side(name), "iwarp(crc=on)");
        assert!(crate::has_faults(name) && crate::has_check(name) && crate::is_wrapped(name));
        let device = crate::open(name, &host::real::host()).expect("a device");
        assert_eq!(device.name(), name);
        assert_eq!(crate::reported_attr(&device).max_sge, 13);
        assert!(crate::is_virtual("check(model:mt23108-nicmem)"));
        crate::attr("check(model:mt23108-nicmem)").expect("a device in simulated time");
        assert_eq!(crate::rails_of("check(rails(shm,shm))").expect("rails").len(), 2);
    }
}
