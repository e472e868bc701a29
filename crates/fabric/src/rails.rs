//! The names of devices made of several: `rails(iwarp@10.0.0.1,iwarp@10.1.0.1)`, with options in the same list.

use host::Host;
use nic_rails::{Engine, RAILS_MAX, RailsConfig};
use verbs::{Device, Error, Result};

use crate::name::{
    BadValue, DeviceOption, option_help, parse_choice, parse_size, set_option, split_outside_parentheses,
};
use crate::table;

/// The word that their names begin with.
pub(crate) const WORD: &str = "rails";

const OPTIONS: &[DeviceOption<RailsConfig>] = &[
    DeviceOption {
        form: "stripe=SIZE",
        about: "writes and reads from this size on are split into a stripe for each rail (16K)",
        set: |config, value| {
            config.stripe_min = parse_size(value, 0..=u64::MAX)?.max(1);
            Ok(())
        },
    },
    DeviceOption {
        form: "weights=A:B",
        about: "the share of a striped message that each rail carries (as measured)",
        set: |config, value| {
            let weights = value.split(':').map(|weight| weight.trim().parse::<f64>());
            let weights: Vec<f64> =
                weights.collect::<std::result::Result<_, _>>().map_err(|_| BadValue::Value)?;
            if weights.iter().any(|weight| !weight.is_finite() || *weight <= 0.0) {
                return Err(BadValue::Value);
            }
            config.weights = weights;
            Ok(())
        },
    },
    DeviceOption {
        form: "engine=one|threads",
        about: "whether the program's threads serve all rails, or each rail has a thread (one)",
        set: |config, value| {
            config.engine = parse_choice(value, [("one", Engine::Callers), ("threads", Engine::Threads)])?;
            Ok(())
        },
    },
];

/// The options in their written form, each with its meaning.
pub(crate) fn options() -> Vec<(&'static str, &'static str)> {
    option_help(OPTIONS)
}

/// The parsed name: the rails' own names, in their order.
pub(crate) struct RailsName<'a> {
    pub(crate) names: Vec<&'a str>,
    config: RailsConfig,
}

/// Parses the rails from a name; `None` if it does not have this form.
pub(crate) fn parse(text: &str) -> Option<Result<RailsName<'_>>> {
    let inner = text.trim().strip_prefix(WORD)?.trim_start().strip_prefix('(')?;
    let unmatched = || Error::Invalid(format!("'{text}' is not a device name: the parentheses do not match"));
    Some(inner.strip_suffix(')').ok_or_else(unmatched).and_then(|inner| parse_parts(text, inner)))
}

fn parse_parts<'a>(text: &str, inner: &'a str) -> Result<RailsName<'a>> {
    let invalid = |why: String| Error::Invalid(format!("'{text}' is not a device name: {why}"));
    let parts = split_outside_parentheses(inner, ',')
        .ok_or_else(|| invalid("the parentheses do not match".into()))?;
    let mut rails = RailsName { names: Vec::new(), config: RailsConfig::default() };
    for part in parts {
        match part.split_once('=').filter(|(key, _)| !key.contains(['(', '@', ':'])) {
            Some((key, value)) => set_option(WORD, OPTIONS, &mut rails.config, key.trim(), value.trim())?,
            None if part.is_empty() => return Err(invalid("a rail has no name".into())),
            None => rails.names.push(part),
        }
    }
    let names = &rails.names;
    if !(2..=RAILS_MAX).contains(&names.len()) {
        return Err(invalid(format!("it has {} rails; write 2 to {RAILS_MAX}", names.len())));
    }
    for (at, &name) in names.iter().enumerate() {
        if table::word(name) == WORD {
            return Err(invalid("a rail cannot be a rails device itself".into()));
        }
        if table::word(name) != table::word(names[0]) {
            return Err(invalid(format!(
                "{} and {name} are of different kinds; use one kind of NIC",
                names[0]
            )));
        }
        let (kind, parsed) = table::parse(name)?;
        drop((kind.parse_rail)(&parsed)?);
        if !kind.rail_repeats && names[..at].contains(&name) {
            return Err(invalid(format!("{name} is given twice; each rail needs a device of its own")));
        }
    }
    let weights = rails.config.weights.len();
    if weights != 0 && weights != names.len() {
        return Err(invalid(format!("{weights} weights for {} rails; write one for each", names.len())));
    }
    Ok(rails)
}

impl RailsName<'_> {
    /// Opens the rails, and combines them into one device.
    pub(crate) fn open(&self, host: &Host) -> Result<Device> {
        let open = |name: &&str| {
            let (kind, parsed) = table::parse(name)?;
            Ok((kind.parse_rail)(&parsed)?(host)?.named(name))
        };
        let rails = self.names.iter().map(open).collect::<Result<_>>()?;
        nic_rails::open(rails, &self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_rails_and_options() {
        let text =
            "rails(iwarp@10.0.0.1(crc=on,mpa=2), iwarp@10.1.0.1, stripe=64K, weights=4:1, engine=threads)";
        let rails = parse(text).expect("rails").expect("options");
        assert_eq!(rails.names, ["iwarp@10.0.0.1(crc=on,mpa=2)", "iwarp@10.1.0.1"]);
        assert_eq!(
            rails.config,
            RailsConfig { stripe_min: 64 << 10, weights: vec![4.0, 1.0], engine: Engine::Threads }
        );
        assert!(parse("shm").is_none() && parse("railsx").is_none());
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, hint) in [
            ("rails(iwarp@10.0.0.1)", "1 rails"),
            ("rails()", "no name"),
            ("rails(shm,", "parentheses"),
            ("rails(shm,shm))", "parentheses"),
            ("rails(shm,iwarp@127.0.0.1)", "different kinds"),
            ("rails(iwarp,iwarp)", "iwarp@ADDRESS"),
            ("rails(iwarp@127.0.0.1,iwarp@127.0.0.1)", "twice"),
            ("rails(shm,smh)", "different kinds"),
            ("rails(smh,smh)", "no device 'smh'"),
            ("rails(iwarp@127.0.0.1,iwarp@127.0.0.2(crc=x))", "crc=on|off"),
            ("rails(iwarp@127.0.0.1,iwarp@127.0.0.2(complete=sent))", "complete=placed"),
            ("rails(rails(shm,shm),rails(shm,shm))", "rails device itself"),
            ("rails(shm,shm,weights=1)", "1 weights for 2 rails"),
            ("rails(shm,shm,weights=1:0)", "weights=A:B"),
            ("rails(shm,shm,engine=two)", "engine=one|threads"),
            ("rails(shm,shm,speed=9)", "stripe=SIZE"),
        ] {
            let error = parse(text).expect("rails").err().unwrap_or_else(|| panic!("{text} is accepted"));
            assert!(error.to_string().contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn rails_device_has_its_name_and_no_nic_memory() {
        let device = crate::open("rails(shm,shm)", &host::real::host()).expect("a device");
        assert_eq!(device.name(), "rails(shm,shm)");
        assert_eq!(device.attr().max_dm_size, 0);
    }

    #[test]
    fn opened_devices_keep_their_names() {
        for name in ["iwarp@127.0.0.1(crc=off)", "rails(iwarp@127.0.0.1(crc=off),iwarp@127.0.0.2,stripe=64K)"]
        {
            let device = crate::open(name, &host::real::host()).expect("a device");
            assert_eq!(device.name(), name);
            for rail in crate::rails_of(device.name()).expect("rails") {
                assert!(name.contains(&rail), "{rail} is not of {name}");
            }
        }
    }
}
