//! Plans: what is refused and in what words, and what a plan makes of itself.

use super::*;
use results::variant::{Factor, factor};

fn plan() -> Plan {
    Plan { device: fabric::list().remove(0).name, seed: Some(1), ..Plan::default() }
}

fn refusals(plan: &Plan) -> Vec<String> {
    plan.check().expect_err("refused").iter().map(ToString::to_string).collect()
}

#[test]
fn every_mistake_is_named_with_what_exists_instead() {
    let mut wrong = plan();
    wrong.experiments = vec!["latncy".into(), "bandwidth".into(), "zzz".into()];
    wrong.device = "shn".into();
    wrong.sizes = Some(vec![0, 8, MAX_SIZE + 1]);
    wrong.set = BTreeMap::from([("windw".into(), "8".into()), ("window".into(), "1".into())]);
    wrong.peer = Some("host:port".into());
    let all = refusals(&wrong);
    assert_eq!(all.len(), 8, "{all:#?}");
    assert!(all[0].contains("did you mean 'latency'?") && all[0].contains("bandwidth, bibw"), "{}", all[0]);
    assert!(!all[1].contains("did you mean"), "{}", all[1]);
    assert!(all[2].contains("0 bytes") && all[3].contains("1073741825 bytes"));
    assert!(all[4].contains("window cannot be '1'; it takes 2 to 4096"), "{}", all[4]);
    assert!(all[5].contains("did you mean 'window'?"), "{}", all[5]);
    assert!(all[6].contains("shm") && all[7].contains("HOST:PORT"));
    assert!(all.iter().all(|line| !line.contains('\n')));
}

/// Goal: selects the variants with the requested levels of each factor, including variants that a short overview
/// leaves out; unknown levels are reported with the known ones.
#[test]
fn only_some_variants() {
    let only =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(f, l)| ((*f).to_owned(), (*l).to_owned())).collect();
    let asked = Plan {
        experiments: vec!["latency".into()],
        sizes: Some(vec![8]),
        quick: true,
        only: only(&[("op", "send"), ("source", "host"), ("sink", "nic")]),
        ..plan()
    };
    let cells = asked.check().expect("a plan").cells;
    let measured: Vec<&Cell> = cells.iter().filter(|c| c.experiment != FLOOR).collect();
    assert_eq!(measured.len(), 1, "{measured:?}");
    assert!(measured[0].variant.is(factor::OP, "send") && measured[0].variant.is(factor::SINK, "nic"));
    let either = only(&[("op", "send"), ("op", "write"), ("source", "host"), ("sink", "nic")]);
    let cells = Plan { only: either, ..asked.clone() }.check().expect("a plan").cells;
    let ops: BTreeSet<&str> =
        cells.iter().filter(|c| c.experiment != FLOOR).filter_map(|c| c.variant.get(factor::OP)).collect();
    assert_eq!(ops, BTreeSet::from(["send", "write"]));
    for (pairs, part) in [
        (&[("op", "sned")][..], "no variant has op=sned, did you mean 'send'?; op can be cas, fadd, read,"),
        (&[("op", "send"), ("op", "wriet")], "no variant has op=wriet, did you mean 'write'?"),
        (&[("opp", "send")], "did you mean 'op'?; these experiments have the factors op, sink, source"),
        (&[("op", "cas"), ("sink", "host"), ("source", "nic")], "not together"),
    ] {
        let all = refusals(&Plan { only: only(pairs), ..asked.clone() });
        assert!(all.len() == 1 && all[0].contains(part), "{all:?}");
    }
}

#[test]
fn no_launches_and_no_sizes_are_refused() {
    let wrong = Plan { launches: Some(0), sizes: Some(Vec::new()), ..plan() };
    assert_eq!(refusals(&wrong).len(), 2);
}

#[test]
fn peers_get_the_usual_port() {
    for (given, expected) in [
        ("host", Some("host:7471")),
        ("host:1", Some("host:1")),
        ("10.0.0.2", Some("10.0.0.2:7471")),
        ("::1", Some("[::1]:7471")),
        ("[::1]", Some("[::1]:7471")),
        ("[::1]:9", Some("[::1]:9")),
        ("", None),
        (":5", None),
        ("host:", None),
        ("host:0", None),
        ("host:70000", None),
        ("a b", None),
        ("a:b:5", None),
        ("[::1", None),
        ("::1]", None),
        ("[[::1]]", None),
        ("[::1]junk", None),
        ("[]:5", None),
        ("[host:5", None),
    ] {
        assert_eq!(peers::with_port(given).as_deref(), expected, "{given:?}");
    }
}

