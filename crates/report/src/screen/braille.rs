//! Curves as dots of braille characters: values against size, both axes logarithmic.

use super::answers::Row;
use crate::number::{display_unit, sig, size};
use crate::series::Series;

/// Fewer sizes are no curve.
const MIN_SIZES: usize = 3;
/// The bits of a character's dots, by column and row.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
const EMPTY: u32 = 0x2800;

/// One plot: a curve for each column of the table.
pub(super) struct Panel {
    pub(super) title: String,
    /// Logarithms of sizes and values, with the column of the curve.
    curves: Vec<(usize, Vec<[f64; 2]>)>,
}

/// Latency and bandwidth of the first rows that have curves, as far as both fit side by side.
pub(super) fn panels(rows: &[Row<'_>], width: usize) -> Vec<Panel> {
    let first = |unit: &str| {
        let curved = |row: &&Row<'_>| {
            row.curves.iter().flatten().any(|s| s.unit == unit && s.points.len() >= MIN_SIZES)
        };
        rows.iter().find(curved).and_then(panel)
    };
    let mut all: Vec<Panel> = ["us", "MB/s"].into_iter().filter_map(first).collect();
    all.truncate(if width < 70 { 1 } else { 2 });
    all
}

fn panel(row: &Row<'_>) -> Option<Panel> {
    let drawn = |s: &Series<'_>| -> Vec<[f64; 2]> {
        let shown = s.points.iter().filter(|r| r.median > 0.0 && r.size_bytes > 0);
        shown.map(|r| [(r.size_bytes as f64).ln(), r.median.ln()]).collect()
    };
    let curves: Vec<(usize, Vec<[f64; 2]>)> =
        row.curves.iter().enumerate().filter_map(|(i, s)| Some((i, drawn(s.as_ref()?)))).collect();
    let s = row.curves.iter().flatten().next()?;
    let ([x0, y0], [x1, y1]) = corners(&curves)?;
    let (unit, scale) = display_unit(s.unit, y1.exp());
    let value = |log: f64| sig(log.exp() * scale, 3);
    let at = |log: f64| size(log.exp().round() as u64);
    let what = if s.op().is_empty() { s.experiment } else { s.op() };
    let title = format!("{what} {unit} {}..{}, {}..{}", value(y0), value(y1), at(x0), at(x1));
    Some(Panel { title, curves })
}

/// Lower left and upper right of all points.
fn corners(curves: &[(usize, Vec<[f64; 2]>)]) -> Option<([f64; 2], [f64; 2])> {
    curves.iter().flat_map(|(_, points)| points).fold(None, |found, [x, y]| {
        let (low, high) = found.unwrap_or(([*x, *y], [*x, *y]));
        Some(([low[0].min(*x), low[1].min(*y)], [high[0].max(*x), high[1].max(*y)]))
    })
}

impl Panel {
    /// Lines of characters, each with the column of the curve that was drawn last in it.
    pub(super) fn dots(&self, width: usize, height: usize) -> Vec<Vec<(char, usize)>> {
        let mut cells = vec![vec![(EMPTY, 0); width]; height];
        let Some(([x0, y0], [x1, y1])) = corners(&self.curves) else { return Vec::new() };
        let place = |v: f64, low: f64, high: f64, dots: usize| {
            if high > low { (v - low) / (high - low) * (dots - 1) as f64 } else { (dots - 1) as f64 / 2.0 }
        };
        for (curve, points) in &self.curves {
            let at: Vec<[f64; 2]> = points
                .iter()
                .map(|[x, y]| [place(*x, x0, x1, 2 * width), place(*y, y0, y1, 4 * height)])
                .collect();
            for pair in at.windows(2) {
                let steps =
                    (pair[1][0] - pair[0][0]).abs().max((pair[1][1] - pair[0][1]).abs()).ceil().max(1.0);
                for step in 0..=steps as usize {
                    let share = step as f64 / steps;
                    let [x, y] =
                        [0, 1].map(|i| (pair[0][i] + share * (pair[1][i] - pair[0][i])).round() as usize);
                    let y = 4 * height - 1 - y;
                    let cell = &mut cells[y / 4][x / 2];
                    *cell = (cell.0 | DOTS[x % 2][y % 4], *curve);
                }
            }
        }
        let as_char = |(bits, curve): &(u32, usize)| (char::from_u32(*bits).unwrap_or(' '), *curve);
        cells.iter().map(|row| row.iter().map(as_char).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a curve spans the panel from corner to corner, in its own column's colour. Method: a straight line of
    /// two points.
    #[test]
    fn a_line_rises_from_the_lower_left_to_the_upper_right() {
        let panel = Panel { title: String::new(), curves: vec![(1, vec![[0.0, 5.0], [3.0, 9.0]])] };
        let dots = panel.dots(8, 4);
        let at = |row: usize, column: usize| dots[row][column].0 as u32 - EMPTY;
        assert_eq!((at(3, 0), at(0, 7)), (0x40 | 0x20, 0x02 | 0x08));
        assert_eq!((at(0, 0), at(3, 7)), (0, 0));
        let drawn = dots.iter().flatten().filter(|(c, _)| *c as u32 != EMPTY);
        assert!(drawn.clone().count() == 8 && drawn.clone().all(|(_, curve)| *curve == 1));
    }

    /// Goal: equal values have a position. Method: a flat line, which is in the middle.
    #[test]
    fn a_flat_line_is_in_the_middle() {
        let panel = Panel { title: String::new(), curves: vec![(0, vec![[0.0, 2.0], [1.0, 2.0]])] };
        let dots = panel.dots(3, 1);
        assert!(dots[0].iter().all(|(c, _)| *c as u32 != EMPTY), "{dots:?}");
    }
}
