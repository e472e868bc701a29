//! Peers that follow the shared-memory protocol except for one field with a false value at a time: every field that a
//! connection uses, in their own segment and, as far as peers write there, in the victim's, and every field of the
//! hello. The fields come from the layout (`nic_shm::lab`). The values come from a list of integer limits, neighbours
//! of the correct value, sizes, positions of other objects, and random numbers. A field is what the layout names. The
//! first two words of an array are a field each. Its other words, the equal words of a ring's slots, and unnamed words
//! of a structure form one field each; each injection takes a random word.
//!
//! The victim is a separate process, with canaries around its regions and elsewhere. It works as initiator and target
//! with each injector, on the kernel's copy path and the owner's, and finally accesses memory outside of the injector's region.
//! Each of its requests must complete, once; nothing else may change; no call may take long; and a bystander that is
//! connected to the same device must not notice. Several victims work in parallel, each with its own fields. With
//! `--values N` each field gets N different values, however long that takes, and a row in a table; otherwise all fields
//! get as many as there is time for.
//!
//! An injection is determined by its field, its number and the seed: `--values`, `--field` and `--seed` repeat it. A
//! victim announces each one in advance, so that a crash or a hang can be attributed.
//!
//! | file | what it holds |
//! |---|---|
//! | `campaign` | a victim, its bystander and its injector; injects one false value after another |
//! | `testbed` | a device with regions between canaries, and the traffic of a connection |
//! | `field` | a field that gets false values, and their results |
//! | `injector` | the child that injects false values, and the bystander |

mod campaign;
mod field;
mod injector;
mod testbed;

pub(crate) use injector::{bystander_role, injector_role};

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nic_shm::CopyPath;
use nic_shm::lab::{FaultInjector, hello_words, is_written_by_peers};
use serde::{Deserialize, Serialize};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, receive_from_parent, send_to_parent};
use campaign::Campaign;
use field::Field;
use testbed::Testbed;

/// Different values for each field, unless the command line gives a number. At most a quarter more are injected, for
/// narrow fields.
const VALUES: u64 = 1000;
/// Victims of each copy path that work in parallel: each victim may have to wait for its injector.
const VICTIMS: usize = 4;
/// A victim that is silent for this long counts as hung.
const SILENCE: Duration = Duration::from_secs(20);
const WAYS: [CopyPath; 2] = [CopyPath::Auto, CopyPath::Service];

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "false-values",
    about: "shm peers with a false value in one field: every field of shared memory, every field of the hello",
    weight: 3,
    late_max: Duration::from_secs(1),
    run,
};

/// Executes the attack.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let budget = &*budget;
    let lanes: Vec<Result<VictimResult>> = std::thread::scope(|scope| {
        let start = |number| scope.spawn(move || watched(&VictimOrder::new(number, budget)));
        let threads: Vec<_> = (0..WAYS.len() * VICTIMS).map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a watcher panicked")))).collect()
    });
    let mut fields = Vec::new();
    for result in lanes {
        let result = result?;
        tally.add(&result.tally);
        fields.extend(result.fields);
    }
    for copy in WAYS {
        note_totals(&fields, copy, tally);
    }
    if budget.values.is_some() { print_table(&mut fields) } else { Ok(()) }
}

/// The order to a victim's process.
#[derive(Serialize, Deserialize)]
struct VictimOrder {
    number: usize,
    seed: u64,
    time: Duration,
    values: Option<u64>,
    field: String,
}

impl VictimOrder {
    fn new(number: usize, budget: &Budget) -> Self {
        Self {
            number,
            seed: budget.seed,
            time: budget.time_left(),
            values: budget.values,
            field: budget.field.clone(),
        }
    }
}

/// The results of one victim.
#[derive(Default, Serialize, Deserialize)]
struct VictimResult {
    tally: Tally,
    fields: Vec<Field>,
}

/// Runs one victim in a separate process. If it dies or falls silent, reports its current injection.
fn watched(order: &VictimOrder) -> Result<VictimResult> {
    let mut child = Child::start("victim")?;
    child.send(serde_json::to_string(order)?)?;
    let mut at = "its beginning".to_owned();
    let mut result = VictimResult::default();
    loop {
        let line = child.receive_within(SILENCE);
        match line.as_deref().and_then(|line| line.split_once(' ')) {
            Some(("done", json)) => return Ok(serde_json::from_str(json)?),
            Some(("at", what)) => {
                at = what.to_owned();
                // Reports progress to the watcher of this attack.
                send_to_parent(format!("at victim {}: {at}", order.number))?;
                continue;
            }
            Some((_, why)) => result.tally.add_note(format!("{why}; {at}")),
            None if child.runs() => {
                result.tally.hung += 1;
                result.tally.add_note(format!("a victim was silent for {SILENCE:?}; {at}"));
            }
            None => {
                let (status, _) = child.wait_for_exit(SILENCE)?;
                result.tally.add_note(format!("a victim ended with {status}; {at}"));
            }
        }
        result.tally.tried += 1;
        result.tally.crashed += 1;
        send_to_parent(format!("at victim {}: ", order.number))?;
        return Ok(result);
    }
}

