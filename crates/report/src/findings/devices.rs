//! Devices side by side in words: which is best at what and by how much, or that it is undecided.

use super::finding::{Finding, Tone, known, list};
use crate::columns::{Column, columns};
use crate::figures::{Figure, figures_of};
use crate::number::{percent, plural, times};
use crate::series::Series;
use crate::sides::{Block, Lead, Row, blocks, even, lead, noise, ranked};
use results::schema::Run;

/// One finding for each quantity measured on several devices, and one about their clocks (real or virtual).
pub(super) fn beside(run: &Run, all: &[Series<'_>]) -> Vec<Finding> {
    let runs = std::slice::from_ref(run);
    let columns = columns(runs);
    if columns.is_empty() {
        return Vec::new();
    }
    let (figures, noise) = (figures_of(all, &columns), noise(runs));
    let told = figures.iter().filter(|f| f.sides).filter_map(|f| finding(f, &columns, runs, noise));
    kinds_of_time(&columns).into_iter().chain(told).collect()
}

fn kinds_of_time(columns: &[Column]) -> Option<Finding> {
    let names = |is_virtual: bool| -> Vec<String> {
        columns.iter().filter(|c| c.is_virtual == is_virtual).map(|c| c.device.clone()).collect()
    };
    let (simulated, real) = (names(true), names(false));
    if simulated.is_empty() || real.is_empty() {
        return None;
    }
    let (are, its) = if simulated.len() == 1 { ("is", "its") } else { ("are", "their") };
    let text = format!(
        "{} {are} simulated: {its} times are virtual and exact, those of a modelled card and not of this machine. {} ran \
         here, in real time. Whatever is virtual is marked (virtual), and dashed in plots.",
        list(&simulated),
        list(&real)
    );
    Some(Finding::new(Tone::Caution, "Two kinds of time", text))
}

/// The leader of a row, and the runner-up with the lead; `None` if undecided.
type Outcome = (usize, Option<(usize, Lead)>);

fn outcome(row: &Row<'_>, noise: f64) -> Option<Outcome> {
    let [(first, best), (second, next), ..] = ranked(row)[..] else { return None };
    Some((first, lead(best, next, noise).map(|lead| (second, lead))))
}

fn finding(figure: &Figure<'_>, columns: &[Column], runs: &[Run], noise: f64) -> Option<Finding> {
    let blocks = blocks(figure, columns, runs);
    let rows = || blocks.iter().flat_map(|b| b.rows.iter().map(move |row| (b, row)));
    let told: Vec<(&Block<'_>, &Row<'_>, Outcome)> =
        rows().filter_map(|(b, row)| Some((b, row, outcome(row, noise)?))).collect();
    if told.is_empty() {
        return None;
    }
    let alike = told.iter().filter(|(_, row, _)| even(row)).count();
    let unsure = told.iter().filter(|(_, row, (_, lead))| lead.is_none() && !even(row)).count();
    let mut parts = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        let won: Vec<_> = told
            .iter()
            .filter_map(|(b, row, (first, lead))| Some((*b, *row, lead.filter(|_| *first == i)?)))
            .collect();
        parts.extend(wins(column, &won, told.len(), columns));
    }
    if alike > 0 {
        parts.push(match alike == told.len() {
            true => format!("The best are alike in {}, within half a per cent", rows_in_words(alike)),
            false => format!("in {alike} the best are alike, within half a per cent"),
        });
    }
    if unsure > 0 {
        let close = if noise > 0.0 {
            format!("intervals overlap or the difference is within {}", percent(noise))
        } else {
            "intervals overlap or are missing".to_owned()
        };
        parts.push(match unsure == told.len() {
            true => format!("One cannot tell which is best: everywhere {close}"),
            false => format!("in {unsure} one cannot tell: {close}"),
        });
    }
    let tone = if unsure == told.len() { Tone::CannotTell } else { Tone::Fact };
    let items = blocks.iter().filter_map(|b| by_size(b, columns, noise)).collect();
    let topic = format!("Side by side: {}{}", lower(&figure.title), constant(figure));
    Some(Finding::new(tone, topic, format!("{}.", parts.join("; "))).with(items))
}

fn rows_in_words(n: usize) -> String {
    if n == 1 { "the one row".to_owned() } else { format!("all {n} rows") }
}