/// Goal: with several peers, experiments of several processes use all of them, and a request for more is refused.
/// Method: three peers, on which hot spots and chains fit; one, on which a ring of four is impossible.
#[test]
fn peers_decide_how_many_processes_there_are() {
    let with = |peers: &str, experiment: &str, set: &[(&str, &str)]| Plan {
        experiments: vec![experiment.into()],
        peer: Some(peers.into()),
        set: set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..plan()
    };
    let levels = |plan: Plan, factor: Factor| -> BTreeSet<String> {
        let cells = plan.check().expect("sound").cells;
        cells.iter().filter_map(|c| c.variant.get(factor).map(str::to_owned)).collect()
    };
    let set = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|s| (*s).to_owned()).collect() };
    assert_eq!(levels(with("a,b,c:9", "hotspot", &[]), factor::SLAVES), set(&["1", "2", "3"]));
    assert_eq!(levels(with("a,b,c", "chain", &[]), factor::NODES), set(&["2", "4"]));
    assert_eq!(levels(with("a", "chain", &[]), factor::NODES), set(&["2"]));
    assert_eq!(levels(with("a,b,c", "hotspot", &[("slaves", "3")]), factor::SLAVES), set(&["3"]));
    let checked = with("a, b,c:9", "park", &[]).check().expect("a ring of four");
    assert_eq!(checked.peers, ["a:7471", "b:7471", "c:9"]);
    let why = refusals(&with("a,b,c", "hotspot", &[("slaves", "2,5")]));
    assert!(why[0].contains("slaves 5 needs 5 peers") && why[0].contains("there are 3"), "{why:?}");
    let why = refusals(&with("a", "park", &[]));
    assert!(why[0].contains("park needs 3 peers") && why[0].contains("there is 1"), "{why:?}");
    let why = refusals(&with("a,b,a:7471,:", "hotspot", &[]));
    assert!(
        why.len() == 2 && why[0].contains("'a:7471' was given twice") && why[1].contains("':'"),
        "{why:?}"
    );
}

#[test]
fn an_overview_holds_every_floor_that_its_results_need_and_a_twin() {
    for quick in [true, false] {
        let checked = Plan { quick, ..plan() }.check().expect("sound");
        let sizes: BTreeSet<u64> = checked.cells.iter().map(|c| c.size).filter(|s| *s > 0).collect();
        let has = |what: &str, size: u64| {
            checked
                .cells
                .iter()
                .any(|c| c.experiment == FLOOR && c.size == size && c.variant.is(factor::WHAT, what))
        };
        assert!(sizes.iter().all(|s| has("memcpy", *s) && has("process_vm_writev", *s)));
        assert!(has("line", 64) && has("futex", 0));
        assert_eq!(checked.cells.iter().filter(|c| c.twin).count(), 1);
        let unique: BTreeSet<&Cell> = checked.cells.iter().collect();
        assert_eq!(unique.len(), checked.cells.len());
        assert!(checked.cells.len() < if quick { 230 } else { 340 }, "{}", checked.cells.len());
        assert_eq!(checked.launches(), if quick { 6 } else { 8 });
    }
}

#[test]
fn parameters_say_where_they_came_from() {
    let given = Plan { launches: Some(3), sizes: Some(vec![64, 8, 8]), ..plan() };
    let checked = given.check().expect("sound");
    let of = |key: &str| checked.parameters.iter().find(|p| p.key == key).expect("there").clone();
    assert_eq!((of("launches").value.as_str(), of("launches").origin), ("3", Origin::Flag));
    assert_eq!((of("sizes").value.as_str(), of("sizes").origin), ("8,64", Origin::Flag));
    assert_eq!(of("window").origin, Origin::Default);
    assert!(checked.parameters.len() >= keys::KEYS.len() + 6);
}

/// Goal: levels that are given take the place of an experiment's own, and belong to it alone. Method: a sweep, a list that
/// is none, and a factor of an experiment that is not asked for.
#[test]
fn levels_of_factors_can_be_set() {
    let set = |experiment: &str, factor: &str, list: &str| Plan {
        experiments: vec![experiment.into()],
        set: BTreeMap::from([(factor.to_owned(), list.to_owned())]),
        ..plan()
    };
    let checked = set("connections", "qps", "1..4").check().expect("sound");
    let levels: BTreeSet<&str> = checked.cells.iter().filter_map(|c| c.variant.get(factor::QPS)).collect();
    assert_eq!(levels, BTreeSet::from(["1", "2", "4"]));
    assert!(checked.parameters.iter().any(|p| p.key == "qps" && p.value == "1,2,4"));
    let wrong = refusals(&set("connections", "qps", "0..4"));
    assert!(wrong[0].contains("qps cannot be") && wrong[0].contains("1 to 16384"), "{wrong:?}");
    assert!(refusals(&set("latency", "qps", "1"))[0].contains("no parameter 'qps'"));
    assert!(refusals(&set("segments", "segmants", "1"))[0].contains("did you mean 'segments'?"));
}

