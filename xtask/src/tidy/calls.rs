//! Banned calls in the crates of the rows, each with its replacement.
//!
//! Waiting, clocks and the environment belong to `host` and to the programs: everything between must run in virtual time too.

use super::tokens::{Token, TokenKind, starts_with_path};
use super::{Finding, Source};
use crate::rows;
use proc_macro2::Delimiter;
use std::collections::BTreeSet;
use syn::UseTree;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A pattern of tokens.
enum Pattern {
    /// A path's last names, called or imported.
    Path(&'static [&'static str]),
    /// An identifier, wherever it occurs.
    Name(&'static str),
    /// A method called without arguments (with any number, if `true`).
    Method(&'static str, bool),
    /// A macro.
    Macro(&'static str),
}

/// A group of banned calls.
struct Ban {
    rule: &'static str,
    patterns: &'static [Pattern],
    /// What to do instead.
    instead: &'static str,
    /// Whether the rule holds in this file at all.
    holds: fn(&Source) -> bool,
}

use Pattern::{Macro, Method, Name, Path};

const BANS: &[Ban] = &[
    Ban {
        rule: "wait",
        patterns: &[
            Path(&["thread", "park"]),
            Path(&["thread", "park_timeout"]),
            Path(&["thread", "sleep"]),
            Path(&["thread", "yield_now"]),
            Name("Condvar"),
            Name("sched_yield"),
            Method("recv", false),
            Method("recv_timeout", true),
        ],
        instead: "wait through Host::wait",
        holds: |source| {
            !under(
                source,
                &[
                    "crates/host/src/real",
                    "crates/launcher/",
                    "crates/nicety/",
                    "crates/bench/src/launch",
                    "crates/bench-server/",
                ],
            )
        },
    },
    Ban {
        rule: "clock",
        patterns: &[
            Path(&["Instant", "now"]),
            Path(&["SystemTime", "now"]),
            Name("clock_gettime"),
            Name("_rdtsc"),
        ],
        instead: "ask Host::now, which virtual time answers too",
        holds: |source| {
            !under(source, &["crates/host/", "crates/launcher/", "crates/nicety/", "crates/bench/src/env"])
        },
    },
    Ban {
        rule: "print",
        patterns: &[Macro("println"), Macro("print")],
        instead: "return the text or write to a `Write` that the caller passes in",
        holds: Source::is_library,
    },
    Ban {
        rule: "remark",
        patterns: &[Macro("eprintln"), Macro("eprint"), Path(&["io", "stderr"]), Path(&["stdio", "stderr"])],
        instead: "return an error, or say it through host::real::remark, which lets no control character pass",
        holds: |source| {
            source.is_library()
                && source.package() != Some("conformance")
                && !under(source, &["crates/host/src/real/remark.rs"])
        },
    },
    Ban {
        rule: "spin",
        patterns: &[Name("Spin"), Name("BiasedLock"), Name("SpinMutex"), Path(&["hint", "spin_loop"])],
        instead: "take a host::Lock: in virtual time a holder may give up control, and whoever spins keeps it for ever",
        holds: |source| {
            // Rails run on modelled NICs, too.
            let above_nics = |row| row == 1 || Some(row) > rows::row("nic-model");
            source.package() == Some("nic-rails") || source.row().is_some_and(above_nics)
        },
    },
    Ban {
        rule: "env",
        patterns: &[
            Path(&["env", "var"]),
            Path(&["env", "var_os"]),
            Path(&["env", "vars"]),
            Path(&["env", "vars_os"]),
        ],
        instead: "take it as a parameter; the command and the C faces read the environment",
        holds: |source| source.row().is_some_and(|row| Some(row) <= rows::row("mpi")),
    },
    Ban {
        rule: "unbounded-read",
        patterns: &[
            Path(&["fs", "read"]),
            Path(&["fs", "read_to_string"]),
            Path(&["io", "read_to_string"]),
            Path(&["io", "BufRead"]),
            Path(&["serde_json", "from_reader"]),
            Method("read_to_end", true),
            Method("read_to_string", true),
            Method("read_until", true),
            Method("read_line", true),
        ],
        instead: "read through host::bounded, with a limit for what the input may hold",
        // The second file reads /proc/self/maps line by line, in a crate without dependencies.
        holds: |source| !under(source, &["crates/host/src/bounded.rs", "crates/uaccess/src/mapping.rs"]),
    },
    Ban {
        rule: "terminal",
        patterns: &[
            Path(&["io", "stdout"]),
            Path(&["io", "stderr"]),
            Path(&["stdio", "stdout"]),
            Path(&["stdio", "stderr"]),
            Macro("println"),
            Macro("print"),
            Macro("eprintln"),
            Macro("eprint"),
        ],
        instead: "write through term::Stream or term::remark, which let no control character of foreign text pass",
        holds: |source| {
            under(source, &["crates/launcher/src/", "crates/nicety/src/"])
                && !under(source, &["crates/nicety/src/term.rs"])
        },
    },
];

fn under(source: &Source, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| source.path.starts_with(prefix))
}

/// Findings of all bans in one file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.package().is_none() {
        return Vec::new();
    }
    let imports = Imports::new(source);
    let mut findings = BTreeSet::new();
    for ban in BANS.iter().filter(|ban| (ban.holds)(source)) {
        for pattern in ban.patterns {
            let found = pattern.lines(&source.tokens).into_iter().chain(imports.lines(pattern));
            for line in found.filter(|&line| !source.is_test(line)) {
                let what = format!("{}: {}", pattern.shown(), ban.instead);
                findings.insert(Finding::new(&source.path, line, ban.rule, what));
            }
        }
    }
    findings.into_iter().collect()
}

