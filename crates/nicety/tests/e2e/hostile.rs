//! Hostile input: endless or very large files, and text that would act on a terminal.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use results::plain;
use results::schema::{
    AaNoise, Bin, ClockInfo, ClockKind, DeviceInfo, Environment, Floor, Histogram, Launch, Measurement,
    Missing, NoiseSummary, Origin, Outliers, Parameter, PeerInfo, Quantile, RailRates, RateInterval, Run,
    Stop, WarmUp, Warning,
};
use serde_json::Value;

use crate::common::{Ended, command, made_up_run, save};

/// Address space of a command that reads a hostile file, in KiB: more than it needs, much less than the file.
const MEMORY_MAX_KIB: u32 = 2 << 20;

/// Runs the command in a directory with limited memory and with `input` as its standard input.
fn confined(dir: &Path, args: &[&str], input: Stdio) -> Ended {
    let nicety = command();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_MAX_KIB} && exec timeout 100 \"$@\""), "sh"]);
    command.arg(nicety.get_program()).args(nicety.get_args()).args(args);
    for (name, value) in nicety.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env("XDG_DATA_HOME", dir.join("data"))
        .current_dir(dir)
        .stdin(input)
        .output()
        .expect("the command runs")
        .into()
}

/// Command lines that read `NAME`, one for each kind of file.
const READERS: &[&[&str]] = &[
    &["report", "NAME", "-o", "page.html"],
    &["report", "--text", "NAME"],
    &["compare", "NAME", "good.json"],
    &["compare", "good.json", "NAME"],
    &["compare", "--baseline", "kept", "good.json"],
    &["reproduce", "NM-054", "--real", "NAME"],
    &["bench", "--plan", "NAME"],
    &["bench", "latency", "--config", "NAME"],
    &["bench", "latency", "--token-file", "NAME"],
    &["bench", "latency", "--device", "model:NAME"],
    &["mpirun", "--hostfile", "NAME", "true"],
];

/// A directory that contains a valid run, and the hostile file under `name`, as [`READERS`] use it.
fn stage(name: &str, target: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    save(dir.path(), "good.json", &made_up_run(1.0, 9000.0));
    symlink(target, dir.path().join(name)).expect("a link");
    let kept = dir.path().join("data/nicety/baselines");
    fs::create_dir_all(&kept).expect("a directory");
    symlink(target, kept.join("kept.json")).expect("a link");
    dir
}

/// Goal: no file that a command reads can exhaust the memory. Method: each kind of file is first an endless device, then a
/// sparse file of one terabyte.
#[test]
fn endless_and_huge_files_are_refused_by_every_command() {
    let holes = tempfile::tempdir().expect("a directory");
    let hole = holes.path().join("hole");
    File::create(&hole).expect("a file").set_len(1 << 40).expect("a sparse file");
    fs::set_permissions(&hole, PermissionsExt::from_mode(0o600)).expect("a mode");
    for target in [Path::new("/dev/zero"), &hole] {
        let dir = stage("hostile.toml", target);
        for args in READERS {
            let named: Vec<String> = args.iter().map(|word| word.replace("NAME", "hostile.toml")).collect();
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let ended = confined(dir.path(), &named, Stdio::null());
            assert_eq!(ended.status, Some(2), "{args:?} {target:?}: {ended:?}");
            let is_refused = ["exceeds", "this is no file", "no baseline", "which has to have"];
            assert!(is_refused.iter().any(|why| ended.err.contains(why)), "{args:?} {target:?}: {ended:?}");
            assert!(ended.err.contains("; ") && ended.err.len() < 2000, "{args:?}: {ended:?}");
        }
    }
}

/// The same for a pipe with an endless writer.
#[test]
fn endless_pipes_are_refused() {
    let dir = stage("unused", Path::new("/dev/null"));
    for args in READERS.iter().filter(|args| !args.contains(&"--baseline") && !args.contains(&"model:NAME")) {
        let mut writer = std::process::Command::new("cat")
            .arg("/dev/zero")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a writer");
        let named: Vec<String> = args.iter().map(|word| word.replace("NAME", "/dev/stdin")).collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let pipe = writer.stdout.take().expect("its output");
        let ended = confined(dir.path(), &named, pipe.into());
        writer.wait().expect("it ends with its reader");
        assert_eq!(ended.status, Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains("exceeds") || ended.err.contains("no file"), "{args:?}: {ended:?}");
    }
}

