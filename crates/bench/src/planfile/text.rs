//! From TOML to [`Draft`]s: which keys there are, what they take, and the line of everything.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::mistake::Mistake;
use crate::plan::{did_you_mean, sizes};

/// Something and its line.
pub(super) type At<T> = (T, usize);

/// Keys of a part, and of the defaults.
const KEYS: [&str; 8] = ["experiments", "devices", "peers", "sizes", "quick", "seed", "launches", "set"];
/// Tables of a file.
const TABLES: [&str; 2] = ["defaults", "part"];
/// Characters of a part's name, which becomes part of the names of files.
const NAME_MAX: usize = 40;
/// Entries of a list, and keys of a table, at most.
const ENTRIES_MAX: usize = 1024;
/// Maximum number of mistakes reported for one text. A text with more is no plan file.
pub(super) const MISTAKES_MAX: usize = 100;

/// A part as it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) experiments: Option<Vec<At<String>>>,
    pub(super) devices: Option<Vec<At<String>>>,
    pub(super) peers: Option<Vec<At<String>>>,
    /// The sizes that each entry expands to.
    pub(super) sizes: Option<At<Vec<At<Vec<u64>>>>>,
    pub(super) quick: Option<bool>,
    pub(super) seed: Option<u64>,
    pub(super) launches: Option<At<u64>>,
    pub(super) set: Vec<Setting>,
}

/// A setting with one value or several.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) values: Vec<String>,
    pub(super) line: usize,
}

/// Lines that could not be parsed.
pub(super) type Broken = Vec<RangeInclusive<usize>>;

/// Every part with what the defaults give it, in the order of the file; what is no TOML, and what else is wrong so far.
pub(super) fn drafts(text: &str) -> (Vec<Draft>, (Vec<Mistake>, Broken), Vec<Mistake>) {
    let (table, mut errors) = DeTable::parse_recoverable(text);
    errors.truncate(MISTAKES_MAX);
    let mut reader = Reader::new(text);
    let broken = reader.syntax(&errors);
    let syntax = std::mem::take(&mut reader.mistakes);
    let (mut defaults, mut parts) = (Draft::default(), Vec::new());
    for (key, value) in reader.keys("the file", table.get_ref(), &table.span()) {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("defaults", DeValue::Table(table)) => defaults = reader.draft(table, &value.span()),
            ("part", DeValue::Table(table)) => {
                for (name, part) in reader.keys("part", table, &value.span()) {
                    if let Some(draft) = reader.part(name, part) {
                        parts.push(draft);
                    }
                }
            }
            ("defaults" | "part", other) => {
                let what = format!("{} is {}; write [defaults] and [part.NAME]", key.get_ref(), kind(other));
                reader.wrong(&key.span(), what);
            }
            (name, _) => reader.unknown("table", name, &key.span(), &TABLES),
        }
    }
    parts.sort_by_key(|part| part.line);
    parts.iter_mut().for_each(|part| part.inherit(&defaults));
    (parts, (syntax, broken), reader.mistakes)
}

impl Draft {
    /// Takes what it does not say itself.
    fn inherit(&mut self, defaults: &Self) {
        let Self { experiments, devices, peers, sizes, quick, seed, launches, set, .. } = defaults.clone();
        self.experiments = self.experiments.take().or(experiments);
        self.devices = self.devices.take().or(devices);
        self.peers = self.peers.take().or(peers);
        self.sizes = self.sizes.take().or(sizes);
        self.quick = self.quick.or(quick);
        self.seed = self.seed.or(seed);
        self.launches = self.launches.or(launches);
        for setting in set {
            if self.set.iter().all(|own| own.key != setting.key) {
                self.set.push(setting);
            }
        }
    }
}

/// What a value is, for messages.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A text or a number as one would write it after `=` on the command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}

struct Reader {
    /// Where each line ends, but the last.
    ends: Vec<usize>,
    broken: bool,
    mistakes: Vec<Mistake>,
}