/// Child: a victim.
pub(crate) fn victim_role() -> Result<()> {
    let order: VictimOrder = serde_json::from_str(&receive_from_parent()?.context("an order")?)?;
    match run_victim(&order) {
        Ok(result) => send_to_parent(format!("done {}", serde_json::to_string(&result)?)),
        Err(why) => send_to_parent(format!("failed {why:#}")),
    }
}

/// A victim takes its share of the fields; each field gets one false value, then each gets another, and so on.
fn run_victim(order: &VictimOrder) -> Result<VictimResult> {
    let (copy, part) = (WAYS[order.number % WAYS.len()], order.number / WAYS.len());
    let mut campaign = Campaign::new(copy, order.seed)?;
    let all =
        fields(&campaign.testbed, copy)?.into_iter().filter(|field| field.title().contains(&order.field));
    let mine = all.enumerate().filter(|(at, _)| at % VICTIMS == part);
    let mut fields: Vec<Field> = mine.map(|(_, field)| field).collect();
    let mut tally = Tally::default();
    let budget = Budget::new(order.time, order.seed);
    let values = order.values.unwrap_or(VALUES);
    for value in 0..values + values / 4 {
        for field in &mut fields {
            if field.distinct < values && (order.values.is_some() || budget.has_time_left()) {
                send_to_parent(format!(
                    "at {copy:?}, {}, value {value}, seed {}",
                    field.title(),
                    order.seed
                ))?;
                campaign.inject(field, value, &mut tally)?;
            }
        }
    }
    campaign.check_bystander(&mut tally)?;
    Ok(VictimResult { tally, fields })
}

/// All fields that a connection uses on this copy path, those of the hello first.
fn fields(testbed: &Testbed, copy: CopyPath) -> Result<Vec<Field>> {
    let mut found: BTreeMap<(String, bool), Field> = BTreeMap::new();
    let mut add = |name: &str, of_peer: bool, places: usize, shared: Option<bool>| {
        let key = (name.to_owned(), of_peer);
        let new = || Field {
            service: copy == CopyPath::Service,
            name: name.to_owned(),
            of_peer,
            ..Field::default()
        };
        let field = found.entry(key).or_insert_with(new);
        field.places = field.places.max(places);
        [false, true]
            .iter()
            .filter(|s| shared.is_none_or(|it| it == **s))
            .for_each(|s| field.shared[usize::from(*s)] = true);
    };
    for word in hello_words() {
        add(&word.field, false, 1, None);
    }
    for shared in [false, true] {
        let (qp, _cq) = testbed.queue_pair(shared)?;
        let words = FaultInjector::of(&qp)?.own_words(&testbed.keys());
        for word in &words {
            let places = words.iter().filter(|other| other.field == word.field).count();
            add(&word.field, false, places, Some(shared));
            if is_written_by_peers(&word.field) {
                add(&word.field, true, places, Some(shared));
            }
        }
    }
    if copy == CopyPath::Service {
        // Created at the first request.
        [false, true].iter().for_each(|of_peer| add("bounce.bytes", *of_peer, 3, None));
    }
    Ok(found.into_values().collect())
}

/// Notes the results of one copy path.
fn note_totals(fields: &[Field], copy: CopyPath, tally: &mut Tally) {
    let of_way = || fields.iter().filter(|field| field.service == (copy == CopyPath::Service));
    let count = |what: fn(&Field) -> u64| of_way().map(what).sum::<u64>();
    tally.add_note(format!(
        "{copy:?}: {} fields of {} words, at least {} injections each, {} in all: requests of the victim succeeded after {}, failed after \
         {}, {} connections were refused, {} injectors died or fell silent",
        of_way().count(),
        count(|field| field.places as u64),
        of_way().map(|field| field.tried).min().unwrap_or_default(),
        count(|field| field.tried),
        count(|field| field.succeeded),
        count(|field| field.error),
        count(|field| field.refused),
        count(|field| field.silent),
    ));
}

/// The meaning of the table's columns.
const LEGEND: &str = "\
A row is a field of the layout. The words of an array after its first two, the equal words of a ring's slots, and unnamed words are one
field each; an injection takes a random one of its `places` words. `distinct`: injections with a new place or value; `succeeded`: all
requests of the victim succeeded; `error`: some failed; `refused`: no connection; `silent`: the injector died or fell silent; `bad`: the
false value did forbidden damage
path     places  tried distinct succeeded  error refused silent  bad  field";

/// Prints a row for each field: numbers first, the name last.
fn print_table(fields: &mut [Field]) -> Result<()> {
    send_to_parent(LEGEND)?;
    fields.sort_by_key(|field| (field.service, field.of_peer, field.name.clone()));
    for field in fields {
        send_to_parent(format!(
            "{:<8}{:>7}{:>7}{:>9}{:>10}{:>7}{:>8}{:>7}{:>5}  {}",
            if field.service { "service" } else { "auto" },
            field.places,
            field.tried,
            field.distinct,
            field.succeeded,
            field.error,
            field.refused,
            field.silent,
            field.bad,
            field.title()
        ))?;
    }
    Ok(())
}
