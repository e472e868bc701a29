//! A link that goes down silently, between two network namespaces.

use std::net::SocketAddr;

use conformance::Env;
use conformance::traffic::{self, Traffic};
use nic_iwarp::{IwarpConfig, open};
use nic_rails::RailsConfig;
use verbs::host::{self, Span};
use verbs::{CmEvent, ConnParam, Device, QpInit};

use crate::support::netns::Spaces;
use crate::{one_at_a_time, rail_events};

fn device(spaces: &Spaces, side: usize) -> Device {
    let rail = |rail: usize| {
        let (bind, silence) = (Some(spaces.rails()[rail][side].1), IwarpConfig::SILENCE_MIN);
        open(&host::real::host(), &IwarpConfig { bind, silence, ..IwarpConfig::default() }).expect("a device")
    };
    [&spaces.a, &spaces.b][side]
        .within(|| nic_rails::open(vec![rail(0), rail(1)], &RailsConfig::default()).expect("rails"))
}

/// Goal: a rail is given up when its peer is no longer heard on it, and used again when possible. Method: either link
/// is taken down in the middle of traffic, and up again when both ends have reported it.
#[test]
fn silent_link_is_given_up_and_used_again() {
    let _gate = one_at_a_time();
    let Some(spaces) = Spaces::try_new(1500) else { return };
    spaces.join_again(1500).expect("a second link");
    for (rail, link) in [(0, "nic-b"), (1, "nic-d")] {
        let (a, b) = (device(&spaces, 0), device(&spaces, 1));
        let env = Env::new(a, b, SocketAddr::new(spaces.b.ip, 0)).slow(3);
        let (mut downs, mut events) = (0, [String::new(), String::new()]);
        let mut meanwhile = |done: u64| {
            for (events, device) in events.iter_mut().zip([&env.a, &env.b]) {
                events.push_str(&rail_events(device));
            }
            if downs == 0 && done >= 50 {
                spaces.b.ip(&format!("link set {link} down")).expect("a link");
                downs = 1;
            } else if downs == 1 && events.iter().all(|events| events.contains('-')) {
                spaces.b.ip(&format!("link set {link} up")).expect("a link");
                downs = 2;
            }
            // Traffic continues meanwhile, but need not use the whole machine.
            env.a.host().wait(
                "traffic",
                &host::EventCount::new(),
                env.a.host().after(Span::from_us(300)),
                || None::<()>,
            );
            downs == 2 && events.iter().all(|events| events.contains('+'))
        };
        let detour = |addr: SocketAddr| addr;
        let (seed, longest, meanwhile) = (rail, 32 << 10, &mut meanwhile);
        let plan = Traffic { seed, requests: 100, longest, meanwhile, detour: &detour, sleeps: false };
        traffic::run(&env, &mut { plan });
        assert!(
            events.iter().all(|events| events.matches('-').count() == events.matches('+').count()),
            "{events:?}"
        );
    }
}

/// Goal: a rail that is down at the start is named. Method: the second link is down.
#[test]
fn connect_with_a_rail_down_names_the_rail() {
    let _gate = one_at_a_time();
    let Some(spaces) = Spaces::try_new(1500) else { return };
    spaces.join_again(1500).expect("a second link");
    let (near, far) = (device(&spaces, 0), device(&spaces, 1));
    spaces.b.ip("link set nic-d down").expect("a link");
    let (cm, listening) = (near.create_cm().expect("a channel"), far.create_cm().expect("a channel"));
    let listener = listening.listen(SocketAddr::new(spaces.b.ip, 0), 1).expect("a listener");
    let pair = |device: &Device| {
        let cq = device.create_cq(64).expect("a queue");
        device.alloc_pd().expect("a domain").create_qp(&QpInit::new(&cq)).expect("a queue pair")
    };
    let (qp, other) = (pair(&near), pair(&far));
    let param = ConnParam { timeout: Span::from_secs(2), ..ConnParam::default() };
    cm.connect(&qp, listener.addr(), &param).expect("asked");
    match listening.get_event(far.host().after(Span::from_secs(20))) {
        Ok(CmEvent::ConnectRequest(request)) => listening.accept(request, &other, &param).expect("accepted"),
        event => panic!("{event:?}"),
    }
    for cm in [&cm, &listening] {
        match cm.get_event(near.host().after(Span::from_secs(20))) {
            Ok(CmEvent::ConnectFailed { why, .. }) => println!("{why}"),
            event => panic!("{event:?}"),
        }
    }
}
