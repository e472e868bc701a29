//! Tests of machine files: the built-in ones, and every kind of error.

use super::*;

fn text() -> String {
    BUILT_IN[0].1.to_owned()
}

/// The error of the first built-in file with one piece of text replaced, which must be there.
fn error_of(from: &str, to: &str) -> String {
    let text = text();
    assert!(text.contains(from), "{from}");
    Machine::parse("m.toml", &text.replacen(from, to, 1)).expect_err(to).to_string()
}

fn line_of(what: &str) -> usize {
    1 + text().lines().position(|line| line.starts_with(what)).expect(what)
}

#[test]
fn built_in_machines_are_complete() {
    let machines = machines();
    assert_eq!(machines.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), BUILT_IN.map(|(name, _)| name));
    for machine in machines {
        assert_eq!(Machine::load(&machine.name), Ok(machine.clone()));
        let parameters = machine.parameters();
        let own = KEYS.iter().filter(|key| machine.family.has(key.section)).count();
        assert_eq!(parameters.len(), own);
        for p in &parameters {
            let optional = p.key.default.is_some();
            assert!(optional || p.source != Source::Default, "{} of {}", p.key.path(), machine.name);
        }
        let fitted = parameters.iter().filter(|p| p.source.class() == "fitted").count();
        assert!(fitted <= 12, "{fitted} fitted values in {}", machine.name);
    }
}

/// Goal: a value that is carried from another machine is equal to that machine's, which has a source for it.
#[test]
fn carried_values_equal_those_of_their_machine() {
    let all = machines();
    let mut carried = 0;
    for machine in &all {
        for p in machine.parameters() {
            let Source::Carried { from } = &p.source else { continue };
            let from = all.iter().find(|other| other.name == *from).expect("a built-in machine");
            let theirs =
                from.parameters().into_iter().find(|q| q.key == p.key).expect("every machine has it");
            assert_eq!(theirs.value, p.value, "{} of {}", p.key.path(), machine.name);
            assert!(!matches!(theirs.source, Source::Carried { .. } | Source::Default), "{}", p.key.path());
            carried += 1;
        }
    }
    assert!(carried > 20, "{carried}");
}

/// Goal: files and options do not accept sections of the other family of cards.
#[test]
fn sections_of_the_other_family_are_refused() {
    let mut seastar = Machine::load("seastar").expect("a built-in machine");
    assert_eq!((seastar.family, seastar.rails()), (Family::Mesh, 1));
    assert!(seastar.set("bus.clock_mhz", "266").is_err() && seastar.set("kernel.trap_ns", "75").is_ok());
    let mut other = Machine::load("mt23108-nicmem").expect("a built-in machine");
    assert!(other.set("kernel.trap_ns", "75").is_err() && other.set("software.call_ns", "5").is_ok());
    let mixed = text() + "\n[kernel]\ntrap_ns = { value = 65, source = \"datasheet\", doc = \"x\" }\n";
    let message = Machine::parse("m.toml", &mixed).expect_err("a section of the other family").to_string();
    assert!(message.contains("[kernel]"), "{message}");
}

#[test]
fn an_assumed_value_may_have_a_range() {
    let burst = "burst_bytes = { value = 512, source = \"assumed\"";
    let parse = |to: &str| Machine::parse("m.toml", &text().replacen(burst, to, 1));
    let machine = parse(&format!("{burst}, range = [256, 1024]")).expect("a range");
    let found = machine.parameters().into_iter().find(|p| p.key.path() == "bus.burst_bytes").expect("a key");
    assert!(matches!(found.source, Source::Assumed { range: Some([256.0, 1024.0]), .. }), "{found:?}");
    for (range, hint) in
        [("[1024, 256]", "the smaller one first"), ("[256]", "two values"), ("[1, 2]", "expected")]
    {
        let message = parse(&format!("{burst}, range = {range}")).expect_err(range).to_string();
        assert!(message.contains(hint), "{message}");
    }
    let message = error_of("value = 133, source", "value = 133, range = [1, 2], source");
    assert!(message.contains("range"), "{message}");
}

