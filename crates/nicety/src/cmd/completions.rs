//! `nicety completions`: a shell's completion script, which calls `nicety complete` at every completion. So it offers what this
//! build contains: its commands, experiments, devices and parameters.

use std::collections::BTreeSet;
use std::ffi::OsString;

use bench::experiment::{all, all_axes};
use bench::plan::keys::{KEYS, Kind};
use clap::{Arg, Command};

use crate::args::Shell;
use crate::error::{OK, Outcome};
use crate::term::Stream;
use crate::usage;

const BASH: &str = r#"# Completion of nicety for bash.
_nicety() {
    local line="${COMP_LINE:0:COMP_POINT}" words word found cut
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word="${words[-1]}"
    # Bash replaces only what stands behind the last of its own breaks, such as = and :.
    cut="${word%"${word##*[$COMP_WORDBREAKS]}"}"
    COMPREPLY=()
    while IFS=$'\t' read -r found _; do
        COMPREPLY+=("${found#"$cut"}")
    done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _nicety nicety
"#;

const ZSH: &str = r#"#compdef nicety
_nicety() {
    local value about
    local -a whole open
    while IFS=$'\t' read -r value about; do
        if [[ $value == *= ]]; then open+=("${value//:/\\:}:$about"); else whole+=("${value//:/\\:}:$about"); fi
    done < <("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    if (( $#whole + $#open )); then _describe nicety whole -- open -S ''; else _files; fi
}
if [[ $funcstack[1] == _nicety ]]; then _nicety "$@"; else compdef _nicety nicety; fi
"#;

const FISH: &str = r#"# Completion of nicety for fish.
function __nicety_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    set -l found ($program complete -- $words "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c nicety -f -a '(__nicety_complete)'
"#;

/// Prints the script of a shell.
///
/// # Errors
/// Output that cannot be written.
pub(crate) fn script(shell: Shell) -> Outcome {
    Stream::Out.data(match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    })?;
    Ok(OK)
}

/// Prints the possible completions of the last word after `nicety`, one per line, each with a tab and a description; prints
/// nothing where a file name or free text is expected.
///
/// # Errors
/// Output that cannot be written.
pub(crate) fn complete(words: &[OsString]) -> Outcome {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let lines =
        candidates(&words).into_iter().map(|Candidate { value, about }| format!("{value}\t{about}\n"));
    Stream::Out.data(&lines.collect::<String>())?;
    Ok(OK)
}

/// A possible completion.
struct Candidate {
    value: String,
    about: String,
}

/// A candidate and its description.
fn candidate(value: impl Into<String>, about: impl ToString) -> Candidate {
    Candidate { value: value.into(), about: about.to_string() }
}

/// The candidates for the last word of a command line.
fn candidates(words: &[String]) -> Vec<Candidate> {
    let Some((word, before)) = words.split_last() else { return Vec::new() };
    let mut cli = usage::command();
    cli.build();
    let Some(place) = Cursor::after_words(before, &cli) else { return Vec::new() };
    let command = place.command;
    let found = match (place.option, word.split_once('=')) {
        (Some(option), _) => values(command, option, word),
        (None, Some((name, value))) if name.starts_with("--") => {
            let of = option(command, name).map(|arg| values(command, arg, value)).unwrap_or_default();
            of.into_iter().map(|c| candidate(format!("{name}={}", c.value), c.about)).collect()
        }
        (None, _) if word.starts_with('-') => options(command),
        (None, _) if command.has_subcommands() => commands(command),
        (None, _) => {
            command.get_positionals().next().map(|arg| values(command, arg, word)).unwrap_or_default()
        }
    };
    found.into_iter().filter(|candidate| candidate.value.starts_with(word.as_str())).collect()
}

/// The position of a word: after a command, or after an option that takes a value.
struct Cursor<'a> {
    command: &'a Command,
    option: Option<&'a Arg>,
}

impl<'a> Cursor<'a> {
    /// The position after these words; `None` after `--`, where words belong to another program.
    fn after_words(words: &[String], cli: &'a Command) -> Option<Self> {
        let mut place = Self { command: cli, option: None };
        for word in words {
            if place.option.take().is_some() {
                continue;
            }
            match word.as_str() {
                "--" => return None,
                word if word.starts_with('-') => place.option = option(place.command, word),
                word => place.command = place.command.find_subcommand(word).unwrap_or(place.command),
            }
        }
        Some(place)
    }
}

/// The option of this name, if it takes a value in the next word.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
    };
    command.get_arguments().filter(|arg| arg.get_action().takes_values()).find(is)
}

/// The options of a command.
fn options(command: &Command) -> Vec<Candidate> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown
        .filter_map(|arg| {
            let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
            Some(candidate(format!("--{}", arg.get_long()?), about))
        })
        .collect()
}

/// The subcommands of a command.
fn commands(command: &Command) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown
        .map(|c| candidate(c.get_name(), c.get_about().map(ToString::to_string).unwrap_or_default()))
        .collect()
}

