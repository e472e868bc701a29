//! `reuse`: what it costs to use many buffers instead of one (thesis 2.2.7, Figures 3.7 and 4.10 to 4.12).
//!
//! `scheme=1`: W buffers in turn, at both sides. `scheme=2`: R % of the messages use one buffer, the others a buffer
//! never used before, or the least recently used one. Buffers are contiguous, as the elements of an array, and are
//! registered together before anything is timed: only translation is measured.
//!
//! `scheme=fit` finds how many pages a device can translate without a lookup. It writes 8 bytes from each of W pages
//! in turn to one destination, waits for each, and searches for the W at which the time leaves its lower level.

use results::variant::{Variant, factor};
use verbs::host::Span;
use verbs::{Mr, RemoteAddr, SendOp, SendWr};

use crate::experiment::harness::contract::level;
use crate::experiment::harness::endpoint::{Depth, Endpoint, exchange, register};
use crate::experiment::harness::pattern;
use crate::experiment::harness::variants::{over, with};
use crate::experiment::loops::traffic::{self, Order, Shape, Traffic};
use crate::experiment::{
    Axis, Cell, Experiment, Fault, Metric, Needs, Round, Sampling, Scale, Session, Settings, Side,
};

pub(crate) struct Reuse;

const BUFFERS: Axis =
    Axis { factor: factor::BUFFERS, low: 1, high: 65_536, about: "buffers that messages use in turn" };
const SHARE: Axis =
    Axis { factor: factor::REUSE, low: 0, high: 100, about: "% of messages that use the one buffer" };
const PAGES: Axis =
    Axis { factor: factor::PAGES, low: 64, high: 1 << 20, about: "pages up to which a cache is looked for" };
/// Approximate bytes of all buffers of scheme 2 on a side; and their least and greatest number.
const POOL: u64 = 64 << 20;
const POOL_BUFFERS: [u64; 2] = [64, 16_384];
/// Bytes of a page.
const PAGE: u64 = 4096;

impl Experiment for Reuse {
    fn name(&self) -> &'static str {
        "reuse"
    }

    fn about(&self) -> &'static str {
        "latency and bandwidth by the number of buffers and how often they are reused; size of the translation cache"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/reuse.md")
    }

    fn axes(&self) -> &'static [Axis] {
        &[BUFFERS, SHARE, PAGES]
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let scheme = |number: &str| {
            traffic::quantities().iter().map(|v| with(v, factor::SCHEME, number)).collect::<Vec<_>>()
        };
        let fit = results::variant::variant(&[(factor::SCHEME, "fit"), (PAGES.factor, "8192")]);
        let (buffers, shares): (&[&str], &[&str]) = match quick {
            true => (&["1", "25"], &["0", "100"]),
            false => (
                &["1", "2", "3", "4", "5", "6", "8", "10", "12", "16", "20", "25", "50", "100"],
                &["0", "25", "50", "75", "100"],
            ),
        };
        let (first, second) =
            (over(&scheme("1"), BUFFERS.factor, buffers), over(&scheme("2"), SHARE.factor, shares));
        [fit].into_iter().chain(first).chain(second).collect()
    }

    fn only_size(&self, variant: &Variant) -> Option<u64> {
        is_fit(variant).then_some(8)
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[4096] } else { &[64, 4096, 512 << 10] })
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        let bytes = match shape(cell) {
            _ if is_fit(&cell.variant) => level(cell, &PAGES).unwrap_or(1) * PAGE,
            Ok(shape) => traffic::bytes(cell.size, shape.buffers),
            Err(_) => 0,
        };
        Needs { bytes, processes: 2, ..Needs::default() }
    }

    fn metric(&self, variant: &Variant) -> Metric {
        if !is_fit(variant) {
            return traffic::metric(variant);
        }
        Metric {
            name: "translation_cache",
            unit: "pages",
            about: "pages of 4 KiB that can be in use before the time of an 8-byte write from each in turn rises from its \
                    lower level past the middle to its upper one",
            scale: Scale::Plain,
        }
    }

    fn sampling(&self, variant: &Variant) -> Sampling {
        if is_fit(variant) { Sampling::ONCE } else { traffic::sampling(variant) }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        if is_fit(&session.cell.variant) {
            return Ok(Box::new(Fit::prepare(session)?));
        }
        Ok(Box::new(Traffic::prepare(session, shape(session.cell)?)?))
    }
}

fn is_fit(variant: &Variant) -> bool {
    variant.is(factor::SCHEME, "fit")
}

fn shape(cell: &Cell) -> Result<Shape, Fault> {
    match cell.factor(factor::SCHEME)? {
        "1" => Ok(Shape { buffers: level(cell, &BUFFERS)?, ..Shape::PLAIN }),
        "2" => {
            let buffers = (POOL / cell.size.max(1)).clamp(POOL_BUFFERS[0], POOL_BUFFERS[1]);
            Ok(Shape { buffers, order: Order::Share(level(cell, &SHARE)?), ..Shape::PLAIN })
        }
        other => Err(Fault::Meaningless(format!("scheme {other} of reusing buffers"))),
    }
}

/// Timed passes over the pages, after an untimed one.
const PASSES: usize = 5;
/// Pages that any cache has.
const FEW: u64 = 16;
/// Writes of a pass at least.
const WRITES: u64 = 256;
/// How much longer the upper level has to be than the lower, and how much more than the passes of a level differ.
const RISE: f64 = 1.03;
const CLEAR: f64 = 3.0;
/// Ratio of two numbers of pages below which the search ends.
const NEAR: f64 = 1.005;

