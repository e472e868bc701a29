//! The names of iWARP devices: `iwarp`, or `iwarp@ADDRESS` for the side with that address, with options.

use host::Span;
use nic_faults::parse_span;
use nic_iwarp::{Completion, FpduSize, IwarpConfig, Mpa};
use verbs::{Error, Result};

use crate::kind::{Baseline, DeviceKind, NameSuffix, Opener, Reach};
use crate::name::{BadValue, DeviceOption, Name, option_help, parse_choice, parse_size, set_options};

pub(crate) const KIND: DeviceKind = DeviceKind {
    word: "iwarp",
    suffix: NameSuffix::Address,
    reach: Reach::Network,
    baseline: Baseline::Sockets,
    names: || {
        let about = "iWARP on TCP, to any host; iwarp@ADDRESS binds to that address";
        vec![("iwarp".to_owned(), about.to_owned())]
    },
    options: || option_help(OPTIONS),
    parse: |name| Ok(opener(parse_config(name)?)),
    parse_rail: |name| Ok(opener(parse_rail_config(name)?)),
    rail_repeats: false,
    is_served: true,
};

/// The default `silence` of a rail: a rail is given up sooner than a single device, since other rails can take over.
const RAIL_SILENCE: Span = IwarpConfig::SILENCE_MIN;

