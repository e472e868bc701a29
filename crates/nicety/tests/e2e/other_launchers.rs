//! Options of MPICH and Open MPI: every row of the table is run.

use std::fs;

use crate::common::{Ended, nicety};
use crate::habits::{self, Does, Key};
use crate::stage::{Stage, remarks, sorted};

/// Prints the number of a rank, and its number on its host.
const WHO: [&str; 3] = ["sh", "-c", "echo $PMI_RANK: $MPI_LOCALRANKID/$MPI_LOCALNRANKS"];
/// Prints variables that options set.
const SET: [&str; 3] = ["sh", "-c", "echo $A,$B,$NICETY_NETWORK"];
/// Prints on both streams.
const SPEAK: [&str; 3] = ["sh", "-c", "echo out; echo err >&2"];

/// What a job with an option prints.
#[derive(Clone)]
enum Prints {
    /// These lines on standard output, in any order, and nothing on standard error.
    Lines(&'static [&'static str]),
    /// Standard output begins with this.
    Out(&'static str),
    /// Standard error contains this.
    Err(&'static str),
}

use Prints::{Err, Lines, Out};

/// The option or key, the command line, and what the job prints. `RSH` is replaced by a program that acts as ssh.
type Case = (&'static str, Vec<&'static str>, Prints);

const TWO_HOSTS: [&str; 4] = ["--host", "a,b", "--rsh", "RSH"];
/// Two ranks on each of two hosts; one rank on each of two hosts; two ranks on one host.
const TWO_EACH: &[&str] = &["0: 0/2", "1: 1/2", "2: 0/2", "3: 1/2"];
const ONE_EACH: &[&str] = &["0: 0/1", "1: 0/1"];
const BOTH_ON_ONE: &[&str] = &["0: 0/2", "1: 1/2"];

fn line<const N: usize>(options: &[&'static str], program: [&'static str; N]) -> Vec<&'static str> {
    [options, &program].concat()
}

