//! Plain English: how often comments and documents use phrases that hide the subject or the noun of a sentence.
//!
//! The measure is hits in 10,000 words, for the comments of all Rust files and for all Markdown outside of code. A hit is a place to
//! check, and may be right; so the rule limits the rate and no single line. `xtask/limits.toml` has the limits, which only fall.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Finding;

/// A limit is asked to fall when it is more than this above the rate.
const SLACK: u64 = 2;
/// How many lines a finding names.
const WORST: usize = 12;

/// A phrase's elements: a word, or one of several words separated by `|`; with a leading `!`, any other word.
type Phrase = &'static [&'static str];

/// The phrases, and what to write instead.
const PHRASES: [(Phrase, &str); 17] = [
    (&["who|whoever|whom"], "name the thread, the process or the caller"),
    (&["so", "many|often|much|long", "!as|that"], "give the number or its name"),
    (&["is|are|was|were", "to", "be"], "say what does it"),
    (&["is|are|was|were|it's", "over"], "finished, completed"),
    (&["told|tell|tells|telling"], "reports, notifies, returns"),
    (&["what|that", "comes|goes|lies|stands|waits"], "use a noun"),
    (&["what|that", "has", "come"], "use a noun"),
    (&["what|that", "is", "there"], "use a noun"),
    (&["of", "which|whom|them|those|these"], "repeat the noun"),
    (&["lie|lies|stand|stands|lay|stood"], "is, holds, is stored"),
    (&["at", "once"], "immediately; at the same time"),
    (&["look|looks|looked|looking", "!up"], "checks, polls, examines"),
    (&["is|are", "there"], "exists"),
    (&["by", "itself|themselves"], "leave it out, or say on what condition"),
    (&["beside|besides"], "next to; in addition to"),
    (&["one|those|ones", "that|who|which"], "use a noun"),
    (&["the", "same", "but|as|of"], "say what is the same"),
];

/// The highest rates that are allowed, as hits in 10,000 words.
#[derive(Clone, Copy, Default, Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Rates {
    pub(super) comments: u64,
    pub(super) documents: u64,
}

/// Words and hits of one kind of text.
#[derive(Default)]
struct Measure {
    words: u64,
    hits: u64,
    /// Lines with hits: how many, the path, the line from 1, and what to write instead of the first.
    lines: Vec<(usize, String, usize, &'static str)>,
}

impl Measure {
    fn add(&mut self, path: &str, line: usize, prose: &str) {
        let words = words(prose);
        self.words += words.iter().filter(|word| is_word(word)).count() as u64;
        let hits = hits(&words);
        self.hits += hits.len() as u64;
        if let Some(first) = hits.first() {
            self.lines.push((hits.len(), path.to_owned(), line, first));
        }
    }