const OPTIONS: &[DeviceOption<IwarpConfig>] = &[
    DeviceOption {
        form: "allow=NETWORK+...",
        about: "networks whose peers may connect, such as 10.0.0.0/8 (all)",
        set: |config, value| {
            let networks = value.split('+').map(|network| network.trim().parse());
            config.allow = networks.collect::<std::result::Result<_, _>>().map_err(|_| BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "crc=on|off",
        about: "ask for CRCs; they are used if either side asks (off: TCP has a checksum)",
        set: |config, value| {
            config.crc = parse_choice(value, [("on", true), ("off", false)])?;
            Ok(())
        },
    },
    DeviceOption {
        form: "mpa=1|2",
        about: "the revision of the handshake (2, or 1 with a peer that supports only that)",
        set: |config, value| {
            config.mpa = parse_choice(value, [("1", Mpa::V1), ("2", Mpa::V2)])?;
            Ok(())
        },
    },
    DeviceOption {
        form: "fpdu=max|mss|SIZE",
        about: "the size of FPDUs: 64 KiB, one TCP segment, or at most SIZE (max)",
        set: |config, value| {
            config.fpdu = match value {
                "max" => FpduSize::Largest,
                "mss" => FpduSize::Segment,
                _ => FpduSize::Bytes(parse_size(value, 256..=65_535)? as u16),
            };
            Ok(())
        },
    },
    DeviceOption {
        form: "complete=placed|sent",
        about: "a request completes when the peer has received it, or when TCP has accepted it (placed)",
        set: |config, value| {
            config.completion =
                parse_choice(value, [("placed", Completion::Placed), ("sent", Completion::Sent)])?;
            Ok(())
        },
    },
    DeviceOption {
        form: "dm=SIZE",
        about: "NIC memory that can be allocated (half of the machine's memory)",
        set: |config, value| {
            config.dm_size = Some(parse_size(value, 4096..=1 << 46)?);
            Ok(())
        },
    },
    DeviceOption {
        form: "silence=SECONDS",
        about: "a peer whose host does not respond for this long is lost, 1 to 86400 (20)",
        set: |config, value| {
            let seconds = value.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
            config.silence = Span::from_secs(seconds.ok_or(BadValue::Value)?);
            Ok(())
        },
    },
    DeviceOption {
        form: "delay=TIME",
        about: "fault: what it sends leaves later, such as 50us (0)",
        set: |config, value| {
            config.wire.delay = parse_span(value).ok_or(BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "jitter=TIME",
        about: "fault: a random part of this time is added to the delay (0)",
        set: |config, value| {
            config.wire.jitter = parse_span(value).ok_or(BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "rate=BITS",
        about: "fault: it sends at most so many bits per second, such as 100m or 10g (no limit)",
        set: |config, value| {
            config.wire.rate = parse_rate(value).ok_or(BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "reset=PROBABILITY",
        about: "fault: a piece that it sends, of up to 64 KiB, resets the connection (0)",
        set: |config, value| {
            config.wire.reset = parse_probability(value).ok_or(BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "flip=PROBABILITY",
        about: "fault: a byte that it sends is changed; use it with crc=on (0)",
        set: |config, value| {
            config.wire.flip = parse_probability(value).ok_or(BadValue::Value)?;
            Ok(())
        },
    },
    DeviceOption {
        form: "pcap=FILE",
        about: "what its connections send and receive, for Wireshark; a second process adds its number (none)",
        set: |config, value| {
            config.capture = Some(value.into());
            Ok(())
        },
    },
    DeviceOption {
        form: "seed=N",
        about: "the seed of random faults (0)",
        set: |config, value| {
            config.wire.seed = value.parse().map_err(|_| BadValue::Value)?;
            Ok(())
        },
    },
];

/// The key of the option that names a file.
const CAPTURE: &str = "pcap";

/// The options of a name, in parentheses, without a capture.
pub(crate) fn without_capture(options: &str) -> String {
    let is_capture = |option: &&str| option.split('=').next().is_some_and(|key| key.trim() == CAPTURE);
    let inner = options.trim().strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    match inner.map(|inner| inner.split(',').filter(|option| !is_capture(option)).collect::<Vec<_>>()) {
        Some(left) if left.len() < options.split(',').count() && left.is_empty() => String::new(),
        Some(left) if left.len() < options.split(',').count() => format!("({})", left.join(",")),
        _ => options.to_owned(),
    }
}

/// The name of a device with a capture.
pub(crate) fn with_capture(name: &str, file: &str) -> String {
    match name.trim().strip_suffix(')') {
        Some(open) => format!("{open},{CAPTURE}={file})"),
        None => format!("{}({CAPTURE}={file})", name.trim()),
    }
}

/// Bits per second: a whole number, with k, m or g for powers of 1000.
fn parse_rate(value: &str) -> Option<u64> {
    let digits = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let unit = [("", 1), ("k", 1000), ("m", 1_000_000), ("g", 1_000_000_000)]
        .into_iter()
        .find(|(name, _)| *name == unit.to_ascii_lowercase())?;
    number.parse::<u64>().ok()?.checked_mul(unit.1).filter(|rate| *rate != 0)
}

/// A number from 0 to 1.
fn parse_probability(value: &str) -> Option<f64> {
    value.parse().ok().filter(|share| (0.0..=1.0).contains(share))
}

fn opener(config: IwarpConfig) -> Opener {
    Box::new(move |host| nic_iwarp::open(host, &config))
}

/// Parses the configuration from a name of this kind.
fn parse_config(name: &Name<'_>) -> Result<IwarpConfig> {
    let mut config = IwarpConfig::default();
    if let Some((_, side)) = name.head.split_once('@') {
        let bad = |_| {
            Error::Invalid(format!(
                "'{side}' is not an IP address; write iwarp@10.0.0.1, or iwarp for any address"
            ))
        };
        config.bind = Some(side.trim().parse().map_err(bad)?);
    }
    set_options(name, OPTIONS, &mut config)?;
    Ok(config)
}

/// Parses the configuration of a rail, which must name its side, or all rails would use the same path, and which must know
/// what its peer has received.
fn parse_rail_config(name: &Name<'_>) -> Result<IwarpConfig> {
    let text = name.text;
    let invalid = |why| Err(Error::Invalid(format!("'{text}' {why}")));
    if !name.head.contains('@') {
        return invalid("does not name its address; write iwarp@ADDRESS for each rail");
    }
    let mut config = parse_config(name)?;
    if config.completion == Completion::Sent {
        return invalid(
            "has complete=sent, with which requests lost on a failed rail go unnoticed; rails need complete=placed",
        );
    }
    if name.options.iter().all(|(key, _)| *key != "silence") {
        config.silence = RAIL_SILENCE;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<IwarpConfig> {
        parse_config(&Name::parse(text).expect("a name"))
    }

    #[test]
    fn parses_side_and_options() {
        let config = parse_text("iwarp@10.1.0.1(crc=on,fpdu=4K,mpa=1,complete=sent,dm=1M,silence=3)");
        let config = config.expect("options");
        assert_eq!(config.bind, Some([10, 1, 0, 1].into()));
        assert!(config.crc && config.mpa == Mpa::V1 && config.completion == Completion::Sent);
        assert_eq!((config.fpdu, config.dm_size), (FpduSize::Bytes(4096), Some(1 << 20)));
        assert_eq!(config.silence, Span::from_secs(3));
        let allow = parse_text("iwarp(allow=10.0.0.0/8+ 127.0.0.1 +fd00::/8)").expect("networks").allow;
        assert_eq!(
            allow,
            ["10.0.0.0/8", "127.0.0.1", "fd00::/8"].map(|text| text.parse().expect("a network"))
        );
        let wire = parse_text("iwarp(delay=50us,jitter=10us,rate=10g,reset=0.001,flip=1e-6,seed=7)")
            .expect("faults")
            .wire;
        assert_eq!(
            (wire.delay, wire.jitter, wire.rate),
            (Span::from_us(50), Span::from_us(10), 10_000_000_000)
        );
        assert_eq!((wire.reset, wire.flip, wire.seed), (0.001, 1e-6, 7));
        let plain = parse_text("iwarp").expect("no options");
        assert!(plain.bind.is_none() && !plain.crc);
        let v6 = parse_text("iwarp@::1").expect("an address");
        assert!(v6.bind.is_some_and(|ip| ip.is_ipv6()));
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, hint) in [
            ("iwarp@nowhere", "iwarp@10.0.0.1"),
            ("iwarp(crc=maybe)", "crc=on|off"),
            ("iwarp(fpdu=10)", "fpdu=max|mss|SIZE"),
            ("iwarp(fpdu=1M)", "fpdu"),
            ("iwarp(mpa=3)", "mpa=1|2"),
            ("iwarp(speed=high)", "complete=placed|sent"),
            ("iwarp(silence=0)", "silence=SECONDS"),
            ("iwarp(delay=5)", "delay=TIME"),
            ("iwarp(rate=0)", "rate=BITS"),
            ("iwarp(rate=1t)", "rate=BITS"),
            ("iwarp(reset=2)", "reset=PROBABILITY"),
            ("iwarp(flip=-1)", "flip=PROBABILITY"),
            ("iwarp(allow=)", "allow=NETWORK+..."),
            ("iwarp(allow=10.0.0.0/33)", "allow=NETWORK+..."),
            ("iwarp(allow=10.0.0.0/8+)", "allow=NETWORK+..."),
            ("iwarp(allow=ten)", "allow=NETWORK+..."),
            ("iwarp@", "not an IP address"),
            ("iwarp@10.0.0.1:4791", "iwarp@10.0.0.1"),
        ] {
            let message = parse_text(text).expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
