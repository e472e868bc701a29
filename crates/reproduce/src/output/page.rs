//! The reproduction as a page: the findings in words, the papers' figures, every row, contradictions, fitted values.

use super::plots::{FAR, chart, entries, residuals};
use super::tables::PaperTable;
use super::tables::TableLine;
use super::terminal::{modelled, published};
use crate::history::criteria::CriterionChange;
use crate::papers::figure::Figure;
use crate::papers::published::{ACCEL, IWARP, MULTIRAIL, NICMEM, THESIS, citation};
use crate::real::{Comparison, OTHERS, OURS};
use crate::reproduction::{PaperScore, Reproduction};
use crate::verdicts::judge::{Class, Row};
use crate::verdicts::machine::Fitted;
use crate::verdicts::score::Assumed;
use crate::verdicts::score::{Score, worst};
use maud::{Markup, html};
use report::ReportError;
use report::number::{percent, plural, sig};
use report::shell::{document, embedded};
use report::svg::legend;

/// Number of rows shown as furthest from the published values.
const WORST: usize = 10;

/// The page: one self-contained HTML file that opens offline.
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
            @if !all.tables.is_empty() { (tables(all)) }
            (real(all))
            (table(all))
            (contradictions(all))
            (criteria(all))
            (fitted(all))
            (assumed(all))
            (reading(all))
        }
    };
    Ok(document("Nicety: published numbers and the model", &body, &data))
}

/// The section that a file of real measurements makes.
const REAL: &str = "real";

const SECTIONS: [(&str, &str); 10] = [
    ("findings", "Findings"),
    ("plots", "Figures"),
    ("tables", "Tables"),
    (REAL, "For real"),
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
                "The published facts of " (paper_titles(all)) ", next to the results of the same experiments on modelled cards in \
                 virtual time: " (plural(all.rows.len(), "row")) ", " (plural(all.measured, "measured cell")) "."
                " " (scope(all))
                @if !all.changes.is_empty() { " With values changed: " b { (all.changes.join(" ")) } "." }
            }
            nav aria-label="Sections" {
                @for (id, name) in SECTIONS.into_iter().filter(|(id, _)| has_section(all, id)) { a href={ "#" (id) } { (name) } }
            }
        }
    }
}

/// How many of the papers' numbers and claims the headline is about, and what the second rule says.
fn scope(all: &Reproduction) -> String {
    let claims = all.rows.iter().filter(|row| row.qualitative).count();
    format!(
        "The headline is about {} of the {} and {} of the {} that the papers print; the others are inputs, fitted, repeated, or \
         not computed. By the second rule: {}.",
        all.score.numeric,
        plural(all.rows.len() - claims, "number"),
        all.score.qualitative,
        plural(claims, "claim"),
        all.second_score.counts_and_median()
    )
}

/// Whether there is such a section.
fn has_section(all: &Reproduction, id: &str) -> bool {
    match id {
        "tables" => !all.tables.is_empty(),
        REAL => all.real.is_some(),
        _ => true,
    }
}

/// The outcome in one sentence.
fn headline(score: &Score) -> String {
    match (score.numeric, score.qualitative) {
        (0, 0) => "Nothing here is predicted by the model".to_owned(),
        (0, n) => format!("The model agrees with {} of {}", score.holding, plural(n, "predicted claim")),
        (n, _) => {
            let error = percent(score.median_error.unwrap_or(0.0));
            let near =
                format!("The model meets {} of {} within 10 %", score.near, plural(n, "predicted number"));
            let claims = match score.qualitative {
                0 => String::new(),
                n => format!(" and agrees with {} of {}", score.holding, plural(n, "predicted claim")),
            };
            format!("{near} (median error {error}){claims}")
        }
    }
}

