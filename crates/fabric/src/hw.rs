//! The names of cards: `hw` for the first usable one, `hw:NAME`, or `hw:NAME@PORT`, with options. `hw:NAME@PORT,gid=N` is short for
//! `hw:NAME@PORT(gid=N)`.

use nic_faults::parse_span;
use nic_hw::HwConfig;
use verbs::{Error, Result};

use crate::kind::{Baseline, DeviceKind, NameSuffix, Opener, Reach};
use crate::name::{BadValue, DeviceOption, Name, option_help, set_option, set_options};

pub(crate) const KIND: DeviceKind = DeviceKind {
    word: "hw",
    suffix: NameSuffix::OptionalInstance,
    reach: Reach::Network,
    baseline: Baseline::None,
    names: || {
        let about =
            "the first card of the system's libibverbs with an active port; hw:NAME[@PORT] is another";
        vec![("hw".to_owned(), about.to_owned())]
    },
    options: || option_help(OPTIONS),
    parse: |name| Ok(opener(parse_config(name)?)),
    parse_rail: |name| Ok(opener(parse_rail_config(name)?)),
    rail_repeats: false,
    // A library is a file, and the cards of another host have other names.
    is_served: false,
};

const OPTIONS: &[DeviceOption<HwConfig>] = &[
    DeviceOption {
        form: "gid=0..255",
        about: "the index in the port's GID table whose address connections use, on RoCE (the one of the connection's address)",
        set: |config, value| {
            config.gid = Some(value.parse().map_err(|_| BadValue::Value)?);
            Ok(())
        },
    },
    DeviceOption {
        form: "patience=TIME",
        about: "how long connections wait for a port that has lost its link or their address, before they end (700ms)",
        set: |config, value| {
            config.patience = parse_span(value).ok_or(BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "lib=PATH",
        about: "a folder with libibverbs.so.1 and librdmacm.so.1, or a file that is both (the system's)",
        set: |config, value| {
            if value.is_empty() {
                return Err(BadValue::Value);
            }
            config.lib_path = Some(value.into());
            Ok(())
        },
    },
];

fn opener(config: HwConfig) -> Opener {
    Box::new(move |host| nic_hw::open(host, &config))
}

/// Parses the configuration from a name of this kind.
fn parse_config(name: &Name<'_>) -> Result<HwConfig> {
    let mut config = HwConfig::default();
    if let Some((_, instance)) = name.head.split_once(':') {
        let (card, side) = match instance.split_once('@') {
            None => (instance.trim(), None),
            Some((card, side)) => (card.trim(), Some(side.trim())),
        };
        let is_name = |card: &str| card.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if card.is_empty() || !is_name(card) {
            return Err(Error::Invalid(format!(
                "'{}' names no card; write hw:NAME or hw:NAME@PORT with a name of ls /sys/class/infiniband, or hw",
                name.head
            )));
        }
        config.card = Some(card.to_owned());
        let number = |port: &str| {
            port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                Error::Invalid(format!(
                    "'{port}' is not a port of a card; write its number, from 1: hw:{card}@1 or hw:{card}@1,gid=3"
                ))
            })
        };
        for part in side.into_iter().flat_map(|side| side.split(',')).map(str::trim) {
            match part.strip_prefix("gid=") {
                Some(gid) => set_option(name.head, OPTIONS, &mut config, "gid", gid.trim())?,
                None => config.port = Some(number(part)?),
            }
        }
    }
    set_options(name, OPTIONS, &mut config)?;
    Ok(config)
}

/// Parses the configuration of a rail, which must name its card, or all rails would use the same one.
fn parse_rail_config(name: &Name<'_>) -> Result<HwConfig> {
    let config = parse_config(name)?;
    if config.card.is_none() {
        let text = name.text;
        return Err(Error::Invalid(format!("'{text}' does not name its card; write hw:NAME for each rail")));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<HwConfig> {
        parse_config(&Name::parse(text).expect("a name"))
    }

    #[test]
    fn parses_card_port_and_library() {
        assert_eq!(parse_text("hw"), Ok(HwConfig::default()));
        let config = parse_text("hw:mlx5_0@2(lib=/opt/lib)").expect("a card");
        assert_eq!((config.card.as_deref(), config.port), (Some("mlx5_0"), Some(2)));
        assert_eq!(config.lib_path.as_deref(), Some(std::path::Path::new("/opt/lib")));
        assert_eq!(parse_text("hw:siw0").expect("a card").port, None);
        for (text, port) in [
            ("hw:mlx5_0@2,gid=3", Some(2)),
            ("hw:mlx5_0@gid=3", None),
            ("hw:mlx5_0@2(gid=3)", Some(2)),
            ("hw:mlx5_0(gid=3)", None),
        ] {
            let config = parse_text(text).expect(text);
            assert_eq!((config.port, config.gid), (port, Some(3)), "{text}");
        }
    }

    #[test]
    fn gid_stays_with_its_card_in_lists() {
        let split = |list| crate::name::split_outside_parentheses(list, ',').expect("no parentheses");
        assert_eq!(
            split("shm,hw:a@1,gid=3,hw:b@gid=0 , iwarp"),
            ["shm", "hw:a@1,gid=3", "hw:b@gid=0", "iwarp"]
        );
        assert_eq!(split("shm,gid=3"), ["shm", "gid=3"]);
        let rails = crate::rails_of("rails(hw:a@1,gid=3,hw:b@1,gid=2,stripe=64K)").expect("rails");
        assert_eq!(rails, ["hw:a@1,gid=3", "hw:b@1,gid=2"]);
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, hint) in [
            ("hw:", "names no card"),
            ("hw:a/b", "names no card"),
            ("hw:rxe0@0", "'0' is not a port"),
            ("hw:rxe0@one", "'one' is not a port"),
            ("hw(lib=)", "lib=PATH"),
            ("hw(speed=1)", "lib=PATH"),
            ("hw(gid=256)", "gid=0..255"),
            ("hw(patience=5)", "patience=TIME"),
            ("hw:rxe0@1,gid=x", "gid=0..255"),
            ("hw:rxe0@1,speed", "'speed' is not a port"),
            ("hw:rxe0@", "'' is not a port"),
        ] {
            let message = parse_text(text).expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
        let rail = parse_rail_config(&Name::parse("hw").expect("a name")).expect_err("no card").to_string();
        assert!(rail.contains("hw:NAME"), "{rail}");
    }
}
