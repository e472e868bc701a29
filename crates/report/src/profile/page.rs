//! [`profile_page`]: a profile as one HTML file.

use maud::{Markup, html};

use super::super::number::{count, size_about};
use super::super::shell::document;
use super::job::{JobProfile, in_mpi, share};
use super::matrix::matrix;
use host::Span;

/// Maximum ranks with a line each: beyond that, only the ranks with the most time in MPI.
const RANKS_MAX: usize = 64;

/// The page: one HTML file that opens offline.
#[must_use]
pub fn profile_page(program: &str, jobs: &[JobProfile]) -> String {
    let body = html! {
        header {
            p.brand { "Nicety" }
            h1 { "Profile of " (program) }
            p.lead {
                "What ranks called between MPI_Init and MPI_Finalize, how long that took, and whom they sent to. Time in a call is that \
                 from its beginning to its return, with what it waits for others."
            }
        }
        main { @for (number, job) in jobs.iter().enumerate() { (section(number, job)) } }
    };
    document(&format!("Nicety: profile of {program}"), &body, &[])
}

fn section(number: usize, job: &JobProfile) -> Markup {
    html! {
        section {
            h2 { @if number == 0 { "The job" } @else { "Job " (number) ", started by a rank" } }
            p { (job.summary()) "." }
            @if let Some(gap) = job.gap() { div.finding.caution { p { (gap) } } }
            (ranks(job))
            (calls(job))
            (messages(job))
        }
    }
}

/// A bar for each rank: the share of its time in MPI.
fn ranks(job: &JobProfile) -> Markup {
    let mut all: Vec<_> = job.known().collect();
    if all.len() > RANKS_MAX {
        all.sort_by_key(|(_, profile)| std::cmp::Reverse(in_mpi(profile)));
        all.truncate(RANKS_MAX);
    }
    if all.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Time in MPI, by rank" }
        @if job.ranks.len() > RANKS_MAX { p.hint { "The " (RANKS_MAX) " ranks that spent most." } }
        div.panel { div.rows.k0 {
            @for (rank, profile) in all {
                @let inside = in_mpi(profile);
                @let part = 100.0 * inside.as_ps() as f64 / profile.watched.as_ps().max(1) as f64;
                div.row {
                    span { "rank " (rank) }
                    // Threads that call at the same time spend more than there is.
                    div.track { i.bar style={ "width:" (format!("{:.1}", part.min(100.0))) "%" } {} }
                    span.value title=(inside) { (share(inside, profile.watched)) }
                }
            }
        } }
    }
}

fn calls(job: &JobProfile) -> Markup {
    let rows = job.calls();
    if rows.is_empty() {
        return html! {};
    }
    let all = rows.iter().fold(Span::ZERO, |sum, row| sum + row.all.time);
    html! {
        h3 { "Calls" }
        div.scroll { table.plain {
            thead { tr {
                th scope="col" { "function" }
                @for name in ["calls", "time of all ranks", "of MPI", "a call", "most at a rank", "bytes sent meanwhile"] {
                    th.number scope="col" { (name) }
                }
            } }
            tbody { @for row in &rows {
                tr {
                    th scope="row" { (row.name) }
                    td.number { (count(row.all.calls)) }
                    td.number { (row.all.time) }
                    td.number { (share(row.all.time, all)) }
                    td.number { (row.all.time / row.all.calls) }
                    td.number { (row.most.1) " (rank " (row.most.0) ")" }
                    td.number { (size_about(row.all.bytes as f64)) }
                }
            } }
        } }
    }
}

fn messages(job: &JobProfile) -> Markup {
    let Some(drawing) = matrix(job) else {
        return html! { p.hint { "No messages were sent." } };
    };
    let outside: Vec<_> = job.pairs().into_iter().filter(|pair| pair.to == job.ranks.len()).collect();
    html! {
        h3 { "Messages between ranks" }
        p.hint { "Bytes of messages, those of collective operations among them. What goes through memory that ranks share, and what \
                  is put or got one-sided, is no message." }
        figure.plot { div.panel.lines { div.canvas { (drawing) } } }
        @for pair in outside {
            p { "Rank " (pair.from) " sent " (count(pair.sent.messages)) " messages to other jobs, " (size_about(pair.sent.bytes as f64)) "." }
        }
        h3 { "Protocols" }
        div.scroll { table.plain {
            thead { tr {
                th scope="col" { "protocol" }
                th.number scope="col" { "messages" }
                th.number scope="col" { "bytes" }
            } }
            tbody { @for (way, sent) in job.protocols() {
                tr {
                    th scope="row" { (way.name()) }
                    td.number { (count(sent.messages)) }
                    td.number { (size_about(sent.bytes as f64)) }
                }
            } }
        } }
        p.hint { code { "nicety explain mpi" } " says which messages go by which." }
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::tests::three;
    use super::*;

    /// A rank's profile may contain anything that can be parsed.
    #[test]
    fn profiles_of_largest_numbers_are_shown() {
        let most = u64::MAX;
        let text = format!(
            "watched:{most},call:MPI_Send:{most}:{most}:{most},call:MPI_Wait:0:{most}:0,\
             sent:0:eager/ring:{most}:{most},sent:0:eager/copy:{most}:{most},sent:2:eager/ring:{most}:{most}"
        );
        let note = |key: &str| key.ends_with("-0").then_some(text.as_str());
        let rank = |at| pmi::profile::Profile::from_notes(at, 2, note).expect("a note").expect("a profile");
        let job = JobProfile { ranks: vec![Some(rank(0)), Some(rank(1))] };
        assert!(profile_page("p", std::slice::from_ref(&job)).contains("MPI_Send"));
        assert!(crate::profile_text(&[job], 80, false).contains("18,446,744,073,709,551,615"));
    }

    #[test]
    fn the_page_has_all_parts_and_no_markup_of_others() {
        let text = profile_page("./<b>a</b>", &[three(), JobProfile { ranks: vec![None] }]);
        assert!(text.contains("Profile of ./&lt;b&gt;a&lt;/b&gt;") && !text.contains("<b>a"));
        let body = text.split("<main>").nth(1).and_then(|rest| rest.split("</main>").next()).expect("a body");
        for part in [
            "Time in MPI, by rank",
            "MPI_Wait",
            "rank 2 to rank 0",
            "eager/ring",
            "Job 1, started by a rank",
            "Rank 1 is missing",
        ] {
            assert!(body.contains(part), "{part}");
        }
        assert_eq!(body.matches("class=\"bar\"").count(), 2, "a bar for each rank that told");
        assert!(!body.contains("NaN"), "{body}");
    }
}