#[test]
fn values_are_those_of_the_file() {
    let machine = Machine::load("mt23108-nicmem").expect("a built-in machine");
    assert_eq!(machine.params.bus.clock_mhz, 133.0);
    let clock = machine.parameters().into_iter().find(|p| p.key.path() == "bus.clock_mhz").expect("a key");
    assert_eq!((clock.value, clock.key.unit()), (Value::Number(133.0), "MHz"));
    assert_eq!(clock.source, Source::Published { rows: vec!["NM-003".into()] });
}

#[test]
fn keys_have_their_unit_and_a_range() {
    for key in KEYS {
        let suffix = match key.domain {
            Domain::Number { min, max, .. } => {
                assert!(min < max, "{}", key.path());
                "_"
            }
            Domain::Flag => "_flag",
            Domain::Choice(_) => "_kind",
        };
        assert!(key.name.contains(suffix), "{} does not say what it is", key.path());
        assert!(key.default.is_none_or(|d| key.allows(d)), "{}", key.path());
    }
}

#[test]
fn missing_key_error_has_its_meaning() {
    let message = error_of("clock_mhz", "# clock_mhz");
    assert!(message.starts_with(&format!("m.toml:{}: ", line_of("[bus]"))), "{message}");
    assert!(
        message.contains("'bus.clock_mhz' is missing") && message.contains("1 to 10000 MHz"),
        "{message}"
    );
    let message = error_of("[bus]", "[host.bus]");
    assert!(message.contains("'host.bus'"), "{message}");
}

#[test]
fn unknown_key_error_suggests_a_similar_key() {
    for (from, to, hint) in [
        ("clock_mhz =", "clok_mhz =", "did you mean 'bus.clock_mhz'?"),
        ("[bus]", "[buss]", "did you mean '[bus]'?"),
        ("[bus]", "[engine]", "the sections are: host, software, doorbell"),
        ("clock_mhz =", "colour =", "bus has: width_bytes"),
    ] {
        let message = error_of(from, to);
        assert!(message.contains(hint), "{message}");
    }
    let message = error_of("clock_mhz =", "clok_mhz =");
    assert!(message.starts_with(&format!("m.toml:{}: ", line_of("clock_mhz"))), "{message}");
}

