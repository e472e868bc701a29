//! The one table of parameters that `--set KEY=VALUE` changes: help, checks and the result's parameters come from it.

use std::collections::BTreeMap;

use results::schema::{Origin, Parameter};

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number in a range.
    Whole(u64, u64),
    /// A number in a range.
    Real(f64, f64),
    /// `on` or `off`.
    Switch,
    /// `auto`, or two core numbers with a comma.
    Cores,
}

/// A parameter of plans, as `--set` takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Name, as in `--set name=value`.
    pub name: &'static str,
    /// Unit; empty for none.
    pub unit: &'static str,
    /// Value unless set.
    pub default: &'static str,
    /// Value unless set, with `--quick`.
    pub quick: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// One line for people.
    pub help: &'static str,
}

const fn key(
    name: &'static str,
    unit: &'static str,
    (default, quick): (&'static str, &'static str),
    kind: Kind,
    help: &'static str,
) -> Key {
    Key { name, unit, default, quick, kind, help }
}

/// Every parameter of plans, in the order of help.
pub const KEYS: &[Key] = &[
    key(
        "launches",
        "",
        ("8", "6"),
        Kind::Whole(1, 1000),
        "fresh starts of both processes; 6 carry a 95 % interval",
    ),
    key(
        "budget",
        "s",
        ("220", "22"),
        Kind::Real(0.1, 86_400.0),
        "timed work in all, shared among cells and launches; a run takes at most about a fifth more",
    ),
    key(
        "half-width",
        "%",
        ("1", "1"),
        Kind::Real(0.01, 50.0),
        "stop a cell when its 95 % interval is this narrow",
    ),
    key(
        "min-count",
        "",
        ("50", "30"),
        Kind::Whole(1, 1 << 18),
        "samples of a cell in a launch before it may stop",
    ),
    key("max-count", "", ("8192", "4096"), Kind::Whole(1, 1 << 18), "samples of a cell in a launch at most"),
    key(
        "batch",
        "",
        ("0", "0"),
        Kind::Whole(0, 1 << 20),
        "operations in a sample; 0 finds how many the clock needs",
    ),
    key("window", "", ("64", "64"), Kind::Whole(2, 4096), "messages in flight in a stream, refilled by half"),
    key(
        "burst",
        "",
        ("0", "0"),
        Kind::Whole(0, 1 << 20),
        "messages of a timed burst; 0 takes 16 MiB, 8 to 2048, and a quarter of that with --quick",
    ),
    key(
        "signal",
        "",
        ("16", "16"),
        Kind::Whole(1, 1024),
        "one send in this many is signalled in ping-pongs; with 1, all of a stream, too",
    ),
    key(
        "inline",
        "B",
        ("64", "64"),
        Kind::Whole(0, 4096),
        "largest send or write from host memory within its request; 0 for none",
    ),
    key(
        "connections",
        "",
        ("256", "256"),
        Kind::Whole(1, 65_536),
        "queue pairs that the memory experiment opens",
    ),
    key(
        "rail-rate",
        "Mb/s",
        ("0", "0"),
        Kind::Real(0.0, 1e9),
        "what a rail carries, such as the rate that tc gives it, for the bounds next to rail-bandwidth; 0: not known",
    ),
    key(
        "mops",
        "",
        ("0", "0"),
        Kind::Whole(0, 1_000_000),
        "nas-...: millions of operations in a second that a rank computes in virtual time; 0: what the kernel assumes",
    ),
    key(
        "interval",
        "s",
        ("0", "0"),
        Kind::Real(0.0, 3600.0),
        "seconds between two reports of what a stream moves, at least 0.1; it then runs for its whole time; 0: no reports",
    ),
    key("verify", "", ("on", "on"), Kind::Switch, "compare contents after the timed rounds"),
    key(
        "cores",
        "",
        ("auto", "auto"),
        Kind::Cores,
        "cores of client and server, e.g. 2,3; auto takes the first two",
    ),
    key("patience", "s", ("20", "20"), Kind::Real(0.1, 3600.0), "longest wait for the other side"),
    key(
        "keep",
        "",
        ("100", "50"),
        Kind::Whole(0, 1 << 18),
        "samples stored for each launch, spread over time",
    ),
];

/// The key of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

