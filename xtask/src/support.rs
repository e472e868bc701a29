//! `cargo xtask support`: writes the lists of functions in `docs/reference/support.md` from the tables of the C interfaces.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use xtask::workspace::Workspace;

/// The page. Its lists are between [`BEGIN`] and [`END`]; the other text is written by hand.
pub(crate) const PAGE: &str = "docs/reference/support.md";
const BEGIN: &str = "<!-- Generated from crates/abi-*/functions.txt by `cargo xtask support`. -->\n";
const END: &str = "<!-- End of the generated part. -->\n";
/// Characters of a line at most.
const WIDTH_MAX: usize = 120;

/// A C interface, and the table that lists its functions.
struct Interface {
    title: &'static str,
    table: &'static str,
    /// Whether a function of the table belongs to this interface.
    has: fn(&Function<'_>) -> bool,
    /// The error that unsupported functions return.
    error: &'static str,
}

const VERBS: &str = "crates/abi-verbs/functions.txt";
const INTERFACES: [Interface; 6] = [
    Interface {
        title: "Verbs (libibverbs)",
        table: VERBS,
        has: |function| function.node.starts_with("IBVERBS"),
        error: "`EOPNOTSUPP`",
    },
    Interface {
        title: "RDMA-CM (librdmacm)",
        table: VERBS,
        has: |function| function.node.starts_with("RDMACM") && function.name.starts_with("rdma_"),
        error: "`ENOSYS`",
    },
    Interface {
        title: "rsockets (librdmacm)",
        table: VERBS,
        has: |function| function.node.starts_with("RDMACM") && !function.name.starts_with("rdma_"),
        error: "`ENOSYS`",
    },
    Interface {
        title: "uDAPL (DAT 2.0)",
        table: "crates/abi-dapl/functions.txt",
        has: |_| true,
        error: "`DAT_NOT_IMPLEMENTED`",
    },
    Interface { title: "Portals 4", table: "crates/abi-portals/functions.txt", has: |_| true, error: "none" },
    Interface { title: "MPI 5.0", table: "crates/abi-mpi/functions.txt", has: |_| true, error: "none" },
];

/// A line of a table: `STATE ... NAME(ARGUMENTS); WHAT IS MISSING`, in which all but state and name are optional.
struct Function<'a> {
    state: &'a str,
    /// The second word: in the table of verbs, the version node.
    node: &'a str,
    name: &'a str,
    missing: Option<&'a str>,
}

impl<'a> Function<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (line, missing) = match line.split_once(';') {
            Some((line, missing)) => (line, Some(missing.trim())),
            None => (line, None),
        };
        let head = line.split('(').next()?.trim();
        let (state, rest) = head.split_once(' ')?;
        let (node, name) = (rest.split(' ').next()?, rest.rsplit([' ', '*']).next()?);
        Some(Self { state, node, name, missing })
    }
}

/// Writes the generated part of the page, and returns a line about it.
///
/// # Errors
/// A file that cannot be read or written, or a page without the two marks.
pub(crate) fn write(workspace: &Workspace) -> Result<String> {
    let mut texts = BTreeMap::new();
    for path in INTERFACES.iter().map(|interface| interface.table).chain([PAGE]) {
        let text = std::fs::read_to_string(workspace.root.join(path));
        texts.insert(path.to_owned(), text.with_context(|| format!("reading {path}"))?);
    }
    let page = page(&texts).with_context(|| format!("{PAGE} lacks the marks of its generated part"))?;
    std::fs::write(workspace.root.join(PAGE), page).with_context(|| format!("writing {PAGE}"))?;
    Ok(format!("wrote {PAGE}"))
}

/// The line of the page that differs from the tables, and what to do about it. `texts` has files by path; tables and a page that it
/// does not have are not compared.
pub(crate) fn stale(texts: &BTreeMap<String, String>) -> Option<(usize, String)> {
    let found = texts.get(PAGE)?;
    let Some(expected) = page(texts) else {
        return Some((1, "the marks of the generated part are missing: restore them".to_owned()));
    };
    let same = found.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
    let what = "the page differs from the tables of functions: run `cargo xtask support`";
    (*found != expected).then(|| (same + 1, what.to_owned()))
}

/// The page with a new generated part; `None` without the two marks or a table.
fn page(texts: &BTreeMap<String, String>) -> Option<String> {
    let (before, rest) = texts.get(PAGE)?.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", lists(texts)?))
}

/// The table of counts, then what is missing of each interface.
fn lists(texts: &BTreeMap<String, String>) -> Option<String> {
    let mut counts =
        "\n| interface | functions | done | partial | unsupported | error of an unsupported function |\n\
                      |---|---|---|---|---|---|\n"
            .to_owned();
    let mut details = String::new();
    for interface in &INTERFACES {
        let functions = functions(texts.get(interface.table)?, interface.has);
        let count = |state| functions.iter().filter(|function| function.state == state).count();
        let [done, partial, unsupported] = ["done", "partial", "unsupported"].map(count);
        let Interface { title, error, .. } = interface;
        let total = functions.len();
        writeln!(counts, "| {title} | {total} | {done} | {partial} | {unsupported} | {error} |").ok()?;
        if partial + unsupported > 0 {
            writeln!(details, "\n### {title}").ok()?;
            exceptions(&mut details, &functions);
        }
    }
    Some(format!("{counts}{details}\n"))
}

