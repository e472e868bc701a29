//! The grammar of device names: `kind` or `kind(key=value,...)`.

use verbs::{Error, Result};

/// A parsed name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub(crate) kind: &'a str,
    pub(crate) options: Vec<(&'a str, &'a str)>,
}

impl<'a> Name<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self> {
        let bad = |why: &str| Error::Invalid(format!("'{text}' is no device name: {why}"));
        let Some((kind, rest)) = text.split_once('(') else {
            return Ok(Self { kind: text.trim(), options: Vec::new() });
        };
        let inner = rest
            .strip_suffix(')')
            .filter(|inner| !inner.contains(['(', ')']))
            .ok_or_else(|| bad("the parentheses do not match"))?;
        let options = inner.split(',').map(str::trim).filter(|option| !option.is_empty());
        let options = options.map(|option| match option.split_once('=') {
            Some((key, value)) => Ok((key.trim(), value.trim())),
            None => Err(bad(&format!("option '{option}' has no value; write {option}=VALUE"))),
        });
        let options: Vec<(&str, &str)> = options.collect::<Result<_>>()?;
        let twice =
            |&(at, (key, _)): &(usize, &(&str, &str))| options[..at].iter().any(|(other, _)| other == key);
        if let Some((_, (key, _))) = options.iter().enumerate().find(twice) {
            return Err(bad(&format!("option '{key}' is given twice")));
        }
        Ok(Self { kind: kind.trim(), options })
    }
}
