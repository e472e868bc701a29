//! Files of rules: TOML with an optional seed, and a table `[[fault]]` for each rule.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use verbs::{Error, Result};

use crate::rule::{BadRule, Rule};

/// A longer file is no list of faults.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleFile {
    /// The seed; 0 if the file has none.
    pub seed: u64,
    /// The rules, each with its place: the file and the line.
    pub rules: Vec<(Rule, String)>,
}

/// Reads a file of rules.
///
/// # Errors
/// [`Error::Invalid`] with the file, and with the line where it is known.
pub fn read(path: &Path) -> Result<RuleFile> {
    let name = path.display().to_string();
    let unreadable = |why: std::io::Error| {
        Error::Invalid(format!("the file of faults {name} cannot be read: {why}; check its name"))
    };
    parse(&name, &host::bounded::read_text(path, FILE_BYTES_MAX).map_err(unreadable)?)
}

/// Parses the text of a file of rules; `name` is for errors.
///
/// # Errors
/// [`Error::Invalid`] with the line.
pub fn parse(name: &str, text: &str) -> Result<RuleFile> {
    let place = |at: usize| {
        let line = 1 + text.get(..at).unwrap_or(text).matches('\n').count();
        format!("{name}:{line}")
    };
    let wrong = |at: usize, why: &dyn std::fmt::Display| Error::Invalid(format!("{}: {why}", place(at)));
    let document = DeTable::parse(text)
        .map_err(|e| wrong(e.span().map_or(0, |span| span.start), &e.message().to_owned()))?;
    let mut file = RuleFile::default();
    for (key, value) in document.get_ref() {
        let at = key.span().start;
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("seed", DeValue::Integer(seed)) => {
                let parsed = u64::from_str_radix(seed.as_str(), seed.radix());
                file.seed = parsed.map_err(|_| wrong(at, &"the seed is no number from 0 to 2^64 - 1"))?;
            }
            ("fault", DeValue::Array(faults)) => {
                for fault in faults {
                    let DeValue::Table(table) = fault.get_ref() else {
                        return Err(wrong(fault.span().start, &"a fault is no table; write [[fault]]"));
                    };
                    let rule =
                        rule(table).map_err(|(key, bad)| wrong(key.unwrap_or(fault.span().start), &bad))?;
                    // The span of a table begins at its brackets, or at its first key.
                    file.rules.push((rule, place(fault.span().start)));
                }
            }
            ("fault", _) => return Err(wrong(at, &"'fault' is no list; write [[fault]] before each rule")),
            ("seed", _) => return Err(wrong(at, &"the seed is no whole number; write seed = 7")),
            (other, _) => {
                return Err(wrong(
                    at,
                    &format!("there is no key '{other}' here; write seed = N, or [[fault]]"),
                ));
            }
        }
    }
    Ok(file)
}

/// Parses one table. The error has the place of its key.
fn rule(table: &DeTable<'_>) -> Result<Rule, (Option<usize>, BadRule)> {
    let mut pairs = Vec::new();
    for (key, value) in table {
        let text = value_text(value).ok_or_else(|| {
            let why = format!("'{}' is neither a text nor a number", key.get_ref());
            (Some(key.span().start), BadRule { key: None, why })
        })?;
        pairs.push((key.get_ref().as_ref(), text));
    }
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (*key, value.as_str())).collect();
    Rule::from_pairs(&pairs).map_err(|bad| {
        let of_key = |wrong: &String| table.keys().find(|key| key.get_ref().as_ref() == *wrong);
        (bad.key.as_ref().and_then(of_key).map(|key| key.span().start), bad)
    })
}

fn value_text(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_a_seed_and_rules_with_their_lines() {
        let text = "seed = 7\n\n[[fault]]\non = \"write\"\nnth = 3\nstatus = \"REM_ACCESS_ERR\"\n\n\
                    [[fault]]\non = \"reg_mr\"\nprobability = 0.5\nerror = \"ENOMEM\"\n";
        let file = parse("f.toml", text).expect("a file");
        assert_eq!(file.seed, 7);
        let rules: Vec<_> =
            file.rules.iter().map(|(rule, place)| (rule.to_string(), place.as_str())).collect();
        assert_eq!(
            rules,
            [
                ("on=write nth=3 status=REM_ACCESS_ERR".to_owned(), "f.toml:3"),
                ("on=reg_mr probability=0.5 error=ENOMEM".to_owned(), "f.toml:8"),
            ]
        );
        assert_eq!(parse("f.toml", ""), Ok(RuleFile::default()));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, hint) in [
            ("seed = 1\nfault = 3\n", "f.toml:2: 'fault' is no list"),
            ("seed = \"x\"\n", "f.toml:1: the seed"),
            (
                "[[fault]]\non = \"write\"\n\nstatus = \"BAD\"\n",
                "f.toml:4: status = BAD is unknown; there is LOC_LEN",
            ),
            ("[[fault]]\non = \"write\"\n", "f.toml:1: the rule says nothing"),
            ("\n[[faults]]\n", "f.toml:2: there is no key 'faults' here"),
            ("[[fault]]\non = [1]\n", "f.toml:2: 'on' is neither"),
            ("[[fault]\n", "f.toml:1: "),
        ] {
            let wrong = parse("f.toml", text).expect_err(text).to_string();
            assert!(wrong.starts_with(hint), "{text}: {wrong}");
        }
        let missing = read(Path::new("/nowhere.toml")).expect_err("no file").to_string();
        assert!(missing.contains("/nowhere.toml cannot be read"), "{missing}");
    }
}
