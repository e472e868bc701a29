//! [`Rule`]: one fault, as words: operation, peer, time, number of times, and effect.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use host::{Network, Span};

use crate::effect::{ERRORS, EVENTS, Effect, STATUSES, parse_span, span_text};
use crate::operation::Operation;

/// The peers that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// One address with its port.
    One(SocketAddr),
    /// All ports of an address, or of the addresses of a network.
    Network(Network),
}

impl Peers {
    fn parse(text: &str) -> Option<Self> {
        text.parse().map(Self::One).or_else(|_| text.parse().map(Self::Network)).ok()
    }

    fn contains(&self, peer: SocketAddr) -> bool {
        match self {
            Self::One(own) => *own == peer,
            Self::Network(network) => {
                let ip = match peer.ip() {
                    IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
                    ip => ip,
                };
                network.has(ip)
            }
        }
    }
}

/// One fault: where, when and how often it happens, and what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The operation that it waits for.
    pub on: Operation,
    /// The peers that it is about; all without.
    peers: Option<(Peers, String)>,
    /// The number of the first operation that it happens to, from 1.
    pub nth: u64,
    /// It happens to every n-th operation from there on.
    pub every: u64,
    /// It happens with this probability, 0 to 1.
    pub probability: f64,
    /// How often it happens at most; `None` for no limit.
    pub times: Option<u64>,
    /// Not before this time after the device was opened.
    pub after: Span,
    /// Not from this time on.
    pub until: Option<Span>,
    /// What happens.
    pub effect: Effect,
}

/// Why a rule cannot be used: the key that is wrong, if it is one key, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// The key.
    pub key: Option<String>,
    /// What is wrong, and what is possible.
    pub why: String,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadRule {}

/// The keys that say what happens. A rule has one such key.
const EFFECT_KEYS: [&str; 5] = ["status", "error", "event", "action", "delay"];
/// All keys of a rule, as errors show them.
const KEYS: &str =
    "on, peer, nth, every, probability, times, after, until, status, error, event, action, delay, jitter";

fn bad<T>(key: &str, why: String) -> Result<T, BadRule> {
    Err(BadRule { key: Some(key.to_owned()), why })
}

/// The value of a name in a table.
fn of_table<T: Copy>(key: &str, value: &str, prefix: &str, table: &[(&str, T)]) -> Result<T, BadRule> {
    let short = value.strip_prefix(prefix).unwrap_or(value);
    match table.iter().find(|(name, _)| *name == short) {
        Some((_, found)) => Ok(*found),
        None => {
            let known: Vec<_> = table.iter().map(|(name, _)| *name).collect();
            bad(key, format!("{key} = {value} is unknown; there is {}", known.join(", ")))
        }
    }
}

fn number(key: &str, value: &str) -> Result<u64, BadRule> {
    match value.parse() {
        Ok(0) | Err(_) => bad(key, format!("{key} = {value} is no count; write a whole number from 1 on")),
        Ok(number) => Ok(number),
    }
}

fn span(key: &str, value: &str) -> Result<Span, BadRule> {
    match parse_span(value) {
        Some(span) => Ok(span),
        None => bad(
            key,
            format!(
                "{key} = {value} is no span of time; write a whole number with a unit, such as 50us, 10ms or 2s"
            ),
        ),
    }
}

impl Rule {
    /// A rule that always happens to the first such operation.
    #[must_use]
    pub fn new(on: Operation, effect: Effect) -> Self {
        Self {
            on,
            peers: None,
            nth: 1,
            every: 1,
            probability: 1.0,
            times: Some(1),
            after: Span::ZERO,
            until: None,
            effect,
        }
    }