impl Pattern {
    /// The lines on which it occurs.
    fn lines(&self, tokens: &[Token]) -> Vec<usize> {
        (0..tokens.len()).filter(|&at| self.is_at(tokens, at)).map(|at| tokens[at].line).collect()
    }

    fn is_at(&self, tokens: &[Token], at: usize) -> bool {
        let rest = &tokens[at..];
        let before = at.checked_sub(1).map(|previous| &tokens[previous].kind);
        let punct = |token: Option<&Token>, c| token.is_some_and(|token| token.kind == TokenKind::Punct(c));
        match self {
            // loom's own threads are part of a model, which has no Host.
            Path(path) => {
                starts_with_path(rest, path)
                    && !(at >= 3 && starts_with_path(&tokens[at - 3..], &["loom", path[0]]))
            }
            Name(name) => rest[0].is(name),
            Macro(name) => rest[0].is(name) && punct(rest.get(1), '!'),
            Method(name, arguments) => {
                let called =
                    rest.get(1).is_some_and(|token| token.kind == TokenKind::Open(Delimiter::Parenthesis));
                let empty = rest.get(2).is_some_and(|token| token.kind == TokenKind::Close);
                rest[0].is(name) && before == Some(&TokenKind::Punct('.')) && called && (*arguments || empty)
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Path(path) => format!("`{}`", path.join("::")),
            Name(name) => format!("`{name}`"),
            Method(name, _) => format!("`.{name}()`"),
            Macro(name) => format!("`{name}!`"),
        }
    }
}

/// Every path that a file imports, so that `use std::thread::{self, sleep}` hides nothing.
struct Imports(Vec<(Vec<String>, usize)>);

impl Imports {
    fn new(source: &Source) -> Self {
        let mut imports = Self(Vec::new());
        if let Some(file) = &source.syntax {
            imports.visit_file(file);
        }
        imports
    }

    fn lines(&self, pattern: &Pattern) -> Vec<usize> {
        let Path(wanted) = pattern else { return Vec::new() };
        let ends =
            |path: &[String]| path.len() >= wanted.len() && path[path.len() - wanted.len()..] == **wanted;
        let found =
            self.0.iter().filter(|(path, _)| ends(path) && path.first().is_none_or(|first| first != "loom"));
        found.map(|(_, line)| *line).collect()
    }

    fn add(&mut self, mut prefix: Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add(prefix, &path.tree);
            }
            UseTree::Name(name) => {
                prefix.push(name.ident.to_string());
                self.0.push((prefix, name.span().start().line));
            }
            UseTree::Rename(rename) => {
                prefix.push(rename.ident.to_string());
                self.0.push((prefix, rename.span().start().line));
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add(prefix.clone(), tree)),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add(Vec::new(), &item.tree);
        visit::visit_item_use(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules that a function `body` in the file at `path` breaks.
    fn objections(path: &str, body: &str) -> Vec<&'static str> {
        let source = Source::parse(path, &format!("fn f() {{ {body} }}"));
        assert!(source.unparsable().is_none(), "{body}");
        check(&source).iter().map(|finding| finding.rule).collect()
    }

    const SOFT: &str = "crates/nic-shm/src/nic.rs";

    #[test]
    fn waiting_goes_through_the_host() {
        for body in [
            "std::thread::park();",
            "use std::thread::{self, sleep}; sleep(d);",
            "thread::sleep(d);",
            "std::thread::yield_now();",
            "let c = std::sync::Condvar::new();",
            "assert_eq!(rx.recv(), Ok(1));",
            "rx.recv_timeout(d);",
        ] {
            assert_eq!(objections(SOFT, body), ["wait"], "{body}");
            assert_eq!(objections("crates/host/src/real/park.rs", body), [""; 0], "{body}");
            assert_eq!(objections("crates/bench/src/launch.rs", body), [""; 0], "{body}");
            assert_eq!(objections("crates/nicety/src/main.rs", body), [""; 0], "{body}");
            assert_eq!(objections("crates/nic-shm/tests/kill.rs", body), [""; 0], "{body}");
        }
        for body in
            ["socket.recv(buffer);", "host.park(d);", "loom::thread::yield_now();", "// thread::park\n"]
        {
            assert_eq!(objections(SOFT, body), [""; 0], "{body}");
        }
    }

