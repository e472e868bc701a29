//! The names of devices whose requests, calls and events fail by rules: `faults(shm,rules=FILE)`, with options in the same
//! list.

use std::path::PathBuf;

use nic_faults::FaultsConfig;
use verbs::{Device, Result};

use crate::name::{BadValue, DeviceOption, WrapperName, option_help, parse_choice, parse_wrapper};

/// The word that their names begin with.
pub(crate) const WORD: &str = "faults";

/// The options of a name.
#[derive(Debug, Default)]
pub(crate) struct Options {
    rules: Option<PathBuf>,
    seed: Option<u64>,
    chaos: Option<u64>,
    has_no_control: bool,
}

const OPTIONS: &[DeviceOption<Options>] = &[
    DeviceOption {
        form: "rules=FILE",
        about: "the rules, as docs/guides/faults.md describes them (none)",
        set: |options, value| {
            options.rules = Some(value.into());
            Ok(())
        },
    },
    DeviceOption {
        form: "seed=N",
        about: "the seed of random choices (that of the file, or 0)",
        set: |options, value| {
            options.seed = Some(value.parse().map_err(|_| BadValue::Value)?);
            Ok(())
        },
    },
    DeviceOption {
        form: "chaos=SEED",
        about: "rules that the seed chooses within what the specification allows (none)",
        set: |options, value| {
            options.chaos = Some(value.parse().map_err(|_| BadValue::Value)?);
            Ok(())
        },
    },
    DeviceOption {
        form: "control=on|off",
        about: "whether nicety fault can add rules, and the end reports what each did (on)",
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
pub(crate) type FaultsName<'a> = WrapperName<'a, Options>;

/// Parses the name of a device of faults; `None` if it does not have this form.
pub(crate) fn parse(text: &str) -> Option<Result<FaultsName<'_>>> {
    parse_wrapper(WORD, OPTIONS, text)
}

impl FaultsName<'_> {
    /// Reads the rules.
    pub(crate) fn config(&self) -> Result<FaultsConfig> {
        let Options { rules, seed, chaos, has_no_control } = &self.options;
        let file = rules.as_deref().map(nic_faults::read).transpose()?.unwrap_or_default();
        let mut config = FaultsConfig {
            rules: file.rules,
            seed: seed.or(*chaos).unwrap_or(file.seed),
            has_control: !has_no_control,
        };
        if let Some(chaos) = chaos {
            config
                .rules
                .extend(nic_faults::chaos(*chaos).into_iter().map(|rule| (rule, format!("chaos {chaos}"))));
        }
        Ok(config)
    }

    /// Puts the faults in front of the opened device.
    pub(crate) fn open(&self, below: &Device) -> Result<Device> {
        nic_faults::open(below, self.config()?)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_name_the_wrong_part() {
        for (text, hint) in [
            ("faults()", "faults(shm)"),
            ("faults(seed=3)", "faults(shm)"),
            ("faults(shm", "parentheses"),
            ("faults(shm,iwarp)", "second device"),
            ("faults(smh)", "no device 'smh'"),
            ("faults(shm,seed=x)", "seed=N"),
            ("faults(shm,rule=x)", "rules=FILE"),
            ("faults(shm,rules=/nowhere.toml)", "/nowhere.toml cannot be read"),
            ("faults(faults(shm))", "not possible"),
            ("faults(iwarp@127.0.0.1(crc=x))", "crc=on|off"),
        ] {
            let error = crate::check(text).expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn device_of_faults_is_like_the_one_below() {
        let name = "faults(iwarp@127.0.0.1(crc=on), chaos=7)";
        let device = crate::open(name, &host::real::host()).expect("a device");
        assert_eq!(device.name(), name);
        let notes = &device.attr().notes;
        assert!(notes.iter().any(|note| note.contains("rules, with seed 7")), "{notes:?}");
        assert_eq!(crate::word(name), "iwarp");
        assert_eq!(crate::below(name), "iwarp@127.0.0.1(crc=on)");
        assert_eq!(crate::without_side(name), "iwarp(crc=on)");
        assert!(!crate::is_local(name) && crate::is_local("faults(shm)"));
        assert!(crate::is_virtual("faults(model:mt23108-nicmem)"));
        assert_eq!(crate::baseline(name), crate::Baseline::Sockets);
        assert_eq!(crate::rails_of("faults(rails(shm,shm))").expect("rails").len(), 2);
        crate::attr("faults(rails(shm,shm),chaos=3)").expect("a device");
        crate::attr("faults(model:mt23108-nicmem)").expect("a device in simulated time");
    }
}
