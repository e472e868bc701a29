//! The reproduction as a page: what was found in words, the papers' figures, every row, contradictions, fitted values.

use super::figure::{Axis, Curve, Figure, Mark};
use super::judge::{Class, Row};
use super::published::{MULTIRAIL, NICMEM, THESIS};
use super::reproduction::{PaperScore, Reproduction};
use super::score::Assumed;
use super::score::{Score, worst};
use super::tables::Line as TableLine;
use super::tables::PaperTable;
use super::terminal::{modelled, published};
use maud::{Markup, html};
use report::ReportError;
use report::number::{percent, plural, sig, size};
use report::shell::{document, embedded};
use report::svg::{self, Chart, Line, Point, Trace, legend};

/// Rows shown of those that are furthest off.
const WORST: usize = 10;

/// The page: one HTML file that opens offline and carries its own data.
///
/// # Errors
/// [`ReportError::Data`] if a number is not finite.
pub fn html(all: &Reproduction) -> Result<String, ReportError> {
    let data = [("reproduction".to_owned(), embedded(all)?)];
    let body = html! {
        (head(all))
        main {
            (findings(all))
            (figures(all))
            (tables(all))
            (table(all))
            (contradictions(all))
            (criteria(all))
            (fitted(all))
            (assumed(all))
            (reading())
        }
    };
    Ok(document("Nicety: the papers beside the model", &body, &data))
}

const SECTIONS: [(&str, &str); 9] = [
    ("findings", "Findings"),
    ("plots", "Figures"),
    ("tables", "Tables"),
    ("results", "Rows"),
    ("contradictions", "Contradictions"),
    ("criteria", "Changed criteria"),
    ("fitted", "Fitted values"),
    ("assumed", "Assumed values"),
    ("reading", "How to read this"),
];

fn head(all: &Reproduction) -> Markup {
    html! {
        header {
            p.brand { "Nicety" }
            h1 { (headline(&all.score)) }
            p.lead {
                "The published facts of " (papers(all)) ", beside what the same experiments give on modelled cards in \
                 virtual time: " (plural(all.rows.len(), "row")) ", " (plural(all.measured, "measured cell")) "."
                @if !all.changes.is_empty() { " With values changed: " b { (all.changes.join(" ")) } "." }
            }
            nav aria-label="Sections" {
                @for (id, name) in SECTIONS { a href={ "#" (id) } { (name) } }
            }
        }
    }
}

/// What was found, in one sentence.
fn headline(score: &Score) -> String {
    match (score.numeric, score.qualitative) {
        (0, 0) => "Nothing here is predicted by the model".to_owned(),
        (0, n) => format!("The model agrees with {} of {}", score.holding, plural(n, "published claim")),
        (n, _) => {
            let error = percent(score.median_error.unwrap_or(0.0));
            let near =
                format!("The model meets {} of {} within 10 %", score.near, plural(n, "published number"));
            let claims = match score.qualitative {
                0 => String::new(),
                n => format!(" and agrees with {} of {}", score.holding, plural(n, "claim")),
            };
            format!("{near} (median error {error}){claims}")
        }
    }
}

fn papers(all: &Reproduction) -> String {
    let mut names: Vec<&str> = all.rows.iter().map(|row| name(&row.paper)).collect();
    names.dedup();
    names.join(" and ")
}

/// A paper in words.
fn name(paper: &str) -> &str {
    match paper {
        NICMEM => "the study of NIC memory on the MT23108",
        THESIS => "the thesis on InfiniBand, Myrinet and Quadrics",
        MULTIRAIL => "the study of uDAPL over several rails",
        other => other,
    }
}

fn findings(all: &Reproduction) -> Markup {
    let worst = worst(&all.rows, WORST);
    html! {
        section #findings {
            h2 { "Findings" }
            div.findings {
                @for PaperScore { paper, complete, score } in &all.papers {
                    @if *complete {
                        @for (text, reached) in score.goals() {
                            article.finding.(if reached { "fact" } else { "caution" }) {
                                h3 { (if reached { "Reached" } else { "Missed" }) }
                                p { (text) " – " (name(paper)) }
                            }
                        }
                    } @else {
                        article.finding.fact {
                            h3 { "Of the rows asked for" }
                            p { (score.counts().join("; ")) " – " (name(paper)) }
                        }
                    }
                }
                article.finding.fact {
                    h3 { "Not scored" }
                    ul { @for other in all.score.others() { li { (other) } } }
                }
                @if !worst.is_empty() {
                    article.finding.unknown {
                        h3 { "Furthest off" }
                        ul { @for row in worst { li { b { (row.id) } " " (off(row)) } } }
                    }
                }
            }
        }
    }
}

