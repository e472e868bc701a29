//! The objects that a C program holds: where each was created, and what is left at the end of the process. The C interface reports
//! both, as only it knows which objects are the program's.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nic_util::sync::unpoisoned;

use crate::report::{Kind, find};
use findings::Stack;

/// A living object: its type in C, the call that ends it, and where it was created.
#[derive(Clone, Copy)]
struct Living {
    name: &'static str,
    end: &'static str,
    created: Stack,
    number: u64,
}

static LIVING: Mutex<Option<BTreeMap<usize, Living>>> = Mutex::new(None);
static CREATED: AtomicU64 = AtomicU64::new(0);

/// An object was created at this address, which `end` ends.
pub fn created(address: usize, name: &'static str, end: &'static str) {
    let created = Stack::here();
    let mut living = unpoisoned(&LIVING);
    let all = living.get_or_insert_default();
    let number = CREATED.fetch_add(1, Ordering::Relaxed);
    all.insert(address, Living { name, end, created, number });
}

/// The object at this address was destroyed, or belongs to the library itself.
pub fn ended(address: usize) {
    if let Some(all) = &mut *unpoisoned(&LIVING) {
        all.remove(&address);
    }
}

/// The program destroys an object whose events it has taken and not acknowledged: the call waits for that.
pub fn unacknowledged(name: &str, address: usize, events: u32, call: &str) {
    let about = [("object", format!("{name} at {address:#x}")), ("events", events.to_string())];
    let what = format!(
        "an object is destroyed before its events are acknowledged; the call waits until {call} is called"
    );
    let created = unpoisoned(&LIVING).as_ref().and_then(|all| all.get(&address).map(|living| living.created));
    let stacks = [("destroyed", Some(Stack::here())), ("created", created)];
    let stacks: Vec<_> = stacks.into_iter().filter_map(|(label, stack)| Some((label, stack?))).collect();
    find(Kind::Unacknowledged, &what, &about, &stacks);
}

/// Reports the objects that are left, and the number of findings. Returns the exit status that the process should have, if not its
/// own.
pub fn end() -> Option<i32> {
    let left = unpoisoned(&LIVING).take().unwrap_or_default();
    if findings::is_process() {
        let mut places: BTreeMap<(u64, &str), (Vec<usize>, Living)> = BTreeMap::new();
        let mut firsts: BTreeMap<(Stack, &str), u64> = BTreeMap::new();
        let mut left: Vec<_> = left.into_iter().collect();
        left.sort_by_key(|(_, living)| living.number);
        for (address, living) in left {
            let first = *firsts.entry((living.created, living.name)).or_insert(living.number);
            places.entry((first, living.name)).or_insert_with(|| (Vec::new(), living)).0.push(address);
        }
        for (addresses, Living { name, end, created, .. }) in places.into_values() {
            let count = addresses.len();
            let what = match count {
                1 => format!("an {name} is left at the end of the process; {end} ends it"),
                _ => format!(
                    "{count} objects of type {name} are left at the end of the process; {end} ends each"
                ),
            };
            let about = [("object", format!("{name} at {:#x}", addresses[0]))];
            find(Kind::Leak, &what, &about, &[("created", created)]);
        }
    }
    findings::end()
}
