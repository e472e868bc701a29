//! Plan files: what they expand to, and that every mistake is reported with its line.

use super::*;
use results::variant::factor;

fn mistakes(text: &str) -> Vec<(usize, String)> {
    read(text).expect_err("refused").into_iter().map(|m| (m.line, m.what)).collect()
}

const SOUND: &str = r#"
[defaults]
devices = ["shm", "model:mt23108-vapi"]
sizes = "8..64"
set = { budget = 5 }

[part.streams]
experiments = ["bandwidth"]
sizes = ["4K", 65536]
set = { window = [8, 64], "half-width" = 2.5 }

[part.crowd]
experiments = "hotspot"
devices = "model:mt23108-vapi"
set = { slaves = [1, 8], budget = 7, "bus.clock_mhz" = 66 }
"#;

/// Goal: a part is a matrix. Method: one of two windows, one with levels of a factor, both with defaults.
#[test]
fn parts_are_combinations_of_settings_in_the_order_of_the_file() {
    let parts = read(SOUND).unwrap_or_else(|m| panic!("{m:#?}"));
    let names: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["streams-window-8", "streams-window-64", "crowd"]);
    let plan = &parts[0].plan;
    assert_eq!(plan.devices.len(), 2);
    assert_eq!((plan.values.whole("window"), plan.values.real("budget")), (8, 5.0));
    assert_eq!(plan.values.real("half-width"), 2.5);
    assert!(
        plan.cells.iter().filter(|c| c.experiment == "bandwidth").all(|c| [4096, 65536].contains(&c.size))
    );
    assert!(plan.parameters.iter().any(|p| p.key == "part" && p.value == "streams-window-8"));
    let crowd = &parts[2].plan;
    assert_eq!((crowd.devices.len(), crowd.values.real("budget")), (1, 7.0));
    assert_eq!(crowd.devices[0].name, "model:mt23108-vapi(bus.clock_mhz=66)");
    let slaves: std::collections::BTreeSet<&str> =
        crowd.cells.iter().filter_map(|c| c.variant.get(factor::SLAVES)).collect();
    assert_eq!(slaves, ["1", "8"].into());
    let sizes: std::collections::BTreeSet<u64> = crowd.cells.iter().map(|c| c.size).collect();
    assert_eq!(sizes, [8, 16, 32, 64].into());
}

const WRONG: &str = r#"[defaults]
device = "shm"

[part.a]
experiments = ["latency",
  "latncy", "mtu"]
devices = ["shm",
  "iwrap"]
sizes = [8, "8X",
  0]
quick = "yes"
set = { windw = 8,
  window = 1, slaves = 3 }

[part.b]
experiments = ["mtu"]
devices = ["shm", "iwarp"]
launches = 0
set = { cores = "0,9999" }

[part."c d"]
experiments = ["hotspot", "connections"]
peers = ["h", "h"]
set = { slaves = 9,
        qps = 16384 }

[prat.d]
"#;

#[test]
fn everything_wrong_is_said_at_once_with_its_line() {
    let all = mistakes(WRONG);
    let expected = [
        (2, "there is no key 'device', did you mean 'devices'?"),
        (6, "there is no experiment 'latncy', did you mean 'latency'?"),
        (8, "there is no device 'iwrap'"),
        (9, "'8X' is no size"),
        (10, "a message cannot have 0 bytes"),
        (11, "quick cannot be a text; it takes true or false"),
        (12, "there is no parameter 'windw', did you mean 'window'?"),
        (13, "window cannot be '1'; it takes 2 to 4096"),
        (13, "there is no parameter 'slaves'"),
        (16, "shm: "),
        (18, "launches cannot be '0'"),
        (19, "cores cannot be '0,9999'"),
        (21, "a part cannot be called 'c d'"),
        (23, "peer 'h' was given twice"),
        (24, "hotspot with slaves 9 needs 9 peers with --peer, and there are 2"),
        (25, "16384 queue pairs"),
        (27, "there is no table 'prat', did you mean 'part'?"),
    ];
    for (line, text) in expected {
        assert!(all.iter().any(|(at, what)| *at == line && what.contains(text)), "{line} {text}: {all:#?}");
    }
    assert_eq!(all.len(), expected.len(), "{all:#?}");
    assert!(all.iter().all(|(_, what)| !what.contains('\n')) && all.is_sorted_by_key(|(line, _)| *line));
}

