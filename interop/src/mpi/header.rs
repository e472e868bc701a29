//! The case of MPI's header: the declarations in MPICH's `mpi_abi.h` must equal `crates/abi-mpi/tests/mpi_abi.txt`,
//! with which a test of that crate compares our `mpi.h`.

use super::launchers::Mpich;
use crate::case::{Case, Verdict};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

pub(crate) const CASES: &[Case<Mpich>] = &[Case {
    name: "mpi-header",
    shows: "mpi_abi.txt, to which mpi.h is held, against MPICH's header",
    run: |mpich| header(mpich),
}];

const HEAD: &str = "\
# The names, types and values of MPI's standard ABI, as MPICH's mpi_abi.h (Python's package mpich) has them. A test of tests/table.rs
# holds include/mpi.h to them. `BLESS=1 cargo xtask interop --only mpi-header` derives this file anew.
";

fn header(mpich: &Mpich) -> Result<Verdict> {
    let path = mpich.root.join("crates/abi-mpi/tests/mpi_abi.txt");
    let theirs = fs::read_to_string(mpich.program("../include/mpi_abi.h"))?;
    let facts = facts(&theirs)?;
    let derived = facts.iter().fold(HEAD.to_owned(), |text, fact| text + fact + "\n");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &derived)?;
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    for (known, derived) in known.lines().zip(derived.lines()) {
        ensure!(
            known == derived,
            "mpi_abi.txt has `{known}` where MPICH has `{derived}`; BLESS=1 writes it anew"
        );
    }
    ensure!(known == derived, "mpi_abi.txt and MPICH's header differ in length; BLESS=1 writes it anew");
    let count = |kind: &str| facts.iter().filter(|fact| fact.starts_with(kind)).count();
    Ok(Verdict(format!(
        "{} constants and {} prototypes are the same",
        count("constant "),
        count("function ")
    )))
}

/// The declarations of an ABI header, one a line: `function`, `callback`, `constant`, `type`, `handle` and `struct`,
/// sorted. MPICH's own names (`MPIX_`) are left out, and `PMPI_` names must have the prototypes of the others.
fn facts(header: &str) -> Result<BTreeSet<String>> {
    let text = plain(header)?;
    let (directives, code): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let defined = |line: &&str| {
        let (name, value) = line.strip_prefix("#define")?.trim().split_once(' ')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    let macros: BTreeMap<String, String> = directives.iter().filter_map(defined).collect();
    let mut header = Header { macros, facts: BTreeSet::new(), profiled: BTreeSet::new() };
    for statement in statements(&code.join(" ")) {
        header.add(&statement).with_context(|| format!("`{statement}` is not understood"))?;
    }
    header.add_macros()?;
    header.checked()
}

/// Removes comments, the part for C++, and line continuations from a header.
fn plain(header: &str) -> Result<String> {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("/*") {
        text += before;
        rest = after.split_once("*/").context("a comment has no end")?.1;
    }
    text += rest;
    let mut is_cpp = false;
    let mut lines = Vec::new();
    for line in text.replace("\\\n", " ").lines().map(str::trim) {
        is_cpp |= line.starts_with("#if") && line.contains("__cplusplus");
        if !is_cpp {
            lines.push(line.to_owned());
        }
        is_cpp &= !line.starts_with("#endif");
    }
    Ok(lines.join("\n"))
}

/// The declarations of C code, with single spaces.
fn statements(code: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut depth = 0;
    for character in code.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().expect("never empty").push(character);
    }
    let spaced = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    found.into_iter().map(spaced).filter(|statement| !statement.is_empty()).collect()
}

/// A header whose declarations are being parsed.
struct Header {
    macros: BTreeMap<String, String>,
    facts: BTreeSet<String>,
    /// The prototypes of its `PMPI_` names, under their `MPI_` names.
    profiled: BTreeSet<String>,
}

impl Header {
    fn add(&mut self, statement: &str) -> Option<()> {
        if statement.contains("MPIX_") && !statement.starts_with("enum") {
            return Some(());
        }
        if let Some(list) = statement.strip_prefix("enum {") {
            return self.enumerators(list.strip_suffix('}')?);
        }
        let Some(defined) = statement.strip_prefix("typedef ") else {
            return self.prototype(statement);
        };
        if let Some(named) = defined.strip_prefix("enum ") {
            let (name, rest) = named.trim().split_once(" {")?;
            let (list, alias) = rest.split_once('}')?;
            self.facts.insert(format!("type {} enum {name}", alias.trim()));
            return self.enumerators(list);
        }
        let fact = if let Some(fields) = defined.strip_prefix("struct {") {
            let (fields, name) = fields.split_once('}')?;
            format!("struct {} {}", name.trim(), fields.trim())
        } else if defined.starts_with("struct ") {
            format!("handle {}", defined.split_once('*')?.1.trim())
        } else if let Some((returns, rest)) = defined.split_once(" (") {
            let (name, arguments) = rest.split_once(')')?;
            let arguments = arguments.trim().strip_prefix('(')?.strip_suffix(')')?;
            format!("callback {returns} {name}({})", arguments.trim())
        } else {
            let (of, name) = defined.split_once(' ')?;
            format!("type {name} {}", self.resolved(of))
        };
        self.facts.insert(fact);
        Some(())
    }

