//! The sides of a cell in threads, over the shared-memory device: faults in one cell and their effect on the next;
//! and every experiment once, with its contents compared.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use std::sync::Arc;

use verbs::host::{Host, Span};
use verbs::provider::{CmOps, CompChannelOps, CqOps, DeviceOps, PdOps};
use verbs::{Buf, Device, DeviceAttr};

use super::*;
use crate::experiment::{Bounds, Control, Rails, Settings};
use results::variant::variant;

fn open(host: &Host) -> Device {
    fabric::open("shm", host).expect("a device")
}

/// The same device with two ports: their addresses differ, and that is all.
struct TwoPorts(Device, DeviceAttr);

fn open_two_ports(host: &Host) -> Device {
    let device = open(host);
    let port_addrs = vec![Ipv4Addr::new(127, 0, 0, 1).into(), Ipv4Addr::new(127, 0, 0, 2).into()];
    let attr = DeviceAttr { ports: 2, port_addrs, ..device.attr().clone() };
    Device::new(Arc::new(TwoPorts(device, attr)))
}

impl DeviceOps for TwoPorts {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn host(&self) -> &Host {
        self.0.host()
    }
    fn attr(&self) -> &DeviceAttr {
        &self.1
    }
    fn alloc_pd(&self) -> verbs::Result<Arc<dyn PdOps>> {
        self.0.ops().alloc_pd()
    }
    fn create_cq(
        &self,
        cqe: u32,
        channel: Option<&Arc<dyn CompChannelOps>>,
    ) -> verbs::Result<Arc<dyn CqOps>> {
        self.0.ops().create_cq(cqe, channel)
    }
    fn create_cm(&self) -> verbs::Result<Arc<dyn CmOps>> {
        self.0.ops().create_cm()
    }
    fn alloc_dm(&self, len: usize) -> verbs::Result<Buf> {
        self.0.ops().alloc_dm(len)
    }
}

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
    fn send(&mut self, word: &Word) -> Result<(), Fault> {
        let word = if self.spoil { spoilt(word) } else { word.clone() };
        self.out.send(word).map_err(|e| Fault::Control(e.to_string()))
    }
    fn receive(&mut self) -> Result<Word, Fault> {
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
type Sides = (Settings, Settings, bool);

/// Runs cells one after the other at both sides over one pair of connections, and returns how each ended.
fn both(cells: &[(Cell, Sides)]) -> Vec<[Option<Fault>; 2]> {
    both_until(cells, || false)
}

/// As above, with a `stop` callback.
fn both_until(cells: &[(Cell, Sides)], stop: fn() -> bool) -> Vec<[Option<Fault>; 2]> {
    let ended = all_until(cells, open, stop);
    ended.into_iter().map(|faults| <[_; 2]>::try_from(faults).expect("two sides")).collect()
}

/// How each cell ended, at every rank. All ranks that a cell needs take part in it; at least two are started.
fn all_until(
    cells: &[(Cell, Sides)],
    open: fn(&Host) -> Device,
    stop: fn() -> bool,
) -> Vec<Vec<Option<Fault>>> {
    let ranks = |cell: &Cell| find(&cell.experiment).expect("known").ranks(&cell.variant) as usize;
    let most = cells.iter().map(|(cell, _)| ranks(cell)).max().unwrap_or(2).max(2);
    let (mut near, far): (Vec<Wire>, Vec<Wire>) = (1..most).map(|_| wires().into()).unzip();
    let side = |rank: usize, wires: &mut [Wire]| -> Vec<Option<Fault>> {
        let host = verbs::host::real::host();
        let device = open(&host);
        let one = |(cell, (client, server, spoil)): &(Cell, Sides)| {
            if rank >= ranks(cell) {
                return None;
            }
            wires.iter_mut().for_each(|wire| wire.spoil = *spoil && rank == 1);
            if rank > 0 {
                assert!(matches!(wires[0].receive(), Ok(Word::Begin { .. })), "out of step before {cell}");
            }
            let mut session = Session {
                host: &host,
                device: &device,
                rails: &rails(&device),
                rank: rank as u32,
                controls: wires.iter_mut().map(|wire| wire as &mut dyn Control).collect(),
                cell,
                settings: if rank == 0 { client } else { server },
                against: None,
                gauge: &|| Some(1 << 20),
                failed: Vec::new(),
                bounds: Bounds::default(),
                until: None,
            };
            let plan = Plan { samples_min: 5, samples_max: 20, ..Plan::default() };
            match rank {
                0 => client_cell(&mut session, plan, &mut { stop }).map(drop).err(),
                _ => serve_cell(&mut session).err(),
            }
        };
        cells.iter().map(one).collect()
    };
    let mut ended = std::thread::scope(|scope| {
        let side = &side;
        let servers: Vec<_> = far
            .into_iter()
            .enumerate()
            .map(|(index, wire)| scope.spawn(move || side(index + 1, &mut [wire])))
            .collect();
        let mut all = vec![side(0, &mut near)];
        all.extend(servers.into_iter().map(|server| server.join().expect("no panic")));
        all
    });
    (0..cells.len()).map(|cell| ended.iter_mut().map(|rank| rank[cell].take()).collect()).collect()
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

fn sound() -> Sides {
    (settings(), settings(), false)
}

/// Goal: a failed connection costs only its cell, during set-up and in the middle of a round. Method: the server
/// names an address without a listener (latency connects before the rounds, memory in them); a valid cell follows
/// each.
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

/// Goal: a side can give up in a round while the other still waits. Method: the server has no time at all.
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
            let both = Settings { inline, ..settings() };
            let pairs = [("op", op), ("source", "host"), ("sink", "nic")];
            cells.push((cell("latency", &pairs, size), (both.clone(), both.clone(), false)));
            if op != "write-imm" {
                cells.push((cell("bilat", &pairs, size), (both.clone(), both.clone(), false)));
                cells.push((cell("bandwidth", &pairs, size), (both.clone(), both, false)));
            }
        }
    }
    let ended = both(&cells);
    let wrong: Vec<_> = cells.iter().zip(&ended).filter(|(_, e)| **e != [None, None]).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Goal: a run stopped before the first round of a cell reports no wrong data.