impl Key {
    /// What values it takes, in words.
    #[must_use]
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Whole(low, high) => format!("{low} to {high}"),
            Kind::Real(low, high) => format!("{low} to {high}"),
            Kind::Switch => "on or off".into(),
            Kind::Cores => "auto, or two core numbers such as 0,1".into(),
        }
    }

    /// Whether it takes this value.
    #[must_use]
    pub fn takes(&self, value: &str) -> bool {
        match self.kind {
            Kind::Whole(low, high) => value.parse::<u64>().is_ok_and(|v| (low..=high).contains(&v)),
            Kind::Real(low, high) => value.parse::<f64>().is_ok_and(|v| (low..=high).contains(&v)),
            Kind::Switch => matches!(value, "on" | "off"),
            Kind::Cores => value == "auto" || cores(value).is_some(),
        }
    }
}

/// Two core numbers.
fn cores(value: &str) -> Option<[usize; 2]> {
    let (client, server) = value.split_once(',')?;
    Some([client.trim().parse().ok()?, server.trim().parse().ok()?])
}

/// What cores there are, if a value names others.
pub(super) fn absent_cores(key: &Key, value: &str) -> Option<String> {
    let named = cores(value).filter(|_| key.kind == Kind::Cores)?;
    let allowed = verbs::host::real::allowed_cores();
    let there: Vec<String> = allowed.iter().map(usize::to_string).collect();
    let absent = named.iter().any(|core| !allowed.contains(core)) && !allowed.is_empty();
    absent.then(|| format!("auto, or two of the cores that this process may use: {}", there.join(", ")))
}

/// The effective value of every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(BTreeMap<&'static str, (String, Origin)>);

impl Values {
    /// The defaults, with what was set; everything in `set` must have been checked.
    #[must_use]
    pub fn new(quick: bool, set: &BTreeMap<String, String>) -> Self {
        let value = |k: &Key| match set.get(k.name) {
            Some(value) => (value.clone(), Origin::Flag),
            None => ((if quick { k.quick } else { k.default }).to_owned(), Origin::Default),
        };
        Self(KEYS.iter().map(|k| (k.name, value(k))).collect())
    }

    /// A value as text.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", |v| v.0.as_str())
    }

    /// A whole number; 0 for what is none.
    #[must_use]
    pub fn whole(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    /// A number; 0 for what is none.
    #[must_use]
    pub fn real(&self, key: &str) -> f64 {
        self.text(key).parse().unwrap_or(0.0)
    }

    /// Whether it was given, and is no default.
    #[must_use]
    pub fn is_set(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|(_, origin)| *origin == Origin::Flag)
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn on(&self, key: &str) -> bool {
        self.text(key) == "on"
    }

    /// The two cores, if they were given.
    #[must_use]
    pub fn cores(&self) -> Option<[usize; 2]> {
        cores(self.text("cores"))
    }

    /// For the result file.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let unit = |k: &Key| (!k.unit.is_empty()).then(|| k.unit.to_owned());
        let one = |k: &Key| {
            let (value, origin) = self.0.get(k.name).cloned().unwrap_or_default();
            Parameter { key: k.name.to_owned(), value, unit: unit(k), origin }
        };
        KEYS.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_that_its_key_takes() {
        for k in KEYS {
            assert!(k.takes(k.default) && k.takes(k.quick), "{}", k.name);
            assert!(!k.takes("") && !k.takes("-1") && !k.takes("nonsense"), "{}", k.name);
            assert!(!k.range().is_empty() && find(k.name) == Some(k));
        }
    }

    #[test]
    fn what_was_set_says_so() {
        let set = BTreeMap::from([("window".to_owned(), "8".to_owned()), ("cores".into(), "3, 5".into())]);
        let values = Values::new(true, &set);
        assert_eq!((values.whole("window"), values.whole("launches")), (8, 6));
        assert_eq!(values.cores(), Some([3, 5]));
        assert!(values.on("verify"));
        let window = values.parameters().into_iter().find(|p| p.key == "window").expect("there");
        assert_eq!((window.value.as_str(), window.origin), ("8", Origin::Flag));
        assert!(values.is_set("window") && !values.is_set("launches"));
        assert_eq!(Values::new(false, &BTreeMap::new()).whole("launches"), 8);
    }
}
