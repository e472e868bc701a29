//! Checks that the program accepts every command that it suggests.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::{nicety, nicety_in};
use crate::documents;

/// The words of a command after shell parsing, without pipes and without the remark after it.
fn words(line: &str) -> Vec<String> {
    let command = line.trim().split("  ").next().unwrap_or_default().split(" | ").next().unwrap_or_default();
    command.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// The measurements that a text suggests.
fn suggested(text: &str) -> Vec<Vec<String>> {
    // At the beginning of a line, or after its purpose and a colon.
    let commands = text.lines().map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest).trim());
    let is_one = |line: &&str| line.starts_with("nicety bench ") && !line.contains("[OPTIONS]");
    commands.filter(is_one).map(|line| words(line)[1..].to_vec()).collect()
}

/// Goal: all suggested commands work. Method: every measurement in the help, the list of devices and the explanations is run
/// with --dry-run.
#[test]
fn every_suggested_measurement_is_accepted() {
    let mut texts = vec![nicety(["bench", "--help"]).out, nicety(["devices"]).out, nicety([""; 0]).out];
    texts.push(nicety(["devices", "--verbose"]).out);
    let list = nicety(["explain"]).out;
    let names: BTreeSet<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let explained =
        names.iter().map(|name| nicety(["explain", name])).filter(|ended| ended.status == Some(0));
    let explained: Vec<String> = explained.map(|ended| ended.out).collect();
    assert!(explained.len() >= 25, "{list}");
    assert!(explained.iter().all(|text| !suggested(text).is_empty()), "every page suggests something");
    texts.extend(explained);
    // The folder that contains the plan of the help's example.
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    for command in texts.iter().flat_map(|text| suggested(text)) {
        let ended = nicety_in(&examples, command.iter().map(String::as_str).chain(["--dry-run"]));
        assert_eq!(ended.status, Some(0), "nicety {}: {ended:?}", command.join(" "));
    }
}

/// Whether a reader puts something else in the place of this word, such as FILE.
fn is_placeholder(word: &str) -> bool {
    word.len() >= 3 && word.chars().all(|c| c.is_ascii_uppercase())
}

/// A folder with the files that documented commands name: plans, hosts, ranks and a token.
fn files_of_documents() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    std::fs::copy(examples.join("survey.toml"), folder.path().join("survey.toml"))
        .expect("the plan is there");
    std::fs::write(folder.path().join("hosts"), "localhost slots=64\n").expect("written");
    std::fs::write(folder.path().join("ranks"), "rank 0=localhost slot=0\nrank 1=localhost\n")
        .expect("written");
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").expect("written");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))
        .expect("permissions of the file");
    folder
}

/// Puts a program in the place of each that a command starts by a relative path, such as `./ring`.
fn make_programs(folder: &Path, words: &[String]) {
    let is_program = |word: &&String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "./-_".contains(c);
        word.contains('/') && !word.starts_with('/') && word.chars().all(plain)
    };
    for program in words.iter().filter(is_program).map(|word| folder.join(word)).filter(|path| !path.exists())
    {
        std::fs::create_dir_all(program.parent().expect("it has a folder")).expect("created");
        std::os::unix::fs::symlink("/bin/true", program).expect("linked");
    }
}

/// Goal: what the documents show works. Method: each measurement and each job in them is asked for, but not made, in a folder
/// that has the files they name; each explanation is printed.
#[test]
fn every_documented_measurement_and_job_is_accepted() {
    let folder = files_of_documents();
    let mut asked = 0;
    for documented in documents::commands() {
        let mut words = documented.words[1..].to_vec();
        let Some(command) = words.first().cloned().filter(|_| !words.iter().any(|word| is_placeholder(word)))
        else {
            continue;
        };
        match command.as_str() {
            "bench" | "survey" | "mpirun" if !words.iter().any(|word| word == "--dry-run") => {
                words.insert(1, "--dry-run".to_owned());
            }
            "bench" | "survey" | "mpirun" | "explain" => {}
            _ => continue,
        }
        // Programs are in the folder of the test.
        if let Some(at) = words.iter().position(|word| word == "--wdir") {
            words.drain(at..at + 2);
        }
        make_programs(folder.path(), &words);
        let ended = nicety_in(folder.path(), &words);
        if ended.err.contains("build abi-mpi-check") {
            eprintln!("SKIPPED: nicety {}; cargo build -p abi-mpi-check", words.join(" "));
            continue;
        }
        assert_eq!(ended.status, Some(0), "{}: nicety {}: {ended:?}", documented.place, words.join(" "));
        asked += 1;
    }
    assert!(asked >= 30, "only {asked} commands were found");
}

#[test]
fn commands_are_found_in_fenced_blocks_of_shells() {
    let found = |text: &str| {
        let found = documents::of_page("a.md", text).into_iter();
        found.map(|command| (command.place, command.words.join("|"))).collect::<Vec<_>>()
    };
    let at = |line: usize, words: &str| (format!("a.md:{line}"), words.to_owned());
    let console = "nicety devices\n```console\n$ nicety run -- rping -s &\nnicety is output\n$ eval \"$(nicety run --print-env)\" && make\n```\n";
    assert_eq!(found(console), [at(3, "nicety|run|--|rping|-s"), at(5, "nicety|run|--print-env")]);
    let plain = "```\nnicety doctor   says what would spoil numbers\nip netns exec a nicety serve >log # for b\n```\n";
    assert_eq!(found(plain), [at(2, "nicety|doctor"), at(3, "nicety|serve")]);
    let quoted = "```sh\nA=1 nicety bench --device 'model:a(b=1)' | jq '.a' ; cargo build -p nicety\n```\n";
    assert_eq!(found(quoted), [at(2, "nicety|bench|--device|model:a(b=1)")]);
    assert_eq!(found("```rust\nnicety devices\n```\n"), []);
}