#[test]
fn a_cell_that_is_stopped_at_once_has_no_contents_to_be_wrong() {
    let memcpy = cell("floor", &[("what", "memcpy")], 8);
    assert_eq!(both_until(&[(memcpy, sound()), (write(8), sound())], || true), [[None, None], [None, None]]);
}

/// Every variant of the experiment in a short overview, and one omitted from it; contents are compared in each.
fn complete(name: &str, sizes: &[u64], more: &[(&str, &str)]) {
    let experiment = find(name).expect("known");
    let variants = experiment.variants(true).into_iter().chain((!more.is_empty()).then(|| variant(more)));
    let mut cells = Vec::new();
    for variant in variants {
        let only = experiment.only_size(&variant).map(|size| vec![size]);
        for size in only.as_deref().unwrap_or(sizes) {
            let cell = Cell { experiment: name.into(), variant: variant.clone(), size: *size, twin: false };
            cells.push((cell, sound()));
        }
    }
    all_right(&cells, open);
}

/// Measures all cells and compares their contents.
fn all_right(cells: &[(Cell, Sides)], open: fn(&Host) -> Device) {
    let ended = all_until(cells, open, || false);
    let wrong: Vec<_> = cells.iter().zip(&ended).filter(|(_, e)| e.iter().any(Option::is_some)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn copies_within_a_device_are_right() {
    complete("nicmem", &[1, 4096, 1 << 20], &[("op", "copy"), ("source", "host"), ("sink", "nic")]);
}

#[test]
fn hot_spots_reach_every_slave() {
    let more = [("op", "read"), ("source", "nic"), ("sink", "host"), ("slaves", "3")];
    complete("hotspot", &[1, 2048], &more);
    let kinds = ["send", "send-receive"]
        .map(|op| [("op", op), ("source", "host"), ("sink", "host"), ("slaves", "5")]);
    let cells: Vec<_> = kinds.iter().map(|pairs| (cell("hotspot", pairs, 100), sound())).collect();
    all_right(&cells, open);
}

#[test]
fn blocks_are_packed_and_gathered() {
    complete("pack", &[8, 8192], &[("op", "gather"), ("quantity", "time"), ("reuse", "80")]);
}

#[test]
fn a_chain_brings_its_message_to_every_node() {
    complete("chain", &[1, 65_536], &[("via", "nic"), ("nodes", "3")]);
}

#[test]
fn messages_over_rails_come_whole() {
    for name in ["rail-bandwidth", "rail-bibw"] {
        complete(name, &[2, 7, 4096, 99_999], &[]);
    }
    let one_byte = both(&[(cell("rail-bandwidth", &[("engine", "serial")], 1), sound())]);
    assert!(
        matches!(&one_byte[0][0], Some(Fault::Meaningless(why)) if why.contains("2 rails")),
        "{one_byte:?}"
    );
}

#[test]
fn messages_are_split_over_two_ports_and_come_whole() {
    let split = [("op", "write"), ("source", "host"), ("sink", "nic"), ("ports", "2")];
    let mut cells = Vec::new();
    for size in [2, 7, 64, 65, 4096, 99_999] {
        for name in ["bandwidth", "bibw"] {
            cells.push((cell(name, &split, size), sound()));
        }
        for (via, nodes) in [("host", "3"), ("nic", "4"), ("nic", "2")] {
            let chain = cell("chain", &[("via", via), ("nodes", nodes), ("ports", "2")], size);
            cells.push((chain, sound()));
        }
    }
    all_right(&cells, open_two_ports);
}

/// Goal: MPI processes find each other through the session, and deliver messages intact. Method: each experiment with
/// every variant of a short overview, in threads; also with numbers of ranks that are no power of two.
#[test]
fn what_mpi_moves_comes_whole() {
    for experiment in super::super::all().iter().filter(|experiment| experiment.name().starts_with("mpi-")) {
        // Messages go in pairs.
        let ranks = if experiment.name() == "mpi-rate" { "4" } else { "3" };
        let more: &[(&str, &str)] = if experiment.axes().is_empty() { &[] } else { &[("ranks", ranks)] };
        complete(experiment.name(), &[4, 20_000], more);
    }
    let odd = both(&[(cell("mpi-bcast", &[("ranks", "1")], 8), sound())]);
    assert!(matches!(&odd[0][0], Some(Fault::Meaningless(why)) if why.contains("2 to 1024")), "{odd:?}");
    let torn = both(&[(cell("mpi-reduce", &[("ranks", "2")], 7), sound()), (write(8), sound())]);
    assert!(torn[0][0].is_some() && torn[1] == [None, None], "{torn:?}");
}

/// Goal: an impossible kernel is left out with its reason, and a possible one is also computed by threads.
#[test]
fn kernels_of_nas_are_computed_or_refused() {
    for name in ["nas-is", "nas-cg"] {
        complete(name, &[0], &[("class", "S"), ("ranks", "8")]);
        for (class, ranks, why) in
            [("S", "3", "no power of two"), ("S", "512", "1 to 256"), ("Z", "2", "class Z")]
        {
            let pairs = [("class", class), ("ranks", ranks)];
            let refused = all_until(&[(cell(name, &pairs, 0), sound())], open, || false);
            let Some(Fault::Meaningless(said)) = &refused[0][0] else { panic!("{refused:?}") };
            assert!(said.contains(why), "{said}");
        }
    }
}

/// A process never shares all its memory with an unrelated one.
#[test]
fn mpi_serves_no_strangers() {
    let experiment = find("mpi-latency").expect("known");
    let (host, cell, settings) =
        (verbs::host::real::host(), cell("mpi-latency", &[("layer", "mpi")], 8), settings());
    let device = open(&host);
    let mut wire = wires().into_iter().next().expect("a wire");
    let mut session = Session {
        host: &host,
        device: &device,
        rails: &rails(&device),
        rank: 1,
        controls: vec![&mut wire],
        cell: &cell,
        settings: &settings,
        against: None,
        gauge: &|| None,
        failed: Vec::new(),
        bounds: Bounds { work: Some(Span::from_secs(1)), bytes: None },
        until: None,
    };
    let refused = experiment.prepare(&mut session).map(drop);
    assert!(matches!(&refused, Err(Fault::Meaningless(why)) if why.contains("stranger")), "{refused:?}");
}

#[test]
fn single_calls_are_timed() {
    for name in ["reg", "post", "poll"] {
        complete(name, &[8, 4096], &[]);
    }
}

#[test]
fn every_step_of_a_connection_is_timed_but_the_one_that_is_none() {
    let steps = ["create", "call", "established", "disconnect", "destroy", "many"];
    let cells: Vec<_> = steps.map(|step| (cell("connect", &[("step", step)], 0), sound())).into();
    all_right(&cells, open);
    let resolve = [(cell("connect", &[("step", "resolve")], 0), sound()), (write(8), sound())];
    let ended = both(&resolve);
    let why = ended[0][0].as_ref().expect("there is no such step").to_string();
    assert!(why.contains("IP addresses"), "{why}");
    assert_eq!(ended[1], [None, None]);
}

#[test]
fn what_communication_costs_the_processor_is_measured_with_right_contents() {
    complete(
        "overhead",
        &[1, 8, 4096],
        &[("op", "send"), ("source", "host"), ("sink", "host"), ("part", "poll")],
    );
    complete("availability", &[8, 65_536], &[]);
    let by_send = [("op", "write"), ("source", "host"), ("sink", "host"), ("by", "send"), ("part", "extra")];
    complete("notify", &[1, 64, 65, 8192], &by_send);
    complete(
        "blocking",
        &[1, 4096],
        &[("op", "send"), ("source", "host"), ("sink", "host"), ("wait", "park")],
    );
}

#[test]
fn traffic_over_connections_buffers_and_pieces_arrives_whole() {
    complete("connections", &[1, 64, 8192], &[("quantity", "latency"), ("qps", "3")]);
    complete("maxsge", &[64], &[("quantity", "bandwidth"), ("sge", "3")]);
    complete("segments", &[4, 63, 4097], &[("quantity", "latency"), ("segments", "3")]);
    let mut cells = Vec::new();
    for (scheme, factor, level) in [("1", "buffers", "7"), ("2", "reuse", "33")] {
        for quantity in ["latency", "bandwidth"] {
            let pairs = [("quantity", quantity), ("scheme", scheme), (factor, level)];
            cells.push((cell("reuse", &pairs, 4096), sound()));
        }
    }
    all_right(&cells, open);
}

#[test]
fn operations_beside_idle_connections_are_right() {
    let experiment = find("scaling").expect("known");
    let among_few = |variant: Variant| variant.with(results::variant::factor::QPS, "20");
    let variants: std::collections::BTreeSet<_> =
        experiment.variants(false).into_iter().map(among_few).collect();
    assert_eq!(variants.len(), 9);
    let cell = |variant| Cell { experiment: "scaling".into(), variant, size: 8, twin: false };
    let cells: Vec<_> = variants.into_iter().map(|variant| (cell(variant), sound())).collect();
    all_right(&cells, open);
}

/// Goal: requests forbidden to hostile clients are refused before anything is done. Method: levels beyond their
/// range; a valid cell follows each.
#[test]
fn levels_out_of_range_lose_their_cell() {
    let latency = ("quantity", "latency");
    let wrong = [
        cell("connections", &[latency, ("qps", "99999999")], 8),
        cell("connections", &[latency, ("qps", "0")], 8),
        cell("maxsge", &[latency, ("sge", "x")], 8),
        cell("segments", &[latency, ("segments", "16")], 8),
        cell("reuse", &[latency, ("scheme", "1"), ("buffers", "-1")], 8),
        cell("reuse", &[latency, ("scheme", "3")], 8),
        cell("mtu", &[latency, ("mtu", "1024")], 8),
        cell("bandwidth", &[("op", "write"), ("source", "host"), ("sink", "host"), ("window", "0")], 8),
    ];
    let cells: Vec<(Cell, Sides)> =
        wrong.into_iter().flat_map(|cell| [(cell, sound()), (write(8), sound())]).collect();
    for (index, ended) in all_until(&cells, open, || false).iter().enumerate() {
        assert!(ended.iter().all(|e| e.is_some() == (index % 2 == 0)), "{}: {ended:?}", cells[index].0);
        assert!(ended.iter().flatten().all(Fault::is_local), "{}: {ended:?}", cells[index].0);
    }
}

/// Goal: a feature missing in a device costs only its cell, with the reason, at every rank. Method: two ports, which
/// this device does not have, and impossible numbers of processes; a valid cell follows each.
#[test]
fn what_makes_no_sense_is_left_out_with_its_reason() {
    let split = |experiment| {
        let write = [("op", "write"), ("source", "host"), ("sink", "host"), ("ports", "2")];
        cell(experiment, &write, 4096)
    };
    let chain = |nodes| cell("chain", &[("via", "nic"), ("nodes", nodes), ("ports", "2")], 4096);
    let wrong = [split("bandwidth"), split("bibw"), chain("3"), chain("9"), chain("one")];
    let cells: Vec<(Cell, Sides)> =
        wrong.into_iter().flat_map(|cell| [(cell, sound()), (write(8), sound())]).collect();
    for (index, ended) in all_until(&cells, open, || false).iter().enumerate() {
        let reasons: Vec<&Fault> = ended.iter().flatten().collect();
        if index % 2 == 1 {
            assert!(reasons.is_empty(), "cell {index}: {reasons:?}");
            continue;
        }
        let why = ended[0].as_ref().expect("left out").to_string();
        assert!(reasons.iter().all(|why| why.is_local()), "cell {index}: {reasons:?}");
        assert!(why.contains("shm has one port") || why.contains("2 to 8 nodes"), "{why}");
    }
}

/// The rails of a device.
fn rails(device: &Device) -> Rails {
    Rails { names: fabric::rails_of(device.name()).expect("rails"), open: fabric::open }
}

/// A server's session with a client that sends `script`, and nothing more.
fn with_hostile<T>(
    cell: &Cell,
    script: &[Word],
    bounds: Bounds,
    body: impl FnOnce(&mut Session<'_>) -> T,
) -> T {
    let [mut near, mut far] = wires();
    script.iter().for_each(|word| near.send(word).expect("said"));
    let (host, settings) = (verbs::host::real::host(), settings());
    let device = open(&host);
    body(&mut Session {
        host: &host,
        device: &device,
        rails: &rails(&device),
        rank: 1,
        controls: vec![&mut far],
        cell,
        settings: &settings,
        against: None,
        gauge: &|| Some(1 << 20),
        failed: Vec::new(),
        bounds,
        until: None,
    })
}

/// Goal: a client cannot make a server do client-only work, some of which would continue for ever without a message
/// from the other side. Method: every experiment of one process, with the longest round allowed; the cell is given up
/// before.
#[test]
fn a_server_does_nothing_that_clients_do_alone() {
    let round = Round { lead_in: 0, samples: 1 << 18, batch: 1 << 20 };
    let mut tried = 0;
    for experiment in crate::experiment::all() {
        for variant in experiment.variants(false).into_iter().filter(|v| experiment.ranks(v) == 1) {
            let cell = Cell { experiment: experiment.name().into(), variant, size: 4096, twin: false };
            let script = [Word::Ready, Word::Round(round)];
            let ended = with_hostile(&cell, &script, Bounds::default(), serve_cell);
            assert!(matches!(ended, Err(Fault::Meaningless(_))), "{cell}: {ended:?}");
            tried += 1;
        }
    }
    assert!(tried > 3);
}

/// Goal: a stranger's cell gets the memory that it may have, and no more.
#[test]
fn a_cell_that_needs_too_much_memory_is_refused() {
    let bounds = Bounds { work: None, bytes: Some(1 << 20) };
    let ended = with_hostile(&write(1 << 20), &[Word::Ready], bounds, serve_cell);
    assert!(matches!(&ended, Err(Fault::Machine(why)) if why.contains("bytes of memory")), "{ended:?}");
}

/// Goal: a round ends when its time is up, however many samples it has and whether or not they wait for anything.
#[test]
fn a_round_has_its_time() {
    let bounds = Bounds { work: Some(Span::from_ms(20)), bytes: None };
    let round = Round { lead_in: 0, samples: 1 << 18, batch: 1 };
    let mut done = 0;
    let ended = with_hostile(&write(8), &[], bounds, |session| {
        session.begin();
        let until = session.until.expect("a limit");
        assert!(session.deadline().expect("a limit") <= until, "no wait is longer than the work may be");
        crate::experiment::harness::timing::sample(session, round, &mut Vec::new(), |_, count, _| {
            done += count;
            std::thread::sleep(std::time::Duration::from_millis(1));
            Ok(())
        })
    });
    assert_eq!(ended, Err(Fault::TimedOut("a round")));
    assert!(done < round.samples, "{done}");
}