fn constant(figure: &Figure<'_>) -> String {
    if figure.constant.is_empty() { String::new() } else { format!(" ({})", figure.constant) }
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

/// `shm is best in 14 of 16 rows, by 9.2× (8.8 to 9.6) over iwarp for write, 8 B, down to 1.4× ...`.
fn wins(
    column: &Column,
    won: &[(&Block<'_>, &Row<'_>, (usize, Lead))],
    of: usize,
    columns: &[Column],
) -> Option<String> {
    let by = |a: &&_, b: &&_| {
        let ratio = |x: &(&Block<'_>, &Row<'_>, (usize, Lead))| x.2.1.ratio;
        ratio(a).total_cmp(&ratio(b))
    };
    let (most, least) = (won.iter().max_by(by)?, won.iter().min_by(by)?);
    let count = match (won.len(), of) {
        (1, 1) => String::new(),
        (n, of) if n == of => format!(" in all {}", plural(of, "row")),
        (n, of) => format!(" in {n} of {}", plural(of, "row")),
    };
    let at = |(block, row, (second, lead)): &(&Block<'_>, &Row<'_>, (usize, Lead))| {
        let place = [block.title.as_str(), row.name.as_str()];
        let place: Vec<&str> = place.into_iter().filter(|s| !s.is_empty()).collect();
        format!("{} over {} ({})", lead.text(), columns[*second].label, place.join(", "))
    };
    let mut text = format!("{} is best{count}, by {}", column.label, at(most));
    if won.len() > 1 && times(most.2.1.ratio) != times(least.2.1.ratio) {
        text += &format!(" at most and {} at least", at(least));
    } else if won.len() > 1 {
        text += ", and as much everywhere";
    }
    Some(text)
}

/// A line for each variant: the sizes at which each device leads, and the order of all devices at the ends.
fn by_size(block: &Block<'_>, columns: &[Column], noise: f64) -> Option<String> {
    let outcomes: Vec<(&Row<'_>, Outcome)> =
        block.rows.iter().filter_map(|row| Some((row, outcome(row, noise)?))).collect();
    // The leader; or whether it is a tie rather than undecided.
    let mut ranges: Vec<(Result<usize, bool>, &Row<'_>, &Row<'_>)> = Vec::new();
    for (row, (first, lead)) in &outcomes {
        let who = lead.map(|_| *first).ok_or(even(row));
        // Rows of a block without a title are unrelated and cannot form a range.
        match ranges.last_mut() {
            Some((same, _, last)) if *same == who && !block.title.is_empty() => *last = row,
            _ => ranges.push((who, row, row)),
        }
    }
    let told = ranges.iter().map(|(who, from, to)| {
        let place =
            if from.name == to.name { from.name.clone() } else { format!("{} to {}", from.name, to.name) };
        match who {
            Ok(who) => format!("{place} {}", columns[*who].label),
            Err(true) => format!("{place} all that lead alike"),
            Err(false) => format!("{place} cannot tell"),
        }
    });
    let told: Vec<String> = told.collect();
    let ends = outcomes.first().map(|(row, _)| order(row, columns));
    let title = if block.title.is_empty() { String::new() } else { format!("{}: ", block.title) };
    let at_first = ends.filter(|_| !block.title.is_empty()).map(|e| format!(" ({e})")).unwrap_or_default();
    (!told.is_empty()).then(|| format!("{title}best is {}{at_first}", told.join("; ")))
}

/// All devices of a row from the best on: `8 B: shm 0.24 µs, iwarp 9.10 µs`.
fn order(row: &Row<'_>, columns: &[Column]) -> String {
    let all: Vec<String> =
        ranked(row).iter().map(|(i, r)| format!("{} {}", columns[*i].label, known(r))).collect();
    format!("{}: {}", row.name, all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::series;
    use crate::sides::tests::three;
    use results::schema::{AaNoise, ClockKind};

    fn found(run: &Run) -> Vec<Finding> {
        beside(run, &series(std::slice::from_ref(run)))
    }

    #[test]
    fn who_is_best_where_and_by_how_much() {
        let all = found(&three());
        assert_eq!(all[0].topic, "Two kinds of time");
        assert!(
            all[0].text.starts_with("model:card is simulated") && all[0].text.contains("shm and iwarp ran")
        );
        assert_eq!(all[1].topic, "Side by side: one-way latency (write)");
        let text = &all[1].text;
        assert!(text.starts_with("shm is best in all 16 rows, by "), "{text}");
        assert!(text.contains("over iwarp") && text.contains("over model:card (virtual)"), "{text}");
        assert!(
            all[1].items[0].starts_with(
                "nic → nic: best is 1 B to 128 B shm (1 B: shm 1.01 µs (1.00..1.02), model:card (virtual) 4.04 µs"
            ),
            "{}",
            all[1].items[0]
        );
        assert_eq!(all[2].topic, "Side by side: message rate (write)");
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn overlapping_intervals_and_noise_are_no_order() {
        let mut run = three();
        run.results.retain(|r| r.device != "model:card");
        run.results.iter_mut().filter(|r| r.device == "iwarp" && r.size_bytes < 16).for_each(|r| {
            r.ci95 = Some([0.1, 1e9]);
        });
        let all = found(&run);
        let latency = &all[0];
        assert!(latency.text.contains("in 8 one cannot tell: intervals overlap"), "{}", latency.text);
        assert!(
            latency.items[0].contains("1 B to 8 B cannot tell; 16 B to 128 B shm"),
            "{}",
            latency.items[0]
        );
        assert_eq!(all[1].tone, Tone::CannotTell);
        run.environment.aa_noise = Some(AaNoise { floor: 20.0, ratio: 1.0, launches: 6 });
        assert!(found(&run).iter().all(|f| f.tone == Tone::CannotTell));
    }

    /// Goal: exact and practically equal values are called equal, without a lead of 1.00×. Method: two modelled
    /// cards, a tenth of a per cent apart at all sizes but one.
    #[test]
    fn exact_results_that_are_alike_are_called_so() {
        let mut run = three();
        run.results.retain(|r| r.device != "iwarp");
        for r in &mut run.results {
            r.clock = ClockKind::Virtual;
            if r.device == "shm" {
                r.device = "model:other".to_owned();
                let apart = if r.size_bytes == 1 { 2.0 } else { 1.0 };
                r.median *= 4.0 * 1.001 * apart;
            }
            r.ci95 = Some([r.median; 2]);
            r.launches.truncate(1);
        }
        run.environment.devices.clear();
        let all = found(&run);
        let latency = &all[0].text;
        assert!(latency.contains("the best are alike, within half a per cent"), "{latency}");
        assert!(latency.contains("model:card (virtual) is best in 2 of 14 rows, by 2.00× over"), "{latency}");
        assert!(
            !latency.contains("1.00×") && !latency.contains('[') && !latency.contains("cannot tell"),
            "{latency}"
        );
        assert!(all[0].items[0].contains("all that lead alike"), "{}", all[0].items[0]);
    }

    #[test]
    fn one_device_is_beside_nothing() {
        let mut run = three();
        run.results.retain(|r| r.device == "shm");
        assert!(found(&run).is_empty());
    }
}