/// The functions of an interface. A function that is exported a second time for programs from before 2007 (node IBVERBS_1.0) counts once.
fn functions<'a>(table: &'a str, has: fn(&Function<'_>) -> bool) -> Vec<Function<'a>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let mut functions: Vec<Function<'a>> = lines.filter_map(Function::parse).filter(has).collect();
    let current: Vec<&str> = functions.iter().filter(|f| f.node != "IBVERBS_1.0").map(|f| f.name).collect();
    functions.retain(|function| function.node != "IBVERBS_1.0" || !current.contains(&function.name));
    functions
}

/// Lists partial functions with what is missing, and names unsupported ones. The form of an MPI function for large counts is `(_c)` after the
/// name of the other.
fn exceptions(text: &mut String, functions: &[Function<'_>]) {
    let state = |name: &str| functions.iter().find(|function| function.name == name).map(|f| f.state);
    let same_state = |name: &str, function: &Function<'_>| state(name) == Some(function.state);
    let (mut partial, mut unsupported) = (String::new(), Vec::new());
    for function in functions.iter().filter(|function| function.state != "done") {
        let small = function.name.strip_suffix("_c");
        if small.is_some_and(|name| same_state(name, function)) {
            continue;
        }
        let has_large = same_state(&format!("{}_c", function.name), function);
        let name = format!("`{}{}`", function.name, if has_large { "(_c)" } else { "" });
        match function.missing {
            Some(missing) => partial += &format!("- {name}: {missing}\n"),
            None => unsupported.push(name),
        }
    }
    if !partial.is_empty() {
        *text += &format!("\nPartial:\n\n{partial}");
    }
    if !unsupported.is_empty() {
        *text += "\nUnsupported:\n\n";
        wrap(text, &unsupported);
    }
}

/// Appends names with commas between them, in lines of at most [`WIDTH_MAX`] characters.
fn wrap(text: &mut String, names: &[String]) {
    let mut width = 0;
    for (index, name) in names.iter().enumerate() {
        let end = if index + 1 < names.len() { "," } else { ".\n" };
        if width + name.len() + 2 > WIDTH_MAX {
            text.push('\n');
            width = 0;
        } else if index > 0 {
            text.push(' ');
        }
        *text += &format!("{name}{end}");
        width += name.len() + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> BTreeMap<String, String> {
        let verbs = "# A remark.\n\ndone IBVERBS_1.1 errno ibv_dereg_mr(struct ibv_mr *mr)\n\
            unsupported IBVERBS_1.0 errno ibv_dereg_mr(void)\n\
            partial IBVERBS_1.1 struct ibv_mr *ibv_reg_mr(void *addr); not zero-based\n\
            unsupported RDMACM_1.0 minus rdma_join_multicast(void)\n\
            unsupported RDMACM_1.0 minus rsocket(void)\n";
        let mpi = "done int MPI_Send(int count)\npartial int MPI_Cancel(void) ; late\n\
            partial int MPI_Cancel_c(void) ; late\n";
        let page = format!("# Support\n\n{BEGIN}{END}\nMore.\n");
        let files = [
            (VERBS, verbs),
            ("crates/abi-dapl/functions.txt", "done dat_ia_open\nunsupported dat_cr_handoff\n"),
            ("crates/abi-portals/functions.txt", "done PtlInit\n"),
            ("crates/abi-mpi/functions.txt", mpi),
            (PAGE, &page),
        ];
        files.map(|(path, text)| (path.to_owned(), text.to_owned())).into()
    }

    #[test]
    fn the_page_counts_functions_and_lists_exceptions() {
        let page = page(&texts()).expect("the markers and tables exist");
        for part in [
            "# Support\n",
            "| Verbs (libibverbs) | 2 | 1 | 1 | 0 | `EOPNOTSUPP` |\n",
            "| RDMA-CM (librdmacm) | 1 | 0 | 0 | 1 | `ENOSYS` |\n",
            "| Portals 4 | 1 | 1 | 0 | 0 | none |\n",
            "| MPI 5.0 | 3 | 1 | 2 | 0 | none |\n",
            "\n### Verbs (libibverbs)\n\nPartial:\n\n- `ibv_reg_mr`: not zero-based\n",
            "\n### rsockets (librdmacm)\n\nUnsupported:\n\n`rsocket`.\n",
            "- `MPI_Cancel(_c)`: late\n",
            "\nMore.\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("### Portals 4") && !page.contains("MPI_Cancel_c"), "{page}");
    }

    #[test]
    fn a_page_that_differs_is_stale_until_it_is_written() {
        let mut texts = texts();
        let (line, what) = stale(&texts).expect("an empty part is stale");
        assert!(line == 4 && what.contains("cargo xtask support"), "{line}: {what}");
        let written = page(&texts).expect("the markers and tables exist");
        texts.insert(PAGE.to_owned(), written);
        assert_eq!(stale(&texts), None);
        texts.insert(PAGE.to_owned(), "# Support\n".to_owned());
        assert!(stale(&texts).is_some_and(|(_, what)| what.contains("marks")));
    }

    #[test]
    fn long_lists_are_wrapped() {
        let mut text = String::new();
        wrap(&mut text, &vec!["`rdma_leave_multicast`".to_owned(); 12]);
        assert!(text.lines().count() == 3 && text.ends_with("`.\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH_MAX && !line.ends_with(' ')), "{text}");
    }
}