    #[test]
    fn clocks_belong_to_the_host() {
        assert_eq!(objections(SOFT, "let t = std::time::Instant::now();"), ["clock"]);
        assert_eq!(objections(SOFT, "let t = SystemTime::now();"), ["clock"]);
        assert_eq!(objections("crates/host/src/real/clock.rs", "Instant::now();"), [""; 0]);
        assert_eq!(objections("crates/bench/src/environment.rs", "SystemTime::now();"), [""; 0]);
        assert_eq!(objections(SOFT, "let t = host.now();"), [""; 0]);
    }

    #[test]
    fn libraries_do_not_print() {
        assert_eq!(objections("crates/bench/src/table.rs", "println!(\"x\");"), ["print"]);
        assert_eq!(objections("crates/nicety/src/main.rs", "println!(\"x\");"), ["terminal"]);
        assert_eq!(objections("crates/bench/src/table.rs", "writeln!(out, \"println!\")?;"), [""; 0]);
    }

    #[test]
    fn libraries_remark_in_one_place() {
        for body in ["eprintln!(\"x\");", "eprint!(\"x\");", "std::io::stderr().write_all(b)?;"] {
            assert_eq!(objections("crates/abi-mpi/src/state.rs", body), ["remark"], "{body}");
            assert_eq!(objections("crates/host/src/real/remark.rs", body), [""; 0], "{body}");
            assert_eq!(objections("crates/conformance/src/operations/large.rs", body), [""; 0], "{body}");
            assert_eq!(objections("crates/abi-mpi/tests/programs.rs", body), [""; 0], "{body}");
        }
        assert_eq!(objections("crates/abi-mpi/src/state.rs", "remark(\"x\");"), [""; 0]);
    }

    #[test]
    fn spin_locks_belong_to_nics() {
        assert_eq!(objections("crates/dapl/src/ep.rs", "let side: Spin<Side>;"), ["spin"]);
        assert_eq!(objections("crates/dapl/src/ep.rs", "let side: BiasedLock<Side>;"), ["spin"]);
        assert_eq!(objections("crates/nic-rails/src/api/cq.rs", "spin::mutex::SpinMutex::new(0);"), ["spin"]);
        assert_eq!(objections(SOFT, "let side: Spin<Side>;"), [""; 0]);
        assert_eq!(objections("crates/dapl/src/ep.rs", "let side: Lock<Side>;"), [""; 0]);
    }

    #[test]
    fn the_environment_is_read_at_the_top() {
        assert_eq!(objections(SOFT, "std::env::var(\"X\");"), ["env"]);
        assert_eq!(objections("crates/nicety/src/main.rs", "std::env::var(\"X\");"), [""; 0]);
        assert_eq!(objections(SOFT, "std::env::temp_dir();"), [""; 0]);
    }

    #[test]
    fn reading_without_limit_is_flagged() {
        for body in [
            "std::fs::read(path)?;",
            "use std::fs; fs::read_to_string(path)?;",
            "file.read_to_end(&mut bytes)?;",
            "stdin().read_line(&mut line)?;",
            "use std::io::BufRead as _; for line in stdin().lock().lines() {}",
            "serde_json::from_reader(file)?;",
        ] {
            assert_eq!(objections("crates/nicety/src/config.rs", body)[..1], ["unbounded-read"], "{body}");
            assert_eq!(objections("crates/host/src/bounded.rs", body), [""; 0], "{body}");
        }
        for body in ["bounded::read(path, 10)?;", "fs::read_dir(path)?;", "text.lines();", "stream.read(b)?;"]
        {
            assert_eq!(objections("crates/nicety/src/config.rs", body), [""; 0], "{body}");
        }
    }

    #[test]
    fn the_command_writes_in_one_place() {
        let command = "crates/nicety/src/cmd/serve.rs";
        for body in [
            "println!(\"x\");",
            "eprint!(\"x\");",
            "std::io::stderr().write_all(b)?;",
            "use rustix::stdio::{stdin, stdout};",
        ] {
            assert_eq!(objections(command, body), ["terminal"], "{body}");
            assert_eq!(objections("crates/nicety/src/term.rs", body), [""; 0], "{body}");
        }
        assert_eq!(objections(command, "Stream::Out.print(text)?;"), [""; 0]);
    }

    #[test]
    fn a_finding_names_the_replacement() {
        let source = Source::parse(SOFT, "//! Doc.\nfn f() {\n    std::thread::sleep(d);\n}\n");
        assert_eq!(
            check(&source)[0].to_string(),
            "crates/nic-shm/src/nic.rs:3: `thread::sleep`: wait through Host::wait [wait]"
        );
    }
}
