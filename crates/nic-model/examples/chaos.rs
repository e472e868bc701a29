//! Fault injection for any number of seeds.
//!
//! `cargo run --release -p nic-model --example chaos -- 1..1000` runs everything with seeds 1 to 999;
//! `... -- 17 storm` or `... -- 17 loss/send_recv::every_size_arrives` one program with one seed; `... --
//! 1..100 loss/` all programs whose name has this prefix.

#[path = "../tests/support/chaos.rs"]
mod chaos;
#[path = "../tests/support/storm.rs"]
mod storm;
#[path = "../tests/support/mod.rs"]
mod support;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seeds = args.first().map_or("1..10", String::as_str);
    let (from, to) = match seeds.split_once("..") {
        Some((from, to)) => (from.parse().expect("a seed"), to.parse().expect("a seed")),
        None => (seeds.parse().expect("a seed"), seeds.parse::<u64>().expect("a seed") + 1),
    };
    let prefix = args.get(1).map_or("", String::as_str);
    chaos::check_settings();
    let paths: Vec<String> = chaos::paths().into_iter().filter(|path| path.starts_with(prefix)).collect();
    let mut failed = 0;
    for seed in from..to {
        for path in &paths {
            if let Err(why) = chaos::run(path, seed) {
                failed += 1;
                println!("{why}\n");
            }
        }
    }
    println!("{} programs with {} seeds: {failed} failed", paths.len(), to - from);
    std::process::exit(i32::from(failed > 0));
}
