//! Reports for people: one self-contained HTML page, and for a terminal a first screen and all tables.
//!
//! Both are made from the same parts: [`findings()`] in words, computed from the data, and curves grouped into panels
//! of a few. Text from a result file is untrusted: reading makes it plain (`results::plain`), and it is escaped in
//! HTML, in the page's data and on a terminal.

#![forbid(unsafe_code)]

pub mod bounds;
mod columns;
mod error;
mod figures;
mod findings;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod lines;
mod markdown;
mod names;
pub mod number;
mod osu;
mod over_time;
mod page;
mod plots;
mod profile;
mod prometheus;
mod screen;
mod series;
pub mod shell;
mod side_table;
mod side_text;
mod sides;
pub mod svg;
mod terminal;
mod trace;
mod words;

use results::schema::Run;

pub use self::trace::trace_page;
pub use error::ReportError;
pub use findings::{Finding, Tone, findings};
pub use lines::{lines, tails, values};
pub use markdown::markdown;
pub use names::name_run;
pub use osu::osu;
pub use over_time::{interval_head, interval_line, stream_name};
pub use page::differences;
pub use profile::{JobProfile, profile_page, profile_text};
pub use prometheus::prometheus;
pub use screen::{Look, screen};
pub use terminal::terminal;

/// The page for one or several runs: one self-contained HTML file that opens offline.
///
/// Nothing is fetched, and a content security policy forbids it: scripts run only if their hash is listed.
///
/// # Errors
/// [`ReportError::NoRun`] without runs; [`ReportError::Data`] if a number is not finite.
pub fn html(runs: &[Run]) -> Result<String, ReportError> {
    if runs.is_empty() {
        return Err(ReportError::NoRun);
    }
    page::page(runs)
}
