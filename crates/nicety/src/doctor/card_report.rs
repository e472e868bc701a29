//! The report of cards that a user sends to others: checks and limits, without names, addresses and serial numbers.

use serde::Serialize;

use super::card;
use super::check::Check;
use super::redact::Redactor;
use super::system::System;

/// Type and version of the report.
const SCHEMA: &str = "nicety-card-report/1";

/// What is known of a card before it is described.
pub(crate) struct ReportedCard<L> {
    /// Its name.
    pub(crate) name: String,
    /// Its limits and the notes of the device; or why it cannot be opened.
    pub(crate) opened: Result<(L, Vec<String>), String>,
}

#[derive(Serialize)]
pub(crate) struct CardReport<L> {
    schema: &'static str,
    nicety_version: &'static str,
    left_out: &'static str,
    /// Such as `6.1.0`.
    kernel: String,
    checks: Vec<Check>,
    cards: Vec<DescribedCard<L>>,
}

#[derive(Serialize)]
struct DescribedCard<L> {
    card: String,
    /// Numbers of the PCI bus that name the maker and the model.
    pci_vendor: Option<String>,
    pci_device: Option<String>,
    limits: Option<L>,
    notes: Vec<String>,
    why_not: Option<String>,
}

/// What names this machine: the host, the user, interfaces and cards.
fn redactor(system: &System) -> Redactor {
    let mut redactor = Redactor::default();
    for (at, card) in card::names(system).iter().enumerate() {
        redactor.hide(card, &format!("card{}", at + 1));
    }
    for file in ["proc/sys/kernel/hostname", "etc/hostname"] {
        redactor.hide(&system.read(file).unwrap_or_default(), "HOST");
    }
    for name in system.list("sys/class/net").iter().filter(|name| *name != "lo") {
        redactor.hide(name, "INTERFACE");
    }
    for variable in ["USER", "LOGNAME", "SUDO_USER"] {
        // The name of the superuser is everybody's.
        let name = std::env::var(variable).ok().filter(|name| name != "root");
        redactor.hide(&name.unwrap_or_default(), "USER");
    }
    redactor
}

/// A release without what a distribution or an owner has added: `6.1.0` of `6.1.0-57-amd64`.
fn plain_release(release: &str) -> String {
    release.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect()
}

/// Describes the cards of this machine. `checks` are those of `nicety doctor hw`.
pub(crate) fn describe<L>(system: &System, checks: &[Check], cards: Vec<ReportedCard<L>>) -> CardReport<L> {
    let redactor = redactor(system);
    let clean = |text: &String| redactor.clean(text);
    let check = |check: &Check| Check {
        found: clean(&check.found),
        why: check.why.as_ref().map(clean),
        remedy: check.remedy.as_ref().map(clean),
        ..check.clone()
    };
    let described = |card: ReportedCard<L>| {
        let id = |file| system.read(&format!("sys/class/infiniband/{}/device/{file}", card.name));
        let (limits, notes, why_not) = match &card.opened {
            Ok((_, notes)) => (true, notes.iter().map(clean).collect(), None),
            Err(why) => (false, Vec::new(), Some(clean(why))),
        };
        DescribedCard {
            card: clean(&card.name),
            pci_vendor: id("vendor"),
            pci_device: id("device"),
            limits: card.opened.ok().map(|(limits, _)| limits).filter(|_| limits),
            notes,
            why_not,
        }
    };
    CardReport {
        schema: SCHEMA,
        nicety_version: env!("CARGO_PKG_VERSION"),
        left_out: "names of hosts, users, interfaces and cards; addresses, GIDs and GUIDs; serial numbers; places on the bus; private folders",
        kernel: plain_release(&system.read("proc/sys/kernel/osrelease").unwrap_or_default()),
        checks: checks.iter().map(check).collect(),
        cards: cards.into_iter().map(described).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::Fake;
    use super::*;

    /// Goal: a user can send the file without reading it for secrets.
    #[test]
    fn report_has_no_name_address_or_serial_number() {
        let fake = Fake::new(&[
            ("proc/sys/kernel/hostname", "build7.example.org\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-57-acme\n"),
            ("sys/class/net/acme-fast/address", "0c:42:a1:03:00:de\n"),
            ("sys/class/infiniband/acme0/node_guid", "0c42:a103:00de:1234\n"),
            ("sys/class/infiniband/acme0/fw_ver", "20.31.1014\n"),
            ("sys/class/infiniband/acme0/device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:3b:00.0\n"),
            ("sys/class/infiniband/acme0/device/vendor", "0x15b3\n"),
            ("sys/class/infiniband/acme0/device/device", "0x101b\n"),
            ("sys/class/infiniband/acme0/device/net/acme-fast/mtu", "1500\n"),
            ("sys/class/infiniband/acme0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/acme0/ports/1/link_layer", "Ethernet\n"),
            ("sys/class/infiniband/acme0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a01:0203\n"),
            ("sys/class/infiniband/acme0/ports/1/gid_attrs/types/0", "RoCE v2\n"),
        ]);
        let listed = Ok(vec!["hw:acme0: port 1 active, Ethernet".to_owned()]);
        let checks = super::super::examine_cards(&fake.system, &listed);
        let notes = vec![
            "card 'acme0' (InfiniBand or RoCE), port 1 active; the port has 0 (10.1.2.3, RoCE v2)".to_owned(),
            "build7 has serial MT2047X04321".to_owned(),
        ];
        let cards = vec![
            ReportedCard { name: "acme0".to_owned(), opened: Ok((["a limit"], notes)) },
            ReportedCard { name: "acme0".to_owned(), opened: Err("10.1.2.3 at build7: refused".to_owned()) },
        ];
        let text = serde_json::to_string(&describe(&fake.system, &checks, cards)).expect("JSON");
        for secret in ["acme", "build7", "example", "10.1.2.3", "0a01", "0c42", "0c:42", "3b:00", "MT2047"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        for kept in [
            "mlx5_core, firmware 20.31.1014",
            "0x15b3",
            "0x101b",
            "take index 0 (ADDRESS, RoCE v2)",
            "\"kernel\":\"6.1.0\"",
            "a limit",
            "hw:card1: port 1 active",
            "INTERFACE has 1500",
            "ADDRESS at HOST: refused",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }
}