/// The time of a write, from several passes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    /// In ps: the median pass.
    median: f64,
    /// By how much half of the passes differ.
    spread: f64,
}

impl Timed {
    fn of(mut passes: [f64; PASSES]) -> Self {
        passes.sort_by(f64::total_cmp);
        Self { median: passes[PASSES / 2], spread: passes[PASSES - 2] - passes[1] }
    }
}

/// The largest number of pages up to `most` at which `time` is nearer to the lower level, that of [`FEW`], than to the
/// upper one, that of `most`; `None` where there are no two levels.
fn knee(
    most: u64,
    mut time: impl FnMut(u64) -> Result<Timed, Fault>,
) -> Result<Option<(u64, [f64; 2])>, Fault> {
    let (low, high) = (time(FEW)?, time(most)?);
    let rise = high.median - low.median;
    if high.median < RISE * low.median || rise < CLEAR * (low.spread + high.spread) {
        return Ok(None);
    }
    let middle = low.median + rise / 2.0;
    let (mut below, mut above) = (FEW, most);
    while above > below + 1 && above as f64 > NEAR * below as f64 {
        let between = ((below as f64 * above as f64).sqrt() as u64).clamp(below + 1, above - 1);
        *(if time(between)?.median < middle { &mut below } else { &mut above }) = between;
    }
    Ok(Some((below, [low.median, high.median])))
}

/// Writes from many pages to one destination.
struct Fit {
    client: bool,
    link: Endpoint,
    source: Mr,
    sink: Mr,
    remote: RemoteAddr,
    pages: u64,
    note: Option<String>,
    seed: u64,
}

impl Fit {
    fn prepare(session: &mut Session<'_>) -> Result<Self, Fault> {
        let pages = level(session.cell, &PAGES)?;
        let mut link = Endpoint::create(session.device, Depth::new(4, 1))?;
        let client = session.is_client();
        let source = register("host", &link.pd, (if client { pages * PAGE } else { 8 }) as usize)?;
        let sink = register("host", &link.pd, 8)?;
        link.connect(session)?;
        let remote = exchange(session, &sink)?;
        let seed = session.settings.seed;
        Ok(Self { client, link, source, sink, remote, pages, note: None, seed })
    }

    fn write(&self, session: &Session<'_>, page: u64) -> Result<(), Fault> {
        let sges = [self.source.sge(page * PAGE, 8)];
        self.link.qp.post_send(&SendWr::new(0, SendOp::Write(self.remote), &sges))?;
        self.link.sent(session.deadline(), "a write").map(drop)
    }

    /// The time of one write in a cycle over this many pages.
    fn time(&self, session: &Session<'_>, pages: u64) -> Result<Timed, Fault> {
        let writes = WRITES.next_multiple_of(pages).max(pages);
        let pass = || -> Result<Span, Fault> {
            let began = session.host.now();
            (0..writes).try_for_each(|n| self.write(session, n % pages))?;
            Ok(session.host.now() - began)
        };
        pass()?;
        let mut passes = [0.0; PASSES];
        for one in &mut passes {
            *one = pass()?.as_ps() as f64 / writes as f64;
        }
        Ok(Timed::of(passes))
    }

    fn search(&mut self, session: &Session<'_>) -> Result<f64, Fault> {
        match knee(self.pages, |pages| self.time(session, pages))? {
            Some((pages, [low, high])) => {
                let (low, high) = (low / 1e6, high / 1e6);
                self.note =
                    Some(format!("a write takes {low:.3} us before the knee and {high:.3} us beyond it"));
                Ok(pages as f64)
            }
            None => Err(Fault::Absent(format!(
                "no knee found: writes from {} pages in turn take what those from {FEW} do",
                self.pages
            ))),
        }
    }
}

impl Side for Fit {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.buf().fill(0x5a);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        for _ in 0..if self.client { round.samples } else { 0 } {
            readings.push(self.search(s)?);
        }
        Ok(())
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        if !self.client {
            session.receive_info::<()>()?;
            return pattern::compare(self.sink.buf(), 0, 8, self.seed);
        }
        let last = self.pages - 1;
        pattern::fill(self.source.buf(), (last * PAGE) as usize, 8, self.seed)?;
        self.write(session, last)?;
        session.send_info(&())
    }

    fn note(&self) -> Option<String> {
        self.note.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(most: u64, time: impl Fn(u64) -> f64) -> Option<u64> {
        let timed = |pages| Ok(Timed { median: time(pages), spread: 1.0 });
        knee(most, timed).expect("no fault").map(|(pages, _)| pages)
    }

    #[test]
    fn a_step_is_found_wherever_it_is() {
        for truth in [17, 100, 704, 5000, 8191] {
            let pages = found(8192, |pages| if pages > truth { 1500.0 } else { 1000.0 }).expect("a step");
            assert!((pages as f64 / truth as f64 - 1.0).abs() < 0.01, "{pages} and not {truth}");
        }
    }

    #[test]
    fn where_there_is_no_step_none_is_found() {
        assert_eq!(found(8192, |_| 1000.0), None);
        // It differs, but by no more than passes do.
        assert_eq!(found(8192, |pages| if pages > 700 { 1005.0 } else { 1000.0 }), None);
        assert_eq!(found(8192, |pages| if pages > 700 { 500.0 } else { 1000.0 }), None);
    }

    #[test]
    fn the_middle_of_a_slope_is_taken() {
        let pages = found(8192, |pages| 1000.0 + (pages as f64).clamp(256.0, 1024.0)).expect("a slope");
        assert!((600..=680).contains(&pages), "{pages}");
    }
}
