//! Peers by name, and how many an experiment takes.

use super::error::PlanError;
use super::levels::Levels;
use super::words::DEFAULT_PORT;
use crate::experiment::Experiment;
use results::variant::Variant;

/// The names between commas, each with its port; mistakes are added to `wrong`.
pub(super) fn read(text: &str, wrong: &mut Vec<PlanError>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for given in text.split(',').map(str::trim) {
        let peer = given.to_owned();
        match with_port(given) {
            None => wrong.push(PlanError::Peer { peer }),
            Some(name) if all.contains(&name) => wrong.push(PlanError::PeerTwice { peer }),
            Some(name) => all.push(name),
        }
    }
    all
}

/// Adds to `wrong` which of the experiments that were asked for by name cannot be measured with so few peers, and which levels
/// that were given ask for more.
pub(super) fn enough(
    of: &[&'static dyn Experiment],
    levels: &Levels,
    there: usize,
    wrong: &mut Vec<PlanError>,
) {
    for one in of {
        let (experiment, one) = (one.name(), *one);
        let variants = super::levels::replaced(one, one.variants(false), levels);
        let needed = |variant: &Variant| one.ranks(variant).saturating_sub(1) as usize;
        let given = one.crowd().filter(|axis| levels.contains_key(&axis.factor));
        if let Some(axis) = given {
            let Some(largest) = variants.iter().max_by_key(|v| needed(v)).filter(|v| needed(v) > there)
            else {
                continue;
            };
            wrong.push(PlanError::Peers {
                experiment,
                asked: Some((axis.factor.name(), largest.get(axis.factor).unwrap_or_default().to_owned())),
                needed: count(needed(largest)),
                there,
                remedy: format!("give as many, or fewer {}", axis.factor),
            });
        } else if let Some(least) = variants.iter().map(needed).min().filter(|least| *least > there) {
            let remedy = "give as many, or leave --peer away".to_owned();
            wrong.push(PlanError::Peers { experiment, asked: None, needed: count(least), there, remedy });
        }
    }
}

/// The variants, none with more processes than are available: a factor that decides their number is lowered to it,
/// otherwise the variant is kept as it is, to be refused with its reason.
pub(super) fn fitted(experiment: &dyn Experiment, variants: Vec<Variant>, peers: usize) -> Vec<Variant> {
    let mut all: Vec<Variant> = Vec::new();
    for variant in variants {
        let fit = lowered(experiment, &variant, peers).unwrap_or(variant);
        if !all.contains(&fit) {
            all.push(fit);
        }
    }
    all
}

/// The variant with as many processes as there are; `None` if it needs no change or has no such level.
fn lowered(experiment: &dyn Experiment, variant: &Variant, peers: usize) -> Option<Variant> {
    let ranks = peers as u32 + 1;
    let axis = experiment.crowd().filter(|_| experiment.ranks(variant) > ranks)?;
    (axis.low..=u64::from(ranks)).rev().find_map(|level| {
        let less = variant.with(axis.factor, level.to_string());
        (experiment.ranks(&less) <= ranks).then_some(less)
    })
}

/// A number of peers in words.
fn count(peers: usize) -> String {
    if peers == 1 { "a peer".to_owned() } else { format!("{peers} peers") }
}

/// `HOST:PORT` from `HOST[:PORT]`, also for IPv6 addresses with or without brackets.
pub(super) fn with_port(peer: &str) -> Option<String> {
    if let Ok(ip) = inside_brackets(peer).unwrap_or(peer).parse::<std::net::IpAddr>() {
        return Some(std::net::SocketAddr::new(ip, DEFAULT_PORT).to_string());
    }
    let (host, port) = match peer.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|p| *p > 0)?),
        None => (peer, DEFAULT_PORT),
    };
    let is_host = match inside_brackets(host) {
        Some(address) => address.contains(':') && !address.contains(['[', ']']),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    (is_host && !host.contains(char::is_whitespace)).then(|| format!("{host}:{port}"))
}

/// The text inside `[` and `]`, if it begins and ends with them.
fn inside_brackets(text: &str) -> Option<&str> {
    text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
}