/// On the hosts `a` and `b`.
fn on_two(options: &[&'static str]) -> Vec<&'static str> {
    line(&[&TWO_HOSTS[..], options].concat(), WHO)
}

fn ranks_and_hosts() -> Vec<Case> {
    let list = |name| line(&[name, "a:2,b:2", "--rsh", "RSH", "-n", "4"], WHO);
    let file = |name| line(&[name, "hosts", "--rsh", "RSH", "-n", "3"], WHO);
    const THREE: &[&str] = &["0: 0/2", "1: 1/2", "2: 0/1"];
    vec![
        ("n", line(&["-np", "2"], WHO), Lines(BOTH_ON_ONE)),
        ("c", line(&["-c", "2"], WHO), Lines(BOTH_ON_ONE)),
        ("ppn", on_two(&["-ppn", "2", "-n", "4"]), Lines(TWO_EACH)),
        ("N", on_two(&["-N", "2"]), Lines(TWO_EACH)),
        ("pernode", on_two(&["-pernode"]), Lines(ONE_EACH)),
        ("npersocket", line(&["-npersocket", "1"], WHO), Out("0: 0/")),
        ("ppr", on_two(&["--ppr", "2:node"]), Lines(TWO_EACH)),
        ("configfile", vec!["-configfile", "programs"], Lines(&["one", "two"])),
        ("app", vec!["--app", "programs"], Lines(&["one", "two"])),
        ("host", list("-host"), Lines(TWO_EACH)),
        ("H", list("-H"), Lines(TWO_EACH)),
        ("hosts", list("-hosts"), Lines(TWO_EACH)),
        ("hostfile", file("-machinefile"), Lines(THREE)),
        ("f", file("-f"), Lines(THREE)),
        ("default-hostfile", file("--default-hostfile"), Lines(THREE)),
        ("launcher-exec", line(&["-hosts", "a", "-launcher-exec", "RSH"], WHO), Lines(&["0: 0/1"])),
    ]
}

fn placement() -> Vec<Case> {
    let report =
        |options: &[&'static str]| line(&[options, &["-n", "1", "--report-bindings"]].concat(), ["true"]);
    const BOUND: Prints = Err("is bound to processor");
    vec![
        ("map-by", on_two(&["--map-by", "ppr:2:node:PE=1"]), Lines(TWO_EACH)),
        ("bynode", line(&["--bynode", "--host", "a:2,b:2", "--rsh", "RSH", "-n", "2"], WHO), Lines(ONE_EACH)),
        (
            "byslot",
            line(&["--byslot", "--host", "a:2,b:2", "--rsh", "RSH", "-n", "2"], WHO),
            Lines(BOTH_ON_ONE),
        ),
        ("bycore", report(&["--bycore"]), BOUND),
        ("bysocket", report(&["--bysocket"]), BOUND),
        ("rr", line(&["-rr", "-hosts", "a:2,b:2", "--rsh", "RSH", "-n", "2"], WHO), Lines(ONE_EACH)),
        (
            "rank-by",
            line(&["--rank-by", "node", "--host", "a:2,b:2", "--rsh", "RSH", "-n", "4"], WHO),
            Lines(&["0: 0/2", "1: 0/2", "2: 1/2", "3: 1/2"]),
        ),
        (
            "rank-by",
            line(&["--rank-by", "core"], WHO),
            Err("--rank-by core would have numbered ranks by parts"),
        ),
        ("rankfile", line(&["-rf", "ranks", "--report-bindings"], WHO), Err("rank 0 on ")),
        ("bind-to", report(&["--bind-to", "none"]), Err("is not bound")),
        ("binding", report(&["-binding", "core"]), BOUND),
        ("bind-to-core", report(&["-bind-to-core"]), BOUND),
        ("bind-to-socket", report(&["-bind-to-socket"]), BOUND),
        ("bind-to-none", report(&["-bind-to-none"]), Err("is not bound")),
        ("cpus-per-proc", report(&["--cpus-per-proc", "1"]), BOUND),
        ("report-bindings", report(&["--bind-to", "core"]), BOUND),
        ("oversubscribe", vec!["-oversubscribe", "-n", "300", "true"], Lines(&[])),
    ]
}

fn environment() -> Vec<Case> {
    let both = |options: &[&'static str]| {
        let first = line(options, SET);
        [&first[..], &[":"], &SET].concat()
    };
    vec![
        ("x", both(&["-x", "A=1"]), Lines(&["1,,", ",,"])),
        ("env", both(&["-env", "A", "1", "-env", "B=2"]), Lines(&["1,2,", ",,"])),
        ("genv", both(&["-genv", "A", "1"]), Lines(&["1,,", "1,,"])),
        ("envlist", both(&["-envlist", "HOME", "-genvlist", "PATH,HOME"]), Lines(&[",,", ",,"])),
        ("genvlist", both(&["-genvlist", "PATH,HOME"]), Lines(&[",,", ",,"])),
        ("wdir", vec!["-wd", "/", "pwd"], Lines(&["/"])),
        ("path", vec!["-path", "tools", "tool"], Lines(&["a tool"])),
        ("iface", both(&["-iface", "10.0.0.0/8"]), Lines(&[",,10.0.0.0/8", ",,10.0.0.0/8"])),
        ("iface", line(&["-iface", "eth0"], SET), Err("-iface eth0 is not a network such as 10.0.0.0/8")),
    ]
}

fn streams() -> Vec<Case> {
    vec![
        ("stdin", vec!["-stdin", "none", "cat"], Lines(&[])),
        ("l", line(&["-l"], ["echo", "x"]), Lines(&["[0] x"])),
        ("tag-output", line(&["--tag-output"], ["echo", "x"]), Lines(&["[0] x"])),
        ("prepend-pattern", line(&["-prepend-pattern", "<%r> "], ["echo", "x"]), Lines(&["<0> x"])),
        ("timestamp-output", line(&["--timestamp-output"], ["echo", "x"]), Out("1")),
        ("output-filename", line(&["--output-filename", "new/o:nocopy", "-n", "2"], SPEAK), Lines(&[])),
        ("outfile-pattern", line(&["-outfile", "o.%r"], ["echo", "x"]), Lines(&[])),
        ("errfile-pattern", line(&["-errfile-pattern", "e.%r", "-n", "2"], SPEAK), Lines(&["out", "out"])),
        ("merge-stderr-to-stdout", line(&["--merge-stderr-to-stdout"], SPEAK), Lines(&["err", "out"])),
        ("output", line(&["--output", "tag,merge"], SPEAK), Lines(&["[0] err", "[0] out"])),
    ]
}

fn jobs() -> Vec<Case> {
    vec![
        ("timeout", vec!["-timeout", "0.2", "sleep", "1000"], Err("--timeout 0.2 has expired")),
        ("do-not-launch", line(&["--do-not-launch"], WHO), Out("rank 0  ")),
        ("version", line(&["-n", "2", "-info"], WHO), Out("nicety ")),
        ("help", vec!["-help"], Out("Run an MPI program")),
        ("mca", line(&["--mca", "no_such_key", "1"], WHO), Err("--mca no_such_key is not known here")),
    ]
}

fn parameters() -> Vec<Case> {
    let mca = |key, value, program: [&'static str; 3]| line(&["--mca", key, value], program);
    let two = ["--host", "a:2,b:2", "--rsh", "RSH", "-n", "2"];
    let network = |key| mca(key, "10.0.0.0/8", SET);
    let report = |key, value| line(&["--prtemca", key, value, "--report-bindings"], ["true"]);
    let by = |key, value| line(&[&["-gmca", key, value][..], &two].concat(), WHO);
    vec![
        ("plm_rsh_agent", line(&["--mca", "plm_rsh_agent", "RSH", "--host", "a"], WHO), Lines(&["0: 0/1"])),
        ("btl_tcp_if_include", network("btl_tcp_if_include"), Lines(&[",,10.0.0.0/8"])),
        ("oob_tcp_if_include", network("oob_tcp_if_include"), Lines(&[",,10.0.0.0/8"])),
        ("hwloc_base_binding_policy", report("hwloc_base_binding_policy", "none"), Err("is not bound")),
        ("rmaps_base_mapping_policy", by("rmaps_base_mapping_policy", "node"), Lines(ONE_EACH)),
        ("rmaps_default_mapping_policy", by("rmaps_default_mapping_policy", "node"), Lines(ONE_EACH)),
        ("rmaps_base_ranking_policy", by("rmaps_base_ranking_policy", "slot"), Lines(BOTH_ON_ONE)),
        (
            "rmaps_base_oversubscribe",
            vec!["--mca", "rmaps_base_oversubscribe", "1", "-n", "300", "true"],
            Lines(&[]),
        ),
        ("orte_tag_output", mca("orte_tag_output", "1", ["sh", "-c", "echo x"]), Lines(&["[0] x"])),
        ("hwloc_base_report_bindings", mca("hwloc_base_report_bindings", "true", WHO), Err("rank 0 on ")),
    ]
}

fn variables_of_intel() -> Vec<Case> {
    let off = line(&["-genv", "I_MPI_PIN", "off", "--report-bindings"], ["true"]);
    vec![
        ("I_MPI_PIN", off, Err("is not bound")),
        ("I_MPI_PERHOST", on_two(&["-genv", "I_MPI_PERHOST=2"]), Lines(TWO_EACH)),
    ]
}

/// The case of an option or key that has no effect: with a line about it, or without one.
fn without_effect(options: Vec<String>, does: Does, name: &str, stage: &Stage) {
    let options: Vec<&str> = options.iter().map(String::as_str).chain(["true"]).collect();
    let ended = stage.run(&options);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), ""), "{options:?}: {ended:?}");
    let lines = remarks(&ended);
    if does == Does::Already {
        assert!(lines.is_empty(), "{options:?}: {ended:?}");
        return;
    }
    let [line] = lines[..] else { panic!("one line is due for {options:?}: {ended:?}") };
    let starts = format!("nicety: {name} would have ");
    assert!(line.starts_with(&starts) && line.contains(", and is ignored; "), "{options:?}: {line}");
}

fn prepared_stage() -> Stage {
    let stage = Stage::new();
    fs::write(stage.path("hosts"), "a slots = 2\nb slots=2 max_slots = 1\n").expect("a file");
    fs::write(stage.path("programs"), "-n 1 echo one # first\nsh -c 'echo two'\n").expect("a file");
    fs::write(stage.path("ranks"), "rank 0=localhost slot=0\nrank 1=localhost\n").expect("a file");
    fs::create_dir(stage.path("tools")).expect("a folder");
    stage.program("tools/tool", "#!/bin/sh\necho a tool\n");
    stage
}

fn check(stage: &Stage, rsh: &str, (name, args, prints): &Case) {
    let args: Vec<&str> = args.iter().map(|word| if *word == "RSH" { rsh } else { word }).collect();
    let ended: Ended = stage.run(&args);
    let is_timeout = args.contains(&"-timeout");
    assert_eq!(ended.status, Some(if is_timeout { 124 } else { 0 }), "{name} {args:?}: {ended:?}");
    match prints {
        Lines(lines) => {
            let mut lines = lines.to_vec();
            lines.sort_unstable();
            assert_eq!((sorted(&ended.out), remarks(&ended).len()), (lines, 0), "{name} {args:?}: {ended:?}");
        }
        Out(start) => assert!(ended.out.starts_with(start), "{name} {args:?}: {ended:?}"),
        Err(text) => assert!(ended.err.contains(text), "{name} {args:?}: {ended:?}"),
    }
}

/// Goal: every option of the table does what its row says. Method: each row with an effect has a case here; the others are run with
/// made-up values, and print one line or none.
#[test]
fn every_option_of_the_table_does_what_its_row_says() {
    let stage = prepared_stage();
    let rsh = stage.rsh();
    let cases = [ranks_and_hosts(), placement(), environment(), streams(), jobs()].concat();
    cases.iter().for_each(|case| check(&stage, &rsh, case));
    for habit in habits::HABITS {
        if matches!(habit.does, Does::Ignored | Does::Already) {
            for (dashes, name) in ["-", "--"].into_iter().cycle().zip(habit.names) {
                let name = format!("{dashes}{name}");
                let value = (!habit.value.is_empty()).then(|| "1".to_owned());
                without_effect([name.clone()].into_iter().chain(value).collect(), habit.does, &name, &stage);
            }
        } else {
            assert!(
                cases.iter().any(|(name, ..)| *name == habit.names[0]),
                "no case runs {}",
                habit.names[0]
            );
        }
    }
}

/// The same for parameters of Open MPI and variables of Intel MPI.
#[test]
fn every_parameter_of_the_table_does_what_its_row_says() {
    let stage = prepared_stage();
    let rsh = stage.rsh();
    let rows = |keys: &'static [Key], cases: Vec<Case>, option: &str, prefix: &str| {
        cases.iter().for_each(|case| check(&stage, &rsh, case));
        for key in keys {
            if !matches!(key.does, Does::Ignored | Does::Already) {
                assert!(cases.iter().any(|(name, ..)| *name == key.name), "no case runs {}", key.name);
                continue;
            }
            let name = key.name.replace('*', "x");
            let options = [option, &name, "1"].map(str::to_owned).to_vec();
            without_effect(options, key.does, &format!("{prefix}{name}"), &stage);
        }
    };
    rows(habits::MCA, parameters(), "--mca", "--mca ");
    rows(habits::INTEL, variables_of_intel(), "-genv", "");
    let unknown = stage.run(&["-genv", "I_MPI_NEW", "1", "true"]);
    assert_eq!(remarks(&unknown), ["nicety: I_MPI_NEW is not known here, and is ignored; check its name"]);
}

