//! The HTML page of a run or several: its sections.

mod compared;
mod frame;
mod summary;
mod table;

use maud::{Markup, html};

use super::columns::columns;
use super::error::ReportError;
use super::figures::{Figure, figures_of};
use super::findings::{Finding, Tone, findings};
use super::names::run_label;
use super::screen::trust;
use super::series::{capital, series};
use super::shell::{document, embedded};
use super::{side_table, words};
pub use compared::differences;
use frame::frame;
use results::schema::{Bin, Environment, NoiseSummary, Run};

/// The whole page.
pub(super) fn page(runs: &[Run]) -> Result<String, ReportError> {
    let all = series(runs);
    let columns = columns(runs);
    let figures = figures_of(&all, &columns);
    let mut data = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        run.to_json()?; // Refuses numbers that JSON cannot hold.
        data.push((format!("run-{}", i + 1), embedded(&carried(run))?));
    }
    let sides = side_table::section(&figures, &columns, runs);
    let compared = compared::section(runs);
    let summary = summary::section(runs);
    let there = |id: &str| match id {
        "compared" => !compared.0.is_empty(),
        "summary" => !summary.0.is_empty(),
        "sides" => !sides.0.is_empty(),
        _ => true,
    };
    let sections: Vec<(&str, &str)> = SECTIONS.into_iter().filter(|(id, _)| there(id)).collect();
    let body = html! {
        (head(runs, &sections))
        main {
            (compared)
            (summary)
            (found(runs))
            (sides)
            (plots_section(&figures, runs))
            (table::section(runs))
            (parameters(runs))
            (environment(runs))
            (reading(runs))
        }
    };
    Ok(document(&title(runs), &body, &data))
}

/// Maximum bins of a distribution on a page: its drawing has no more bars.
const BINS: usize = 72;

/// The data of a run that a page embeds: without single samples, which are a third of a result file, and with coarser
/// bins, as the page shows neither.
fn carried(run: &Run) -> Run {
    let mut carried = run.clone();
    for r in &mut carried.results {
        r.launches.iter_mut().for_each(|launch| launch.samples.clear());
        if let Some(histogram) = &mut r.histogram {
            while histogram.bins.len() > BINS {
                histogram.bins = histogram.bins.chunks(2).map(joined).collect();
                histogram.relative_error *= 2.0;
            }
        }
    }
    carried
}

/// Merges neighbouring bins.
fn joined(bins: &[Bin]) -> Bin {
    let (first, last) = (bins[0], bins[bins.len() - 1]);
    Bin(first.0, last.1, bins.iter().fold(0, |sum, bin| sum.saturating_add(bin.2)))
}

fn title(runs: &[Run]) -> String {
    let env = &runs[0].environment;
    let host = if env.host.is_empty() { "an unknown machine" } else { &env.host };
    match runs.len() {
        1 => format!("Nicety: {host}, {}", words::date(&env.date)),
        n => format!("Nicety: {n} runs"),
    }
}

fn head(runs: &[Run], sections: &[(&str, &str)]) -> Markup {
    let labels: Vec<String> = runs.iter().enumerate().map(|(i, run)| run_label(run, i)).collect();
    html! {
        header {
            p.brand { "Nicety" }
            h1 { @if let [run] = runs { (words::headline(run)) } @else { (labels.join(" and ")) } }
            @for (run, label) in runs.iter().zip(&labels) {
                p.origin { @if runs.len() > 1 { b { (label) ": " (words::headline(run)) ". " } } (words::origin(&run.environment)) }
                p.lead { (capital(&trust(run))) "." }
            }
            nav aria-label="Sections" { @for (id, name) in sections { a href={ "#" (id) } { (name) } } }
        }
    }
}

const SECTIONS: [(&str, &str); 9] = [
    ("compared", "Compared"),
    ("summary", "Summary"),
    ("findings", "Findings"),
    ("sides", "Side by side"),
    ("plots", "Plots"),
    ("results", "Results"),
    ("parameters", "Parameters"),
    ("environment", "Environment"),
    ("reading", "How to read this"),
];

fn found(runs: &[Run]) -> Markup {
    html! {
        section #findings {
            h2 { "Findings" }
            @for (i, run) in runs.iter().enumerate() {
                @if runs.len() > 1 { h3 { (run_label(run, i)) } }
                div.findings { @for f in findings(run) { (finding(&f, runs.len() > 1)) } }
            }
        }
    }
}

/// A finding with more details than this keeps them folded.
const SHOWN: usize = 3;

