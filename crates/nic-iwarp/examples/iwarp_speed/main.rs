//! Compares iWARP with raw TCP between the same two processes, each pinned to a core:
//! `cargo run --release -p nic-iwarp --example iwarp_speed [-- [ROUNDS] [OPTION...]]`.
//!
//! Rounds alternate between raw TCP and iWARP. The report has the median of the rounds' ratios, and the best figures:
//! changes of the machine's speed affect both alike. Options:
//! - `sent`: requests complete when TCP has them; `mss`, `fpdu=BYTES`: the size of FPDUs;
//! - `only=NAME`: only rows whose names contain this; `alone`: without raw TCP, for profilers;
//! - `polls`: the cost of polling an empty queue, by number of connections;
//! - `at=ADDRESS` with `serve=ADDRESS:PORT` and `join=ADDRESS:PORT` for two hosts or namespaces.

mod link;
mod polls;
mod process;
mod raw;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command};

use host::real::pin_to_core;
use nic_iwarp::{Completion, FpduSize, IwarpConfig};
use process::{BenchProcess, TargetActivity};

/// The command line.
struct Options(Vec<String>);

impl Options {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|arg| arg == name)
    }

    fn valued(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    fn rounds(&self) -> usize {
        self.0.first().and_then(|arg| arg.parse().ok()).unwrap_or(9)
    }

    fn config(&self) -> IwarpConfig {
        let fpdu = match self.valued("fpdu") {
            Some(bytes) => FpduSize::Bytes(bytes.parse().expect("a number of bytes")),
            None if self.has("mss") => FpduSize::Segment,
            None => FpduSize::Largest,
        };
        let completion = if self.has("sent") { Completion::Sent } else { Completion::Placed };
        IwarpConfig { completion, fpdu, ..IwarpConfig::default() }
    }
}

/// A row of the report: the results of raw TCP and iWARP in each round.
struct Row {
    name: &'static str,
    less_is_better: bool,
    pairs: Vec<(f64, f64)>,
}

fn main() {
    let options = Options(std::env::args().skip(1).collect());
    if options.has("polls") {
        return polls::measure();
    }
    let at: IpAddr =
        options.valued("at").map_or(Ipv4Addr::LOCALHOST.into(), |at| at.parse().expect("an address"));
    let addr = |text: &str| text.parse::<SocketAddr>().expect("an address and a port");
    let (mut side, child) = match (options.valued("join"), options.valued("serve")) {
        (Some(to), _) => (BenchProcess::connect(addr(to)), None),
        (None, Some(on)) => (BenchProcess::serve(&TcpListener::bind(addr(on)).expect("a port")), None),
        (None, None) => {
            let listener = TcpListener::bind(SocketAddr::new(at, 0)).expect("a port");
            let child = spawn(listener.local_addr().expect("bound"), &options.0);
            (BenchProcess::serve(&listener), Some(child))
        }
    };
    pin_to_core(usize::from(!side.client)).expect("a core");
    let rows = measure(&mut side, &options, at);
    if side.client {
        rows.iter().for_each(print);
    }
    if let Some(mut child) = child {
        child.wait().expect("the other side");
    }
}

fn spawn(addr: SocketAddr, args: &[String]) -> Child {
    let own = std::env::current_exe().expect("this program");
    Command::new(own).args(args).arg(format!("join={addr}")).spawn().expect("another process")
}

fn measure(side: &mut BenchProcess, options: &Options, at: IpAddr) -> Vec<Row> {
    let config = options.config();
    let plain = side.link(&config, at);
    let crc = side.link(&IwarpConfig { crc: true, ..config }, at);
    let mut rows: Vec<Row> = Vec::new();
    let wanted = |name: &str| options.valued("only").is_none_or(|only| name.contains(only));
    let mut note = |name, less_is_better, raw: f64, own: &mut dyn FnMut() -> f64| {
        if wanted(name) {
            let pair = (raw, own());
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.pairs.push(pair),
                None => rows.push(Row { name, less_is_better, pairs: vec![pair] }),
            }
        }
    };
    let alone = options.has("alone");
    let ways = if alone { Vec::new() } else { side.best_raw_streams() };
    for _ in 0..options.rounds() {
        let raw = if alone { 1.0 } else { side.raw_pings() };
        note("8 B write, one way, us", true, raw, &mut || side.write_one_way_time(&plain));
        note("8 B send, one way, us", true, raw, &mut || side.send_one_way_time(&plain));
        note("8 B write with CRC, one way, us", true, raw, &mut || side.write_one_way_time(&crc));
        note("8 B writes, ping-pongs, M/s", false, 0.5 / raw, &mut || side.message_rate(&plain));
        let raw = if alone { 1.0 } else { side.raw_stream(&ways) };
        note("1 MiB write, GB/s", false, raw, &mut || side.stream(&plain));
        note("4 KiB write, GB/s", false, raw, &mut || side.page_write_rate(&plain));
        note("1 MiB write with CRC, GB/s", false, raw, &mut || side.stream(&crc));
        let idle = if wanted("8 B read") { side.read_time(&plain, TargetActivity::Sleeps) } else { 0.0 };
        note("8 B read, target idle, computes, us", true, idle, &mut || {
            side.read_time(&plain, TargetActivity::Computes)
        });
    }
    rows
}

fn print(row: &Row) {
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = row.pairs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let best = |of: fn(&(f64, f64)) -> f64| {
        let values = row.pairs.iter().map(of);
        if row.less_is_better { values.fold(f64::MAX, f64::min) } else { values.fold(0.0, f64::max) }
    };
    let (raw, own) = (best(|pair| pair.0), best(|pair| pair.1));
    println!(
        "{:36} raw {:8.3}  iwarp {:8.3}  ratio {:.3}   best {raw:8.3} {own:8.3}  {:.3}",
        row.name,
        median(|pair| pair.0),
        median(|pair| pair.1),
        median(|pair| pair.1 / pair.0),
        own / raw,
    );
}
