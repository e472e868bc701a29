//! Two machines with two cards each, which form one device of two rails at either end; and storms over them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conformance::Env;
use conformance::shared::{self, SharedTraffic};
use conformance::traffic::{self, Traffic};
use nic_model::Config;
use nic_rails::{Engine, RailsConfig};
use verbs::host::world::{self, Ended, Failure, FiberKind, World};
use verbs::host::{Host, Rng, Span};
use verbs::{AsyncEvent, Device};

/// Approximate time when the ends are connected: with one pair of queue pairs, and with three.
const CONNECTED_US: u64 = 2100;
const THREE_CONNECTED_US: u64 = 4400;
/// Maximum number of events of a run: far more than any run needs.
const MAX_EVENTS: u64 = 200_000_000;

/// A pair of machines.
pub(crate) struct Pair {
    machine: &'static str,
    seed: u64,
    fiber_kind: FiberKind,
    /// Values of the machines.
    options: Vec<(&'static str, String)>,
    engine: Engine,
}

impl Pair {
    pub(crate) fn new(machine: &'static str) -> Self {
        Self {
            machine,
            seed: 1,
            fiber_kind: FiberKind::Coroutine,
            options: Vec::new(),
            engine: Engine::Callers,
        }
    }

    /// The same pair with another engine.
    #[allow(dead_code, reason = "the example has no use for it")]
    pub(crate) fn served(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    fn configs(&self) -> [Config; 2] {
        let options: Vec<(&str, &str)> =
            self.options.iter().map(|(key, value)| (*key, value.as_str())).collect();
        [0, 1].map(|rail| Config::new(&format!("{}@{rail}", self.machine), &options).expect("a machine"))
    }

    pub(crate) fn run(&self, body: impl FnOnce(&Env) + Send + 'static) -> Result<Ended, Failure> {
        let config = world::Config {
            seed: self.seed,
            fiber_kind: self.fiber_kind,
            stack: 1 << 20,
            max_events: MAX_EVENTS,
        };
        let mut world = World::new(config);
        let (a, b) = (world.add_node("a"), world.add_node("b"));
        let (configs, hosts, engine) = (self.configs(), (a.host(), b.host()), self.engine);
        world.spawn("driver", &[&a, &b], move || {
            let (a, b) = (open(&hosts.0, &configs, engine), open(&hosts.1, &configs, engine));
            let addr = SocketAddr::new(b.attr().port_addrs[0], 0);
            body(&Env::new(a, b, addr).large_bytes(16 << 20));
        })?;
        world.run()
    }
}

/// Both cards as one device.
pub(crate) fn open(host: &Host, configs: &[Config; 2], engine: Engine) -> Device {
    let cards = configs.iter().map(|config| nic_model::open(host, config).expect("a card")).collect();
    nic_rails::open(cards, &RailsConfig { stripe_min: 4096, engine, ..RailsConfig::default() })
        .expect("rails")
}

/// The load of a storm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// All kinds of requests in both directions.
    Traffic,
    /// Messages of several queue pairs into one shared receive queue.
    Shared,
}

/// Runs a load during which the cable of one rail is cut at some time and possibly repaired later. Returns
/// how the world ended, and how often a rail was lost.
///
/// # Errors
/// A description of all errors.
pub(crate) fn storm(seed: u64, load: Load, fiber_kind: FiberKind) -> Result<(Ended, u32), String> {
    let mut rng = Rng::new(seed);
    let machine = ["connectx-multihca", "connectx-multiport"][rng.below(2) as usize];
    let mut pair = Pair { seed, fiber_kind, ..Pair::new(machine) };
    let mut set = |key, value: u64| pair.options.push((key, value.to_string()));
    let connected = match load {
        Load::Traffic => CONNECTED_US,
        Load::Shared => THREE_CONNECTED_US,
    };
    set("faults.cut_us", connected + rng.below(900));
    set("faults.cut_port", 1 + rng.below(2));
    set("faults.cut_node", rng.below(2));
    set("connection.lost_after_us", 1 + rng.below(5000));
    let returns = rng.below(2) == 0;
    if returns {
        set("faults.cut_for_us", 1 + rng.below(40_000));
    }
    if rng.below(2) == 0 {
        // Few enough that a rail survives.
        set("faults.loss_ppm", rng.below(1000));
        set("faults.delay_ns", rng.below(20_000));
    }
    if rng.below(3) == 0 {
        pair.engine = Engine::Threads;
    }
    let what = format!("{load:?} {machine} {:?} {:?}", pair.engine, pair.options);
    let plan = Plan { seed, load, sleeps: rng.below(2) == 0, returns };
    let lost = Arc::new(AtomicU32::new(0));
    let count = lost.clone();
    let body = move |env: &Env| count.store(run_with_news(env, plan), Ordering::Relaxed);
    let ended = pair.run(body).map_err(|failure| format!("seed {seed}: {failure}\nwith {what}"))?;
    Ok((ended, lost.load(Ordering::Relaxed)))
}

#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    load: Load,
    sleeps: bool,
    /// The rail is repaired.
    returns: bool,
}

/// Runs a load until both ends have lost the rail, if one has, and have it back, if it is repaired. Returns
/// how often that happened.
fn run_with_news(env: &Env, plan: Plan) -> u32 {
    let Plan { seed, load, sleeps, returns } = plan;
    let mut said = [(0_u32, 0), (0, 0)];
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
            // It may take a while until the rail is retried.
            env.a.host().charge(Span::from_ms(1));
        }
        enough
    };
    let meanwhile = &mut meanwhile;
    match load {
        Load::Traffic => {
            let (requests, longest, detour) = (150, 16 << 10, |addr| addr);
            let plan = Traffic { seed, requests, longest, meanwhile, detour: &detour, sleeps };
            traffic::run(env, &mut { plan });
        }
        Load::Shared => shared::run(env, &mut SharedTraffic { seed, senders: 3, messages: 150, meanwhile }),
    }
    assert!(said[0].1 <= said[0].0, "{said:?}");
    said[0].0
}
