//! [`Engine`]: decides for each operation whether a fault happens, and counts and records what happened.
//!
//! Data path: an operation without a rule costs one load.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use host::{Host, Rng, Span, Time, mix};

use crate::effect::Effect;
use crate::operation::Operation;
use crate::rule::Rule;

/// The latest faults that are recorded.
const TRACE_MAX: usize = 4096;

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The number of its rule, from 1.
    pub rule: usize,
    /// When it happened, from the opening of the device on.
    pub at: Span,
    /// To what: the operation, and the number of the queue pair if there is one.
    pub operation: Operation,
    /// See `operation`.
    pub qp_num: Option<u32>,
}

/// A fault that must happen now.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    pub(crate) rule: usize,
    pub(crate) effect: Effect,
    /// The time by which a delay is longer than its least, chosen at random.
    pub(crate) jitter: Span,
    /// The rule and its place, for reasons of errors.
    pub(crate) name: String,
}

struct ActiveRule {
    rule: Rule,
    /// Where it comes from: the file with its line, or another word.
    place: String,
    rng: Rng,
    /// Operations that it was about.
    matched: u64,
    /// Faults that it caused.
    fired: u64,
}

impl ActiveRule {
    /// Whether the fault happens to the operation that was just counted.
    fn is_due(&mut self, now: Span) -> bool {
        let rule = &self.rule;
        if self.matched < rule.nth
            || !(self.matched - rule.nth).is_multiple_of(rule.every)
            || rule.times.is_some_and(|times| self.fired >= times)
            || now < rule.after
            || rule.until.is_some_and(|until| now >= until)
        {
            return false;
        }
        rule.probability >= 1.0 || self.rng.unit() < rule.probability
    }
}

#[derive(Default)]
struct State {
    rules: Vec<ActiveRule>,
    trace: Vec<Fired>,
}

/// The rules of a device, at work.
pub(crate) struct Engine {
    pub(crate) host: Host,
    opened: Time,
    seed: u64,
    /// The operations that rules wait for, as bits.
    wanted: AtomicU32,
    state: Mutex<State>,
}