    /// Hits in 10,000 words, rounded up.
    fn rate(&self) -> u64 {
        (self.hits * 10_000).div_ceil(self.words.max(1))
    }
}

/// The rates of a tree of text files.
pub(super) fn rates(texts: &BTreeMap<String, String>) -> Rates {
    let [comments, documents] = measures(texts);
    Rates { comments: comments.rate(), documents: documents.rate() }
}

/// Findings: rates above their limits, with the lines that have most hits, and limits that can fall.
pub(super) fn check(texts: &BTreeMap<String, String>, limits: Rates, table: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let kinds = ["comments", "documents"].into_iter().zip([limits.comments, limits.documents]);
    for ((kind, limit), mut measure) in kinds.zip(measures(texts)) {
        let rate = measure.rate();
        if rate > limit {
            measure.lines.sort_by_key(|(hits, ..)| std::cmp::Reverse(*hits));
            for (_, path, line, instead) in measure.lines.iter().take(WORST) {
                let what = format!(
                    "{kind} have {rate} such phrases in 10,000 words, {limit} are allowed: {instead}"
                );
                findings.push(Finding::new(path, *line, "idiom", what));
            }
        } else if rate + SLACK < limit {
            let what =
                format!("{kind} may have {limit}, now {rate}: lower the number (cargo xtask tidy --bless)");
            findings.push(Finding::new(table, 1, "limit", what));
        }
    }
    findings
}

/// Comments of Rust files, and documents.
fn measures(texts: &BTreeMap<String, String>) -> [Measure; 2] {
    let [mut comments, mut documents] = [Measure::default(), Measure::default()];
    for (path, text) in texts {
        if path.ends_with(".rs") {
            for (index, line) in text.lines().enumerate() {
                comments.add(path, index + 1, comment(line));
            }
        } else if path.ends_with(".md") {
            let mut fenced = false;
            for (index, line) in text.lines().enumerate() {
                if line.trim_start().starts_with("```") {
                    fenced = !fenced;
                } else if !fenced {
                    documents.add(path, index + 1, line);
                }
            }
        }
    }
    [comments, documents]
}

/// The text after the first `//` of a line that is not part of an address.
fn comment(line: &str) -> &str {
    let starts = line.match_indices("//").map(|(at, _)| at);
    let start = starts.into_iter().find(|&at| !line[..at].ends_with(':'));
    start.map_or("", |at| line[at..].trim_start_matches(['/', '!']))
}

/// Words and punctuation of a line, without what is in backticks and without addresses.
fn words(prose: &str) -> Vec<String> {
    let text: String = prose.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut words = Vec::new();
    for piece in text.split_whitespace().filter(|piece| !piece.contains("://")) {
        let mut word = String::new();
        for letter in piece.chars() {
            if letter.is_ascii_alphabetic() || letter == '\'' {
                word.push(letter.to_ascii_lowercase());
                continue;
            }
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            words.push(letter.to_string());
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}

fn is_word(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_alphabetic())
}

/// The advice for each phrase that occurs among the words.
fn hits(words: &[String]) -> Vec<&'static str> {
    let begins = |at: usize, phrase: Phrase| {
        phrase.iter().enumerate().all(|(step, choice)| {
            let word = words.get(at + step).map(String::as_str);
            match choice.strip_prefix('!') {
                Some(none) => word.is_none_or(|word| none.split('|').all(|other| other != word)),
                None => word.is_some_and(|word| choice.split('|').any(|one| one == word)),
            }
        })
    };
    (0..words.len())
        .flat_map(|at| {
            PHRASES.iter().filter(move |(phrase, _)| begins(at, phrase)).map(|(_, instead)| *instead)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(prose: &str) -> usize {
        hits(&words(prose)).len()
    }

    #[test]
    fn phrase_is_counted_where_its_words_follow_each_other() {
        for (prose, expected) in [
            ("Whoever waits looks at what lies there.", 4),
            ("The poller checks the queue.", 0),
            ("whose ring", 0),
            ("So many as fit; so many slots", 1),
            ("looks up the key", 0),
            ("It is over. Over there it ends", 1),
            ("is. To be sure", 0),
            ("of `which` the rest", 0),
            ("the same as before", 1),
        ] {
            assert_eq!(count(prose), expected, "{prose}");
        }
    }

    #[test]
    fn only_comments_and_prose_are_measured() {
        assert_eq!(comment("let who = 1;"), "");
        assert_eq!(comment("let a = \"http://who\"; // who"), " who");
        assert_eq!(comment("//! Who"), " Who");
        let texts = BTreeMap::from([
            ("a.rs".to_owned(), "let whoever = 1; // the caller\n".to_owned()),
            ("b.md".to_owned(), "the text `who`\n```\nwhoever\n```\n".to_owned()),
        ]);
        assert_eq!(rates(&texts), Rates::default());
    }

    #[test]
    fn rate_above_its_limit_and_limit_above_its_rate_are_found() {
        let texts = BTreeMap::from([("a.rs".to_owned(), "// whoever reads this\n".to_owned())]);
        let rules = |comments| {
            let findings = check(&texts, Rates { comments, documents: 0 }, "limits.toml");
            findings.iter().map(|finding| finding.rule).collect::<Vec<_>>()
        };
        assert_eq!(rates(&texts).comments, 3334);
        assert_eq!(rules(3334), [""; 0]);
        assert_eq!(rules(3333), ["idiom"]);
        assert_eq!(rules(3337), ["limit"]);
    }
}
