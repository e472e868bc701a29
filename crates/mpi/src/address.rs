//! What each process tells the others before they can talk: its host, and where its ports listen.

use std::net::SocketAddr;

use crate::error::{Class, Error, Result};

/// Bytes of a [`crate::Port`]'s fabric, or of a node's name.
pub(crate) const NAME_MAX: usize = 100;
/// Ports of a process: what fits into a note.
pub(crate) const PORTS_MAX: usize = 5;

/// One process, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// A text that all processes of one host have in common, and no others.
    pub(crate) node: String,
    /// Where its ports listen, and whom each reaches: those with the same text.
    pub(crate) ports: Vec<(SocketAddr, String)>,
}

impl Address {
    /// The note that says it.
    ///
    /// # Errors
    /// [`Class::ARG`] for names that are too long, or have characters that a note cannot carry.
    pub(crate) fn note(&self) -> Result<String> {
        for name in std::iter::once(&self.node).chain(self.ports.iter().map(|(_, fabric)| fabric)) {
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | ';' | '\\');
            if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
                let text =
                    format!("'{name}' is no name of a node or a fabric: 1 to {NAME_MAX} plain characters");
                return Err(Error::new(Class::ARG, text));
            }
        }
        if self.ports.len() > PORTS_MAX {
            return Err(Error::new(Class::ARG, format_args!("a process has at most {PORTS_MAX} ports")));
        }
        let ports = self.ports.iter().map(|(addr, fabric)| format!(",{addr};{fabric}"));
        Ok(self.node.clone() + &ports.collect::<String>())
    }

    /// What a note says.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process leaves.
    pub(crate) fn parse(note: &str) -> Result<Self> {
        let wrong = || Error::new(Class::OTHER, format_args!("'{note}' is no address of a process"));
        let mut parts = note.split(',');
        let node = parts.next().filter(|node| !node.is_empty()).ok_or_else(wrong)?.to_owned();
        let port = |part: &str| {
            let (addr, fabric) = part.split_once(';')?;
            Some((addr.parse().ok()?, fabric.to_owned()))
        };
        let ports: Option<Vec<_>> = parts.map(port).collect();
        let ports = ports.filter(|ports| ports.len() <= PORTS_MAX).ok_or_else(wrong)?;
        Ok(Self { node, ports })
    }
}

/// The ports by which two processes talk, as places in `ports` of each: the first of the lower rank's whose fabric the higher rank
/// has, too. Both sides come to the same.
pub(crate) fn common_ports(lower: &Address, higher: &Address) -> Option<(usize, usize)> {
    lower.ports.iter().enumerate().find_map(|(at, (_, fabric))| {
        Some((at, higher.ports.iter().position(|(_, theirs)| theirs == fabric)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(node: &str, fabrics: &[&str]) -> Address {
        let port = |(n, fabric): (u16, &&str)| (([10, 0, 0, 1], n).into(), (*fabric).to_owned());
        Address { node: node.into(), ports: (1..).zip(fabrics).map(port).collect() }
    }

    #[test]
    fn notes_say_what_was_meant() {
        let mut both = address("a", &["shm/a", "iwarp"]);
        both.ports[1].0 = "[fe80::1]:7".parse().expect("an address");
        assert_eq!(Address::parse(&both.note().expect("plain")), Ok(both));
        let long = "x".repeat(NAME_MAX);
        let five = address(&long, &[long.as_str(); PORTS_MAX]);
        assert!(five.note().expect("plain").len() <= 900, "a note has room for it");
        assert_eq!(Address::parse(&five.note().expect("plain")), Ok(five));
        for wrong in [
            address("", &[]),
            address("a b", &[]),
            address("a", &["x,y"]),
            address("a", &["x"; PORTS_MAX + 1]),
        ] {
            assert!(wrong.note().is_err(), "{wrong:?}");
        }
        for wrong in ["", ",", "a,1.2.3.4", "a,1.2.3.4:99999;x", "a,1.2.3.4:1;x,"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn both_sides_choose_the_same_ports() {
        let (a, b) = (address("a", &["shm/a", "iwarp"]), address("b", &["iwarp", "shm/b"]));
        assert_eq!(common_ports(&a, &b), Some((1, 0)));
        assert_eq!(common_ports(&a, &a), Some((0, 0)));
        assert_eq!(common_ports(&a, &address("c", &["x"])), None);
    }
}
