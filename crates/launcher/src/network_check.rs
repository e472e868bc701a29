//! Checks whether the network between the hosts of a job is private: connections between ranks are authenticated, but not
//! encrypted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use host::{Network, is_private, nearest};

/// The number of addresses per host that are examined; a peer may report more.
const ADDRESSES_MAX: usize = 16;

/// The addresses that the hosts of a job have reported.
#[derive(Debug)]
pub(super) struct Networks {
    /// `NICETY_NETWORK` of the ranks.
    network: Option<Network>,
    /// Name and addresses of each site that has ranks; `None` until it has reported them.
    sites: BTreeMap<usize, (String, Option<Vec<IpAddr>>)>,
}

impl Networks {
    /// For sites that have ranks, with their names. A `network` that does not parse is ignored here: the ranks report it.
    pub(super) fn new(network: Option<&str>, sites: impl IntoIterator<Item = (usize, String)>) -> Self {
        let sites = sites.into_iter().map(|(at, name)| (at, (name, None))).collect();
        Self { network: network.and_then(|text| text.parse().ok()), sites }
    }

    /// Records the addresses of a site. The last report returns a warning if two sites reach each other by an address that is
    /// not private.
    pub(super) fn add_host(&mut self, site: usize, addresses: Vec<IpAddr>) -> Option<String> {
        let (_, known) = self.sites.get_mut(&site).filter(|(_, known)| known.is_none())?;
        *known = Some(addresses.into_iter().take(ADDRESSES_MAX).collect());
        let all: Option<Vec<_>> =
            self.sites.values().map(|(name, known)| known.as_ref().map(|known| (name, &known[..]))).collect();
        let all = all?;
        let pairs =
            all.iter().enumerate().flat_map(|(at, one)| all[at + 1..].iter().map(move |two| (one, two)));
        pairs.flat_map(|(one, two)| [(one, two), (two, one)]).find_map(|((from, own), (to, theirs))| {
            let address = reached(theirs, own, self.network).filter(|address| !is_private(*address))?;
            Some(format!(
                "{from} reaches {to} by {address}, which is not a private address: connections between ranks are authenticated, but not \
                 encrypted (SECURITY.md); name a private network, such as -x NICETY_NETWORK=10.0.0.0/8, or use a tunnel"
            ))
        })
    }
}

/// The address by which a host is reached from another, as MPI selects it: within the network, IPv4 if there is any, and not an
/// address that both hosts have.
fn reached(theirs: &[IpAddr], own: &[IpAddr], network: Option<Network>) -> Option<IpAddr> {
    let inside = |address: &&IpAddr| network.is_none_or(|network| network.has(**address));
    let all: Vec<IpAddr> = theirs.iter().filter(inside).copied().collect();
    let has_four = all.iter().any(IpAddr::is_ipv4);
    let leads = |address: &IpAddr| address.is_ipv4() == has_four && !own.contains(address);
    nearest(&all.into_iter().filter(leads).collect::<Vec<_>>(), own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The warning for hosts `a`, `b` and so on with these addresses; checks that only the last report returns one.
    fn warning(network: Option<&str>, hosts: &[&[&str]]) -> Option<String> {
        let names = (0..hosts.len()).map(|at| (at, char::from(b'a' + at as u8).to_string()));
        let mut networks = Networks::new(network, names);
        let address = |text: &&str| text.parse().expect("an address");
        let mut report = |at: usize| networks.add_host(at, hosts[at].iter().map(address).collect());
        let said: Vec<_> = (0..hosts.len()).map(&mut report).collect();
        let (last, before) = said.split_last().expect("hosts");
        assert!(before.iter().all(Option::is_none), "said before all have reported: {before:?}");
        assert_eq!(report(0), None, "said again");
        last.clone()
    }

    #[test]
    fn private_network_gives_no_warning() {
        for hosts in [
            &[&["10.1.0.1"][..], &["10.1.0.2"], &["10.1.0.3"]][..],
            &[&["192.168.1.1", "203.0.113.1"], &["192.168.1.2", "198.51.100.7"]],
            &[&["fd00::1"], &["fd00::2"]],
            // One host under two names, and hosts that report nothing.
            &[&["203.0.113.1"], &["203.0.113.1"]],
            &[&[], &[]],
            &[&["203.0.113.1"]],
        ] {
            assert_eq!(warning(None, hosts), None, "{hosts:?}");
        }
    }

    #[test]
    fn public_network_is_reported_with_its_hosts() {
        let said = |network, hosts: &[&[&str]]| warning(network, hosts).expect("a warning");
        let text = said(None, &[&["10.1.0.1"], &["10.1.0.2"], &["203.0.113.3"]]);
        assert!(text.starts_with("a reaches c by 203.0.113.3, which is not a private address: "), "{text}");
        assert_eq!(text.lines().count(), 1);
        let both: [&[&str]; 2] = [&["10.1.0.1", "203.0.113.1"], &["10.1.0.2", "203.0.113.2"]];
        assert_eq!(warning(Some("10.0.0.0/8"), &both), None);
        assert!(said(Some("203.0.113.0/24"), &both).contains(" by 203.0.113.2, "));
        assert!(said(None, &[&["2001:db8::1"], &["2001:db8::2"]]).contains(" by 2001:db8::2, "));
        // Both hosts have this address, that of a bridge without a route to the other.
        assert!(
            said(None, &[&["172.17.0.1", "203.0.113.1"], &["172.17.0.1", "203.0.113.2"]]).contains(" by 203")
        );
    }
}