/// Reading a host file takes linear time: in quadratic time the command would be stopped before its end.
#[test]
fn host_file_at_its_limit_is_read_in_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let hosts: String = (0..(4 << 20) / 9).map(|host| format!("h{host:07}\n")).collect();
    fs::write(dir.path().join("hosts"), hosts).expect("a file");
    let ended = confined(dir.path(), &["mpirun", "--hostfile", "hosts", "--dry-run", "true"], Stdio::null());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.out.contains("h0000000 is reached by"), "{ended:?}");
}

/// Text that acts on a terminal: it clears the screen, sets the title, hides text, moves the cursor back, changes the writing
/// direction, and contains C1 controls.
const EVIL: &str =
    "\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}[8m\r\u{8}\u{9b}1A\u{85}\u{202e}\u{2066}\u{200b}\u{7f}\nworse";

/// A run in which every text is set. It names each field, so that a new field cannot be forgotten here.
fn full_run() -> Run {
    let text = || "text".to_owned();
    let noise = Some(NoiseSummary {
        quanta: 1,
        quantum_ns: 1.0,
        stolen: 0.1,
        detours: 1,
        detour_max_ns: 1.0,
        p99_ratio: None,
    });
    let aa_noise = Some(AaNoise { floor: 0.2, ratio: 1.0, launches: 6 });
    let result = |experiment: &str, unit: &str, size_bytes: u64, median: f64| Measurement {
        experiment: experiment.to_owned(),
        device: text(),
        variant: [("op", "write"), ("text", "text")].into_iter().collect(),
        size_bytes,
        metric: text(),
        unit: unit.to_owned(),
        clock: ClockKind::Tsc,
        n: 600,
        median,
        ci95: Some([0.9 * median, 1.1 * median]),
        ci95_reason: Some(text()),
        floor: Some(Floor { value: median, unit: unit.to_owned(), what: text(), ratio: 2.0 }),
        mean: Some(median),
        min: Some(median),
        max: Some(median),
        quantiles: vec![Quantile { p: 0.99, value: None, ci95: None, refused: Some(text()), needs: Some(9) }],
        first: Some(median),
        batch: 2,
        histogram: Some(Histogram { relative_error: 0.01, bins: vec![Bin(1.0, 2.0, 600)] }),
        between_launch: Some(0.1),
        within_launch: Some(0.1),
        launches: (0..6)
            .map(|i| Launch {
                n: 100,
                median: median * (1.0 + 0.01 * f64::from(i)),
                ci95: None,
                ci95_reason: Some(text()),
                warm_up: WarmUp { cut: 1, steady: Some(false) },
                lag1: Some(0.1),
                n_eff: Some(90.0),
                outliers: Outliers { mild: 1, severe: 1, positions: vec![1] },
                stop: Stop { state: text(), half_width: Some(0.1), target: 0.05, because: Some(text()) },
                batch: 2,
                first: Some(median),
                flags: vec![text(), "trend".to_owned()],
                samples: vec![median],
                intervals: vec![RateInterval {
                    to_s: 1.0,
                    bytes: 8,
                    messages: 1,
                    mb_per_s: 8e-6,
                    ..RateInterval::default()
                }],
            })
            .collect(),
        note: Some(text()),
    };
    let environment = Environment {
        nicety_version: text(),
        commit: Some(text()),
        date: text(),
        host: text(),
        kernel: text(),
        cpu: text(),
        cores: 2,
        memory_bytes: 1 << 30,
        governor: Some(text()),
        tsc_invariant: Some(true),
        clock: ClockInfo { kind: ClockKind::Tsc, overhead_ns: 1.0, resolution_ns: 1.0 },
        pinned_cores: vec![0],
        noise_before: noise,
        noise_after: noise,
        aa_noise,
        devices: vec![DeviceInfo {
            name: text(),
            clock: ClockKind::Tsc,
            aa_noise,
            notes: vec![text()],
            rails: vec![text(), text()],
            rail_rates: Some(RailRates { link: 1.0, card: 1.0 }),
        }],
        peers: vec![PeerInfo {
            address: text(),
            host: text(),
            kernel: text(),
            cpu: text(),
            cores: 1,
            nicety_version: text(),
            pinned_core: None,
        }],
        warnings: vec![Warning { what: text(), advice: text() }],
    };
    let missing = Missing {
        experiment: text(),
        device: text(),
        variant: [("op", "write"), ("text", "text")].into_iter().collect(),
        size_bytes: 8,
        metric: text(),
        why: text(),
    };
    Run {
        schema: "nicety-results/1".to_owned(),
        environment,
        parameters: vec![Parameter { key: text(), value: text(), unit: Some(text()), origin: Origin::Flag }],
        results: vec![
            result("latency", "us", 8, 1.0),
            result("latency", "us", 64, 1.5),
            result("bandwidth", "MB/s", 65536, 900.0),
            result("text", "text", 4, 3.0),
            result("floor", "us", 0, 0.5),
        ],
        missing: vec![missing],
    }
}