    /// The type that a name denotes, after macros and the header's other types are expanded.
    fn resolved(&self, name: &str) -> String {
        if let Some(value) = self.macros.get(name) {
            return self.resolved(value);
        }
        let prefix = format!("type {name} ");
        let known = self.facts.iter().find_map(|fact| fact.strip_prefix(&prefix));
        known.unwrap_or(name).to_owned()
    }

    fn enumerators(&mut self, list: &str) -> Option<()> {
        for item in
            list.split(',').map(str::trim).filter(|item| !item.is_empty() && !item.starts_with("MPIX_"))
        {
            let (name, value) = item.split_once('=')?;
            self.facts.insert(format!("constant {} int {}", name.trim(), number(value)?));
        }
        Some(())
    }

    fn prototype(&mut self, statement: &str) -> Option<()> {
        let (head, arguments) = statement.strip_suffix(')')?.split_once('(')?;
        let (returns, name) = head.rsplit_once(' ')?;
        // `MPI_` and `PMPI_` names differ in how they write arrays.
        let pointer =
            |argument: &str| match argument.strip_suffix("[]").and_then(|array| array.rsplit_once(' ')) {
                Some((of, name)) if !of.contains('[') && !name.contains('[') => format!("{of} *{name}"),
                _ => argument.to_owned(),
            };
        let arguments: Vec<String> = arguments.split(',').map(|argument| pointer(argument.trim())).collect();
        let fact = |name: &str| format!("function {returns} {name}({})", arguments.join(", "));
        match name.strip_prefix('P') {
            Some(plain) => self.profiled.insert(fact(plain)),
            None => self.facts.insert(fact(name)),
        };
        Some(())
    }

    /// Adds the constants that are macros. Macros that denote types are left out.
    fn add_macros(&mut self) -> Result<()> {
        for (name, value) in &self.macros {
            let mut value = value.as_str();
            while let Some(other) = self.macros.get(value) {
                value = other;
            }
            let is_type = name.starts_with("MPI_ABI_") && number(value).is_none();
            if name.starts_with("MPIX_") || is_type {
                continue;
            }
            let inner = value.strip_prefix("((").and_then(|value| value.strip_suffix(')'));
            let (kind, value) = match inner.and_then(|inner| inner.split_once(')')) {
                Some((kind, value)) => (kind.trim(), value),
                None => ("int", value),
            };
            let value = number(value).with_context(|| format!("{name} is {value}, which is no number"))?;
            self.facts.insert(format!("constant {name} {kind} {value}"));
        }
        Ok(())
    }

    fn checked(self) -> Result<BTreeSet<String>> {
        let functions: BTreeSet<String> =
            self.facts.iter().filter(|fact| fact.starts_with("function ")).cloned().collect();
        let only: Vec<&String> = functions.symmetric_difference(&self.profiled).collect();
        ensure!(only.is_empty(), "with one of the prefixes MPI_ and PMPI_ alone: {only:?}");
        Ok(self.facts)
    }
}

/// A number as C writes it.
fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_header_are_names_types_and_values() {
        let header = "#ifndef X\n#define X\n#if defined(__cplusplus)\nextern \"C\" {\n#endif\n\
            #define MPI_ABI_Aint intptr_t\ntypedef MPI_ABI_Aint MPI_Aint; /* a\n comment */ typedef MPI_Aint MPI_Count;\n\
            typedef struct {\n int MPI_TAG;\n} MPI_Status;\ntypedef struct T* MPI_Op;\n\
            #define MPI_SUM   ((MPI_Op)0x21)\n#define MPI_ALSO MPI_SUM\n#define MPI_MAX_NAME 128\n\
            enum { MPI_ANY = -1, MPIX_OWN = 3, };\ntypedef enum  MPI_S { MPI_A = 0x0F } MPI_S;\n\
            typedef int (MPI_Free_function)(void *extra);\nint MPI_F(const int  a[], int b[][3], MPI_Op *op);\n\
            int PMPI_F(const int *a, int b[][3], MPI_Op *op);\nint MPIX_G(void);\n#if defined(__cplusplus)\n}\n#endif\n#endif\n";
        let expected = [
            "callback int MPI_Free_function(void *extra)",
            "constant MPI_A int 15",
            "constant MPI_ALSO MPI_Op 33",
            "constant MPI_ANY int -1",
            "constant MPI_MAX_NAME int 128",
            "constant MPI_SUM MPI_Op 33",
            "function int MPI_F(const int *a, int b[][3], MPI_Op *op)",
            "handle MPI_Op",
            "struct MPI_Status int MPI_TAG;",
            "type MPI_Aint intptr_t",
            "type MPI_Count intptr_t",
            "type MPI_S enum MPI_S",
        ];
        let found = facts(header).expect("understood");
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        let alone = facts("int MPI_F(void);").expect_err("no PMPI_F").to_string();
        assert!(alone.contains("MPI_F"), "{alone}");
    }
}