/// The possible values of an argument; the caller drops values that do not begin with `text`.
fn values(command: &Command, arg: &Arg, text: &str) -> Vec<Candidate> {
    match (command.get_name(), arg.get_id().as_str()) {
        (_, "experiments") => experiments().collect(),
        (_, "experiment") => {
            experiments().chain([candidate("mpi", "which protocols and algorithms our MPI takes")]).collect()
        }
        (_, "device" | "devices") => devices(text),
        ("bench", "set") => settings(text),
        (_, "only") => factors(text),
        (_, "what") => reproduce::PAPERS.map(|paper| candidate(paper, "a paper")).into(),
        _ => {
            let possible = arg.get_possible_values();
            possible.iter().map(|value| candidate(value.get_name(), "")).collect()
        }
    }
}

/// A candidate for each experiment, with what it measures.
fn experiments() -> impl Iterator<Item = Candidate> {
    all().iter().map(|e| candidate(e.name(), e.about()))
}

/// Completes a list of devices with any device that is not in it yet.
fn devices(text: &str) -> Vec<Candidate> {
    let (named, comma) = text.rsplit_once(',').map_or(("", ""), |(named, _)| (named, ","));
    let new = fabric::list().into_iter().filter(|entry| !named.split(',').any(|name| name == entry.name));
    new.map(|entry| candidate(format!("{named}{comma}{}", entry.name), entry.about)).collect()
}

/// `KEY=`, and the values of a switch.
fn settings(text: &str) -> Vec<Candidate> {
    if let Some((name, _)) = text.split_once('=') {
        let is_switch = KEYS.iter().any(|key| key.name == name && key.kind == Kind::Switch);
        let words: &[&str] = if is_switch { &["on", "off"] } else { &[] };
        return words.iter().map(|word| candidate(format!("{name}={word}"), "")).collect();
    }
    let keys = KEYS.iter().map(|key| (key.name, key.help));
    let axes = all().iter().flat_map(|e| all_axes(*e)).map(|axis| (axis.factor.name(), axis.about));
    let mut seen = BTreeSet::new();
    let first = keys.chain(axes).filter(|(name, _)| seen.insert(*name));
    first.map(|(name, about)| candidate(format!("{name}="), about)).collect()
}

/// Completes a list with `FACTOR=`, or with a level of the factor.
fn factors(text: &str) -> Vec<Candidate> {
    let last = text.rsplit_once(',').map_or(text, |(_, last)| last);
    let named = &text[..text.len() - last.len()];
    let variants: Vec<_> = all().iter().flat_map(|e| e.variants(false)).collect();
    let pairs = variants.iter().flat_map(|variant| variant.iter());
    let found: BTreeSet<String> = match last.split_once('=') {
        Some((factor, _)) => {
            pairs.filter(|(name, _)| *name == factor).map(|(n, l)| format!("{n}={l}")).collect()
        }
        None => pairs.map(|(name, _)| format!("{name}=")).collect(),
    };
    found.into_iter().map(|end| candidate(format!("{named}{end}"), "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate_values(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        candidates(&words).into_iter().map(|candidate| candidate.value).collect()
    }

    #[test]
    fn candidates_depend_on_the_words_before() {
        for (words, expected) in [
            (&["be"][..], &["bench"][..]),
            (&["help", "be"], &["bench"]),
            (&["bench", "lat"], &["latency"]),
            (&["explain", "lat"], &["latency"]),
            (&["explain", "mpi-lat"], &["mpi-latency"]),
            (&["bench", "latency", "band"], &["bandwidth"]),
            (&["bench", "--js"], &["--json"]),
            (&["bench", "--device", "iw"], &["iwarp"]),
            (&["bench", "--quick", "-d", "shm,iw"], &["shm,iwarp"]),
            (&["bench", "--device=iw"], &["--device=iwarp"]),
            (&["run", "--device", "iw"], &["iwarp"]),
            (&["bench", "--set", "win"], &["window="]),
            (&["bench", "--set=win"], &["--set=window="]),
            (&["bench", "--set", "verify="], &["verify=on", "verify=off"]),
            (&["bench", "--only", "op=write,sou"], &["op=write,source="]),
            (&["bench", "--only", "source=n"], &["source=nic"]),
            (&["completions", "f"], &["fish"]),
            (&["reproduce", "multirail"], &["multirail-udapl"]),
            (&["reproduce", ""], &reproduce::PAPERS),
            // File names, or words of another program.
            (&["compare", ""], &[]),
            (&["bench", "--json", "be"], &[]),
            (&["run", "--dat", "--", "be"], &[]),
            (&["reproduce", "--set", "win"], &[]),
        ] {
            assert_eq!(candidate_values(words), expected, "{words:?}");
        }
        assert!(candidate_values(&["bench", "--device", "shm,"]).iter().all(|list| list != "shm,shm"));
        assert_eq!(candidate_values(&["bench", ""]).len(), all().len());
        assert_eq!(candidate_values(&["explain", "mpi"]).last().map(String::as_str), Some("mpi"));
    }

    #[test]
    fn hidden_commands_stay_hidden() {
        let shown = candidate_values(&[""]);
        assert!(shown.contains(&"bench".to_owned()) && shown.contains(&"help".to_owned()), "{shown:?}");
        for hidden in usage::command().get_subcommands().filter(|command| command.is_hide_set()) {
            assert!(!shown.contains(&hidden.get_name().to_owned()), "{shown:?}");
            assert!(candidate_values(&["help", hidden.get_name()]).is_empty());
        }
    }
}
