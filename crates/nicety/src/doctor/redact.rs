//! [`Redactor`]: takes out of a text what names a machine, its network or its owner.
//!
//! Names that are known are replaced wherever they are a word; addresses, serial numbers and paths by their form. What looks like
//! one and is none is lost, which is better than the opposite.

use std::net::{IpAddr, SocketAddr};

/// Folders whose paths are the same on many machines.
const COMMON_FOLDERS: &[&str] = &["usr", "lib", "lib64", "dev", "sys", "proc", "etc"];
/// Letters and digits from which a word is taken for a serial number.
const SERIAL_MIN: usize = 10;
/// Digits that such a word has.
const SERIAL_DIGITS_MIN: usize = 4;

/// Names, each with the word that replaces it.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    names: Vec<(String, String)>,
}

/// Whether a letter can be part of a name.
fn is_in_name(letter: char) -> bool {
    letter.is_alphanumeric() || "_-.".contains(letter)
}

/// Whether a letter can be part of an address or a path.
fn is_in_address(letter: char) -> bool {
    is_in_name(letter) || ":%/@".contains(letter)
}

/// Replaces the words of a text, which consist of such letters.
fn replace_words(
    text: &str,
    is_part: fn(char) -> bool,
    mut replace: impl FnMut(&str) -> Option<String>,
) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(is_part) {
        out += &rest[..start];
        rest = &rest[start..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        // A sentence's or a list's punctuation is not part of the word.
        let word = rest[..end].trim_end_matches(['.', ':']);
        let word = if word.is_empty() { &rest[..end] } else { word };
        out += &replace(word).unwrap_or_else(|| word.to_owned());
        rest = &rest[word.len()..];
        let tail = rest.find(|letter: char| !".:".contains(letter)).unwrap_or(rest.len());
        out += &rest[..tail];
        rest = &rest[tail..];
    }
    out + rest
}

/// The kind of address, if a word has the form of one.
fn address_kind(word: &str) -> Option<&'static str> {
    let without_scope = word.split(['%', '/']).next().unwrap_or(word);
    if without_scope.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok() {
        return Some("ADDRESS");
    }
    let is_hex = |group: &str, len: usize| group.len() == len && group.chars().all(|c| c.is_ascii_hexdigit());
    let groups = |len: usize, least: usize| {
        let groups: Vec<&str> = word.split([':', '-']).collect();
        groups.len() >= least && groups.iter().all(|group| is_hex(group, len))
    };
    if groups(2, 6) || groups(4, 4) {
        return Some("ADDRESS");
    }
    let slot: Vec<&str> = word.split([':', '.']).collect();
    let is_slot = match slot.as_slice() {
        [domain, bus, device, function] => {
            is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1)
        }
        _ => false,
    };
    is_slot.then_some("SLOT")
}

/// Whether a word has the form of a serial number or GUID.
fn is_serial(word: &str) -> bool {
    let word = word.strip_prefix("0x").unwrap_or(word);
    let digits = word.chars().filter(char::is_ascii_digit).count();
    word.len() >= SERIAL_MIN && digits >= SERIAL_DIGITS_MIN && word.chars().all(|c| c.is_ascii_alphanumeric())
}

/// A path that is not of a common folder, without its folders.
fn short_path(word: &str) -> Option<String> {
    let path = word.strip_prefix('/')?;
    let first = path.split('/').next()?;
    let is_private = path.contains('/') && !COMMON_FOLDERS.contains(&first);
    is_private.then(|| format!("FOLDER/{}", path.rsplit('/').next().unwrap_or_default()))
}

impl Redactor {
    /// Replaces a name by a word from now on. A name with dots, such as a host's, is also replaced by its first part.
    pub(super) fn hide(&mut self, name: &str, by: &str) {
        let first = name.split('.').next().unwrap_or(name);
        for name in [name, first] {
            if !name.is_empty() && !self.names.iter().any(|(known, _)| known == name) {
                self.names.push((name.to_owned(), by.to_owned()));
            }
        }
    }

    /// The text without names, addresses, serial numbers and private paths.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut before = String::new();
        let text = replace_words(text, is_in_address, |word| {
            // A version of four numbers looks like an address.
            let is_version = std::mem::replace(&mut before, word.to_owned()) == "firmware";
            let kind = address_kind(word).filter(|_| !is_version);
            kind.map(str::to_owned).or_else(|| short_path(word))
        });
        replace_words(&text, is_in_name, |word| {
            let known = self.names.iter().find(|(name, _)| {
                word == name || word.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
            let serial = || is_serial(word).then(|| "NUMBER".to_owned());
            known.map(|(_, by)| by.clone()).or_else(serial)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_numbers_and_paths_are_found_by_their_form() {
        let redactor = Redactor::default();
        for (text, clean) in [
            ("take index 2 (10.1.2.3, RoCE v2)", "take index 2 (ADDRESS, RoCE v2)"),
            ("at 10.1.2.3:7174, 10.1.2.0/24.", "at ADDRESS, ADDRESS."),
            ("GID fe80::1%eth0: it", "GID ADDRESS: it"),
            ("from [fd00::7]:4791", "from [ADDRESS]:4791"),
            ("0c42:a103:00de:1234 and 0c:42:a1:03:00:de", "ADDRESS and ADDRESS"),
            ("in slot 0000:3b:00.0", "in slot SLOT"),
            ("serial MT2047X04321, 0x0c42a10300de1234", "serial NUMBER, NUMBER"),
            ("from '/home/ann/secret/libibverbs.so.1'", "from 'FOLDER/libibverbs.so.1'"),
            (
                "verbs come from '/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0'",
                "verbs come from '/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0'",
            ),
            ("driver bnxt_en, firmware 218.0.219.13", "driver bnxt_en, firmware 218.0.219.13"),
            (
                "100 Gb/sec (4X EDR), 16.0 GT/s PCIe x16, 12:30",
                "100 Gb/sec (4X EDR), 16.0 GT/s PCIe x16, 12:30",
            ),
            ("ls /sys/class/infiniband", "ls /sys/class/infiniband"),
        ] {
            assert_eq!(redactor.clean(text), clean);
        }
    }

    #[test]
    fn known_names_are_replaced_as_words() {
        let mut redactor = Redactor::default();
        redactor.hide("build7.example.org", "HOST");
        redactor.hide("ann", "USER");
        redactor.hide("mlx5_0", "card1");
        let clean = redactor.clean("hw:mlx5_0: build7 and build7.example.org of ann, in channels of mlx5_01");
        assert_eq!(clean, "hw:card1: HOST and HOST of USER, in channels of mlx5_01");
    }
}