fn finding(f: &Finding, below: bool) -> Markup {
    let (class, badge) = match f.tone {
        Tone::Fact => ("fact", None),
        Tone::CannotTell => ("unknown", Some("cannot tell")),
        Tone::Caution => ("caution", Some("caution")),
    };
    html! {
        article.finding.(class) {
            // Heading levels descend one by one: below that of a run, if there are several.
            @let topic = html! { (f.topic) @if let Some(badge) = badge { " " span.badge { (badge) } } };
            @if below { h4 { (topic) } } @else { h3 { (topic) } }
            p { (prose(&f.text)) }
            @if f.items.len() > SHOWN {
                details {
                    summary { (f.items.len()) " details" }
                    ul { @for item in &f.items { li { (prose(item)) } } }
                }
            } @else if !f.items.is_empty() {
                ul { @for item in &f.items { li { (prose(item)) } } }
            }
        }
    }
}

/// Text in which no line begins with the percent sign of a number, or ends within the name of an option.
fn prose(text: &str) -> Markup {
    let text = text.replace(" %", "\u{a0}%");
    html! {
        @for word in text.split_inclusive(' ') {
            @if word.contains("--") { span.whole { (word) } } @else { (word) }
        }
    }
}

fn plots_section(figures: &[Figure<'_>], runs: &[Run]) -> Markup {
    html! {
        section #plots {
            h2 { "Plots" }
            p.hint {
                "Against message size both axes are logarithmic. "
                @if figures.iter().any(|f| f.sides) {
                    "Dotted: a device's floor (of a rate: its ceiling), what the machine itself does, in the device's colour. Dashed, with hollow \
                     marks: virtual time. "
                } @else {
                    "Dashed: the floor, of a rate the ceiling: what the machine itself does. "
                }
                "Bars: 95 % intervals. Hover or tap a point for its numbers, press it for its distribution; the buttons show \
                 and hide curves. All numbers are in the "
                a href="#results" { "results" } "."
            }
            @for (i, figure) in figures.iter().enumerate() { (frame(&format!("figure-{i}"), figure, runs)) }
            @if figures.is_empty() { p { "Nothing to plot." } }
        }
    }
}

