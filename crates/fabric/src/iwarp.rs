//! The names of iWARP devices: `iwarp`, or `iwarp@ADDRESS` for the side with that address, with options.

use host::{Bytes, Span};
use nic_soft::iwarp::{Completion, FpduSize, IwarpConfig, Mpa};
use verbs::{Error, Result};

use crate::name::Name;
use crate::{Entry, bad_option};

const KIND: &str = "iwarp";

const OPTIONS: &[(&str, &str)] = &[
    ("crc=on|off", "ask for CRCs; they are used if either side asks (off: TCP has a checksum)"),
    ("mpa=1|2", "the revision of the handshake (2, and 1 with a peer that answers so)"),
    ("fpdu=max|mss|SIZE", "how large FPDUs are: 64 KiB, a segment of TCP, or at most SIZE (max)"),
    ("complete=placed|sent", "a request completes when the peer has it, or when TCP has it (placed)"),
    ("dm=SIZE", "NIC memory that can be allocated (half of the machine's memory)"),
    ("silence=SECONDS", "a peer whose host answers nothing for so long is given up, 1 to 86400 (20)"),
];

pub(crate) fn entry() -> Entry {
    Entry {
        name: KIND.to_owned(),
        about: "iWARP on TCP, to any host; iwarp@ADDRESS keeps to the side with that address".to_owned(),
        options: OPTIONS,
        available: Ok(()),
    }
}

/// The configuration that a name says, if it is one of these.
pub(crate) fn parse(name: &Name<'_>) -> Option<Result<IwarpConfig>> {
    let side = match name.kind.strip_prefix(KIND)? {
        "" => None,
        rest => Some(rest.strip_prefix('@')?),
    };
    Some(config(name, side))
}

fn config(name: &Name<'_>, side: Option<&str>) -> Result<IwarpConfig> {
    let mut config = IwarpConfig::default();
    if let Some(side) = side {
        let bad = |_| {
            Error::Invalid(format!("'{side}' is no IP address; write iwarp@10.0.0.1, or iwarp for any side"))
        };
        config.bind = Some(side.trim().parse().map_err(bad)?);
    }
    for &(key, value) in &name.options {
        let bad = || bad_option(KIND, key, value, OPTIONS);
        let size = |least: u64, most: u64| {
            let size: Bytes = value.parse().map_err(Error::Invalid)?;
            if (least..=most).contains(&size.0) { Ok(size.0) } else { Err(bad()) }
        };
        match (key, value) {
            ("crc", "on") => config.crc = true,
            ("crc", "off") => config.crc = false,
            ("mpa", "1") => config.mpa = Mpa::V1,
            ("mpa", "2") => config.mpa = Mpa::V2,
            ("fpdu", "max") => config.fpdu = FpduSize::Largest,
            ("fpdu", "mss") => config.fpdu = FpduSize::Segment,
            ("fpdu", _) => config.fpdu = FpduSize::Bytes(size(256, 65_535)? as u16),
            ("complete", "placed") => config.completion = Completion::Placed,
            ("complete", "sent") => config.completion = Completion::Sent,
            ("dm", _) => config.dm_size = Some(size(4096, 1 << 46)?),
            ("silence", _) => match value.parse() {
                Ok(seconds @ 1..=86_400) => config.silence = Span::from_secs(seconds),
                _ => return Err(bad()),
            },
            _ => return Err(bad()),
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Result<IwarpConfig>> {
        parse(&Name::parse(text).expect("a name"))
    }

    #[test]
    fn names_say_side_and_options() {
        let config = of("iwarp@10.1.0.1(crc=on,fpdu=4K,mpa=1,complete=sent,dm=1M,silence=3)").expect("iwarp");
        let config = config.expect("options");
        assert_eq!(config.bind, Some([10, 1, 0, 1].into()));
        assert!(config.crc && config.mpa == Mpa::V1 && config.completion == Completion::Sent);
        assert_eq!((config.fpdu, config.dm_size), (FpduSize::Bytes(4096), Some(1 << 20)));
        assert_eq!(config.silence, Span::from_secs(3));
        let plain = of("iwarp").expect("iwarp").expect("no options");
        assert!(plain.bind.is_none() && !plain.crc);
        let v6 = of("iwarp@::1").expect("iwarp").expect("an address");
        assert!(v6.bind.is_some_and(|ip| ip.is_ipv6()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, hint) in [
            ("iwarp@nowhere", "iwarp@10.0.0.1"),
            ("iwarp(crc=maybe)", "crc=on|off"),
            ("iwarp(fpdu=10)", "fpdu=max|mss|SIZE"),
            ("iwarp(fpdu=1M)", "fpdu"),
            ("iwarp(mpa=3)", "mpa=1|2"),
            ("iwarp(speed=high)", "complete=placed|sent"),
            ("iwarp(silence=0)", "silence=SECONDS"),
            ("iwarp@", "no IP address"),
            ("iwarp@10.0.0.1:4791", "iwarp@10.0.0.1"),
        ] {
            let message = of(text).expect("iwarp").expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
        assert!(of("iwarpx").is_none() && of("shm").is_none());
    }
}
