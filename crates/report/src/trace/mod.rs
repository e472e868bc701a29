//! [`trace_page`]: a trace as one HTML file: timelines of threads and queues, depths of queues, and waits.

mod data;

use ::trace::{Job, Queue, Selection, queues, time_span};
use maud::{Markup, html};

use crate::error::ReportError;
use crate::shell::{document_with, embedded};

const STYLE: &str = include_str!("../assets/trace.css");
const SCRIPT: &str = include_str!("../assets/trace.js");

/// The colours of bars, as the script has them, and their meanings.
const LEGEND: [(&str, &str); 6] = [
    ("--c0", "call, or request that succeeded"),
    ("--c8", "failure"),
    ("--c4", "wait"),
    ("--c5", "request that ended with the completion of a later request"),
    ("--c1", "request without completion"),
    ("--c2", "completion"),
];

/// Records on a page: more make it slow.
const RECORDS_MAX: usize = 50_000;

/// The page: one HTML file that opens offline. Of very many records it shows the latest.
///
/// # Errors
/// [`ReportError::Data`] if the data cannot be embedded.
pub fn trace_page(job: &Job, selection: &Selection) -> Result<String, ReportError> {
    let limit = selection.last.map_or(RECORDS_MAX, |last| last.min(RECORDS_MAX));
    let all = selection.apply(&job.processes).len();
    let shown = Selection { last: Some(limit), ..selection.clone() };
    let files: Vec<&str> = job.processes.iter().map(|process| process.file.as_str()).collect();
    let title = files.first().copied().unwrap_or("trace");
    let body = html! {
        header {
            p.brand { "Nicety" }
            h1 { "Trace " (title) }
            p.lead {
                "What the program did with its devices. A bar in a queue is a request, from its posting until the program polls its \
                 completion; the line below is how many there are. Bars of a thread are calls and waits."
            }
            @if all > limit { p.hint { "The latest " (limit) " of " (all) " records. Select others by --from and --to, --qp or --rank." } }
        }
        main {
            div.trace-bar {
                input #trace-filter type="search" placeholder="only rows with this text" aria-label="only rows with this text";
                label { input #trace-failures type="checkbox"; " only rows with failures" }
                button #trace-all type="button" { "whole time" }
                span #trace-range {}
            }
            p.hint { "Turn the wheel to zoom, drag to move, point at a bar to read it." }
            p.trace-legend {
                @for (kind, word) in LEGEND { span { i style={ "background:var(" (kind) ")" } {} " " (word) } }
            }
            div #trace-rows {}
            pre #trace-note {}
            @for process in &job.processes {
                h2 { "Queues of " (process.name) }
                (table(&queues(process)))
            }
        }
    };
    let data = embedded(&data::page(job, &shown))?;
    let title = format!("Nicety: trace {title}");
    Ok(document_with(&title, &body, &[("trace-data".to_owned(), data)], STYLE, SCRIPT))
}

fn table(queues: &[Queue]) -> Markup {
    if queues.is_empty() {
        return html! { p.hint { "No request was posted." } };
    }
    let span = |ps: u64| if ps == 0 { "-".to_owned() } else { time_span(ps) };
    html! {
        div.scroll { table.plain {
            thead { tr {
                th scope="col" { "queue" }
                @for name in ["posted", "refused", "failed", "without completion", "deepest", "size", "full for", "median time", "longest"] {
                    th.number scope="col" { (name) }
                }
            } }
            tbody { @for queue in queues {
                tr {
                    th scope="row" { (queue.name) }
                    @for count in [queue.posted, queue.refused, queue.failed, queue.open, queue.deepest.into(), queue.size.into()] {
                        td.number { (count) }
                    }
                    td.number { (span(queue.full_ps)) }
                    td.number { (span(queue.times_ps.map_or(0, |times| times.0))) }
                    td.number { (span(queue.times_ps.map_or(0, |times| times.1))) }
                }
            } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::trace::Trace;

    #[test]
    fn script_cannot_end_its_element() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--") && !SCRIPT.contains('\r'));
    }

    /// Goal: text of a trace cannot become markup. Method: names that would.
    #[test]
    fn foreign_text_is_escaped() {
        let trace = Trace { threads: [(0, (1, "</script><b>".into()))].into(), ..Trace::default() };
        let page = trace_page(&Job::new(vec![("<img src=x>".into(), trace)]), &Selection::default())
            .expect("a page");
        assert!(!page.contains("<img src=x>") && !page.contains("</script><b>"), "{page}");
        assert!(page.contains("&lt;img src=x&gt;"));
    }
}