impl Reader {
    fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        Self { ends: ends.collect(), broken: false, mistakes: Vec::new() }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.ends.partition_point(|end| *end < span.start)
    }

    fn wrong(&mut self, span: &Range<usize>, what: String) {
        // A placeholder for something unreadable has no position.
        if (self.broken && span.is_empty()) || self.mistakes.len() >= MISTAKES_MAX {
            return;
        }
        let line = self.line(span);
        self.mistakes.push(Mistake { line, what });
    }

    /// Says what is no TOML, the first of each line, and which lines cannot be believed: where a bracket is left open,
    /// that line and all below it, which are taken for its contents.
    fn syntax(&mut self, errors: &[toml::de::Error]) -> Broken {
        let at = |error: &toml::de::Error| error.span().unwrap_or_default();
        let open = errors.iter().any(|error| error.message().contains("unclosed"));
        let first = errors.iter().map(|error| at(error).start).min();
        let mut broken = Broken::new();
        for error in errors {
            let (span, what) = (at(error), crate::plan::one_line(error.message()));
            let line = self.line(&span);
            if broken.iter().any(|lines| lines.contains(&line)) || (open && Some(span.start) != first) {
                continue;
            }
            let (end, more) = match open {
                true => (usize::MAX, ", and a bracket that is not closed: nothing below it could be read"),
                false => (line, ""),
            };
            self.wrong(&span, format!("this is no TOML: {what}{more}; see https://toml.io"));
            broken.push(line..=end);
        }
        self.broken = !broken.is_empty();
        broken
    }

    fn unknown(&mut self, kind: &str, name: &str, span: &Range<usize>, known: &[&str]) {
        let hint = did_you_mean(name, known.iter().copied());
        self.wrong(span, format!("there is no {kind} '{name}'{hint}; there are: {}", known.join(", ")));
    }

    fn part(&mut self, name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) -> Option<Draft> {
        let (span, name) = (name.span(), name.get_ref().as_ref());
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if name.is_empty() || !plain || name.len() > NAME_MAX {
            let takes = "letters, digits, - and _, as it becomes part of the names of files";
            self.wrong(
                &span,
                format!("a part cannot be called '{name}'; its name takes up to {NAME_MAX} {takes}"),
            );
        }
        let DeValue::Table(table) = value.get_ref() else {
            let what =
                format!("part.{name} is {}; write [part.{name}] with keys below it", kind(value.get_ref()));
            self.wrong(&value.span(), what);
            return None;
        };
        Some(Draft { name: name.to_owned(), line: self.line(&span), ..self.draft(table, &value.span()) })
    }

    fn draft(&mut self, table: &DeTable<'_>, span: &Range<usize>) -> Draft {
        let mut draft = Draft::default();
        for (key, value) in self.keys("a part", table, span) {
            match key.get_ref().as_ref() {
                "experiments" => draft.experiments = self.texts("experiments", value),
                "devices" => draft.devices = self.texts("devices", value),
                "peers" => draft.peers = self.texts("peers", value),
                "sizes" => draft.sizes = self.sizes(value).map(|sizes| (sizes, self.line(&value.span()))),
                "quick" => draft.quick = self.switch(value),
                "seed" => draft.seed = self.whole("seed", value).map(|(n, _)| n),
                "launches" => draft.launches = self.whole("launches", value),
                "set" => draft.set = self.settings(value),
                name => self.unknown("key", name, &key.span(), &KEYS),
            }
        }
        draft
    }

    fn mismatch(&mut self, key: &str, value: &Spanned<DeValue<'_>>, takes: &str) {
        self.wrong(&value.span(), format!("{key} cannot be {}; it takes {takes}", kind(value.get_ref())));
    }

    /// The first entries of a list, or a single value; entries beyond the maximum are a mistake.
    fn entries<'v, 'i>(
        &mut self,
        key: &str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Vec<&'v Spanned<DeValue<'i>>> {
        let DeValue::Array(list) = value.get_ref() else { return vec![value] };
        self.count(key, "entries", list.len(), &value.span());
        list.iter().take(ENTRIES_MAX).collect()
    }

    /// The first keys of a table with their values; more than there may be are a mistake.
    fn keys<'v, 'i>(
        &mut self,
        name: &str,
        table: &'v DeTable<'i>,
        span: &Range<usize>,
    ) -> impl Iterator<Item = (&'v Spanned<DeString<'i>>, &'v Spanned<DeValue<'i>>)> + use<'v, 'i> {
        self.count(name, "keys", table.len(), span);
        table.iter().take(ENTRIES_MAX)
    }

    fn count(&mut self, name: &str, what: &str, count: usize, span: &Range<usize>) {
        if count > ENTRIES_MAX {
            self.wrong(span, format!("{name} has {count} {what}, {ENTRIES_MAX} at most; make several plans"));
        }
    }

    fn texts(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<At<String>>> {
        let mut all = Vec::new();
        for entry in self.entries(key, value) {
            match entry.get_ref() {
                DeValue::String(text) => all.push((text.to_string(), self.line(&entry.span()))),
                _ => self.mismatch(key, entry, "names in quotes, several in [ ]"),
            }
        }
        if matches!(value.get_ref(), DeValue::Array(list) if list.is_empty()) {
            self.wrong(&value.span(), format!("{key} has no entries; leave it away for the usual ones"));
        }
        Some(all).filter(|all| !all.is_empty())
    }

    /// Nothing where no entry is sound; a list without entries is for the plan to refuse.
    fn sizes(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<At<Vec<u64>>>> {
        let (mut all, entries) = (Vec::new(), self.entries("sizes", value));
        let none = entries.is_empty();
        for entry in entries {
            let line = self.line(&entry.span());
            match scalar(entry.get_ref()).map(|text| sizes::parse(&text)) {
                Some(Ok(list)) => all.push((list, line)),
                Some(Err(why)) => self.wrong(&entry.span(), why.to_string()),
                None => {
                    self.mismatch("sizes", entry, "sizes such as 8, \"4K\" or \"1..64K\", several in [ ]")
                }
            }
        }
        Some(all).filter(|all| none || !all.is_empty())
    }

    fn switch(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            _ => {
                self.mismatch("quick", value, "true or false");
                None
            }
        }
    }

    fn whole(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<At<u64>> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok().filter(|_| number.radix() == 10),
            _ => None,
        };
        if number.is_none() {
            self.mismatch(key, value, "a whole number, not negative");
        }
        number.map(|n| (n, self.line(&value.span())))
    }

    fn settings(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<Setting> {
        let DeValue::Table(table) = value.get_ref() else {
            self.mismatch("set", value, "a table, such as { budget = 10, window = [8, 64] }");
            return Vec::new();
        };
        let mut all = Vec::new();
        self.add_settings("", table, &value.span(), &mut all);
        all
    }

    /// Adds settings; those of a card, such as `bus.clock_mhz`, are tables within the table.
    fn add_settings(
        &mut self,
        above: &str,
        table: &DeTable<'_>,
        span: &Range<usize>,
        all: &mut Vec<Setting>,
    ) {
        for (key, value) in self.keys("set", table, span) {
            let (name, line) = (format!("{above}{}", key.get_ref()), self.line(&key.span()));
            if let DeValue::Table(inner) = value.get_ref() {
                self.add_settings(&format!("{name}."), inner, &value.span(), all);
                continue;
            }
            let mut values = Vec::new();
            for entry in self.entries(&name, value) {
                match scalar(entry.get_ref()) {
                    Some(text) => values.push(text),
                    None => self.mismatch(&name, entry, "texts and numbers, several in [ ]"),
                }
            }
            if matches!(value.get_ref(), DeValue::Array(list) if list.is_empty()) {
                self.wrong(&value.span(), format!("{name} has no values; leave it away for the usual one"));
            }
            if !values.is_empty() {
                all.push(Setting { key: name, values, line });
            }
        }
    }
}
