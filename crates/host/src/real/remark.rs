//! [`remark`]: what the command and the C libraries have to say on standard error.

use std::fmt::Display;
use std::io::Write as _;

use crate::plain;

/// Writes a line that begins with `nicety: ` to standard error, in one piece. It may hold words of a peer, a file or a variable:
/// characters that a terminal acts on are written out, and the text has 600 characters at most. Where it cannot be written, it is
/// lost: whoever calls this has nobody else to tell.
pub fn remark(text: impl Display) {
    let line = format!("nicety: {}\n", plain::line(&text.to_string()));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