fn off(row: &Row) -> String {
    match row.error() {
        Some(error) => {
            format!(
                "{}: paper {}, model {}: off by {}",
                row.variant,
                published(row),
                modelled(row),
                percent(error)
            )
        }
        None => format!("{}: {}", row.variant, row.evidence.as_deref().unwrap_or_default()),
    }
}

fn figures(all: &Reproduction) -> Markup {
    html! {
        section #plots {
            h2 { "Figures of the papers" }
            p.hint {
                "Curves are the model. Dashed or marked in the same colour: what the papers printed, which is peaks and \
                 single points; their curves are lost. The axes are the papers', as far as their text tells."
            }
            div.figures { @for (i, figure) in all.figures.iter().enumerate() { (frame(i, figure)) } }
            @if all.figures.is_empty() { p { "None belongs to these rows." } }
        }
    }
}

fn frame(i: usize, figure: &Figure) -> Markup {
    let chart = chart(figure);
    html! {
        figure.plot id={ "figure-" (i) } {
            figcaption {
                h3 { "Figure " (figure.number) ": " (figure.title) }
                p.constant { (name(figure.paper)) }
            }
            @if let Some(chart) = &chart {
                (legend(&format!("Curves of figure {}", figure.number), &entries(chart)))
                div.panels { div.panel.lines { div.canvas { (chart.markup()) } } }
            } @else {
                p.hint { "Nothing of it could be measured." }
            }
        }
    }
}

fn tables(all: &Reproduction) -> Markup {
    html! {
        section #tables {
            h2 { "Tables of the papers" }
            @if all.tables.is_empty() { p { "None belongs to these rows." } }
            @for PaperTable { number, title, columns, lines, .. } in &all.tables {
                h3 { "Table " (number) ": " (title) }
                div.scroll tabindex="0" role="region" aria-label={ "Table " (number) } {
                    table.plain {
                        thead {
                            tr {
                                th scope="col" { "operation" }
                                @for column in *columns { th scope="col" { (column) } th scope="col" { "model" } }
                            }
                        }
                        tbody { @for line in lines { (table_line(line)) } }
                    }
                }
            }
        }
    }
}

fn table_line(line: &TableLine) -> Markup {
    html! {
        tr {
            th scope="row" { (line.operation) }
            @for cell in &line.cells {
                @for i in 0..2 {
                    td.number { (cell.map_or_else(|| "–".to_owned(), |both| format!("{:.2}", both[i]))) }
                }
            }
        }
    }
}

fn table(all: &Reproduction) -> Markup {
    const HEADS: [(&str, bool); 10] = [
        ("row", false),
        ("experiment", false),
        ("what", false),
        ("paper", true),
        ("model", true),
        ("ratio", true),
        ("class", false),
        ("holds", false),
        ("figure", false),
        ("how", false),
    ];
    html! {
        section #results {
            h2 { "Rows" }
            form.filter role="search" {
                label { "Filter "
                    input #filter type="search" placeholder="e.g. predicted, bibw" data-what="rows" autocomplete="off";
                }
                label { input #doubtful type="checkbox"; " only predictions that do not hold" }
                output #shown for="filter doubtful" aria-live="polite" { (plural(all.rows.len(), "row")) }
            }
            table.results.rows {
                thead {
                    tr {
                        @for (name, number) in HEADS {
                            th scope="col" class=[number.then_some("number")] aria-sort="none" {
                                button type="button" { (name) }
                            }
                        }
                    }
                }
                tbody { @for row in &all.rows { (table_row(row)) } }
            }
            p {
                button.download type="button" data-run="reproduction" { "Save the data of this page (JSON)" }
            }
        }
    }
}