/// Goal: a cell that no machine can run is refused before anything is measured if it was requested, and left out with
/// its reason if not. Method: a hot spot with more processes than any machine has memory for.
#[test]
fn what_is_too_much_is_refused_and_what_nobody_asked_for_is_left_out() {
    let reg = Plan { experiments: vec!["reg".into()], ..plan() }.check().expect("sizes are the usual ones");
    assert!(reg.unfit.keys().all(|index| reg.cells[*index].size > 64 << 20), "{:?}", reg.unfit);
    let crowd = Plan {
        experiments: vec!["hotspot".into()],
        set: BTreeMap::from([("slaves".to_owned(), "4095".to_owned())]),
        ..plan()
    };
    let world = Plan { device: "model:mt23108-vapi".into(), ..crowd.clone() };
    assert!(world.check().expect("simulated machines are no processes").unfit.is_empty());
    let limits = crate::machine::limits();
    if limits.memory.is_some_and(|bytes| bytes < 40 << 30) || limits.processes.is_some_and(|n| n < 4096) {
        let wrong = refusals(&crowd);
        assert!(wrong.len() == 1 && wrong[0].contains("4096 processes"), "{wrong:?}");
    }
}

#[test]
fn the_time_is_shared_among_cells() {
    let checked = Plan { experiments: vec!["rate".into()], ..plan() }.check().expect("sound");
    let sampling = checked.sampling(0, checked.real_cells(), crate::sample::Calibration::default());
    let all = sampling.time_max_ns * f64::from(checked.launches()) * checked.cells.len() as f64;
    assert!((all / 220e9 - 1.0).abs() < 1e-9, "{all}");
    assert!(sampling.time_min_ns < sampling.time_max_ns);
}

#[test]
fn devices_share_the_time_and_each_has_its_own_floors() {
    let of = |device: &str| Plan { device: device.to_owned(), quick: true, ..plan() }.check();
    let checked = of("shm, iwarp(crc=on,mpa=1),model:mt23108-vapi").expect("sound");
    let names: Vec<&str> = checked.devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["shm", "iwarp(crc=on,mpa=1)", "model:mt23108-vapi"]);
    assert_eq!(checked.devices[2].cells.end, checked.cells.len());
    let floors = |device: usize, what: &str| {
        let cells = &checked.cells[checked.devices[device].cells.clone()];
        cells.iter().filter(|c| c.variant.get(factor::WHAT).is_some_and(|w| w.starts_with(what))).count()
    };
    assert!(floors(0, "line") == 1 && floors(0, "tcp") == 0);
    assert!(
        floors(1, "line") == 0 && floors(1, "tcp-stream") == SIZES_QUICK.len() && floors(1, "tcp-sleep") == 1
    );
    assert_eq!(floors(2, ""), 0);
    let twins = |device: usize| {
        checked.cells[checked.devices[device].cells.clone()].iter().filter(|c| c.twin).count()
    };
    assert_eq!([twins(0), twins(1), twins(2)], [1, 1, 0]);
    let sampling = checked.sampling(0, checked.real_cells(), crate::sample::Calibration::default());
    let all = sampling.time_max_ns * f64::from(checked.launches()) * checked.real_cells() as f64;
    assert!((all / 22e9 - 1.0).abs() < 1e-9, "{all}");
    let wrong = of("shm,iwarp,shm,ibarp").expect_err("refused");
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(wrong[0].contains("'shm' was given twice") && wrong[1].contains("ibarp"), "{wrong:?}");
    let only_models = Plan { peer: Some("h".into()), device: "model:mt23108-vapi".into(), ..plan() };
    assert!(refusals(&only_models)[0].contains("leave --peer away"));
}

/// Goal: a stream that is watched has all the time, and what has no rate is refused. Method: one stream of ten seconds; a latency, an
/// overview, a modelled card.
#[test]
fn watched_stream_takes_its_whole_time() {
    let of = |experiment: &str, device: &str| Plan {
        experiments: vec![experiment.into()],
        device: device.into(),
        sizes: Some(vec![1 << 20]),
        set: [("interval", "1"), ("budget", "10"), ("launches", "1")]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
        only: [
            ("op".to_owned(), "write".to_owned()),
            ("source".into(), "nic".into()),
            ("sink".into(), "nic".into()),
        ]
        .into_iter()
        .collect(),
        ..plan()
    };
    let checked = of("bandwidth", "").check().expect("sound");
    assert_eq!(checked.cells.len(), 1, "no floors, no twin, the usual window: {:?}", checked.cells);
    let sampling = checked.sampling(0, 1, crate::sample::Calibration::default());
    assert_eq!((sampling.time_min_ns, sampling.time_max_ns), (1e10, 1e10));
    assert_eq!((checked.interval_ms(), sampling.round_time_ns), (1000, Some(1e8)));
    let why = refusals(&of("latency", ""));
    assert!(why.iter().any(|line| line.contains("and latency has none; name bandwidth")), "{why:?}");
    let why = refusals(&of("bandwidth", "model:mt23108-vapi"));
    assert!(why.iter().any(|line| line.contains("time on model:mt23108-vapi is simulated")), "{why:?}");
}