/// The papers of the rows: `one`, `one and another`, `one, another and a third`.
fn paper_titles(all: &Reproduction) -> String {
    let mut names: Vec<&str> = all.rows.iter().map(|row| paper_title(&row.paper)).collect();
    names.dedup();
    match names.split_last() {
        Some((last, others @ [_, ..])) => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// The full name of a paper.
fn paper_title(paper: &str) -> &str {
    match paper {
        NICMEM => "the study of NIC memory on the MT23108",
        THESIS => "the thesis on InfiniBand, Myrinet and Quadrics",
        IWARP => "the paper on MPI over iWARP",
        MULTIRAIL => "the study of uDAPL over several rails",
        ACCEL => "the paper on an accelerated Portals",
        other => other,
    }
}

fn findings(all: &Reproduction) -> Markup {
    let worst = worst(&all.rows, WORST);
    html! {
        section #findings {
            h2 { "Findings" }
            div.findings {
                @for PaperScore { paper, complete, score, second_score } in &all.papers {
                    @if *complete {
                        @for (text, reached) in score.goals() {
                            article.finding.(if reached { "fact" } else { "caution" }) {
                                h3 { (if reached { "Reached" } else { "Missed" }) }
                                p { (text) (of_paper(all, paper)) }
                            }
                        }
                        article.finding.fact {
                            h3 { "By the second rule" }
                            p { (second_score.counts_and_median()) (of_paper(all, paper)) }
                        }
                    } @else {
                        article.finding.fact {
                            h3 { "Of the rows asked for" }
                            p { (score.counts().join("; ")) (of_paper(all, paper)) }
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
                        ul { @for row in worst { li { b { (row.id) } " " (error_text(row)) } } }
                    }
                }
            }
        }
    }
}

/// The paper that something is about, if there are several; empty if there is one.
fn of_paper(all: &Reproduction, paper: &str) -> String {
    if all.papers.len() > 1 { format!(" – {}", paper_title(paper)) } else { String::new() }
}

/// The subject of a row, and its error.
fn error_text(row: &Row) -> String {
    let systems = row.system.replace('|', " / ");
    let about = [&row.experiment, &systems, &row.variant].map(String::as_str);
    let about: Vec<&str> = about.into_iter().filter(|part| !part.is_empty()).collect();
    let how = match row.error() {
        Some(error) => {
            let (paper, model, error) = (published(row), modelled(row), percent(error));
            format!("paper {paper}, model {model}: off by {error}")
        }
        None => row.evidence.clone().unwrap_or_default(),
    };
    format!("{}: {how}", about.join(", "))
}

fn figures(all: &Reproduction) -> Markup {
    html! {
        section #plots {
            h2 { "Figures of the papers" }
            p.hint {
                "Curves are the model's. Dashed lines and marks in the same colour are the papers' values: only peaks and \
                 single points were published. Hollow marks and sparse dashes are numbers that values were fitted to. The axes are those of the papers, as far as the text gives them."
            }
            div.figures {
                @for PaperScore { paper, .. } in &all.papers { (residuals_frame(paper, all)) }
                @for (i, figure) in all.figures.iter().enumerate() { (figure_frame(i, figure, all)) }
            }
            @if all.figures.is_empty() { p { "There are none for these rows." } }
        }
    }
}

/// How far the numbers of a paper are off, in as many panels as its rows need.
fn residuals_frame(paper: &str, all: &Reproduction) -> Markup {
    let own: Vec<&Row> = all.rows.iter().filter(|row| row.paper == paper).collect();
    let charts = residuals(&own);
    let Some(first) = charts.first() else { return html! {} };
    html! {
        figure.plot {
            figcaption {
                h3 { "How far numbers are off" }
                p.constant {
                    (paper_title(paper)) ": the model over the paper, by the numbers of the rows; beyond " (FAR[0]) " and " (FAR[1])
                    " drawn there; both ranges over the middle of a printed one"
                }
            }
            (legend(&format!("Numbers of {paper}"), &entries(first)))
            div.panels { @for chart in &charts { div.panel.lines { div.canvas { (chart.markup()) } } } }
        }
    }
}

fn figure_frame(i: usize, figure: &Figure, all: &Reproduction) -> Markup {
    let own: Vec<&Row> = all.rows.iter().filter(|row| belongs_to(row, figure)).collect();
    let is_fitted = |id: &str| all.rows.iter().any(|row| row.id == id && row.class == Class::Fitted);
    let chart = chart(figure, &is_fitted);
    html! {
        figure.plot id={ "figure-" (i) } {
            figcaption {
                h3 { "Figure " (figure.number) ": " (figure.title) }
                @if all.papers.len() > 1 { p.constant { (paper_title(figure.paper)) } }
            }
            @if let Some(chart) = &chart {
                (legend(&format!("Curves of figure {}", figure.number), &entries(chart)))
                div.panels { div.panel.lines { div.canvas { (chart.markup()) } } }
            } @else {
                p.hint { "No point of this figure could be computed." }
            }
            @if !own.is_empty() {
                details {
                    summary { (prediction_summary(&own)) }
                    ul { @for row in own { li { (verdict(row)) } } }
                }
            }
        }
    }
}

/// Whether a row belongs to this figure.
fn belongs_to(row: &Row, figure: &Figure) -> bool {
    row.paper == figure.paper
        && row.class != Class::NotComputed
        && mentions_figure(&row.figure, figure.number)
}

/// Whether a row's text names this figure: its number, the number without its letter, or with several letters.
pub(crate) fn mentions_figure(row_text: &str, number: &str) -> bool {
    let (wanted, letter) = split_letters(number);
    row_text.starts_with("Figure")
        && row_text.split_whitespace().any(|word| {
            let (found, letters) = split_letters(word.trim_end_matches(','));
            found == wanted && (letters.is_empty() || letters.split(',').any(|one| one == letter))
        })
}

/// A figure's number, and its letters without brackets.
fn split_letters(text: &str) -> (&str, &str) {
    let (number, letters) = text.split_once('(').unwrap_or((text, ""));
    (number, letters.trim_end_matches(')'))
}

/// How many of a figure's predictions are met.
fn prediction_summary(rows: &[&Row]) -> String {
    let predicted = || rows.iter().filter(|row| row.class == Class::Predicted);
    let met = predicted().filter(|row| row.holds == Some(true)).count();
    match predicted().count() {
        0 => format!("{}, none of them predicted", plural(rows.len(), "row")),
        n => format!("{met} of {} met, of {}", plural(n, "prediction"), plural(rows.len(), "row")),
    }
}

/// The verdict on a row, for its figure.
fn verdict(row: &Row) -> Markup {
    let sign = match row.holds {
        Some(true) => "met",
        Some(false) => "not met",
        None => "–",
    };
    let numbers = if row.qualitative {
        String::new()
    } else {
        format!(": paper {}, model {}", published(row), modelled(row))
    };
    html! { b { (row.id) } " " (row.variant) (numbers) " – " (row.class.name()) ", " (sign) }
}

fn tables(all: &Reproduction) -> Markup {
    html! {
        section #tables {
            h2 { "Tables of the papers" }
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

/// The paper's gains compared with today's, measured on real devices.
fn real(all: &Reproduction) -> Markup {
    let Some(real) = &all.real else { return html! {} };
    let ours: Vec<&str> = OURS.iter().map(|(_, name)| *name).collect();
    html! {
        section #(REAL) {
            h2 { "MPI over iWARP, for real" }
            p.hint {
                "What the paper's iWARP gained over MPICH2's TCP, and what ours gains today over other libraries' TCP: less time, or \
                 more bandwidth. Not the paper's machines: " (real.conditions) "."
            }
            @for (at, (_, other)) in OTHERS.iter().enumerate() {
                h3 { "Beside " (other) }
                (real_table(&format!("Gains over {other}"), &["paper, MVAPICH2-R over MPICH2"], &ours, &real.comparisons, |one| {
                    let today = one.today[at].iter().cloned();
                    std::iter::once(Some(one.paper.clone())).chain(today).collect()
                }))
            }
            h3 { "What each takes" }
            (real_table("What each takes", &ours, &OTHERS.map(|(_, name)| name), &real.comparisons, |one| one.values.clone()))
        }
    }
}

fn real_table(
    label: &str,
    first: &[&str],
    then: &[&str],
    comparisons: &[Comparison],
    cells: impl Fn(&Comparison) -> Vec<Option<String>>,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table.plain {
                thead { tr { th scope="col" { "what" } @for head in first.iter().chain(then) { th scope="col" { (head) } } } }
                tbody {
                    @for one in comparisons {
                        tr {
                            th scope="row" { (one.what) }
                            @for cell in cells(one) { td.number { (cell.as_deref().unwrap_or("–")) } }
                        }
                    }
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
                tbody { @for row in predicted_first(&all.rows) { (table_row(row)) } }
            }
            p {
                button.download type="button" data-run="reproduction" { "Save the data of this page (JSON)" }
            }
        }
    }
}

/// The class by the second rule where it differs.
fn second_class(row: &Row) -> String {
    match row.second_class == row.class {
        true => String::new(),
        false => format!("; by the second rule {}: {}", row.second_class.name(), row.second_because),
    }
}

/// The rows in the order of their classes, and of the dataset within a class.
fn predicted_first(rows: &[Row]) -> Vec<&Row> {
    let mut all: Vec<&Row> = rows.iter().collect();
    all.sort_by_key(|row| row.class);
    all
}

fn table_row(row: &Row) -> Markup {
    let fails = row.holds == Some(false) && row.class == Class::Predicted;
    let how = match (&row.reason, &row.evidence) {
        (Some(reason), _) => reason.clone(),
        (None, Some(evidence)) => format!("{} — {evidence}", row.how),
        (None, None) => row.how.clone(),
    };
    html! {
        tr data-doubtful=[fails.then_some("1")] {
            td { span.whole { (row.id) } @if !row.contradictions.is_empty() { " " span.badge { (row.contradictions.join(" ")) } } }
            td { (row.experiment) }
            td { (row.variant) " " q { (row.quote) } }
            td.number data-l="paper" data-v=[row.published.or(row.low).or(row.high)] { (published(row)) }
            td.number data-l="model" data-v=[row.modelled] { (modelled(row)) }
            td.number.whole data-l="ratio" data-v=[row.ratio] { (row.ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.3}"))) }
            td.whole data-l="class" { (row.class.name()) }
            td.(if fails { "missed" } else { "met" }) data-l="holds" {
                (match row.holds { Some(true) => "yes", Some(false) => "no", None => "–" })
            }
            td { (row.figure) }
            td { (how) " – " (row.class.name()) ": " (row.because) (second_class(row)) }
        }
    }
}

fn contradictions(all: &Reproduction) -> Markup {
    html! {
        section #contradictions {
            h2 { "Contradictions in the papers" }
            p.hint { "No model can meet all of these rows, so they are scored separately. No value was changed to meet them." }
            @if all.contradictions.is_empty() { p { "There are none for these rows." } } @else {
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
                table.plain.cards {
                    thead {
                        tr {
                            @for h in ["cards", "value", "is", "fitted to"] { th scope="col" { (h) } }
                        }
                    }
                    tbody {
                        @for group in group_equal(&all.fitted, same_value) {
                            tr {
                                td { (join_words(&group, |fitted| &fitted.card)) }
                                td { code { (group[0].key) } }
                                td.number data-l="is" { (sig(group[0].value, 4)) }
                                td data-l="fitted to" { (group[0].rows.join(" ")) }
                            }
                        }
                    }
                }
            }
            (freed_values(all))
        }
    }
}

/// Whether two cards of one family share a value.
fn same_value(one: &Fitted, other: &Fitted) -> bool {
    (&one.key, sig(one.value, 4), &one.rows) == (&other.key, sig(other.value, 4), &other.rows)
}

/// Fit lists that have become shorter, after results had been seen.
fn freed_values(all: &Reproduction) -> Markup {
    html! {
        @if !all.fit_changes.is_empty() {
            h3 { "Fitted once" }
            p.hint {
                "Values that were fitted to rows of these papers and are not any more: the rows count as predictions now, unless \
                 another value is fitted to them. It stands where the value that is there now follows from a source of its own, or \
                 the row is within 10 % whatever the value is within its range. Elsewhere, or where the number is what it was, the \
                 rows are fitted again. All of this was decided after results had been seen."
            }
            div.scroll tabindex="0" role="region" aria-label="Fitted once" {
                table.plain.cards {
                    thead { tr { @for h in ["card", "value", "rows", "before", "now", "why"] { th scope="col" { (h) } } } }
                    tbody {
                        @for one in &all.fit_changes {
                            tr {
                                td { (one.card) }
                                td { code { (one.key) } }
                                td data-l="rows" { (one.rows) }
                                td data-l="before" { (one.before) }
                                td data-l="now" { (one.after) }
                                td data-l="why" { (one.why) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether two changes differ in nothing but their rows.
fn same_words(one: &CriterionChange, other: &CriterionChange) -> bool {
    (&one.before, &one.after, &one.why) == (&other.before, &other.after, &other.why)
}

/// The old and new criteria of rows whose criterion has changed since it was frozen.
fn criteria(all: &Reproduction) -> Markup {
    html! {
        section #criteria {
            h2 { "Changed criteria" }
            p.hint {
                "What each row is asked was written down and frozen by a hash. What has changed since, with the reason; the \
                 oldest change first."
            }
            @if all.criteria_changes.is_empty() { p { "There are none for these rows." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Changed criteria" {
                    table.plain.cards {
                        thead { tr { @for h in ["rows", "before", "after", "why"] { th scope="col" { (h) } } } }
                        tbody {
                            @for group in group_equal(&all.criteria_changes, same_words) {
                                tr {
                                    td { (join_words(&group, |change| &change.row)) }
                                    td data-l="before" { (group[0].before) }
                                    td data-l="after" { (group[0].after) }
                                    td data-l="why" { (group[0].why) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Groups equal entries into one line each, in the order of their first occurrence.
fn group_equal<T>(all: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<Vec<&T>> {
    let mut groups: Vec<Vec<&T>> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|group| same(group[0], one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// One word of each entry, joined.
fn join_words<'a, T>(group: &[&'a T], word: impl Fn(&'a T) -> &'a str) -> String {
    group.iter().map(|one| word(one)).collect::<Vec<_>>().join(" ")
}

/// Assumed values that move scored rows, with the effect of their ranges on the score.
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
                    table.plain.cards {
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
            @for (name, value) in [("is", one.value), ("from", one.range[0]), ("to", one.range[1])] {
                td.number data-l=(name) { (sig(value, 4)) }
            }
            td.number data-l="rows" title=(one.rows.join(" ")) { (one.rows.len()) }
            @for (name, near) in ["near", "fewest", "most"].into_iter().zip(one.near) { td.number data-l=(name) { (near) } }
            td data-l="why" { (one.why) }
        }
    }
}

fn reading(all: &Reproduction) -> Markup {
    let terms = [
        ("predicted", "No value of a machine file comes from the row. Only these rows are scored."),
        (
            "fitted",
            "A value of a machine file was once chosen to meet the row, or for a reason that names it; or nothing but fitted \
             values and inputs moves the row by 2 %.",
        ),
        (
            "input",
            "A parameter, a constant of the experiment, or a row that nothing but such values moves by 2 %.",
        ),
        ("repeats", "The same number as an earlier row."),
        ("undecided", "A bound that every result meets decides it."),
        (
            "not-computed",
            "There is nothing to compute, or the row is not modelled; the last column has the reason.",
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
            h3 { "The papers" }
            ul { @for PaperScore { paper, .. } in &all.papers { li { (citation(paper)) "." } } }
        }
    }
}
