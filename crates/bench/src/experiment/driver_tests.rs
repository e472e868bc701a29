//! Two sides of a cell in two threads, over the shared-memory device: what goes wrong in one cell, and the next one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::experiment::{Control, Settings, variant};

/// A way over channels; it can spoil the address that its side listens at.
struct Wire {
    out: Sender<Word>,
    input: Receiver<Word>,
    spoil: bool,
}

fn wires() -> [Wire; 2] {
    let ((a, from_a), (b, from_b)) = (channel(), channel());
    [Wire { out: a, input: from_b, spoil: false }, Wire { out: b, input: from_a, spoil: false }]
}

fn spoilt(word: &Word) -> Word {
    match word {
        Word::Info { body } if serde_json::from_value::<SocketAddr>(body.clone()).is_ok() => {
            Word::Info { body: "127.0.0.1:1".into() }
        }
        other => other.clone(),
    }
}

impl Control for Wire {
    fn tell(&mut self, word: &Word) -> Result<(), Fault> {
        let word = if self.spoil { spoilt(word) } else { word.clone() };
        self.out.send(word).map_err(|e| Fault::Control(e.to_string()))
    }
    fn hear(&mut self) -> Result<Word, Fault> {
        let limit = std::time::Duration::from_secs(60);
        self.input.recv_timeout(limit).map_err(|e| Fault::Control(e.to_string()))
    }
    fn local_ip(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
    fn peer_ip(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
    fn neighbour(&self) -> Option<u32> {
        None
    }
}

/// Settings of the two sides, and whether the server's address is spoilt.
type Way = (Settings, Settings, bool);

/// Runs cells one after the other at both sides over one pair of ways, and says how each ended.
fn both(cells: &[(Cell, Way)]) -> Vec<[Option<Fault>; 2]> {
    both_until(cells, || false)
}

/// The same, with somebody who may stop it.
fn both_until(cells: &[(Cell, Way)], stop: fn() -> bool) -> Vec<[Option<Fault>; 2]> {
    let [mut near, mut far] = wires();
    let side = |rank: u32, way: &mut Wire| -> Vec<Option<Fault>> {
        let host = verbs::host::real::host();
        let device = fabric::open("shm", &host).expect("a device");
        let one = |(cell, (client, server, spoil)): &(Cell, Way)| {
            way.spoil = *spoil && rank == 1;
            if rank == 1 {
                assert!(matches!(way.hear(), Ok(Word::Begin { .. })), "out of step before {cell}");
            }
            let mut session = Session {
                host: &host,
                device: &device,
                rank,
                ways: vec![way],
                cell,
                settings: if rank == 0 { client } else { server },
                gauge: &|| Some(1 << 20),
                failed: Vec::new(),
            };
            let plan = Plan { samples_min: 5, samples_max: 20, ..Plan::default() };
            match rank {
                0 => client_cell(&mut session, plan, &mut { stop }).map(drop).err(),
                _ => serve_cell(&mut session).err(),
            }
        };
        cells.iter().map(one).collect()
    };
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| side(1, &mut far));
        let client = side(0, &mut near);
        (client, server.join().expect("no panic"))
    });
    client.into_iter().zip(server).map(|(c, s)| [c, s]).collect()
}

fn cell(experiment: &str, pairs: &[(&str, &str)], size: u64) -> Cell {
    Cell { experiment: experiment.into(), variant: variant(pairs), size, twin: false }
}

fn write(size: u64) -> Cell {
    cell("latency", &[("op", "write"), ("source", "host"), ("sink", "host")], size)
}

fn settings() -> Settings {
    Settings { connections: 4, patience_ms: 10_000, ..Settings::default() }
}

fn sound() -> Way {
    (settings(), settings(), false)
}

/// Goal: a connection that fails loses its cell and nothing else, while it is set up and in the middle of a round.
/// Method: the server names an address where nobody listens (latency connects before the rounds, memory in them);
/// a sound cell follows each.
#[test]
fn a_connection_that_fails_is_local_to_its_cell() {
    let memory = cell("memory", &[("queues", "default")], 0);
    let spoilt = (settings(), Settings { patience_ms: 500, ..settings() }, true);
    let ended = both(&[
        (write(8), spoilt.clone()),
        (write(8), sound()),
        (memory.clone(), spoilt),
        (memory, sound()),
        (write(100), sound()),
    ]);
    for (index, [client, server]) in ended.iter().enumerate() {
        let fails = index == 0 || index == 2;
        for fault in [client, server] {
            assert_eq!(fault.is_some(), fails, "cell {index}: {ended:?}");
            assert!(fault.as_ref().is_none_or(Fault::is_local), "cell {index}: {ended:?}");
        }
    }
}

/// Goal: a side that gives up in a round while the other goes on waiting. Method: the server has no time at all.
#[test]
fn a_side_that_gives_up_in_a_round_takes_the_other_along_to_the_next_cell() {
    let send = cell("latency", &[("op", "send"), ("source", "nic"), ("sink", "host")], 4096);
    let stream = cell("bibw", &[("op", "send"), ("source", "nic"), ("sink", "nic")], 4096);
    let hasty = (settings(), Settings { patience_ms: 10, ..settings() }, false);
    // Whether the hasty side is in time is the scheduler's affair; that both are in step afterwards is not.
    let ended =
        both(&[(send.clone(), hasty.clone()), (send, sound()), (stream.clone(), hasty), (stream, sound())]);
    assert_eq!([&ended[1], &ended[3]], [&[None, None]; 2], "{ended:?}");
}

/// More connections than a short backlog has room for, and the client ahead of the server's events.
#[test]
fn many_connections_are_all_accepted() {
    let many = Settings { connections: 100, ..settings() };
    let memory = cell("memory", &[("queues", "default")], 0);
    assert_eq!(both(&[(memory, (many.clone(), many, false))]), [[None, None]]);
}

/// Every operation with inline data, at the limit, beyond it, and without; contents are compared in each.
#[test]
fn contents_arrive_inline_and_not() {
    let mut cells = Vec::new();
    for op in ["send", "write", "write-imm"] {
        for (size, inline) in [(1, 64), (64, 64), (65, 64), (8, 0), (5000, 64), (100, 4096)] {
            let way = Settings { inline, ..settings() };
            let pairs = [("op", op), ("source", "host"), ("sink", "nic")];
            cells.push((cell("latency", &pairs, size), (way.clone(), way.clone(), false)));
            if op != "write-imm" {
                cells.push((cell("bilat", &pairs, size), (way.clone(), way.clone(), false)));
                cells.push((cell("bandwidth", &pairs, size), (way.clone(), way, false)));
            }
        }
    }
    let ended = both(&cells);
    let wrong: Vec<_> = cells.iter().zip(&ended).filter(|(_, e)| **e != [None, None]).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Goal: a run that is stopped before the first round of a cell is not told that its data was wrong.
#[test]
fn a_cell_that_is_stopped_at_once_has_no_contents_to_be_wrong() {
    let memcpy = cell("floor", &[("what", "memcpy")], 8);
    assert_eq!(both_until(&[(memcpy, sound()), (write(8), sound())], || true), [[None, None], [None, None]]);
}