fn parameters(runs: &[Run]) -> Markup {
    html! {
        section #parameters {
            h2 { "Parameters" }
            p.hint { "Every parameter that was in effect, and where its value came from." }
            @for (i, run) in runs.iter().enumerate() {
                @if runs.len() > 1 { h3 { (run_label(run, i)) } }
                @if run.parameters.is_empty() { p { "None recorded." } } @else {
                    table.plain {
                        thead { tr { @for h in ["parameter", "value", "origin"] { th scope="col" { (h) } } } }
                        tbody {
                            @for p in &run.parameters {
                                tr {
                                    th scope="row" { (p.key) }
                                    td { (p.value) @if let Some(unit) = &p.unit { " " (unit) } }
                                    td { (p.origin) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn environment(runs: &[Run]) -> Markup {
    html! {
        section #environment {
            h2 { "Environment" }
            @for (i, run) in runs.iter().enumerate() {
                @if runs.len() > 1 { h3 { (run_label(run, i)) } }
                p.lead { (words::paragraph(run)) }
                table.plain {
                    tbody {
                        @for (key, value) in environment_rows(&run.environment) {
                            tr { th scope="row" { (key) } td { (value) } }
                        }
                    }
                }
                p {
                    button.download type="button" data-run={ "run-" (i + 1) } { "Save this run's data (JSON)" }
                    " Read it again with " code { "nicety report" } " or " code { "nicety compare" } ". It has six digits of each \
                     number, distributions of at most 72 bins, and no single samples; all of it is what " code { "nicety bench --json" } " writes."
                }
            }
        }
    }
}

fn environment_rows(env: &Environment) -> Vec<(&'static str, String)> {
    use super::number::{percent, sig, size_about};
    let or = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    let cores: Vec<String> = env.pinned_cores.iter().map(u32::to_string).collect();
    let mut rows = vec![
        ("nicety", or(&env.nicety_version)),
        ("date", or(&words::date(&env.date))),
        ("host", or(&env.host)),
        ("kernel", or(&env.kernel)),
        ("processor", or(&env.cpu)),
        ("cores", env.cores.to_string()),
        ("memory", size_about(env.memory_bytes as f64)),
        ("governor", or(env.governor.as_deref().unwrap_or_default())),
        (
            "invariant counter",
            env.tsc_invariant.map_or("unknown", |yes| if yes { "yes" } else { "no" }).to_owned(),
        ),
        (
            "clock",
            format!(
                "{}, one reading {} ns, resolution {} ns",
                env.clock.kind,
                sig(env.clock.overhead_ns, 2),
                sig(env.clock.resolution_ns, 2)
            ),
        ),
        ("pinned to cores", if cores.is_empty() { "not pinned".to_owned() } else { cores.join(", ") }),
        ("noise before", noise(env.noise_before)),
        ("noise after", noise(env.noise_after)),
    ];
    if let Some(aa) = env.aa_noise {
        let text = format!(
            "differs by up to {} (ratio {}, {} launches)",
            percent(aa.floor),
            sig(aa.ratio, 4),
            aa.launches
        );
        rows.push(("one cell measured twice", text));
    }
    rows.extend(env.warnings.iter().map(|w| ("warning", format!("{}: {}", w.what, w.advice))));
    rows
}

fn noise(noise: Option<NoiseSummary>) -> String {
    use super::number::{count, percent, sig};
    noise.map_or_else(
        || "not measured".to_owned(),
        |n| {
            format!(
                "{} of the time taken by others; {} detours in {} quanta of {} µs, the longest {} µs",
                percent(n.stolen),
                count(n.detours),
                count(n.quanta),
                sig(n.quantum_ns / 1000.0, 3),
                sig(n.detour_max_ns / 1000.0, 3)
            )
        },
    )
}

fn reading(runs: &[Run]) -> Markup {
    html! {
        section #reading {
            h2 { "How to read this" }
            dl { @for (term, text) in words::how_to_read(runs) { dt { (term) } dd { (text) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::schema::{Histogram, Measurement};

    #[test]
    fn an_empty_run_still_has_a_page() {
        let text = page(&[Run::default()]).expect("a page");
        assert!(text.contains("Nothing measured") && text.contains("Nothing to plot"));
    }

    /// Goal: fewer bins hold the same samples between the same ends. Method: an odd number of bins with a gap.
    #[test]
    fn a_distribution_becomes_coarser_and_loses_nothing() {
        let bins: Vec<Bin> =
            (0..301u32).map(|i| Bin(f64::from(i), f64::from(i) + 0.9, u64::from(i % 7))).collect();
        let counted = |bins: &[Bin]| bins.iter().map(|bin| bin.2).sum::<u64>();
        let all = counted(&bins);
        let histogram = Some(Histogram { relative_error: 0.01, bins });
        let run =
            Run { results: vec![Measurement { histogram, ..Measurement::default() }], ..Run::default() };
        let kept = carried(&run).results.remove(0).histogram.expect("a distribution");
        assert!(kept.bins.len() <= BINS && counted(&kept.bins) == all, "{} bins", kept.bins.len());
        assert_eq!((kept.bins[0].0, kept.bins[kept.bins.len() - 1].1), (0.0, 300.9));
        assert!(kept.bins.is_sorted_by(|a, b| a.1 <= b.0) && kept.relative_error == 0.08);
    }

    #[test]
    fn what_belongs_together_stays_on_a_line() {
        let text = prose("wider than 5 %: more launches (--launches) & time").into_string();
        assert_eq!(
            text,
            "wider than 5\u{a0}%: more launches <span class=\"whole\">(--launches) </span>&amp; time"
        );
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused() {
        let mut run = Run::default();
        run.environment.clock.overhead_ns = f64::NAN;
        assert!(matches!(page(&[run]), Err(ReportError::Data(_))));
    }

    #[test]
    fn hostile_text_never_becomes_an_element() {
        let evil = "</script><img src=x onerror=alert(1)>\"'";
        let mut run = super::super::findings::made_up::run(super::super::findings::made_up::curve(
            "latency",
            "op=write",
            0..4,
            |x| x,
        ));
        run.environment.host = evil.to_owned();
        run.parameters.push(results::schema::Parameter { key: evil.to_owned(), ..Default::default() });
        for r in &mut run.results {
            r.device = evil.to_owned();
            r.experiment = evil.to_owned();
            r.metric = evil.to_owned();
            r.variant = [(evil, evil)].into_iter().collect();
            r.note = Some(evil.to_owned());
            r.launches[0].flags = vec![evil.to_owned()];
        }
        let text = page(&[run]).expect("a page");
        assert!(!text.contains("<img"), "an element was made");
        assert_eq!(text.matches("</script>").count(), 2);
    }
}
