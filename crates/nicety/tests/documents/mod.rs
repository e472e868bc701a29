//! Commands in documents: every `nicety ...` that a fenced block of the repository's Markdown shows.

use std::fs;
use std::path::{Path, PathBuf};

/// Languages of fenced blocks in which every line is a command. In `console`, lines that begin with `$ ` are.
const SHELL: [&str; 3] = ["", "sh", "bash"];

/// Programs that start the command behind them, each with the number of its own arguments.
const STARTERS: [(&str, usize); 4] = [("ip", 3), ("sudo", 0), ("time", 0), ("timeout", 1)];

/// A command and the line that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Documented {
    /// `file:line`.
    pub(crate) place: String,
    /// The words of the command; the first is `nicety`.
    pub(crate) words: Vec<String>,
}

/// The commands in the documents at the root and below `docs`.
pub(crate) fn commands() -> Vec<Documented> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = pages(&root, false);
    pages.extend(self::pages(&root.join("docs"), true));
    pages
        .iter()
        .flat_map(|page| {
            let text = fs::read_to_string(page).expect("a document that can be read");
            of_page(&page.strip_prefix(&root).expect("below the root").display().to_string(), &text)
        })
        .collect()
}

/// The Markdown files of a folder, in order.
fn pages(folder: &Path, recursive: bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of documents");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let below = |path: PathBuf| match path.extension() {
        Some(ending) if ending == "md" => vec![path],
        _ if recursive && path.is_dir() => pages(&path, true),
        _ => Vec::new(),
    };
    paths.into_iter().flat_map(below).collect()
}

/// The commands in the fenced blocks of a page.
pub(crate) fn of_page(path: &str, text: &str) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut language = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            language = if language.is_none() { Some(info.trim()) } else { None };
            continue;
        }
        let shell = match language {
            Some("console") => line.strip_prefix("$ "),
            // A remark follows the command after two blanks.
            Some(language) if SHELL.contains(&language) => line.trim_start().split("  ").next(),
            _ => None,
        };
        let place = || format!("{path}:{}", index + 1);
        let commands = shell.map(of_line).unwrap_or_default();
        found.extend(commands.into_iter().map(|words| Documented { place: place(), words }));
    }
    found
}

/// The commands in a line of a shell, also inside of `$(...)`.
fn of_line(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut rest = line.trim_start();
    while let Some(next) = rest.chars().next().filter(|next| *next != '#') {
        if "&|;()".contains(next) {
            found.extend(ours(&std::mem::take(&mut words)));
            rest = rest[1..].trim_start();
        } else {
            let (word, behind, inner) = word(rest);
            found.extend(inner.iter().flat_map(|inner| of_line(inner)));
            words.push(word);
            rest = behind.trim_start();
        }
    }
    found.extend(ours(&words));
    found
}

/// The next word without its quotes, what follows it, and the commands substituted in it.
fn word(text: &str) -> (String, &str, Vec<String>) {
    let (mut word, mut inner, mut quote) = (String::new(), Vec::new(), None);
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let substituted = (quote != Some('\'')).then(|| text[at..].strip_prefix("$(")).flatten();
        if let Some((command, _)) = substituted.and_then(|rest| rest.split_once(')')) {
            inner.push(command.to_owned());
            at += command.len() + 3;
            word += "substituted";
            continue;
        }
        match quote {
            None if next.is_whitespace() || "&|;()".contains(next) => break,
            None if next == '\'' || next == '"' => quote = Some(next),
            Some(open) if next == open => quote = None,
            _ => word.push(next),
        }
        at += next.len_utf8();
    }
    (word, &text[at..], inner)
}

/// The words of our command, without assignments and starters before it, and without redirections.
fn ours(words: &[String]) -> Option<Vec<String>> {
    let is_assignment = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        })
    };
    let mut start = 0;
    while let Some(word) = words.get(start) {
        let starter = STARTERS.iter().find(|(name, _)| name == word);
        match starter {
            Some((_, arguments)) => start += 1 + arguments,
            None if is_assignment(word) => start += 1,
            None => break,
        }
    }
    let command =
        words.get(start..).filter(|command| command.first().is_some_and(|word| word == "nicety"))?;
    let is_redirection =
        |word: &String| word.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['<', '>']);
    let redirected = command.iter().position(is_redirection);
    Some(command[..redirected.unwrap_or(command.len())].to_vec())
}
