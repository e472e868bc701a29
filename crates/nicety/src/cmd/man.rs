//! `nicety man`: writes a manual page for each command from the same text as `--help`; used when packages are built.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::error::{Failure, OK, Outcome};
use crate::usage;

/// The width that man leaves of 80 columns, so that examples are not wrapped.
const WIDTH: usize = 72;

/// Writes the pages into a folder.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn run(folder: &Path) -> Outcome {
    for (name, page) in pages() {
        let path = folder.join(name);
        std::fs::write(&path, page).map_err(|why| {
            Failure::usage(format!("cannot write {}: {why}; give a folder that exists", path.display()))
        })?;
    }
    Ok(OK)
}

/// File names and contents of the pages.
fn pages() -> Vec<(String, String)> {
    let mut cli = usage::command_at(WIDTH).disable_help_subcommand(true);
    cli.build();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
    std::iter::once(&cli).chain(commands).map(page).collect()
}

/// The file name and the text of a command's manual page.
fn page(command: &Command) -> (String, String) {
    let man =
        Man::new(command.clone()).manual("Nicety").source(format!("nicety {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    let mut parts = vec![
        Man::render_title as fn(&Man, &mut dyn std::io::Write) -> std::io::Result<()>,
        Man::render_name_section,
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ];
    if command.has_subcommands() {
        parts.push(Man::render_subcommands_section);
    }
    // Writing to a vector cannot fail.
    parts.iter().for_each(|part| drop(part(&man, &mut text)));
    let more = command.get_after_long_help().or_else(|| command.get_after_help());
    let more = more.map(|more| sections(&more.to_string())).unwrap_or_default();
    (man.get_filename(), String::from_utf8_lossy(&text).into_owned() + &more)
}

/// Converts the text after the options of `--help`: lines in capitals at the margin are headings, indented lines stay
/// unchanged.
fn sections(text: &str) -> String {
    let mut out = String::new();
    let mut is_fixed = false;
    for (number, line) in text.lines().enumerate() {
        let heading = is_heading(line);
        let fixed = line.starts_with(' ') || is_fixed && line.is_empty();
        if fixed != is_fixed {
            out += if fixed { ".nf\n" } else { ".fi\n" };
            is_fixed = fixed;
        }
        match line {
            _ if heading => out += &format!(".SH \"{}\"\n", escaped(line)),
            "" if !is_fixed => out += ".PP\n",
            _ if number == 0 => out += &format!(".SH NOTES\n{}\n", escaped(line)),
            _ => out += &format!("{}\n", escaped(line)),
        }
    }
    if is_fixed { out + ".fi\n" } else { out }
}

/// Whether a line of help is a heading: capital letters, up to any parenthesis.
fn is_heading(line: &str) -> bool {
    let title = line.split('(').next().unwrap_or(line);
    line.starts_with(|c: char| c.is_ascii_uppercase()) && !title.contains(|c: char| c.is_ascii_lowercase())
}

/// Escapes a line, so that roff prints it unchanged.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq").replace('`', "\\(ga");
    // These characters would begin a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text.replace('\'', "\\(aq") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that roff prints for a page.
    fn printed(page: &str) -> String {
        let plain = page.replace("\\(dq", "\"").replace("\\(aq", "'").replace("\\(ga", "`");
        plain.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    }

    /// The words of a command after shell parsing, up to a pipe, and without the remark after it.
    fn words(line: &str) -> Vec<String> {
        let line = line.trim().split("  ").next().unwrap_or_default();
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, '|' | '>' | '<' | '&') => break,
                (None, ' ') => words.push(String::new()),
                (_, c) => words.last_mut().expect("one").push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    /// Goal: the commands shown on a page are valid. Method: parses each line that begins like a command.
    #[test]
    fn every_example_is_a_command_line() {
        let mut examples = 0;
        for (name, page) in pages() {
            let page = printed(&page);
            let lines = page.lines().filter(|line| line.starts_with("  nicety "));
            for words in lines.map(words) {
                let read = usage::command().try_get_matches_from(&words);
                read.unwrap_or_else(|why| panic!("{name}: {words:?}: {why}"));
                examples += 1;
            }
        }
        assert!(examples >= 50, "{examples} examples");
    }

    #[test]
    fn each_visible_command_has_a_page_with_its_sections() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"nicety.1") && names.contains(&"nicety-bench.1"), "{names:?}");
        for hidden in ["worker", "complete", "man"] {
            assert!(pages.iter().all(|(name, page)| !name.contains(hidden) || !page.contains(hidden)));
        }
        let (_, bench) = pages.iter().find(|(name, _)| name == "nicety-bench.1").expect("a page");
        for heading in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXPERIMENTS\"", "\"EXAMPLES\"", "\"EXIT STATUS\""] {
            assert!(bench.contains(&format!("\n.SH {heading}\n")), "{heading}");
        }
    }

    #[test]
    fn roff_prints_what_was_written() {
        let text = "A `word` in prose.\n\nEXAMPLES\n  a 'b' \"c\" \\d --e\n\n  .f\n\nMORE (of it)\nEnd.";
        let page = sections(text);
        let expected = ".SH NOTES\nA \\(gaword\\(ga in prose.\n.PP\n.SH \"EXAMPLES\"\n.nf\n  a \\(aqb\\(aq \\(dqc\\(dq \\ed \
                        \\-\\-e\n\n  .f\n\n.fi\n.SH \"MORE (of it)\"\nEnd.\n";
        assert_eq!(page, expected);
    }
}
