//! The grammar of device names: a head, with optional options in parentheses: `head` or `head(key=value,...)`. Also how
//! options set a configuration: a table for each kind has their written form, meaning and setter.

use std::ops::RangeInclusive;

use host::Bytes;
use verbs::{Error, Result};

/// A parsed name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// The whole name, as written.
    pub(crate) text: &'a str,
    /// The part before the options.
    pub(crate) head: &'a str,
    /// Keys and values, no key twice.
    pub(crate) options: Vec<(&'a str, &'a str)>,
}

impl<'a> Name<'a> {
    /// Parses a name.
    ///
    /// # Errors
    /// [`Error::Invalid`] for parentheses that do not match, an option without a value, or an option that is given twice.
    pub(crate) fn parse(text: &'a str) -> Result<Self> {
        let bad = |why: &str| Error::Invalid(format!("'{text}' is not a device name: {why}"));
        let Some((head, rest)) = text.split_once('(') else {
            return Ok(Self { text, head: text.trim(), options: Vec::new() });
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
        Ok(Self { text, head: head.trim(), options })
    }
}

/// Splits a list at separators outside of parentheses, but not in front of the `gid=N` of a card, as in `hw:NAME@PORT,gid=N`;
/// `None` if the parentheses do not match.
pub(crate) fn split_outside_parentheses(list: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_u32, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            letter if letter == separator && depth == 0 => {
                let (part, next) = (list[from..at].trim_start(), list[at + letter.len_utf8()..].trim_start());
                if part.starts_with("hw:") && part.contains('@') && next.starts_with("gid=") {
                    continue;
                }
                parts.push(list[from..at].trim());
                from = at + letter.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(list[from..].trim());
    (depth == 0).then_some(parts)
}

/// The parsed name of a device in front of another one, such as `faults(shm,seed=7)`.
#[derive(Debug)]
pub(crate) struct WrapperName<'a, C> {
    /// The name of the device below.
    pub(crate) below: &'a str,
    pub(crate) options: C,
}

/// Parses a name that consists of `word` and, in parentheses, one device and options. `None` if it does not have this form.
pub(crate) fn parse_wrapper<'a, C: Default>(
    word: &str,
    options: &[DeviceOption<C>],
    text: &'a str,
) -> Option<Result<WrapperName<'a, C>>> {
    let inner = text.trim().strip_prefix(word)?.trim_start().strip_prefix('(')?;
    let invalid = |why: String| Error::Invalid(format!("'{text}' is not a device name: {why}"));
    let unmatched = || invalid("the parentheses do not match".into());
    let none = || invalid(format!("it names no device; write {word}(shm)"));
    let parse = |inner: &'a str| {
        let (mut below, mut config) = (None, C::default());
        for part in split_outside_parentheses(inner, ',').ok_or_else(unmatched)? {
            match part.split_once('=').filter(|(key, _)| !key.contains(['(', '@', ':'])) {
                Some((key, value)) => set_option(word, options, &mut config, key.trim(), value.trim())?,
                None if part.is_empty() => return Err(none()),
                None if below.is_some() => {
                    return Err(invalid(format!(
                        "it names a second device, {part}; write {word}(rails(A,B)) for rails"
                    )));
                }
                None => below = Some(part),
            }
        }
        Ok(WrapperName { below: below.ok_or_else(none)?, options: config })
    };
    Some(inner.strip_suffix(')').ok_or_else(unmatched).and_then(parse))
}

/// Why a value is not valid for an option.
#[derive(Debug)]
pub(crate) enum BadValue {
    /// It is not one of the option's values.
    Value,
    /// It cannot be parsed, for this reason.
    Unreadable(host::BadSize),
}

/// An option of a kind of device.
pub(crate) struct DeviceOption<C> {
    /// Its written form: `key=VALUE`.
    pub(crate) form: &'static str,
    /// What it does, with its default.
    pub(crate) about: &'static str,
    /// Sets a value in the configuration.
    pub(crate) set: fn(&mut C, &str) -> std::result::Result<(), BadValue>,
}

/// The written form of options, each with its meaning.
pub(crate) fn option_help<C>(options: &[DeviceOption<C>]) -> Vec<(&'static str, &'static str)> {
    options.iter().map(|option| (option.form, option.about)).collect()
}

/// Sets the options of a name in a configuration.
///
/// # Errors
/// As [`set_option`].
pub(crate) fn set_options<C>(name: &Name<'_>, options: &[DeviceOption<C>], config: &mut C) -> Result<()> {
    name.options.iter().try_for_each(|(key, value)| set_option(name.head, options, config, key, value))
}

/// Sets an option's value in a configuration.
///
/// # Errors
/// [`Error::Invalid`], with the options that exist, for an unknown option or value.
pub(crate) fn set_option<C>(
    head: &str,
    options: &[DeviceOption<C>],
    config: &mut C,
    key: &str,
    value: &str,
) -> Result<()> {
    let of_key = |option: &&DeviceOption<C>| option.form.split('=').next() == Some(key);
    let done = options.iter().find(of_key).map_or(Err(BadValue::Value), |option| (option.set)(config, value));
    done.map_err(|refusal| match refusal {
        BadValue::Unreadable(why) => Error::Invalid(why.to_string()),
        BadValue::Value => {
            let known: Vec<_> = options.iter().map(|option| option.form).collect();
            let known = known.join(", ");
            Error::Invalid(format!("device '{head}' has no option {key}={value}; it has: {known}"))
        }
    })
}

/// The meaning of a value, from a table.
///
/// # Errors
/// [`BadValue::Value`] if it is not in the table.
pub(crate) fn parse_choice<T, const N: usize>(
    value: &str,
    all: [(&str, T); N],
) -> std::result::Result<T, BadValue> {
    all.into_iter().find(|(word, _)| *word == value).map(|(_, means)| means).ok_or(BadValue::Value)
}

/// A number of bytes within these bounds.
///
/// # Errors
/// [`BadValue`].
pub(crate) fn parse_size(value: &str, bounds: RangeInclusive<u64>) -> std::result::Result<u64, BadValue> {
    let size: Bytes = value.parse().map_err(BadValue::Unreadable)?;
    if bounds.contains(&size.0) { Ok(size.0) } else { Err(BadValue::Value) }
}