    /// Parses a rule from its keys and values.
    ///
    /// # Errors
    /// [`BadRule`], with what is possible.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Self, BadRule> {
        for (at, (key, _)) in pairs.iter().enumerate() {
            if !KEYS.split(", ").any(|known| known == *key) {
                return bad(key, format!("there is no key '{key}'; there is {KEYS}"));
            }
            if pairs[..at].iter().any(|(other, _)| other == key) {
                return bad(key, format!("'{key}' is given twice"));
            }
        }
        let get = |key: &str| pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        let Some(on) = get("on") else {
            return Err(BadRule {
                key: None,
                why: "'on' is missing: write on = write, or another operation".into(),
            });
        };
        let Some(operation) = Operation::of_word(on) else {
            let known: Vec<_> = Operation::ALL.iter().map(|(_, word, _)| *word).collect();
            return bad("on", format!("on = {on} is no operation; there is {}", known.join(", ")));
        };
        let effect = parse_effect(&get)?;
        if let Err(why) = effect.check(operation) {
            return bad("on", format!("on = {on} cannot have {effect}: {why}"));
        }
        let mut rule = Self::new(operation, effect);
        if let Some(peer) = get("peer") {
            let peers = Peers::parse(peer);
            let Some(peers) = peers else {
                return bad(
                    "peer",
                    format!(
                        "peer = {peer} is no address; write 10.0.0.2, 10.0.0.2:7471 or a network as 10.0.0.0/8"
                    ),
                );
            };
            if operation.creates() || operation == Operation::AllocPd {
                return bad("peer", format!("on = {on} has no peer; leave out 'peer'"));
            }
            rule.peers = Some((peers, peer.to_owned()));
        }
        rule.parse_when(&get)?;
        Ok(rule)
    }

    /// Parses when and how often it happens.
    fn parse_when<'a>(&mut self, get: &impl Fn(&str) -> Option<&'a str>) -> Result<(), BadRule> {
        if let Some(value) = get("nth") {
            self.nth = number("nth", value)?;
        }
        if let Some(value) = get("every") {
            (self.every, self.times) = (number("every", value)?, None);
        }
        if let Some(value) = get("probability") {
            let parsed = value.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
            let Some(parsed) = parsed else {
                return bad("probability", format!("probability = {value} is not above 0 and at most 1"));
            };
            (self.probability, self.times) = (parsed, None);
        }
        if let Some(value) = get("times") {
            self.times = if value == "all" { None } else { Some(number("times", value)?) };
        }
        if let Some(value) = get("after") {
            self.after = span("after", value)?;
        }
        if let Some(value) = get("until") {
            self.until = Some(span("until", value)?);
            if self.until <= Some(self.after) {
                return bad("until", format!("until = {value} is not later than 'after'"));
            }
        }
        if self.on == Operation::Time {
            for key in ["nth", "every", "probability", "times", "until"] {
                if get(key).is_some() {
                    return bad(key, format!("on = time happens once, at 'after'; leave out '{key}'"));
                }
            }
        }
        Ok(())
    }

    /// Whether it is about an operation with this peer.
    pub(crate) fn matches(&self, done: Operation, peer: Option<SocketAddr>) -> bool {
        self.on.covers(done)
            && self.peers.as_ref().is_none_or(|(peers, _)| peer.is_some_and(|peer| peers.contains(peer)))
    }

    /// Whether it is about this peer.
    pub(crate) fn is_about(&self, peer: Option<SocketAddr>) -> bool {
        self.matches(self.on, peer)
    }
}

/// Parses what happens.
fn parse_effect<'a>(get: &impl Fn(&str) -> Option<&'a str>) -> Result<Effect, BadRule> {
    let given: Vec<_> = EFFECT_KEYS.into_iter().filter_map(|key| Some((key, get(key)?))).collect();
    let [(key, value)] = given[..] else {
        let many = given.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(" and ");
        let why = if given.is_empty() {
            format!("the rule says nothing that happens: write one of {}", EFFECT_KEYS.join(", "))
        } else {
            format!("the rule has {many}; write one rule for each")
        };
        return Err(BadRule { key: given.get(1).map(|(key, _)| (*key).to_owned()), why });
    };
    let jitter = get("jitter").map(|value| span("jitter", value)).transpose()?;
    if jitter.is_some() && key != "delay" {
        return bad("jitter", "'jitter' needs 'delay'".into());
    }
    match key {
        "status" => of_table(key, value, "IBV_WC_", &STATUSES).map(Effect::Status),
        "error" => of_table(key, value, "", &ERRORS).map(Effect::Error),
        "event" => of_table(key, value, "IBV_EVENT_", &EVENTS).map(Effect::Event),
        "action" => {
            let actions = [("lose", Effect::Lose), ("reject", Effect::Reject), ("vanish", Effect::Vanish)];
            of_table(key, value, "", &actions)
        }
        _ => Ok(Effect::Delay(span(key, value)?, jitter.unwrap_or(Span::ZERO))),
    }
}

