//! Rails of iWARP NICs, one of which is cut in the middle of traffic and reconnected.

#[path = "rails/cuts.rs"]
mod cuts;
#[path = "rails/invalid_rails.rs"]
mod invalid_rails;
#[path = "rails/links.rs"]
mod links;
#[path = "rails/many_qps.rs"]
mod many_qps;
#[path = "rails/progress_count.rs"]
mod progress_count;
#[path = "rails/sockets.rs"]
mod sockets;
#[path = "../../nic-util/tests/support/mod.rs"]
mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use conformance::Env;
use nic_rails::{Engine, RailsConfig};
use verbs::host;
use verbs::{AsyncEvent, Device};

/// Tests that cut connections find them by their addresses, and run one at a time.
static GATE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    GATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// A rail on 127.0.`net`.`side`.
fn rail(net: u8, side: u8) -> Device {
    let bind = Some(IpAddr::from([127, 0, net, side]));
    let config = nic_iwarp::IwarpConfig { bind, ..nic_iwarp::IwarpConfig::default() };
    nic_iwarp::open(&host::real::host(), &config).expect("an iWARP device")
}

/// A device of two rails at each end; their addresses differ in the last number.
fn env(net: u8, engine: Engine) -> Env {
    let config = RailsConfig { stripe_min: 1024, engine, ..RailsConfig::default() };
    let open = || nic_rails::open(vec![rail(net, 1), rail(net, 2)], &config).expect("rails");
    Env::new(open(), open(), SocketAddr::from((Ipv4Addr::new(127, 0, net, 1), 0))).slow(3)
}

/// The rail events of a device: `-` for down and `+` for up, each with the last digit of the rail's address.
fn rail_events(device: &Device) -> String {
    let mut rail_events = String::new();
    while let Some(event) = device.poll_async_event() {
        let (sign, rail) = match event {
            AsyncEvent::RailDown { rail, .. } => ('-', rail),
            AsyncEvent::RailUp { rail, .. } => ('+', rail),
            other => panic!("{other:?}"),
        };
        rail_events.push(sign);
        rail_events.extend(rail.trim_end_matches(')').chars().last());
    }
    rail_events
}
