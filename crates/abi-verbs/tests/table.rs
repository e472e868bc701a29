//! Checks what is generated from the table of functions: the exported symbols. After a change of the table,
//! `BLESS=1 cargo test -p abi-verbs --test table` writes the list.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::library;

/// A line of the table.
struct Function {
    state: &'static str,
    left_out: Option<&'static str>,
    node: &'static str,
    name: &'static str,
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn functions() -> Vec<Function> {
    let parse = |line: &'static str| {
        let (line, left_out) = match line.split_once(';') {
            Some((line, left_out)) => (line, Some(left_out.trim())),
            None => (line, None),
        };
        let head = line.split('(').next().expect("a head");
        let mut words = head.split(' ');
        let (state, node) = (words.next().expect("a state"), words.next().expect("a node"));
        let name = head.rsplit([' ', '*']).next().expect("a name");
        Function { state, left_out, node, name }
    };
    lines(include_str!("../functions.txt")).map(parse).collect()
}

#[test]
fn states_are_known_and_what_is_partial_says_what_is_left_out() {
    for Function { state, left_out, name, .. } in functions() {
        assert!(["done", "partial", "unsupported"].contains(&state), "{name}: {state}");
        assert_eq!(left_out.is_some(), state == "partial", "{name}");
    }
}

/// Each supported function is called by a C test that checks its effect, not only passed invalid arguments.
#[test]
fn each_supported_function_is_called_by_a_c_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files = files.filter(|path| !path.ends_with("nonsense.c") && !path.ends_with("hammer.c"));
    let text: String = files.map(|path| fs::read_to_string(path).expect("text")).collect();
    let is_word = |byte: Option<char>| byte.is_some_and(|byte| byte.is_alphanumeric() || byte == '_');
    let calls = |name: &str| {
        text.match_indices(name).any(|(at, _)| {
            !is_word(text[..at].chars().next_back()) && !is_word(text[at + name.len()..].chars().next())
        })
    };
    // Functions with a leading underscore are called through a macro of the headers.
    let there = functions().into_iter().filter(|function| function.state != "unsupported");
    let missing: Vec<_> =
        there.map(|function| function.name.trim_start_matches('_')).filter(|name| !calls(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Symbols with their version nodes, as nm lists them.
fn exported(library: &Path) -> Option<BTreeSet<String>> {
    let output =
        Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library).output();
    let text = String::from_utf8(output.ok()?.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.split_whitespace().nth(2));
    // A node itself is also listed as a symbol, without a version.
    Some(names.filter(|name| name.contains('@')).map(|name| name.replace("@@", "@")).collect())
}

#[test]
fn exactly_the_tables_are_exported() {
    let Some(found) = exported(&library()) else {
        eprintln!("SKIPPED: there is no nm here; apt-get install binutils");
        return;
    };
    let public = functions().into_iter().map(|function| format!("{}@{}", function.name, function.node));
    let private = lines(include_str!("../private.txt")).map(|line| {
        let (node, name) = line.split_once(' ').expect("a node and a name");
        format!("{name}@{node}")
    });
    assert_eq!(found, public.chain(private).collect());
}

/// Goal: our library exports everything that a program linked with the installed libraries may need.
#[test]
fn library_exports_all_symbols_of_the_installed_ones() {
    let folder = PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let Some(ours) = exported(&library()) else { return };
    for name in ["libibverbs.so.1", "librdmacm.so.1"].map(|name| folder.join(name)) {
        if !name.exists() {
            eprintln!("SKIPPED: there is no {} here; apt-get install rdmacm-utils", name.display());
            continue;
        }
        let theirs = exported(&name).expect("nm is here");
        let is_known = |symbol: &&String| !symbol.contains("PRIVATE") || symbol.ends_with("PRIVATE_34");
        let missing: Vec<_> = theirs.difference(&ours).filter(is_known).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", name.display());
    }
}
