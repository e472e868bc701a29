//! [`Objects`]: objects of the program that are left at the end, by type and place.

use std::collections::BTreeMap;

use findings::Stack;

use crate::library::PREDEFINED_MAX;
use crate::report::{self, LEAK};

/// A living object: its type, the call that frees it, and where it was made.
#[derive(Clone, Copy)]
struct Living {
    kind: &'static str,
    end: &'static str,
    made: Stack,
}

/// The objects of this process, by type and handle.
#[derive(Default)]
pub(crate) struct Objects(BTreeMap<(&'static str, usize), Living>);

impl Objects {
    pub(crate) fn add(&mut self, kind: &'static str, end: &'static str, handle: usize, made: Stack) {
        if handle >= PREDEFINED_MAX {
            self.0.insert((kind, handle), Living { kind, end, made });
        }
    }

    pub(crate) fn remove(&mut self, kind: &'static str, handle: usize) {
        self.0.remove(&(kind, handle));
    }

    /// Reports what is left, once for each type and place.
    pub(crate) fn report_left(&self) {
        let mut places: BTreeMap<(&str, Stack), (u32, Living)> = BTreeMap::new();
        for living in self.0.values() {
            places.entry((living.kind, living.made)).or_insert((0, *living)).0 += 1;
        }
        for (count, Living { kind, end, made }) in places.into_values() {
            let what = match count {
                1 => format!("an {kind} is left at the end; {end} frees it"),
                _ => format!("{count} objects of type {kind} are left at the end; {end} frees each"),
            };
            report::find(LEAK, &what, &[], &[("made", made)]);
        }
    }
}
