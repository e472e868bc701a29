//! The terminal: its capabilities, and the only functions that write to it. All text of the command to standard output and
//! standard error passes through [`Stream::print`], [`Stream::data`] or [`remark()`]; the first and the last escape control
//! characters of foreign text. The output of ranks is exempt: `mpirun` forwards it unchanged.

use std::io::{self, ErrorKind, IsTerminal as _, Write};

pub(crate) use host::real::remark;
use results::plain;
use rustix::termios::Winsize;

use crate::error::Failure;

/// The width of output that does not go to a terminal.
const WIDTH_WITHOUT_TERMINAL: usize = 80;
/// The height of a screen that does not go to a terminal.
const HEIGHT_WITHOUT_TERMINAL: usize = 30;
/// The minimum width for any layout.
const WIDTH_MIN: usize = 40;

/// A standard stream for text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error: for text if standard output carries data, and for everything that is not a result.
    Err,
}

impl Stream {
    /// Whether it is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }

    /// The number of columns: the terminal's, else the variable COLUMNS, else 80.
    pub(crate) fn width(self) -> usize {
        let columns = self.size("COLUMNS", |size| size.ws_col);
        columns.unwrap_or(WIDTH_WITHOUT_TERMINAL).max(WIDTH_MIN)
    }

    /// The number of lines for a screen above the next prompt: those of the terminal, else the variable LINES, else 30.
    pub(crate) fn height(self) -> usize {
        self.size("LINES", |size| size.ws_row).unwrap_or(HEIGHT_WITHOUT_TERMINAL + 1).saturating_sub(1)
    }

    /// A dimension of the terminal, else of the environment; a terminal that does not know its size says 0.
    fn size(self, variable: &str, dimension: fn(&Winsize) -> u16) -> Option<usize> {
        let size = match self {
            Self::Out => rustix::termios::tcgetwinsize(rustix::stdio::stdout()),
            Self::Err => rustix::termios::tcgetwinsize(rustix::stdio::stderr()),
        };
        let terminal = size.ok().map(|size| usize::from(dimension(&size))).filter(|count| *count > 0);
        terminal.or_else(|| std::env::var(variable).ok()?.parse().ok().filter(|count| *count > 0))
    }

    /// Whether to use colours: on a capable terminal, unless NO_COLOR is set (no-color.org).
    pub(crate) fn colour(self) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        self.is_terminal() && !dumb && !set("NO_COLOR")
    }

    /// Writes text for people. Control characters are escaped, except line feeds and, with colours, our own styles. A closed
    /// pipe is not an error: the reader has seen enough.
    ///
    /// # Errors
    /// If the stream cannot be written, for example because the disk is full.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        self.write(&plain::screen(text, self.colour()))
    }

    /// Writes data for programs unchanged; on a terminal, like [`Stream::print`].
    ///
    /// # Errors
    /// As [`Stream::print`].
    pub(crate) fn data(self, text: &str) -> Result<(), Failure> {
        if self.is_terminal() { self.print(text) } else { self.write(text) }
    }

    /// Writes text; a closed pipe is no failure.
    fn write(self, text: &str) -> Result<(), Failure> {
        let (name, done) = match self {
            Self::Out => ("standard output", write(&mut io::stdout().lock(), text)),
            Self::Err => ("standard error", write(&mut io::stderr().lock(), text)),
        };
        match done {
            Err(why) if why.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::run(format!("cannot write to {name}: {why}; free space, or redirect it")))
            }
            _ => Ok(()),
        }
    }

    /// Writes a value as indented JSON.
    ///
    /// # Errors
    /// As [`Stream::print`].
    pub(crate) fn json(self, value: &impl serde::Serialize) -> Result<(), Failure> {
        self.data(&json(value)?)
    }
}

/// Formats a value as indented JSON with a final newline. Characters that act on a terminal are escaped, which programs parse
/// to the same text.
///
/// # Errors
/// Only because of a bug in this program.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|why| Failure::run(format!("cannot write JSON: {why}; please report this bug")))?;
    let mut out = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        // Such a character is inside a string: JSON is ASCII outside of strings, and ASCII controls inside are escaped already.
        if plain::is_terminal_control(letter) && letter != '\n' {
            letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else {
            out.push(letter);
        }
    }
    Ok(out + "\n")
}

/// Writes text, and flushes it.
fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// Colours by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A good result.
    Good,
    /// A result to examine.
    Caution,
    /// A bad result.
    Bad,
    /// A heading.
    Strong,
    /// Unimportant text.
    Faint,
}

impl Paint {
    /// Text in this colour, if colours are on.
    pub(crate) fn on(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Good => "32",
            Self::Caution => "33",
            Self::Bad => "1;31",
            Self::Strong => "1",
            Self::Faint => "2",
        };
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Wraps text at spaces into lines of at most `width`, and indents all lines but the first by `indent` spaces. The first line
/// is assumed to start at that column.
pub(crate) fn wrap(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > room {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = 0;
        }
        if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_text_keeps_its_margin() {
        assert_eq!(wrap("one two three four five six", 4, 24), "one two three four\n    five six");
        assert_eq!(wrap("", 4, 24), "");
        assert_eq!(
            wrap("a-word-that-is-longer-than-the-line x", 0, 20),
            "a-word-that-is-longer-than-the-line\nx"
        );
    }

    #[test]
    fn json_escapes_what_a_terminal_acts_on() {
        let text = json(&["a\u{9b}2J", "\u{202e}\u{e0041}", "\x1b\n\u{7f}", "é"]).expect("JSON");
        assert!(!text.contains(|letter| plain::is_terminal_control(letter) && letter != '\n'), "{text:?}");
        let back: Vec<String> = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, ["a\u{9b}2J", "\u{202e}\u{e0041}", "\x1b\n\u{7f}", "é"]);
    }

    #[test]
    fn text_is_coloured_only_with_colours() {
        assert_eq!(Paint::Bad.on("x", false), "x");
        assert_eq!(Paint::Good.on("x", true), "\x1b[32mx\x1b[0m");
    }
}