/// Parses `key=value` pairs between blanks, such as `on=write nth=3 status=REM_ACCESS_ERR`.
impl std::str::FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let pair = |word: &'_ str| match word.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.trim_matches('"').to_owned())),
            None => bad(
                word,
                format!("'{word}' is no key=value; write a rule as on=write nth=3 status=RETRY_EXC_ERR"),
            ),
        };
        let pairs = text.split_whitespace().map(pair).collect::<Result<Vec<_>, _>>()?;
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Self::from_pairs(&pairs)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on={}", self.on.word())?;
        if let Some((_, text)) = &self.peers {
            write!(f, " peer={text}")?;
        }
        if self.nth != 1 {
            write!(f, " nth={}", self.nth)?;
        }
        if self.every != 1 {
            write!(f, " every={}", self.every)?;
        }
        if self.probability < 1.0 {
            write!(f, " probability={}", self.probability)?;
        }
        let is_default = self.times == Some(1) && self.every == 1 && self.probability >= 1.0;
        match self.times {
            Some(times) if !is_default => write!(f, " times={times}")?,
            None if self.every == 1 && self.probability >= 1.0 => f.write_str(" times=all")?,
            _ => {}
        }
        if self.after != Span::ZERO {
            write!(f, " after={}", span_text(self.after))?;
        }
        if let Some(until) = self.until {
            write!(f, " until={}", span_text(until))?;
        }
        write!(f, " {}", self.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_written_as_it_is_parsed() {
        for text in [
            "on=write nth=3 status=REM_ACCESS_ERR",
            "on=request peer=10.0.0.2:7471 status=RETRY_EXC_ERR",
            "on=send peer=10.0.0.0/8 every=10 status=RNR_RETRY_EXC_ERR",
            "on=reg_mr nth=5 times=all error=ENOMEM",
            "on=recv probability=0.25 after=2s until=3s delay=10ms jitter=50us",
            "on=request probability=0.5 times=1 status=WR_FLUSH_ERR",
            "on=established action=lose",
            "on=connect action=reject",
            "on=time after=1500ms event=PORT_ERR",
            "on=send nth=7 action=vanish",
        ] {
            let rule: Rule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
        let long: Rule = "on=write status=IBV_WC_REM_ACCESS_ERR".parse().expect("the name in C");
        assert_eq!(long.to_string(), "on=write status=REM_ACCESS_ERR");
    }

    #[test]
    fn errors_name_the_key_and_what_is_possible() {
        for (text, key, hint) in [
            ("write", Some("write"), "on=write nth=3"),
            ("nth=3", None, "'on' is missing"),
            ("on=writes status=RETRY_EXC_ERR", Some("on"), "send, write, read"),
            ("on=write", None, "status, error, event, action, delay"),
            ("on=write status=BAD", Some("status"), "REM_ACCESS_ERR"),
            ("on=write status=RETRY_EXC_ERR delay=1ms", Some("delay"), "one rule for each"),
            ("on=recv status=RETRY_EXC_ERR", Some("on"), "send, write"),
            ("on=reg_mr status=RETRY_EXC_ERR", Some("on"), "send, write"),
            ("on=established error=ENOMEM", Some("on"), "reg_mr"),
            ("on=write action=lose", Some("on"), "connect_request"),
            ("on=established action=reject", Some("on"), "connect_request"),
            ("on=reg_mr delay=1ms", Some("on"), "a delay needs"),
            ("on=recv event=QP_FATAL", Some("on"), "needs on = send"),
            ("on=write nth=0 status=RETRY_EXC_ERR", Some("nth"), "from 1 on"),
            ("on=write nth=1 nth=2 status=RETRY_EXC_ERR", Some("nth"), "twice"),
            ("on=write nht=1 status=RETRY_EXC_ERR", Some("nht"), "nth, every"),
            ("on=write probability=2 status=RETRY_EXC_ERR", Some("probability"), "at most 1"),
            ("on=write after=5 status=RETRY_EXC_ERR", Some("after"), "50us"),
            ("on=write after=2s until=1s status=RETRY_EXC_ERR", Some("until"), "later"),
            ("on=write peer=nobody status=RETRY_EXC_ERR", Some("peer"), "10.0.0.0/8"),
            ("on=reg_mr peer=10.0.0.1 error=ENOMEM", Some("peer"), "has no peer"),
            ("on=write jitter=1ms status=RETRY_EXC_ERR", Some("jitter"), "needs 'delay'"),
            ("on=time nth=2 event=PORT_ERR", Some("nth"), "happens once"),
        ] {
            let wrong = text.parse::<Rule>().expect_err(text);
            assert_eq!(wrong.key.as_deref(), key, "{text}: {wrong}");
            assert!(wrong.why.contains(hint), "{text}: {wrong}");
        }
    }

    #[test]
    fn rule_is_about_its_peers_only() {
        let rule: Rule = "on=request peer=10.0.0.0/8 status=RETRY_EXC_ERR".parse().expect("a rule");
        let peer = |text: &str| Some(text.parse().expect("an address"));
        assert!(rule.matches(Operation::Write, peer("10.1.2.3:7")));
        assert!(!rule.matches(Operation::Write, peer("11.1.2.3:7")));
        assert!(!rule.matches(Operation::Recv, peer("10.1.2.3:7")));
        assert!(!rule.matches(Operation::Write, None), "a queue pair without a peer");
    }
}
