//! Selects how a run's results are printed: the first screen, all tables, or a line each.

use report::Look;
use results::schema::Run;

use crate::args::Shown;
use crate::config::{Config, Output};
use crate::term::Stream;

/// The form requested by options or by the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Screen { plot: bool },
    Full,
    Line,
    Value,
    Tail,
    Osu,
}

impl Form {
    /// The form that options request, or else the configuration.
    pub(crate) fn of(shown: &Shown, config: &Config) -> Self {
        match (shown, config.output) {
            (Shown { quiet: true, .. }, _) => Self::Value,
            (Shown { tail: true, .. }, _) => Self::Tail,
            (Shown { osu: true, .. }, _) => Self::Osu,
            (Shown { line: true, .. }, _) => Self::Line,
            (Shown { full: true, .. }, _) => Self::Full,
            (_, Output::Line) => Self::Line,
            (_, Output::Full) => Self::Full,
            (_, Output::Screen) => Self::Screen { plot: !shown.no_plot && config.plot.unwrap_or(true) },
        }
    }

    /// Whether the text is for programs: nothing else may go to its stream.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Self::Value | Self::Osu)
    }
}

/// The text for people; `below` lines follow it on the screen.
pub(crate) fn text(run: &Run, form: Form, (people, plain): (Stream, bool), below: usize) -> String {
    let (width, colour) = (people.width(), people.colour() && !plain);
    match form {
        Form::Screen { plot } => {
            let lines = people.height().saturating_sub(below);
            report::screen(run, Look { width, lines, colour, plot })
        }
        Form::Full => report::terminal(run, width, colour),
        Form::Line => report::lines(run, colour),
        Form::Value => report::values(run),
        Form::Tail => report::tails(run, colour),
        Form::Osu => report::osu(run).unwrap_or_default(),
    }
}