impl Engine {
    pub(crate) fn new(host: &Host, seed: u64) -> Self {
        let (opened, wanted, state) = (host.now(), AtomicU32::new(0), Mutex::default());
        Self { host: host.clone(), opened, seed, wanted, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The time since the device was opened.
    fn age(&self) -> Span {
        self.host.now().since(self.opened)
    }

    /// The time at which the device has been open for `after`.
    pub(crate) fn time_of(&self, after: Span) -> Time {
        self.opened + after
    }

    /// Adds a rule; returns its number, from 1.
    pub(crate) fn add(&self, rule: Rule, place: String) -> usize {
        let mut state = self.state();
        let number = state.rules.len() + 1;
        let rng = Rng::new(mix(self.seed ^ mix(number as u64)));
        let bits = rule.on.covered_bits();
        state.rules.push(ActiveRule { rule, place, rng, matched: 0, fired: 0 });
        self.wanted.fetch_or(bits, Ordering::Release);
        number
    }

    /// Ends all rules; the report keeps what they did.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.rules.iter_mut().for_each(|rule| rule.rule.times = Some(rule.fired));
        self.wanted.store(0, Ordering::Release);
    }

    /// Whether rules wait for these operations.
    #[inline]
    pub(crate) fn wants(&self, bits: u32) -> bool {
        self.wanted.load(Ordering::Acquire) & bits != 0
    }

    /// Counts an operation, and decides whether a fault happens to it.
    #[inline]
    pub(crate) fn decide(
        &self,
        done: Operation,
        peer: Option<SocketAddr>,
        qp_num: Option<u32>,
    ) -> Option<Hit> {
        if self.wants(done.bit()) { self.decide_wanted(done, peer, qp_num) } else { None }
    }

    #[cold]
    fn decide_wanted(&self, done: Operation, peer: Option<SocketAddr>, qp_num: Option<u32>) -> Option<Hit> {
        let now = self.age();
        let mut state = self.state();
        let mut hit = None;
        for (at, active) in state.rules.iter_mut().enumerate() {
            if !active.rule.matches(done, peer) {
                continue;
            }
            active.matched += 1;
            // One fault for an operation: a later rule that is due, too, happens to the next operation.
            if hit.is_none() && active.is_due(now) {
                hit = Some(fire(at, active));
            }
        }
        if let Some(hit) = &hit {
            record(&mut state, Fired { rule: hit.rule, at: now, operation: done, qp_num });
        }
        hit
    }

    /// The fault of the rule with this number, whose time has come.
    pub(crate) fn fire_now(&self, number: usize) -> Option<(Rule, Hit)> {
        let now = self.age();
        let mut state = self.state();
        let active =
            state.rules.get_mut(number - 1).filter(|active| active.rule.times != Some(active.fired))?;
        active.matched += 1;
        let (rule, hit) = (active.rule.clone(), fire(number - 1, active));
        record(&mut state, Fired { rule: number, at: now, operation: Operation::Time, qp_num: None });
        Some((rule, hit))
    }

    /// Takes back what [`Engine::decide`] has counted: the operation was refused, and the program will repeat it.
    #[cold]
    pub(crate) fn take_back(&self, done: Operation, peer: Option<SocketAddr>, hit: Option<&Hit>) {
        let mut state = self.state();
        for active in state.rules.iter_mut().filter(|active| active.rule.matches(done, peer)) {
            active.matched = active.matched.saturating_sub(1);
        }
        if let Some(hit) = hit {
            if let Some(active) = state.rules.get_mut(hit.rule - 1) {
                active.fired = active.fired.saturating_sub(1);
            }
            let last = state.trace.iter().rposition(|fired| fired.rule == hit.rule);
            if let Some(last) = last {
                state.trace.remove(last);
            }
        }
    }

    /// The faults that happened, the latest ones if there were very many.
    pub(crate) fn trace(&self) -> Vec<Fired> {
        self.state().trace.clone()
    }

    /// What each rule did, as a line.
    pub(crate) fn report(&self) -> Vec<String> {
        let line = |(at, active): (usize, &ActiveRule)| {
            let (number, rule, place) = (at + 1, &active.rule, &active.place);
            let what = match (active.fired, active.matched) {
                (0, 0) => "never matched: no such operation was seen".to_owned(),
                (0, matched) => format!("never fired: it matched {matched} operations"),
                (fired, matched) => format!("fired {fired} times in {matched} operations"),
            };
            format!("rule {number} ({place}: {rule}) {what}")
        };
        self.state().rules.iter().enumerate().map(line).collect()
    }

    /// As [`Engine::report`], of the rules that never fired.
    pub(crate) fn report_unused(&self) -> Vec<String> {
        let fired: Vec<_> = self.state().rules.iter().map(|active| active.fired).collect();
        self.report().into_iter().zip(fired).filter(|(_, fired)| *fired == 0).map(|(line, _)| line).collect()
    }
}

fn fire(at: usize, active: &mut ActiveRule) -> Hit {
    active.fired += 1;
    let jitter = match active.rule.effect {
        Effect::Delay(_, jitter) => Span::from_ns(active.rng.below(jitter.as_ns().saturating_add(1))),
        _ => Span::ZERO,
    };
    let name = format!("rule {} ({}: {})", at + 1, active.place, active.rule);
    Hit { rule: at + 1, effect: active.rule.effect, jitter, name }
}

fn record(state: &mut State, fired: Fired) {
    if state.trace.len() == TRACE_MAX {
        state.trace.remove(0);
    }
    state.trace.push(fired);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(seed: u64, rules: &[&str]) -> Engine {
        let engine = Engine::new(&host::real::host(), seed);
        for rule in rules {
            engine.add(rule.parse().expect(rule), "test".into());
        }
        engine
    }

    fn fired(engine: &Engine, done: Operation, count: usize) -> Vec<usize> {
        (1..=count).filter(|_| engine.decide(done, None, None).is_some()).collect()
    }

    #[test]
    fn nth_every_and_times_select_operations() {
        use Operation::{Read, Write};
        assert_eq!(fired(&engine(0, &["on=write nth=3 status=RETRY_EXC_ERR"]), Write, 9), [3]);
        assert_eq!(fired(&engine(0, &["on=write nth=3 status=RETRY_EXC_ERR"]), Read, 9), []);
        assert_eq!(fired(&engine(0, &["on=request nth=2 every=3 delay=1ms"]), Read, 9), [2, 5, 8]);
        assert_eq!(fired(&engine(0, &["on=write nth=8 times=all delay=1ms"]), Write, 9), [8, 9]);
        assert_eq!(fired(&engine(0, &["on=write times=2 delay=1ms"]), Write, 9), [1, 2]);
        assert_eq!(fired(&engine(0, &["on=write after=1s delay=1ms"]), Write, 9), []);
        let two = engine(0, &["on=write delay=1ms", "on=write delay=2ms"]);
        assert_eq!(fired(&two, Write, 9), [1, 2], "the second rule happens to the next operation");
    }

    #[test]
    fn probability_depends_on_the_seed_alone() {
        let rules = ["on=write probability=0.3 delay=1ms jitter=9ms", "on=read probability=0.3 delay=1ms"];
        let one = fired(&engine(7, &rules), Operation::Write, 1000);
        assert!((200..400).contains(&one.len()), "{}", one.len());
        assert_eq!(one, fired(&engine(7, &rules), Operation::Write, 1000));
        assert_ne!(one, fired(&engine(8, &rules), Operation::Write, 1000));
        // Operations of another rule change nothing.
        let mixed = engine(7, &rules);
        let again: Vec<_> = (1..=1000)
            .filter(|_| {
                let _ = mixed.decide(Operation::Read, None, None);
                mixed.decide(Operation::Write, None, None).is_some()
            })
            .collect();
        assert_eq!(one, again);
    }

    #[test]
    fn refused_operation_is_not_counted() {
        let engine = engine(0, &["on=write nth=2 status=RETRY_EXC_ERR"]);
        assert!(engine.decide(Operation::Write, None, None).is_none());
        let hit = engine.decide(Operation::Write, None, None);
        assert!(hit.is_some());
        engine.take_back(Operation::Write, None, hit.as_ref());
        assert_eq!((engine.trace().len(), engine.report_unused().len()), (0, 1));
        assert!(
            engine.decide(Operation::Write, None, None).is_some(),
            "it happens to the repeated operation"
        );
    }

    #[test]
    fn report_says_which_rules_never_fired() {
        let engine = engine(0, &["on=write nth=2 delay=1ms", "on=read delay=1ms", "on=write delay=1ms"]);
        let _ = fired(&engine, Operation::Write, 1);
        let lines = engine.report();
        assert!(
            lines[0].contains("rule 1 (test: on=write nth=2 delay=1ms) never fired: it matched 1"),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("never matched: no such operation was seen"), "{lines:?}");
        assert!(lines[2].ends_with("fired 1 times in 1 operations"), "{lines:?}");
        assert_eq!(engine.report_unused(), lines[..2]);
        engine.clear();
        assert_eq!(fired(&engine, Operation::Write, 9), []);
    }
}
