//! `reg`: the time of a call that registers memory, or deregisters it (thesis 2.1.1, Tables 3.1 and 4.1). The memory
//! is present, except for `touch=first`: there it is new each time, and registering is the first to touch it, if it
//! does.

use results::variant::{Variant, factor, variant};
use verbs::host::{Host, Span};
use verbs::{Buf, Mr, Pd};

use crate::experiment::harness::timing::sample_spans;
use crate::experiment::harness::variants::with;
use crate::experiment::loops::calls::{CALL_US, SAMPLES};
use crate::experiment::{Cell, Experiment, Fault, Metric, Needs, Round, Sampling, Session, Settings, Side};

/// Registrations that exist at the same time.
const TOGETHER: u64 = 64;

pub(crate) struct Reg;

impl Experiment for Reg {
    fn name(&self) -> &'static str {
        "reg"
    }

    fn about(&self) -> &'static str {
        "the calls that register and deregister host memory"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/reg.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        let calls = ["reg", "dereg"].map(|op| variant(&[(factor::OP, op)]));
        let first = with(&calls[0], factor::TOUCH, "first");
        calls.into_iter().chain([first]).collect()
    }

    fn usual_sizes(&self, quick: bool) -> Option<&'static [u64]> {
        let short: &[u64] = &[4 << 10, 64 << 10, 1 << 20];
        let all: &[u64] = &[
            4 << 10,
            16 << 10,
            64 << 10,
            256 << 10,
            1 << 20,
            4 << 20,
            16 << 20,
            64 << 20,
            256 << 20,
            1 << 30,
        ];
        Some(if quick { short } else { all })
    }

    fn needs(&self, cell: &Cell, _settings: &Settings) -> Needs {
        Needs { bytes: cell.size, processes: 2, ..Needs::default() }
    }

    fn metric(&self, _variant: &Variant) -> Metric {
        CALL_US
    }

    fn ranks(&self, _variant: &Variant) -> u32 {
        1
    }

    fn sampling(&self, _variant: &Variant) -> Sampling {
        SAMPLES
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let dereg = match session.cell.factor(factor::OP)? {
            "reg" => false,
            "dereg" => true,
            other => return Err(Fault::Meaningless(format!("{other} of memory"))),
        };
        let fresh = match session.cell.variant.get(factor::TOUCH) {
            None => false,
            Some("first") if !dereg => true,
            Some(other) => return Err(Fault::Meaningless(format!("a touch that is {other}"))),
        };
        let buf = Buf::alloc(session.cell.length()? as usize)?;
        let regions = Vec::with_capacity(TOGETHER as usize);
        Ok(Box::new(Regions { dereg, fresh, pd: session.device.alloc_pd()?, buf, regions }))
    }
}

struct Regions {
    dereg: bool,
    /// Untouched memory, new each time.
    fresh: bool,
    pd: Pd,
    buf: Buf,
    regions: Vec<Mr>,
}

impl Regions {
    /// Registers and deregisters `count` times; returns the time of one of the two.
    fn run(&mut self, host: &Host, count: u64) -> Result<Span, Fault> {
        let began = host.now();
        for _ in 0..count {
            self.regions.push(self.pd.reg_mr(&self.buf, self.pd.device().attr().all_access())?);
        }
        let between = host.now();
        self.regions.drain(..).try_for_each(Mr::dereg)?;
        Ok(if self.dereg { host.now() - between } else { between - began })
    }
}

impl Side for Regions {
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        // A simulated machine has all its memory; filling it would use this machine's memory.
        if session.host.node().is_none() && !self.fresh {
            self.buf.fill(0x5a);
        }
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, _| {
            let mut spent = Span::ZERO;
            if self.fresh {
                for _ in 0..count {
                    self.buf = Buf::alloc(self.buf.len())?;
                    spent += self.run(s.host, 1)?;
                }
                return Ok(spent);
            }
            for done in (0..count).step_by(TOGETHER as usize) {
                spent += self.run(s.host, TOGETHER.min(count - done))?;
            }
            Ok(spent)
        })
    }

    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        let region = self.pd.reg_mr(&self.buf, self.pd.device().attr().all_access())?;
        let (addr, expected) = (region.addr(), self.buf.addr());
        region.dereg()?;
        if addr == expected { Ok(()) } else { Err(Fault::Corrupt(format!("{addr:#x} was registered"))) }
    }
}
