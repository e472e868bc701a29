//! The first screen of a recorded run: the output after `nicety bench --quick` on a busy virtual machine with two
//! cores.
//!
//! `recorded/shm-quick.json` is that run without its single samples and other data not on the screen.

use report::{Look, screen};
use results::schema::Run;

const RECORDED: &str = include_str!("recorded/shm-quick.json");
/// Remade by `COLUMNS=80 nicety report crates/report/tests/recorded/shm-quick.json --text`, and read before it is kept.
const EXPECTED: &str = include_str!("recorded/shm-quick.txt");

fn run() -> Run {
    Run::from_json(RECORDED).expect("a result file")
}

#[test]
fn a_recorded_run_has_its_screen() {
    let text = screen(&run(), Look { width: 80, lines: 30, colour: false, plot: false });
    assert!(text == EXPECTED, "it is now:\n{text}");
}

/// Goal: never more lines or columns than there are, and the answers before all else. Method: screens of many shapes.
#[test]
fn a_screen_keeps_within_its_bounds() {
    for (width, lines) in [(60, 30), (80, 21), (80, 23), (80, 30), (100, 40), (200, 60)] {
        for colour in [false, true] {
            let text = screen(&run(), Look { width, lines, colour, plot: true });
            assert!(text.lines().count() <= lines, "{width} x {lines}:\n{text}");
            let longest = text.lines().map(|line| bare(line).chars().count()).max().unwrap_or(0);
            assert!(longest <= width, "{longest} columns of {width}:\n{text}");
            for part in ["write 8 B", "peak", "wake-up", "memory"] {
                assert!(text.contains(part), "{width} x {lines} has no {part}:\n{text}");
            }
        }
    }
}

/// Goal: a low terminal is not overrun, and a tall one is used. Method: every height; the number of lines never falls.
#[test]
fn screen_grows_with_its_terminal() {
    let lines = |lines| {
        let text = screen(&run(), Look { width: 80, lines, colour: true, plot: true });
        text.lines().count()
    };
    let counts: Vec<usize> = (4..=60).map(lines).collect();
    assert!(counts.iter().zip(4..).all(|(count, room)| *count <= room), "{counts:?}");
    assert!(counts.is_sorted(), "{counts:?}");
    assert!(counts[56] > counts[26] + 8, "of 60 lines {}, of 30 {}", counts[56], counts[26]);
}

/// Goal: latency and bandwidth are drawn if there is room and the terminal supports it; never in a file.
#[test]
fn curves_are_drawn_on_a_terminal() {
    let look = Look { width: 80, lines: 30, colour: true, plot: true };
    let dots = |look: Look| {
        let text = screen(&run(), look);
        text.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count()
    };
    assert!(dots(look) > 40, "{}", screen(&run(), look));
    assert_eq!(dots(Look { plot: false, ..look }) + dots(Look { colour: false, ..look }), 0);
}

/// A line without its escape sequences.
fn bare(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}