/// The JSON with [`EVIL`] appended to every string, and with a factor whose name contains it.
fn with_evil(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => text.push_str(EVIL),
        Value::Array(list) => list.iter_mut().for_each(|item| *item = with_evil(item.take())),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                // Keywords: with another value the file would not be a result file.
                if !["schema", "clock", "kind", "origin"].contains(&key.as_str()) || field.is_object() {
                    *field = with_evil(field.take());
                }
            }
            if let Some(level) = fields.get("variant").and_then(|variant| variant.get("text")).cloned() {
                fields["variant"][format!("{EVIL}key")] = level;
            }
        }
        _ => {}
    }
    value
}

/// Characters that act on a terminal, except line feeds.
fn acting(text: &str) -> Vec<char> {
    text.chars().filter(|letter| plain::is_terminal_control(*letter) && *letter != '\n').collect()
}

/// Writes a run with [`EVIL`] appended to every text, and with medians multiplied by `scale`.
fn save_evil(dir: &Path, name: &str, scale: f64) {
    let mut run = full_run();
    run.results.iter_mut().for_each(|result| {
        result.launches.iter_mut().for_each(|launch| launch.median *= scale);
    });
    let json = serde_json::to_value(run).expect("JSON");
    fs::write(dir.join(name), with_evil(json).to_string()).expect("a file");
}

/// Goal: only our own colours reach a terminal. Method: commands on a pseudo-terminal of script(1).
#[test]
fn only_own_styles_reach_a_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    save_evil(dir.path(), "a.json", 1.0);
    save_evil(dir.path(), "b.json", 2.0);
    for args in
        ["compare a.json b.json", "report --text a.json", "report --text --full a.json", "report -o - a.json"]
    {
        let line = format!("env NO_COLOR= TERM=xterm {} {args}", env!("CARGO_BIN_EXE_nicety"));
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(dir.path()).stdin(Stdio::null());
        let Ok(output) = script.output() else {
            eprintln!("SKIPPED: there is no script(1) here");
            return;
        };
        let text = String::from_utf8(output.stdout).expect("text").replace("\r\n", "\n");
        let mut rest = String::new();
        for (i, part) in text.split('\u{1b}').enumerate() {
            let style = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
            let is_ours = |codes: &str| {
                codes.split(';').all(|code| ["0", "1", "2"].contains(&code) || code.starts_with('3'))
            };
            match style.filter(|(codes, _)| is_ours(codes)) {
                Some((_, after)) if i > 0 => rest.push_str(after),
                _ if i > 0 => panic!("{args}: {part:?}"),
                _ => rest.push_str(part),
            }
        }
        assert_eq!(acting(&rest), [], "{args}: {rest:?}");
        assert!(!rest.is_empty() && (args.contains("-o") || text.contains("\u{1b}[1m")), "{args}: {text:?}");
    }
}

