//! Traffic between ranks as squares: a row for each sender, a column for each receiver, darker for more.

use maud::{Markup, html};

use super::super::number::{count, size_about};
use super::job::JobProfile;

/// Maximum squares in a row: with more ranks, neighbours share a square.
const SIDE_MAX: usize = 64;
/// Dimensions in units of the drawing, including the margins for rank numbers.
const SIDE: f64 = 560.0;
const EDGE: f64 = 46.0;
/// The lightest square, as a part of the darkest.
const FAINTEST: f64 = 0.12;

/// Traffic of the ranks represented by a square.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Square {
    messages: u64,
    bytes: u64,
}

/// Squares, row by row.
struct Squares {
    side: usize,
    /// Ranks that share a row.
    each: usize,
    all: Vec<Square>,
}

impl Squares {
    fn new(job: &JobProfile) -> Self {
        let each = job.ranks.len().div_ceil(SIDE_MAX).max(1);
        let side = job.ranks.len().div_ceil(each);
        let mut all = vec![Square::default(); side * side];
        // Other jobs have no column.
        for pair in job.pairs().iter().filter(|pair| pair.to < job.ranks.len()) {
            let square = &mut all[pair.from / each * side + pair.to / each];
            square.messages = square.messages.saturating_add(pair.sent.messages);
            square.bytes = square.bytes.saturating_add(pair.sent.bytes);
        }
        Self { side, each, all }
    }

    /// The least and the greatest number of bytes that was sent.
    fn range(&self) -> Option<(u64, u64)> {
        let bytes = || self.all.iter().filter(|square| square.messages > 0).map(|square| square.bytes);
        bytes().min().zip(bytes().max())
    }

    /// The ranks of a row or column.
    fn ranks(&self, at: usize, size: usize) -> String {
        let (first, last) = (at * self.each, ((at + 1) * self.each).min(size) - 1);
        if first == last { format!("rank {first}") } else { format!("ranks {first} to {last}") }
    }
}

/// How dark a square is, between 0 and 1: bytes count by their logarithm.
fn dark(bytes: u64, (least, most): (u64, u64)) -> f64 {
    let scaled = |bytes: u64| (bytes as f64 + 1.0).ln();
    let span = scaled(most) - scaled(least);
    let part = if span > 0.0 { (scaled(bytes) - scaled(least)) / span } else { 1.0 };
    FAINTEST + (1.0 - FAINTEST) * part
}

/// The drawing; `None` if there was no traffic.
pub(super) fn matrix(job: &JobProfile) -> Option<Markup> {
    let squares = Squares::new(job);
    let range = squares.range()?;
    let step = (SIDE - EDGE) / squares.side as f64;
    let at = |index: usize| format!("{:.1}", EDGE + index as f64 * step);
    let size = job.ranks.len();
    // As many numbers as fit without overlap.
    let shown = squares.side.div_ceil(16).next_power_of_two();
    Some(html! {
        svg.matrix viewBox={ "0 0 " (SIDE) " " (SIDE) } role="img" aria-label="Bytes sent, by sender and receiver" {
            text x=(SIDE / 2.0) y="12" text-anchor="middle" { "to rank" }
            text transform={ "translate(12 " (SIDE / 2.0) ") rotate(-90)" } text-anchor="middle" { "from rank" }
            @for index in (0..squares.side).step_by(shown) {
                @let middle = format!("{:.1}", EDGE + (index as f64 + 0.5) * step);
                text x=(middle) y=(EDGE - 6.0) text-anchor="middle" { (index * squares.each) }
                text x=(EDGE - 6.0) y=(middle) text-anchor="end" dominant-baseline="middle" { (index * squares.each) }
            }
            @for row in 0..squares.side {
                @if (row * squares.each..((row + 1) * squares.each).min(size)).all(|rank| job.ranks[rank].is_none()) {
                    rect.missing x=(EDGE) y=(at(row)) width=(SIDE - EDGE) height=(format!("{step:.1}")) {
                        title { (squares.ranks(row, size)) ": missing" }
                    }
                }
                @for column in 0..squares.side {
                    @let Square { messages, bytes } = squares.all[row * squares.side + column];
                    @if messages > 0 {
                        rect x=(at(column)) y=(at(row)) width=(format!("{step:.1}")) height=(format!("{step:.1}"))
                            fill-opacity=(format!("{:.2}", dark(bytes, range))) {
                            title {
                                (squares.ranks(row, size)) " to " (squares.ranks(column, size)) ": "
                                (count(messages)) " messages, " (size_about(bytes as f64))
                            }
                        }
                    }
                }
            }
            path.frame d={ "M" (EDGE) " " (EDGE) "H" (SIDE) "V" (SIDE) "H" (EDGE) "Z" } {}
        }
        p.constant {
            "Darker is more, by the logarithm: from " (size_about(range.0 as f64)) " to " (size_about(range.1 as f64)) "."
            @if squares.each > 1 { " A square stands for " (squares.each) " ranks each way." }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::job::tests::{rank, three};
    use super::*;

    #[test]
    fn a_square_for_each_pair_that_spoke_and_a_bar_for_who_is_missing() {
        let text = matrix(&three()).expect("something was sent").into_string();
        assert_eq!(text.matches("<rect").count(), 3, "{text}");
        assert!(
            text.contains("rank 0 to rank 1: 10 messages, 4.9 KiB") && text.contains("rank 1: missing"),
            "{text}"
        );
        assert!(matrix(&JobProfile { ranks: vec![None; 4] }).is_none());
    }

    #[test]
    fn many_ranks_share_squares() {
        let ring = JobProfile { ranks: (0..100).map(|at| Some(rank(at, 100))).collect() };
        let squares = Squares::new(&ring);
        assert_eq!((squares.side, squares.each), (50, 2));
        assert_eq!(squares.all.iter().map(|square| square.messages).sum::<u64>(), 1000);
        assert_eq!(squares.all[0], Square { messages: 10, bytes: 5000 }, "rank 0 to rank 1; 1 sends to 2");
        let text = matrix(&ring).expect("drawn").into_string();
        assert!(
            text.contains("ranks 98 to 99 to ranks 0 to 1") && text.contains("2 ranks each way"),
            "{text}"
        );
    }

    #[test]
    fn the_most_is_darkest_and_the_least_is_seen() {
        assert!((dark(1 << 20, (8, 1 << 20)) - 1.0).abs() < 1e-9);
        assert!((dark(8, (8, 1 << 20)) - FAINTEST).abs() < 1e-9);
        assert!((dark(0, (0, 0)) - 1.0).abs() < 1e-9);
    }
}
