//! [`Overlap`]: windows of messages to a process that computes meanwhile: the computing time that it loses, and how
//! much it can compute before the messages take longer, like `availability` for verbs.

use verbs::host::{Host, Span, Time};

use super::super::harness::compute::Turn;
use super::super::{Fault, Round, Session, Side};
use super::port::Port;

/// The quantity reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The share of time that can be computed, in per cent.
    Share,
    /// Computing time that a message takes away from a rank, in us.
    Lost,
}

/// Windows timed together, after an untimed one.
const TOGETHER: u64 = 4;
/// Computing that is long, in windows without any.
const LONG: u64 = 3;
const DATA: u64 = 1;
const READY: u64 = 2;
const READY_BYTES: u64 = 4;

/// The target's instruction to the sender, with a window in each iteration; `None` ends it.
type Task = Option<Turn>;

/// One of two ranks: rank 0 is the target.
pub(super) struct Overlap {
    port: Port,
    wanted: Wanted,
    size: u64,
    window: u64,
    /// The name of the next receive, and of the receive for the target's message.
    next: u64,
    ready: u64,
    note: Option<String>,
}

/// The time that windows took.
struct Took {
    /// A window.
    each: Span,
    /// By how much the target's computation in a window exceeded its intended length.
    lost: Span,
}

/// Computes for `span`, extended by the time that interrupts took meanwhile. Returns how long interrupts took.
fn compute(host: &Host, span: Span) -> Span {
    let before = fabric::interrupted(host);
    host.charge(span);
    let mut paid = Span::ZERO;
    loop {
        let owed = fabric::interrupted(host).as_ps() - before.as_ps();
        if owed <= paid.as_ps() {
            return paid;
        }
        host.charge(Span::from_ps(owed - paid.as_ps()));
        paid = Span::from_ps(owed);
    }
}

impl Overlap {
    pub(super) fn prepare(session: &mut Session<'_>, wanted: Wanted) -> Result<Self, Fault> {
        let (size, window) = (session.cell.size, u64::from(session.settings.window.max(1)));
        let room = size.max(READY_BYTES).next_multiple_of(64);
        let port = Port::open(session, 2, 2 * room, room)?;
        let mut side = Self { port, wanted, size, window, next: 1, ready: 0, note: None };
        if !session.is_client() {
            side.ready = side.post(READY, READY_BYTES)?;
        }
        Ok(side)
    }

    fn post(&mut self, bits: u64, len: u64) -> Result<u64, Fault> {
        let name = self.next;
        self.next += 1;
        self.port.post(self.size.max(READY_BYTES).next_multiple_of(64), len, bits, name)?;
        Ok(name)
    }

    /// The target posts, announces it, computes, and waits for all; returns its lost time.
    fn take(&mut self, host: &Host, computing: Span, deadline: Option<Time>) -> Result<Span, Fault> {
        let names =
            (0..self.window).map(|_| self.post(DATA, self.size)).collect::<Result<Vec<u64>, Fault>>()?;
        self.port.send(1, 0, READY_BYTES, READY)?;
        let lost = compute(host, computing);
        names.into_iter().try_for_each(|name| self.port.wait(name, deadline).map(drop))?;
        Ok(lost)
    }

    fn give(&mut self, deadline: Option<Time>) -> Result<(), Fault> {
        self.port.wait(self.ready, deadline)?;
        self.ready = self.post(READY, READY_BYTES)?;
        (0..self.window).try_for_each(|_| self.port.send(0, 0, self.size, DATA))
    }

    /// Measures windows with this much computation; the sender is informed first.
    fn time(&mut self, s: &mut Session<'_>, computing: Span) -> Result<Took, Fault> {
        s.send_info::<Task>(&Some(Turn { computing: computing.as_ps(), iterations: 1 + TOGETHER }))?;
        let (host, deadline) = (s.host.clone(), s.deadline());
        self.take(&host, computing, deadline)?;
        let (began, mut lost) = (host.now(), Span::ZERO);
        for _ in 0..TOGETHER {
            lost += self.take(&host, computing, deadline)?;
        }
        let mean = |all: Span| Span::from_ps(all.as_ps() / TOGETHER);
        Ok(Took { each: mean(host.now() - began), lost: mean(lost) })
    }

    fn follow(&mut self, s: &mut Session<'_>) -> Result<(), Fault> {
        while let Some(Turn { iterations, .. }) = s.receive_info::<Task>()? {
            s.go_on()?;
            let deadline = s.deadline();
            (0..iterations).try_for_each(|_| self.give(deadline))?;
        }
        Ok(())
    }

    fn search(&mut self, s: &mut Session<'_>) -> Result<f64, Fault> {
        let alone = self.time(s, Span::ZERO)?.each;
        let computing = alone * LONG;
        let beside = self.time(s, computing)?;
        s.send_info::<Task>(&None)?;
        let us = |span: Span| span.as_ps() as f64 / 1e6;
        let (own, lost) = (us(beside.each) - us(computing), us(beside.lost) / self.window as f64);
        self.note = Some(format!(
            "a window of {} takes {:.2} us without computing; beside {:.2} us of it, {own:.2} us more, of which interrupts take {:.2}",
            self.window,
            us(alone),
            us(computing),
            us(beside.lost)
        ));
        Ok(match self.wanted {
            Wanted::Share => 100.0 * (1.0 - own / us(alone)).max(0.0),
            Wanted::Lost => lost,
        })
    }
}

impl Side for Overlap {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        for _ in 0..round.samples {
            s.go_on()?;
            if s.is_client() {
                readings.push(self.search(s)?);
            } else {
                self.follow(s)?;
            }
        }
        Ok(())
    }

    fn note(&self) -> Option<String> {
        self.note.clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Cell, Settings};
    use crate::launch::world::measure;
    use results::variant::factor;

    fn measured(device: &str, quantity: &str, size: u64) -> f64 {
        let variant = [(factor::QUANTITY.name().to_owned(), quantity.to_owned())].into_iter().collect();
        let cell = Cell { experiment: "portals-availability".into(), variant, size, twin: false };
        measure(device, &cell, &Settings::default()).expect("measured").value
    }

    /// Goal: computation loses nothing while the card matches, and the time of interrupts while the kernel does: one
    /// interrupt for a short message, two for a long one.
    #[test]
    fn only_matching_by_the_kernel_takes_time_from_who_computes() {
        let (nic, kernel) = ("model:seastar", "model:seastar(mode.match_kind=host)");
        for size in [8, 4096] {
            assert_eq!(measured(nic, "lost", size), 0.0);
            assert!(measured(nic, "share", size) > measured(kernel, "share", size) + 5.0);
        }
        let [short, long] = [8, 4096].map(|size| measured(kernel, "lost", size));
        assert!(short > 1.0 && long > short + 1.0, "{short} and {long} us");
    }
}
