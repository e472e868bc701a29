//! Completion scripts in their shells: always bash; fish and zsh if they are installed.

use std::path::Path;
use std::process::Command;

use crate::common::nicety;

/// A typed line, and the completion of its last word.
const TYPED: [(&str, &str); 7] = [
    ("nicety be", "bench"),
    ("nicety bench lat", "latency"),
    ("nicety explain lat", "latency"),
    ("nicety bench --device shm,iw", "shm,iwarp"),
    ("nicety bench -d model:mt23108-v", "model:mt23108-vapi"),
    ("nicety bench --set win", "window="),
    ("nicety bench --set verify=of", "verify=off"),
];

/// The output of a program in a shell; `None` if that shell is not installed.
fn shell(name: &str, options: &[&str], program: &str) -> Option<String> {
    let binaries = Path::new(env!("CARGO_BIN_EXE_nicety")).parent().expect("a folder");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    match Command::new(name).args(options).args(["-c", program]).env("PATH", path).output() {
        Ok(output) => {
            assert!(output.stderr.is_empty(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(why) => {
            eprintln!("SKIPPED: completion in {name} was not tried: {why}");
            None
        }
    }
}

fn script(shell: &str) -> String {
    let ended = nicety(["completions", shell]);
    assert_eq!(ended.status, Some(0));
    ended.out
}

/// Method: calls the function as bash does; bash appends the completion to the part of the word before its last word break.
#[test]
fn bash_completes() {
    for (line, expected) in TYPED {
        let program = format!(
            "{}\nCOMP_LINE='{line}' COMP_POINT={} COMP_WORDBREAKS=$' \\t\\n\"\\'@><=;|&(:'\n_nicety\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script("bash"),
            line.len()
        );
        let word = line.rsplit(' ').next().expect("a word");
        let kept = word.rfind(['=', ':']).map_or("", |at| &word[..=at]);
        let told = shell("bash", &["--norc"], &program).expect("bash is there");
        assert_eq!(format!("{kept}{}", told.trim_end()), expected, "{line}");
    }
    let hidden =
        format!("{}\nCOMP_LINE='nicety ' COMP_POINT=7\n_nicety\necho \"${{COMPREPLY[@]}}\"", script("bash"));
    let told = shell("bash", &["--norc"], &hidden).expect("bash is there");
    let words: Vec<&str> = told.split_whitespace().collect();
    assert!(words.contains(&"bench") && words.contains(&"help") && !words.contains(&"worker"), "{told}");
}

#[test]
fn fish_completes() {
    for (line, expected) in TYPED {
        let program = format!("{}\ncomplete -C '{line}'", script("fish"));
        let Some(told) = shell("fish", &["--no-config"], &program) else { return };
        let first = told.lines().next().and_then(|line| line.split('\t').next());
        assert_eq!((first, told.lines().count()), (Some(expected), 1), "{line}: {told}");
    }
}

/// Method: checks the words that the script passes to zsh's `_describe`.
#[test]
fn zsh_completes() {
    for (line, expected) in TYPED {
        let program = format!(
            "compdef() {{}}\n{}\n_describe() {{ print -rl -- $whole $open }}\nwords=({line}) CURRENT=$#words \
             PREFIX=$words[-1]\n_nicety",
            script("zsh")
        );
        let Some(told) = shell("zsh", &["-f"], &program) else { return };
        let quoted = expected.replace(':', "\\:");
        assert!(told.lines().count() == 1 && told.starts_with(&format!("{quoted}:")), "{line}: {told}");
    }
}