/// Goal: ranks are really bound to what is reported. Method: compares the report with the kernel's list of each rank.
#[test]
fn reported_bindings_are_those_of_the_kernel() {
    let stage = Stage::new();
    let print = "echo $PMI_RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)";
    let all = stage.run(&["--bind-to", "none", "sh", "-c", print]).out;
    let all = all.trim().strip_prefix("0 ").expect("a rank").to_owned();
    for options in [
        &["--bind-to", "core"][..],
        &["--bind-to", "core", "--map-by", "socket"],
        &["--bind-to", "hwthread"],
        &["--bind-to", "numa"],
        &["--bind-to", "socket"],
        &["--bind-to", "core:2"],
        &["--map-by", "core"],
        &["--map-by", "slot:PE=2"],
        &["--map-by", "ppr:2:socket"],
        &["--bind-to", "none"],
        &[],
    ] {
        let ended = stage.run(&[options, &["-n", "2", "--report-bindings", "sh", "-c", print]].concat());
        assert_eq!(ended.status, Some(0), "{options:?}: {ended:?}");
        for line in ended.out.lines() {
            let (rank, list) = line.split_once(' ').expect("a rank and a list");
            let start = format!("nicety: rank {rank} on ");
            let report = ended.err.lines().find(|line| line.starts_with(&start)).expect("a report");
            let reported = report.rsplit(' ').next().expect("a list");
            let is_right = if report.ends_with("is not bound") { list == all } else { list == reported };
            assert!(is_right, "{options:?}: {report}, but the kernel says {list}");
        }
        assert_eq!(ended.out.lines().count(), 2, "{options:?}: {ended:?}");
    }
}