/// Goal: no command prints text of a result file unescaped. Method: files in which every text contains control characters of
/// all kinds; checks the output of every form of every command. A line that begins with the word after [`EVIL`]'s line feed
/// would be forged by the file.
#[test]
fn no_text_of_result_files_acts_on_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    save_evil(dir.path(), "a.json", 1.0);
    save_evil(dir.path(), "b.json", 2.0);
    let whole = fs::read_to_string(dir.path().join("a.json")).expect("a file");
    let other = whole.replace("nicety-results/1", "nicety-\\u001b[2Jresults/7");
    fs::write(dir.path().join("kind.json"), other).expect("a file");
    let other = whole.replacen("\"tsc\"", "\"\\u001b[2J\u{202e}tsc\"", 1);
    fs::write(dir.path().join("word.json"), other).expect("a file");
    let cut: String = whole.chars().take(700).collect();
    fs::write(dir.path().join("cut.json"), cut).expect("a file");
    let real = format!("# {}\nlibrary,cell,turn,ns\nring,latency:4,0,100\n", EVIL.replace('\n', " "));
    fs::write(dir.path().join("real.csv"), real).expect("a file");
    fs::write(dir.path().join("csv"), format!("experiment,{EVIL}\n1,{EVIL}\n")).expect("a file");
    fs::write(dir.path().join("plan.toml"), "[part.\"\\u001b[2J\"]\nexperiments=\"\\u001b[2J\u{202e}\"\n")
        .expect("a file");
    fs::write(dir.path().join("config.toml"), "\"\\u001b[2J\u{202e}\" = 1\n").expect("a file");
    fs::write(dir.path().join("hosts"), format!("a{EVIL}b\n")).expect("a file");
    fs::write(dir.path().join("rsh"), format!("#!/bin/sh\necho '{EVIL}' >&2\nexit 1\n")).expect("a file");
    fs::set_permissions(dir.path().join("rsh"), PermissionsExt::from_mode(0o755)).expect("a mode");
    let commands: &[&[&str]] = &[
        &["report", "--text", "a.json", "b.json"],
        &["report", "--text", "--full", "a.json"],
        &["report", "--text", "--line", "a.json"],
        &["report", "--text", "--quiet", "a.json"],
        &["report", "--text", "--tail", "a.json"],
        &["report", "-o", "-", "a.json"],
        &["report", "-o", "-", "a.json", "b.json"],
        &["report", "-o", "page.html", "a.json"],
        &["report", "--text", "kind.json"],
        &["report", "--text", "word.json"],
        &["report", "--text", "cut.json"],
        &["compare", "a.json", "b.json"],
        &["compare", "a.json", "a.json", "--json", "-"],
        &["compare", "a.json", "b.json", "--junit", "-"],
        &["compare", "a.json", "kind.json"],
        &["compare", "--save-baseline", "kept", "a.json"],
        &["compare", "--baseline", "kept", "b.json"],
        &["compare", "--baseline", EVIL, "b.json"],
        &["reproduce", "NM-054", "--real", "csv"],
        &["reproduce", "NM-054", "--real", "real.csv", "--html", "-"],
        &["bench", "--plan", "plan.toml"],
        &["bench", "latency", "--config", "config.toml"],
        &["bench", EVIL],
        &["bench", "latency", "--device", EVIL],
        &["bench", "latency", "--peer", EVIL],
        &["bench", "latency", "--set", EVIL],
        &["explain", EVIL],
        &["mpirun", "--hostfile", "hosts", "true"],
        &["mpirun", "--host", EVIL, "true"],
        &["mpirun", "--host", "a", "--rsh", "./rsh", "true"],
        &["mpirun", EVIL],
        &["mpirun", "--dry-run", "-x", "A=\u{1b}[2J\u{202e}", "true"],
        &["run", "--dat", "--library", EVIL, "true"],
        &["run", EVIL],
        &["serve", "--device", EVIL],
        &[EVIL],
    ];
    for args in commands {
        let ended = confined(dir.path(), args, Stdio::null());
        assert!(ended.status.is_some() && !(ended.out.is_empty() && ended.err.is_empty()), "{args:?}");
        for text in [&ended.out, &ended.err] {
            assert_eq!(acting(text), [], "{args:?}: {text:?}");
            assert!(!text.lines().any(|line| line.starts_with("worse")), "{args:?}: {text:?}");
        }
    }
    let page = fs::read_to_string(dir.path().join("page.html")).expect("a page");
    assert_eq!(acting(&page), []);
}