#[test]
fn what_is_no_toml_is_said_with_its_line_too() {
    let all = mistakes("[part.a]\nquick = = true\n[part.a]\n[part.b]\nsize = 8\nseed = 08\n");
    let lines: Vec<usize> = all.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 5, 6], "{all:#?}");
    assert!([0, 1, 3].iter().all(|i| all[*i].1.contains("no TOML")), "{all:#?}");
    assert!(all[2].1.contains("did you mean 'sizes'?"), "{all:#?}");
    let all = mistakes("[part.a]\nseeed = 1\nexperiments = [\"latency\"\nquick = true\n[part.b]\nsize = 8\n");
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[0].0 == 2 && all[1].1.contains("a bracket that is not closed"), "{all:#?}");
    assert!(mistakes("")[0].1.contains("there is no part"));
    assert!(mistakes("part = 3")[0].1.contains("part is a whole number"));
    let many: Vec<String> = (2..300).map(|n| n.to_string()).collect();
    let many = format!("[part.a]\nset = {{ window = [{}] }}", many.join(","));
    assert!(mistakes(&many)[0].1.contains("298 combinations"));
}

/// Whatever the bytes are, reading ends with parts or with mistakes.
#[test]
fn any_text_is_read_to_its_end() {
    for cut in 0..WRONG.len() {
        if let Some(text) = WRONG.get(..cut) {
            let _ = text::drafts(text);
        }
        if let Some(text) = WRONG.get(cut..) {
            let _ = text::drafts(text);
        }
    }
}

/// `count` different words between commas, in quotes.
fn words(count: usize) -> String {
    (0..count).map(|i| format!("\"x{i}\"")).collect::<Vec<_>>().join(",")
}

/// Goal: a text of the largest size is read in time linear in its length, and gives few messages. Method: every list
/// and table far beyond its limit; each took minutes when it was searched anew for every entry.
#[test]
fn plan_files_beyond_limits_end_with_few_mistakes() {
    let many = TEXT_MAX as usize / 12;
    let numbers = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let keys: String = (0..many).map(|i| format!("k{i}=1\n")).collect();
    let set: Vec<String> = (0..many).map(|i| format!("k{i}=1")).collect();
    let texts = [
        ("keys, 1024 at most", keys),
        ("keys, 1024 at most", format!("[part.a]\nset={{{}}}", set.join(","))),
        ("keys, 1024 at most", (0..many / 2).map(|i| format!("[part.a{i}]\n")).collect()),
        ("entries, 1024 at most", format!("[part.a]\nexperiments=[{}]", words(many))),
        ("entries, 1024 at most", format!("[part.a]\ndevices=[{}]", words(many))),
        ("entries, 1024 at most", format!("[part.a]\nexperiments=\"latency\"\npeers=[{}]", words(many))),
        ("entries, 1024 at most", format!("[part.a]\nsizes=[{}]", numbers(many))),
        ("entries, 1024 at most", format!("[part.a]\nset={{window=[{}]}}", numbers(many))),
        ("devices are too many, 64", format!("[part.a]\ndevices=[{}]", words(65))),
        ("sizes are too many, 4096", format!("[part.a]\nsizes=\"{}\"", numbers(4097))),
        (
            "cells are too many, 65536",
            format!("[part.a]\nexperiments=[\"hotspot\", \"connections\"]\nsizes=\"{}\"", numbers(4096))
                + "\nset={qps=\"1..128\",slaves=\"1..8\"}",
        ),
        ("no TOML", "= \n".repeat(many)),
        ("no TOML", "[".repeat(many)),
        ("no TOML", format!("{}b=1", "a.".repeat(many))),
        ("no part", "#".repeat(many)),
    ];
    for (said, text) in texts {
        assert!(text.len() as u64 <= TEXT_MAX);
        let all = mistakes(&text);
        assert!(all.len() <= MISTAKES_MAX, "{said}: {}", all.len());
        assert!(all.iter().any(|(_, what)| what.contains(said)), "{said}: {:?}", &all[0]);
    }
}

/// Goal: neither the parts nor the cells of all parts exceed their limits. Method: some few parts of many combinations each, with
/// few sizes and with many.
#[test]
fn parts_and_cells_of_plan_files_are_limited() {
    let windows: Vec<String> = (2..258).map(|window| window.to_string()).collect();
    let parts = |sizes: &str| -> String {
        let part = |i| {
            format!(
                "[part.a{i}]\nexperiments=\"latency\"\nsizes=\"{sizes}\"\nset={{window=[{}]}}\n",
                windows.join(",")
            )
        };
        (0..5).map(part).collect()
    };
    assert!(mistakes(&parts("8"))[0].1.contains("1280 parts"));
    let sizes: Vec<String> = (1..=300).map(|size| size.to_string()).collect();
    let all = mistakes(&parts(&sizes.join(",")));
    assert!(all[0].1.contains("1024 and 1048576 at most"), "{all:?}");
}