/// Goal: scripts of other launchers find rank and size in their variables, also on other hosts.
#[test]
fn ranks_have_the_variables_of_other_launchers() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    let print = "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, $OMPI_COMM_WORLD_LOCAL_RANK $OMPI_COMM_WORLD_NODE_RANK of \
                 $OMPI_COMM_WORLD_LOCAL_SIZE, $PMI_RANK of $PMI_SIZE, $MPI_LOCALRANKID of $MPI_LOCALNRANKS";
    let hosts = ["--host", "a:2,b", "--rsh", &rsh, "-n", "3", "sh", "-c", print];
    let ended = stage.mpirun(&hosts).env("OMPI_COMM_WORLD_RANK", "77").output().expect("it runs");
    let ended = Ended::from(ended);
    let expected = [
        "0 of 3, 0 0 of 2, 0 of 3, 0 of 2",
        "1 of 3, 1 1 of 2, 1 of 3, 1 of 2",
        "2 of 3, 0 0 of 1, 2 of 3, 0 of 1",
    ];
    assert_eq!(sorted(&ended.out), expected, "{ended:?}");
}

#[test]
fn output_of_ranks_goes_to_their_files() {
    let stage = Stage::new();
    let read =
        |name: &str| fs::read_to_string(stage.path(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
    let speak = ["sh", "-c", "echo out $PMI_RANK; echo err $PMI_RANK >&2"];
    let ended = stage.run(&line(&["--output-filename", "new/o", "-n", "2", "--oversubscribe"], speak));
    assert_eq!((sorted(&ended.out), sorted(&ended.err)), (vec!["out 0", "out 1"], vec!["err 0", "err 1"]));
    for rank in 0..2 {
        assert_eq!(sorted(&read(&format!("new/o.{rank}"))), [format!("err {rank}"), format!("out {rank}")]);
    }
    let ended = stage.run(&line(&["--output-filename", "n:nocopy", "-n", "11", "--oversubscribe"], speak));
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    assert_eq!(sorted(&read("n.03")), ["err 3", "out 3"], "names have leading zeros");
    let ended = stage.run(&line(&["-outfile-pattern", "o-%r-%p", "-errfile-pattern", "all"], speak));
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    assert_eq!((read("o-0-0").as_str(), read("all").as_str()), ("out 0\n", "err 0\n"));
    stage.run(&["-outfile", "/proc/nowhere/x", "true"]).is_error(1, "cannot be written to /proc/nowhere/x");
    let full = stage.run(&["-outfile", "/dev/full", "echo", "x"]);
    assert_eq!(full.status, Some(1), "{full:?}");
    assert!(full.err.starts_with("nicety: cannot write the output of rank 0: No space left"), "{full:?}");
}

#[test]
fn options_that_cannot_be_followed_are_refused_in_one_line() {
    let stage = Stage::new();
    fs::write(stage.path("hosts"), "a max_slots=1\nb max_slots=2\n").expect("a file");
    fs::write(stage.path("ranks"), "rank 0=localhost slot=100000\n").expect("a file");
    for (args, what) in [
        (&["-ppn", "0", "true"][..], "0"),
        (&["-ppn"], "-ppn needs a value"),
        (&["--bind-to", "l9cache", "true"], "'l9cache' is no binding"),
        (&["--map-by", "seq", "true"], "'seq' is no order"),
        (&["-f", "hosts", "-n", "4", "true"], "4 ranks are more than the 3 that the hosts take"),
        (&["-rankfile", "ranks", "true"], "the rank file names core 100000"),
        (&["-configfile", "nowhere"], "-configfile nowhere cannot be read"),
        (&["-hostlst", "a", "true"], "there is no option '--hostlst' here, did you mean '--host"),
        (&["-nonsense", "true"], "there is no option '--nonsense' here"),
        (&["true", ":", "-ppn", "2", "true"], "there is no option '--per-host' here"),
    ] {
        stage.run(args).is_error(2, what);
    }
    let late = stage.mpirun(&["sleep", "1000"]).env("MPIEXEC_TIMEOUT", "0.2").output().expect("it runs");
    assert_eq!(Ended::from(late).status, Some(124));
    let wrong = stage.mpirun(&["true"]).env("MPIEXEC_TIMEOUT", "soon").output().expect("it runs");
    Ended::from(wrong).is_error(2, "MPIEXEC_TIMEOUT: ");
    let help = nicety(["mpirun", "--help"]).out;
    for habit in habits::HABITS {
        let name = habits::written(habit).remove(0);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&help).contains(&name), "{name} is not in the help");
    }
}
