//! A table of the program's functions that C calls without any state of ours. Each gets a trampoline: a function of this library that knows
//! its number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The functions of the program behind trampolines.
pub(crate) struct Trampolines<const COUNT: usize> {
    /// The function of each trampoline, and a number that says more about it.
    functions: [AtomicUsize; COUNT],
    kinds: [AtomicUsize; COUNT],
    used: Mutex<usize>,
}

impl<const COUNT: usize> Trampolines<COUNT> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        let [functions, kinds] = [const { [const { AtomicUsize::new(0) }; COUNT] }; 2];
        Self { functions, kinds, used: Mutex::new(0) }
    }

    /// The number of a function's trampoline; `None` if all are taken by others.
    pub(crate) fn number(&self, function: usize, kind: usize) -> Option<usize> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = (0..*used).find(|at| self.get(*at) == (function, kind)) {
            return Some(known);
        }
        let free = *used;
        self.functions.get(free)?.store(function, Ordering::Release);
        self.kinds[free].store(kind, Ordering::Release);
        *used += 1;
        Some(free)
    }

    /// The function of a trampoline, and its kind.
    pub(crate) fn get(&self, number: usize) -> (usize, usize) {
        (self.functions[number].load(Ordering::Acquire), self.kinds[number].load(Ordering::Acquire))
    }
}
