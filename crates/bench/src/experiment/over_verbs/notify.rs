//! `notify`: what it costs to notify the target that a write has arrived (thesis 2.2.5, Figures 3.5 and 4.8).
//!
//! Two ping-pongs on two connections alternate within each sample: plain writes, which the target notices by polling
//! the last byte, and writes that notify it, where it polls its completion queue. `by=imm` notifies by immediate
//! data. `by=send` sends an empty message after the write, as an interface without notification must.

use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::{over, placements, with};
use crate::experiment::loops::pingpong::PingPong;
use crate::experiment::{Cell, Experiment, Fault, Metric, Round, Sampling, Scale, Session, Side};
use results::variant::{Variant, factor};

/// Round trips of either kind in an operation.
const TOGETHER: u64 = 16;

pub(crate) struct Notify;

impl Experiment for Notify {
    fn name(&self) -> &'static str {
        "notify"
    }

    fn about(&self) -> &'static str {
        "what notifying the target adds to a write, by immediate data or by a send behind it"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/notify.md")
    }

    fn variants(&self, quick: bool) -> Vec<Variant> {
        let write = placements("write", &[("host", "host")]);
        let by = over(&write, factor::BY, if quick { &["imm"] } else { &["imm", "send"] });
        let parts: &[&str] = if quick { &["extra"] } else { &["extra", "plain", "notified"] };
        over(&by, factor::PART, parts)
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        Some(if quick { &[8, 4096] } else { &[1, 8, 64, 256, 1024, 4096, 16_384, 65_536] })
    }

    fn metric(&self, variant: &Variant) -> Metric {
        let extra = variant.get(factor::PART).is_none_or(|part| part == "extra");
        Metric {
            name: if extra { "notification_overhead" } else { "one_way_latency" },
            unit: "us",
            about: match extra {
                true => {
                    "one-way latency of writes that notify less that of writes that do not, in turns; 0 if not above"
                }
                false => "half the round trip of a ping-pong, in turns with one of the other kind",
            },
            scale: Scale::Time(2.0),
        }
    }

    /// A reading can be zero.
    fn sampling(&self, _variant: &Variant) -> Sampling {
        Sampling::LONG
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let op = match session.cell.factor(factor::BY)? {
            "imm" => "write-imm",
            "send" => "write-send",
            other => return Err(Fault::Meaningless(format!("a notification by {other}"))),
        };
        let part = match session.cell.factor(factor::PART)? {
            "extra" => Part::Extra,
            "plain" => Part::Plain,
            "notified" => Part::Notified,
            other => return Err(Fault::Meaningless(format!("the part {other} of a notification"))),
        };
        let mut of = |op| {
            let cell = Cell { variant: with(&session.cell.variant, factor::OP, op), ..session.cell.clone() };
            session.with_cell(&cell, |session| PingPong::prepare(session, false))
        };
        Ok(Box::new(Pair { part, plain: of("write")?, notified: of(op)? }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Extra,
    Plain,
    Notified,
}

struct Pair {
    part: Part,
    plain: PingPong,
    notified: PingPong,
}

impl Side for Pair {
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.plain.warm(session)?;
        self.notified.warm(session)
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| {
            let (began, host) = (s.host.now(), s.host);
            self.plain.several(host, count * TOGETHER, deadline)?;
            let between = host.now();
            self.notified.several(host, count * TOGETHER, deadline)?;
            let (plain, notified) = (between - began, host.now() - between);
            Ok(match self.part {
                Part::Plain => plain,
                Part::Notified => notified,
                Part::Extra => crate::experiment::harness::hub::without(notified, plain),
            })
        })
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.plain.verify(session)?;
        self.notified.verify(session)
    }

    fn messages(&self) -> u64 {
        TOGETHER
    }
}