#[test]
fn wrong_unit_error_names_the_right_unit() {
    for (from, to, hint) in [
        ("clock_mhz =", "clock_ghz =", "'bus.clock_ghz' has the wrong unit: write clock_mhz, in MHz"),
        ("clock_mhz =", "clock =", "write clock_mhz"),
        ("post_send_ns =", "post_send_us =", "write post_send_ns, in ns"),
        ("rate_mbps =", "rate_gbps =", "MB/s (10^6 bytes)"),
    ] {
        let message = error_of(from, to);
        assert!(message.contains(hint), "{message}");
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for value in ["-133", "0", "1e9", "nan", "inf", "\"133\"", "true", "0x85"] {
        let message = error_of("value = 133", &format!("value = {value}"));
        assert!(
            message.contains("'bus.clock_mhz' is") && message.contains("1 to 10000 MHz"),
            "{value}: {message}"
        );
        assert!(message.starts_with(&format!("m.toml:{}: ", line_of("clock_mhz"))), "{message}");
    }
    let message = error_of("burst_bytes = { value = 512", "burst_bytes = { value = 512.5");
    assert!(message.contains("a whole number"), "{message}");
}

#[test]
fn flags_are_true_or_false_and_choices_are_names() {
    for (from, to, hint) in [
        (
            "limit_flag = { value = true",
            "limit_flag = { value = 1",
            "'descriptor.limit_flag' is 1: expected true or false",
        ),
        ("value = 133", "value = true", "1 to 10000 MHz"),
        (
            "write_imm_kind = { value = \"single\"",
            "write_imm_kind = { value = \"double\"",
            "expected single or split",
        ),
        (
            "processors_kind = { value = \"separate\"",
            "processors_kind = { value = 2",
            "expected separate or shared",
        ),
    ] {
        let message = error_of(from, to);
        assert!(message.contains(hint), "{message}");
    }
    let mut machine = Machine::load("mt23108-nicmem").expect("a built-in machine");
    for (value, flag) in [("true", true), ("0", false), ("1", true), ("false", false)] {
        machine.set("transport.whole_flag", value).expect("a flag");
        assert_eq!(machine.params.transport.whole_flag, flag);
    }
    machine.set("api.write_imm_kind", "split").expect("a name");
    assert_eq!(machine.params.api.write_imm_kind, WriteImmKind::Split);
    for (key, value) in
        [("transport.whole_flag", "2"), ("api.write_imm_kind", "2"), ("bus.clock_mhz", "true")]
    {
        let kind = machine.set(key, value).expect_err("no such value").kind;
        assert!(matches!(kind, MachineErrorKind::Value { .. }), "{kind:?}");
    }
}

#[test]
fn value_without_valid_source_is_refused() {
    let clock = "value = 133, source = \"published\", rows = [\"NM-003\"]";
    for (to, hint) in [
        ("value = 133", "has no source"),
        ("source = \"published\", rows = [\"NM-003\"]", "has no value"),
        ("value = 133, source = \"guessed\", rows = [\"NM-003\"]", "expected one of"),
        ("value = 133, source = 3, rows = [\"NM-003\"]", "string in quotes"),
        ("value = 133, source = \"published\"", "has no rows"),
        ("value = 133, source = \"published\", rows = []", "such as [\"NM-003\"]"),
        ("value = 133, source = \"published\", rows = [\"table 1\"]", "such as [\"NM-003\"]"),
        ("value = 133, source = \"fitted\", rows = 3", "such as [\"NM-003\"]"),
        ("value = 133, source = \"fitted\", why = \"x\"", "unknown field 'why'"),
        ("value = 133, source = \"derived\", hwo = \"x\"", "did you mean 'how'?"),
        ("value = 133, source = \"assumed\", why = \" \"", "non-empty"),
        ("value = 133, source = \"datasheet\"", "has no doc"),
    ] {
        let message = error_of(clock, to);
        assert!(message.contains(hint) && message.contains("bus.clock_mhz"), "{to}: {message}");
    }
    assert!(error_of(&format!("{{ {clock} }}"), "133").contains("must be a table"));
}

#[test]
fn invalid_toml_error_names_its_line() {
    let message = error_of("[bus]", "[bus");
    assert!(message.starts_with(&format!("m.toml:{}: this is not TOML", line_of("[bus]"))), "{message}");
    assert!(error_of("name =", "# name =").contains("'name' is missing"));
    assert!(error_of("name = \"mt23108-nicmem\"", "name = 3").contains("string in quotes"));
    let twice = Machine::parse("m.toml", &format!("{}\n[bus]\n", text())).expect_err("twice").to_string();
    assert!(twice.contains("not TOML"), "{twice}");
    let flat =
        Machine::parse("m.toml", "name = \"a\"\nabout = \"b\"\nbus = 3\n").expect_err("flat").to_string();
    assert!(flat.starts_with("m.toml:3: 'bus' must be a section"), "{flat}");
}

#[test]
fn options_change_values_or_are_refused() {
    let mut machine = Machine::load("mt23108-nicmem").expect("a built-in machine");
    machine.set("bus.clock_mhz", "266").expect("a clock");
    assert_eq!(machine.params.bus.clock_mhz, 266.0);
    let clock = machine.parameters().into_iter().find(|p| p.key.path() == "bus.clock_mhz").expect("a key");
    assert_eq!(clock.source, Source::Given);
    for (key, value, hint) in [
        ("bus.clock_ghz", "1", "wrong unit"),
        ("clock_mhz", "1", "write it as bus.clock_mhz"),
        ("buss.clock_mhz", "1", "[bus]"),
        ("bus.clock_mhz", "fast", "1 to 10000 MHz"),
        ("bus.clock_mhz", "-1", "1 to 10000 MHz"),
        ("link.mtu_bytes", "2048.5", "whole number"),
    ] {
        let message = machine.set(key, value).expect_err(key).to_string();
        assert!(
            message.starts_with(&format!("option {key}={value}: ")) && message.contains(hint),
            "{message}"
        );
    }
}

#[test]
fn machine_loads_from_file() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("machines/mt23108-vapi.toml");
    let machine = Machine::load(path.to_str().expect("a path in UTF-8")).expect("the file");
    assert_eq!(machine, Machine::load("mt23108-vapi").expect("a built-in machine"));
    let message = Machine::load("mt23108-vapj").expect_err("no such machine").to_string();
    assert!(message.contains("did you mean 'mt23108-vapi'?"), "{message}");
    let message = Machine::load("nowhere.toml").expect_err("no such file").to_string();
    assert!(message.starts_with("nowhere.toml: this file cannot be read"), "{message}");
}
