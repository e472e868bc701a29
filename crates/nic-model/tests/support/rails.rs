//! Two machines with two cards each, which are one device of two rails at either end; and storms over them.

use std::net::SocketAddr;

use nic_model::Config;
use verbs::conformance::traffic::{self, Traffic};
use verbs::conformance::Env;
use verbs::host::world::{self, Ended, Factory, Failure, World};
use verbs::host::{Host, Span};
use verbs::rails::{self, RailsConfig};
use verbs::{AsyncEvent, Device};

/// The most events that a run may take: far more than any does.
const MAX_EVENTS: u64 = 200_000_000;

type Options = Vec<(&'static str, String)>;

/// A pair of machines.
pub(crate) struct Pair {
    machine: &'static str,
    seed: u64,
    factory: Factory,
    /// Values of each rail's cards.
    options: [Options; 2],
}

impl Pair {
    pub(crate) fn new(machine: &'static str) -> Self {
        Self { machine, seed: 1, factory: Factory::Coroutine, options: [Vec::new(), Vec::new()] }
    }

    fn configs(&self) -> [Config; 2] {
        std::array::from_fn(|rail| {
            // A machine of a number that there is not never dies: the value only tells the networks apart.
            let number = ("faults.death_node", (1000 + rail).to_string());
            let options: Vec<_> = self.options[rail].iter().chain([&number]).cloned().collect();
            let options: Vec<(&str, &str)> = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
            Config::new(self.machine, &options).expect("a machine")
        })
    }

    pub(crate) fn run(&self, body: impl FnOnce(&Env) + Send + 'static) -> Result<Ended, Failure> {
        let config =
            world::Config { seed: self.seed, factory: self.factory, stack: 1 << 20, max_events: MAX_EVENTS };
        let mut world = World::new(config);
        let (a, b) = (world.node("a"), world.node("b"));
        let (configs, hosts) = (self.configs(), (a.host(), b.host()));
        world.rank("driver", &[&a, &b], move || {
            let (a, b) = (open(&hosts.0, &configs), open(&hosts.1, &configs));
            let addr = SocketAddr::new(b.attr().port_addrs[0], 0);
            body(&Env::new(a, b, addr).large_bytes(16 << 20));
        })?;
        world.run()
    }
}

fn open(host: &Host, configs: &[Config; 2]) -> Device {
    let cards = configs.iter().map(|config| nic_model::open(host, config).expect("a card")).collect();
    rails::open(cards, &RailsConfig { stripe_min: 4096, ..RailsConfig::default() }).expect("rails")
}

/// Random numbers (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Traffic, during which the cable of one rail is cut at some time and perhaps whole again later. How the world ended.
///
/// # Errors
/// What was wrong, in words.
pub(crate) fn storm(seed: u64, factory: Factory) -> Result<Ended, String> {
    let mut rng = Rng(seed);
    let mut pair = Pair { seed, factory, ..Pair::new("mt23108-nicmem") };
    let rail = rng.below(2) as usize;
    let cut = &mut pair.options[rail];
    // Connecting takes 3.9 ms.
    cut.push(("faults.cut_us", (3950 + rng.below(9000)).to_string()));
    cut.push(("faults.cut_node", rng.below(2).to_string()));
    cut.push(("connection.lost_after_us", (1 + rng.below(5000)).to_string()));
    let returns = rng.below(2) == 0;
    if returns {
        cut.push(("faults.cut_for_us", (1 + rng.below(40_000)).to_string()));
    }
    if rng.below(2) == 0 {
        cut.push(("faults.loss_ppm", rng.below(10_000).to_string()));
    }
    for options in &mut pair.options {
        if rng.below(2) == 0 {
            options.push(("faults.delay_ns", rng.below(20_000).to_string()));
        }
    }
    let what = format!("{:?}", pair.options);
    let sleeps = rng.below(2) == 0;
    let body = move |env: &Env| traffic_with_news(env, seed, sleeps, returns);
    pair.run(body).map_err(|failure| format!("seed {seed}: {failure}\nwith {what}"))
}

/// Traffic that goes on until both ends have lost the rail, if one has, and have it back, if it `returns`.
fn traffic_with_news(env: &Env, seed: u64, sleeps: bool, returns: bool) {
    let mut said = [(0, 0), (0, 0)];
    let mut meanwhile = |_: u64| {
        for ((down, up), device) in said.iter_mut().zip([&env.a, &env.b]) {
            while let Some(event) = device.poll_async_event() {
                match event {
                    AsyncEvent::RailDown { .. } => *down += 1,
                    AsyncEvent::RailUp { .. } => *up += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        let enough = said[0] == said[1] && (!returns || said[0].0 == said[0].1);
        if !enough {
            // It may take a while until the rail is tried again.
            env.a.host().charge(Span::from_ms(1));
        }
        enough
    };
    let (requests, longest, detour) = (150, 16 << 10, |addr| addr);
    let plan = Traffic { seed, requests, longest, meanwhile: &mut meanwhile, detour: &detour, sleeps };
    traffic::run(env, &mut { plan });
    assert!(said[0].1 <= said[0].0, "{said:?}");
}
