//! [`remark`], [`remark_lines`] and [`remark_to`]: messages of the command and the C libraries on standard error, or in a file.

use std::fmt::Display;
use std::io::Write;

use crate::plain;

/// Writes a line that begins with `nicety: ` to standard error, in one piece. It may contain words of a peer, a file or
/// a variable: characters that a terminal acts on are escaped, and the text is limited to 600 characters. A failure to
/// write is ignored, as there is nowhere to report it.
pub fn remark(text: impl Display) {
    remark_to(&mut std::io::stderr(), text);
}

/// Writes lines to standard error in one piece, with the characters escaped that [`remark`] escapes.
pub fn remark_lines(text: &str) {
    let lines: String = text.lines().map(|line| format!("{}\n", plain::line(line))).collect();
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

/// As [`remark`], to another place.
pub fn remark_to(mut place: impl Write, text: impl Display) {
    let line = format!("nicety: {}\n", plain::line(&text.to_string()));
    let _ = place.write_all(line.as_bytes());
}