fn table_row(row: &Row) -> Markup {
    let fails = row.holds == Some(false) && row.class == Class::Predicted;
    let how = match (&row.reason, &row.evidence) {
        (Some(reason), _) => reason.clone(),
        (None, Some(evidence)) => format!("{} — {evidence}", row.how),
        (None, None) => row.how.clone(),
    };
    html! {
        tr data-doubtful=[fails.then_some("1")] title=(row.quote) {
            td { (row.id) @if !row.contradictions.is_empty() { " " span.badge { (row.contradictions.join(" ")) } } }
            td { (row.experiment) }
            td title=(row.variant) { (row.variant) }
            td.number data-l="paper" data-v=[row.published.or(row.low).or(row.high)] { (published(row)) }
            td.number data-l="model" data-v=[row.modelled] { (modelled(row)) }
            td.number data-l="ratio" data-v=[row.ratio] { (row.ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.3}"))) }
            td data-l="class" { (row.class.name()) }
            td.(if fails { "missed" } else { "met" }) data-l="holds" {
                (match row.holds { Some(true) => "yes", Some(false) => "no", None => "–" })
            }
            td { (row.figure) }
            td title=(how) { (how) }
        }
    }
}

fn contradictions(all: &Reproduction) -> Markup {
    html! {
        section #contradictions {
            h2 { "Contradictions in the papers" }
            p.hint { "Nothing was bent to meet these; the rows keep their place in the score." }
            @if all.contradictions.is_empty() { p { "None concerns these rows." } } @else {
                table.plain {
                    tbody {
                        @for c in &all.contradictions {
                            tr { th scope="row" { (c.entry) } td { (c.text) " " small { (c.rows.join(" ")) } } }
                        }
                    }
                }
            }
        }
    }
}

