//! Devices by name: the one place of this crate that knows where they come from.

use verbs::Device;
use verbs::host::Host;

use crate::floor::FloorKind;
use crate::schema::RailRates;

/// Names of the kinds of devices, for messages.
#[must_use]
pub fn devices() -> Vec<String> {
    fabric::list().into_iter().map(|entry| entry.name.to_owned()).collect()
}

/// Why no device has this name, if so.
pub(crate) fn check(name: &str) -> Result<(), String> {
    fabric::check(name).map_err(|e| e.to_string())
}

/// How many queue pairs the device of this name has, where it can be opened.
pub(crate) fn queue_pairs(name: &str) -> Option<u64> {
    fabric::attr(name).ok().map(|attr| attr.max_qp.into())
}

/// Why no cell of an experiment can be measured on the device of this name, if it says so when asked.
pub(crate) fn refuses(name: &str, experiment: &dyn crate::experiment::Experiment) -> Option<String> {
    if fabric::is_virtual(name) {
        return None;
    }
    // What cannot be opened says so when it is measured, with more to go by.
    let device = open(name, &verbs::host::real::host()).ok()?;
    experiment.possible(&device).err().map(|why| format!("{name}: {why}"))
}

/// Opens a device.
pub(crate) fn open(name: &str, host: &Host) -> verbs::Result<Device> {
    fabric::open(name, host)
}

/// The names of a device's rails; its own if it is not several.
pub(crate) fn rails_of(name: &str) -> verbs::Result<Vec<String>> {
    fabric::rails_of(name)
}

/// The rates of a modelled device's rails; `None` for devices that are no models.
pub(super) fn rates(rails: &[String]) -> Option<RailRates> {
    let machine = fabric::machine(rails.first()?).ok()?.params;
    Some(RailRates { link: machine.link.rate_mbps, card: machine.bus.width_bytes * machine.bus.clock_mhz })
}

/// Whether the device of this name lives in virtual time.
pub(crate) fn is_virtual(name: &str) -> bool {
    fabric::is_virtual(name)
}

/// What the machine itself does, beside which results of this device stand.
pub(crate) fn floor_kind(name: &str) -> FloorKind {
    // Rails are of one kind.
    let rails = fabric::rails_of(name).unwrap_or_default();
    match rails.first().map_or(name, String::as_str).trim_start() {
        name if fabric::is_virtual(name) => FloorKind::None,
        name if name.starts_with("iwarp") => FloorKind::Sockets,
        _ => FloorKind::Memory,
    }
}

/// Kinds of devices that a server opens by their name alone. Names of models can be those of files, and time is real here.
const BY_NAME: [&str; 2] = ["shm", "iwarp"];
/// Bytes of the name of a device that a client asks for at most.
const NAME_MAX: usize = 512;

/// The device that a server opens for a client: `offered` if it is of the same kind, else what the client asked for, on
/// any side: the side that the client named is its own. Nothing is opened or looked for here.
pub(super) fn for_client(asked: &str, offered: Option<&str>) -> Result<String, String> {
    match offered {
        _ if asked.len() > NAME_MAX => {
            Err("a device whose name is too long; see `nicety devices`".to_owned())
        }
        Some(offered) if kind(offered) == kind(asked) => Ok(offered.to_owned()),
        Some(offered) => {
            let (asked, kind) = (kind(asked), kind(offered));
            Err(format!("{asked} with a server that offers {offered}; use --device {kind}"))
        }
        // Sides again, which the server's host does not have.
        None if kind(asked) == "rails" => {
            Err("rails are the server's own: start it with --device rails(...), as many as here".to_owned())
        }
        None if !BY_NAME.contains(&kind(asked)) => {
            Err(format!("{} with a server; it opens {}", kind(asked), BY_NAME.join(" and ")))
        }
        None => {
            let side =
                asked.find('@').map(|at| (at, asked[at..].find('(').map_or(asked.len(), |end| at + end)));
            Ok(side
                .map_or_else(|| asked.to_owned(), |(at, end)| format!("{}{}", &asked[..at], &asked[end..])))
        }
    }
}

/// The name without a side and options.
fn kind(name: &str) -> &str {
    name.split(['@', '(']).next().unwrap_or(name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_to_its_own_side() {
        let plain = |asked| for_client(asked, None).expect("any");
        assert_eq!(plain("iwarp@10.0.0.1(crc=on)"), "iwarp(crc=on)");
        assert_eq!(plain("iwarp@fd00::1"), "iwarp");
        assert_eq!(plain("shm(dm=1M)"), "shm(dm=1M)");
        let own = "iwarp@10.0.0.2(mpa=1)";
        assert_eq!(for_client("iwarp", Some(own)).as_deref(), Ok(own));
        assert_eq!(for_client("iwarp@10.0.0.1(crc=on)", Some(own)).as_deref(), Ok(own));
        let why = for_client("shm", Some(own)).expect_err("another kind");
        let rails = for_client("rails(iwarp@10.0.0.1,iwarp@10.1.0.1)", None).expect_err("whose?");
        assert!(rails.contains("--device rails"), "{rails}");
        // What names a file is refused for its kind, whether the file is there or not.
        for asked in [
            "model:/dev/null.toml",
            "model:mt23108-vapi",
            " model:x",
            "rails (model:/x.toml,shm)",
            "/etc/passwd",
        ] {
            let why = for_client(asked, None).expect_err(asked);
            assert!(!why.contains("no such") && !why.contains("cannot be read"), "{why}");
        }
        assert!(for_client(&"shm".repeat(200), None).is_err());
        assert!(why.contains("offers iwarp@10.0.0.2") && why.contains("--device iwarp"), "{why}");
    }

    #[test]
    fn floors_are_those_of_the_way_that_data_go() {
        assert_eq!(floor_kind("iwarp@::1(crc=on)"), FloorKind::Sockets);
        assert_eq!(floor_kind("shm"), FloorKind::Memory);
        assert_eq!(floor_kind("rails(shm,shm)"), FloorKind::Memory);
        assert_eq!(floor_kind("rails(iwarp@10.0.0.1,iwarp@10.1.0.1)"), FloorKind::Sockets);
        assert_eq!(floor_kind("model:mt23108-vapi"), FloorKind::None);
    }
}