fn fitted(all: &Reproduction) -> Markup {
    html! {
        section #fitted {
            h2 { "Fitted values" }
            @if all.fitted.is_empty() { p { "None." } } @else {
                table.plain {
                    thead {
                        tr {
                            @for h in ["card", "value", "is", "fitted to"] { th scope="col" { (h) } }
                        }
                    }
                    tbody {
                        @for one in &all.fitted {
                            tr {
                                td { (one.card) }
                                td { code { (one.key) } }
                                td.number { (sig(one.value, 4)) }
                                td { (one.rows.join(" ")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What was asked of a row before and since, of those whose criterion has changed after it was frozen.
fn criteria(all: &Reproduction) -> Markup {
    html! {
        section #criteria {
            h2 { "Changed criteria" }
            p.hint {
                "What each row is asked was written down and frozen by a hash. What has changed since, with the reason; the \
                 oldest change first."
            }
            @if all.criteria_changes.is_empty() { p { "None of these rows." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Changed criteria" {
                    table.plain {
                        thead { tr { @for h in ["row", "before", "after", "why"] { th scope="col" { (h) } } } }
                        tbody {
                            @for change in &all.criteria_changes {
                                tr {
                                    th scope="row" { (change.row) }
                                    td { (change.before) } td { (change.after) } td { (change.why) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Values that nobody states and that move scored rows, with what their ranges do to the score.
fn assumed(all: &Reproduction) -> Markup {
    html! {
        section #assumed {
            h2 { "Assumed values" }
            p.hint {
                "Values of the machine files that nobody states, if one of them moves a scored row by 2 % or more within its \
                 range; the last columns say how many predicted numbers are then within 10 %."
            }
            @if all.assumed.is_empty() { p { "None." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Assumed values" {
                    table.plain {
                        thead {
                            tr {
                                @for h in ["card", "value", "is", "from", "to", "rows", "near", "fewest", "most", "why"] {
                                    th scope="col" { (h) }
                                }
                            }
                        }
                        tbody { @for one in &all.assumed { (assumed_line(one)) } }
                    }
                }
            }
        }
    }
}

fn assumed_line(one: &Assumed) -> Markup {
    html! {
        tr {
            td { (one.card) }
            td { code { (one.key) } }
            @for value in [one.value, one.range[0], one.range[1]] { td.number { (sig(value, 4)) } }
            td.number title=(one.rows.join(" ")) { (one.rows.len()) }
            @for near in one.near { td.number { (near) } }
            td { (one.why) }
        }
    }
}

fn reading() -> Markup {
    let terms = [
        ("predicted", "Nothing in a machine file was taken from the row. Only these rows are scored."),
        (
            "fitted",
            "A value of a machine file was once chosen to meet the row, or for a reason that names it; or nothing but fitted \
             values and inputs moves the row by 2 %.",
        ),
        (
            "input",
            "A parameter, a constant of the experiment, or a row that nothing but such values moves by 2 %.",
        ),
        ("repeats", "The same number as an earlier row's."),
        ("undecided", "A bound that cannot be missed decides it."),
        (
            "not-computed",
            "The row puts nothing into the model, or is not modelled; the reason stands in the last column.",
        ),
        (
            "ratio",
            "The model over the paper. Where the paper prints both ends of a range, the model's least and greatest value \
             are compared with them, and the ratio is of the end that is further off. Where it prints one limit, the \
             ratio is 1 on the right side of it.",
        ),
        (
            "holds",
            "Numbers: within 10 %, or within what the paper's rounding or its limits leave open. Claims: decided by comparisons of measured numbers; those numbers stand in the last column. A cause is tested by \
             changing the part of the machine that it names.",
        ),
    ];
    html! {
        section #reading {
            h2 { "How to read this" }
            dl { @for (term, text) in terms { dt { (term) } dd { (text) } } }
        }
    }
}

/// What all published numbers are called in a legend.
const PUBLISHED: &str = "published";

/// The model's curves first, then what was published.
fn entries(chart: &Chart) -> Vec<&Trace> {
    let (published, curves): (Vec<&Trace>, Vec<&Trace>) =
        chart.traces.iter().partition(|t| t.name == PUBLISHED);
    curves.into_iter().chain(published).collect()
}

/// A figure on its paper's axes, if anything of it has a value.
fn chart(figure: &Figure) -> Option<Chart> {
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x = range(points().map(|p| p[0]), figure.x.log)?;
    let y = range(points().map(|p| p[1]).chain(figure.marks.iter().map(|mark| mark.y)), figure.y.log)?;
    // A linear axis begins at nothing, unless there is something below.
    let y = if figure.y.log { y } else { [y[0].min(0.0), y[1]] };
    let axis = |axis: Axis, range: [f64; 2]| svg::Axis {
        title: axis.title.to_owned(),
        log: axis.log,
        bytes: axis.bytes,
        range,
    };
    let mut traces: Vec<Trace> = figure.marks.iter().map(|mark| reference(figure, mark, x)).collect();
    traces.extend(figure.curves.iter().enumerate().map(|(i, curve)| model(figure, i, curve)));
    let label =
        format!("Plot of {}, {} curves; the rows are in the table", figure.title, figure.curves.len());
    Some(Chart { label, x: axis(figure.x, x), y: axis(figure.y, y), traces })
}

fn model(figure: &Figure, i: usize, curve: &Curve) -> Trace {
    let at =
        |x: f64| if figure.x.bytes { size(x as u64) } else { format!("{} {}", sig(x, 2), figure.x.title) };
    let point = |[x, y]: &[f64; 2]| Point {
        at: [*x, *y],
        interval: None,
        text: format!("{}\n{}\nmodel {}", curve.label, at(*x), sig(*y, 4)),
        cell: None,
    };
    Trace {
        name: curve.label.clone(),
        curve: Some(i),
        line: Line::Solid,
        mark: svg::Mark::Full,
        points: curve.points.iter().map(point).collect(),
    }
}

/// A published number in the colour of its curve: a point, or a level over the whole axis.
fn reference(figure: &Figure, mark: &Mark, [low, high]: [f64; 2]) -> Trace {
    let label = figure.curves.get(mark.curve).map_or("", |curve| curve.label.as_str());
    let text = format!("published: {label}\n{} ({})", sig(mark.y, 4), mark.id);
    let point = |x: f64| Point { at: [x, mark.y], interval: None, text: text.clone(), cell: None };
    Trace {
        name: PUBLISHED.to_owned(),
        curve: Some(mark.curve),
        line: Line::Dashed(1),
        mark: if mark.x.is_some() { svg::Mark::Level } else { svg::Mark::No },
        points: mark.x.map_or_else(|| vec![point(low), point(high)], |x| vec![point(x)]),
    }
}

/// From the least value to the greatest; of those above zero on a logarithmic axis, which has no place for others.
fn range(values: impl Iterator<Item = f64>, log: bool) -> Option<[f64; 2]> {
    values.filter(|v| !log || *v > 0.0).fold(None, |range: Option<[f64; 2]>, v| {
        Some(range.map_or([v, v], |[low, high]| [low.min(v), high.max(v)]))
    })
}
