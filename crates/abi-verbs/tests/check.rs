//! The sanitizer in C: programs with a seeded mistake each, which it finds and names with the function that makes it; and a program
//! without mistakes, which has no findings.

mod common;

use std::process::Output;

use common::{Names, compile, end, has, has_compiler, said};

/// The mistakes of tests/c/wrong.c: the scenario, the kind of the finding, and words of its text, with the functions of the program
/// that it has to name.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "send_buffer",
        "buffer-changed",
        &["send of 64 bytes, wr_id 7, on qp 0x", "1 byte at 0x", "from byte 3 of element 0"],
    ),
    ("second_element", "buffer-changed", &["RDMA write of 200 bytes", "from byte 99 of element 1"]),
    ("unsignaled_buffer", "buffer-changed", &["from byte 0 of element 0", "write_part"]),
    ("large_buffer", "buffer-changed", &["RDMA write of 32768 bytes", "4096 bytes at 0x"]),
    (
        "receive_buffer",
        "receive-touched",
        &["receive of 64 bytes", "a message of 8 bytes", "56 bytes at 0x", "receive_part"],
    ),
    (
        "reads_overlap",
        "overlap",
        &["two outstanding requests write", "RDMA read of 64 bytes", "other posted"],
    ),
    (
        "sent_while_read",
        "overlap",
        &["sends memory to which another", "RDMA write of 64 bytes", "RDMA read of 64 bytes"],
    ),
    (
        "receives_share",
        "receive-overwritten",
        &["earlier one whose completion had not been polled", "first posted"],
    ),
    ("stale_lkey", "key-deregistered", &["uses the lkey", "65536 bytes at 0x", "deregistered"]),
    ("stale_rkey", "key-deregistered", &["uses the rkey", "65536 bytes at 0x", "deregistered"]),
    ("unknown_lkey", "key-unknown", &["lkey 0x1234"]),
    ("beyond_region", "outside-region", &["64 bytes at 0x", "65536 bytes at 0x", "registered"]),
    ("read_only_region", "missing-right", &["RDMA read of 64 bytes", "IBV_ACCESS_LOCAL_WRITE"]),
    ("no_remote_write", "remote-access", &["RDMA write of 64 bytes", "rkey 0x", "IBV_ACCESS_REMOTE_WRITE"]),
    ("unmapped_at_post", "memory-gone", &["8192 bytes at 0x", "registered"]),
    ("unmapped_at_end", "memory-gone", &["1048576 bytes at 0x", "before free"]),
    ("freed_at_end", "memory-gone", &["8388608 bytes at 0x"]),
    ("region_in_use", "region-in-use", &["RDMA write of 64 bytes", "write_part"]),
    ("atomic_of_four_bytes", "atomic-operand", &["fetch-and-add of 4 bytes"]),
    ("never_signaled", "never-signaled", &["send queue has 16 places", "IBV_SEND_SIGNALED"]),
    ("small_queue", "cq-too-small", &["of 8 entries", "make", "receive_part"]),
    ("no_receive", "no-receive", &["send of 64 bytes", "send_part"]),
    ("short_receive", "receive-too-short", &["receive of 16 bytes", "receive_part"]),
    ("unacknowledged", "unacknowledged", &["ibv_cq at 0x", "ibv_ack_cq_events is called", "end_qp"]),
    ("not_armed", "not-armed", &["no completion queue was armed", "ibv_req_notify_cq"]),
    ("cm_unacknowledged", "unacknowledged", &["rdma_cm_id at 0x", "rdma_ack_cm_event is called"]),
    ("region_leak", "leak", &["3 objects of type ibv_mr", "ibv_dereg_mr ends each"]),
];

/// Mistakes that show by an option only: with the options of the device, and how it appears.
const BY_OPTION: &[(&str, &str, &str, &str, &[&str])] = &[
    ("receives_share", "strict=on", "hca", "overlap", &["two outstanding requests write to the same memory"]),
    ("many_elements", "as=irdma", "hca", "card-limit", &["elements of a request: 14", "E810", "at most 13"]),
    ("much_inline", "as=irdma", "hca", "card-limit", &["inline bytes of a request: 200", "at most 101"]),
    ("private_data", "as=mlx5", "rnic", "card-limit", &["private data: 100", "ConnectX", "at most 56"]),
];

/// The status of a process with findings.
const EXIT: i32 = 9;

fn run(scenario: &str, device: &str, options: &str, kind: &str) -> Output {
    let names = Names::new();
    let program = compile(&names, "wrong.c");
    let device = format!("check({device},exit={EXIT}{options})");
    let mut command = names.command(&program, &device);
    command.arg(scenario).env("NICETY_VERBS_KIND", kind);
    end(command.spawn().expect("it starts"), scenario)
}

/// The kinds of the findings in a text.
fn kinds(text: &str) -> Vec<&str> {
    let found = text.lines().filter_map(|line| line.strip_prefix("nicety: check: [")?.split_once(']'));
    found.map(|(kind, _)| kind).collect()
}

fn expect(ended: &Output, what: &str, kind: &str, scenario: &str, words: &[&str]) {
    let said = said(ended);
    assert!(!kinds(&said).is_empty() && kinds(&said).iter().all(|found| *found == kind), "{what}: {said}");
    assert!(said.contains(&format!("{scenario} at ")) && said.contains("wrong.c:"), "{what}: {said}");
    assert!(said.contains("\n  remedy "), "{what}: {said}");
    for word in words {
        assert!(said.contains(word), "{what} lacks {word:?}: {said}");
    }
    assert_eq!(ended.status.code(), Some(EXIT), "{what}: {said}");
}

#[test]
fn seeded_mistakes_are_found() {
    if !has_compiler() {
        return;
    }
    for device in ["shm", "iwarp@127.0.0.1"] {
        for (scenario, kind, words) in MISTAKES {
            // TCP makes a sender of iWARP wait for the receive.
            if *scenario == "no_receive" && device != "shm" {
                continue;
            }
            let ended = run(scenario, device, "", "hca");
            let place = if ["unacknowledged", "small_queue"].contains(scenario) { "main" } else { scenario };
            expect(&ended, &format!("{scenario} on {device}"), kind, place, words);
        }
    }
}

#[test]
fn seeded_mistakes_are_found_by_options() {
    if !has_compiler() {
        return;
    }
    for (scenario, options, appearance, kind, words) in BY_OPTION {
        let ended = run(scenario, "shm", &format!(",{options}"), appearance);
        let text = said(&ended);
        assert!(kinds(&text).contains(kind), "{scenario}: {text}");
        for word in *words {
            assert!(text.contains(word), "{scenario} lacks {word:?}: {text}");
        }
        assert_eq!(ended.status.code(), Some(EXIT), "{scenario}: {text}");
    }
}

/// What is left has a finding for each type and place, and nothing that the library keeps has one.
#[test]
fn leaks_name_what_the_program_has_created() {
    if !has_compiler() {
        return;
    }
    let text = said(&run("cm_leak", "shm", "", "hca"));
    assert!(
        text.contains("an rdma_cm_id is left") && text.contains("an rdma_event_channel is left"),
        "{text}"
    );
    assert!(text.contains("nicety: check: 2 findings\n"), "{text}");
    let text = said(&run("qp_leak", "shm", "", "hca"));
    for name in ["ibv_context", "ibv_pd", "ibv_comp_channel", "ibv_cq", "ibv_qp", "ibv_mr"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn right_program_has_no_findings_and_its_own_status() {
    if !has_compiler() {
        return;
    }
    for device in ["shm", "iwarp@127.0.0.1"] {
        for options in ["", ",strict=on", ",as=irdma"] {
            let ended = run("clean", device, options, "hca");
            let text = said(&ended);
            assert_eq!(ended.status.code(), Some(0), "{device}{options}: {text}");
            assert_eq!(text, "done\nnicety: check: 0 findings\n", "{device}{options}");
        }
    }
}

/// Programs of others, each with the kinds of what is found: they are true, for the reasons below.
const OTHERS: &[(&str, &str, &[&str])] = &[
    ("ibverbs-utils", "ibv_rc_pingpong -c", &[]),
    ("ibverbs-utils", "ibv_rc_pingpong -c -e -s 4097 -n 100", &[]),
    ("ibverbs-utils", "ibv_ud_pingpong -n 200", &[]),
    // All of its receives have one buffer; it never reads what arrives.
    ("ibverbs-utils", "ibv_srq_pingpong -e", &["receive-overwritten"]),
    ("perftest", "ib_send_lat -n 100", &[]),
    ("perftest", "ib_send_lat -n 100 -c UD", &[]),
    ("perftest", "ib_write_lat -n 100", &[]),
    ("perftest", "ib_write_bw -n 100 -a", &[]),
    ("perftest", "ib_read_lat -n 100", &[]),
    // It reads again and again into one buffer, as the bandwidth is all that counts.
    ("perftest", "ib_read_bw -n 100", &["overlap"]),
    // Its receives have one buffer, and the client never destroys the completion queue of its receives.
    ("perftest", "ib_send_bw -n 100", &["receive-overwritten", "leak"]),
    // All receives of a connection have one buffer.
    ("rdmacm-utils", "ucmatose -c 3", &["receive-overwritten"]),
];

/// Goal: no false finding. Method: each finding in the output of unmodified programs is a known one, and the programs succeed.
#[test]
fn programs_of_others_have_no_false_findings() {
    let names = Names::new();
    for (package, line, known) in OTHERS {
        let program = line.split(' ').next().expect("a program");
        if !has(program, package) {
            continue;
        }
        let line = if *package == "perftest" { format!("{line} -F") } else { (*line).to_owned() };
        let said = if program == "ucmatose" {
            common::ends(
                &names,
                "check(shm)",
                [program; 2],
                [&line[8..], &format!("{} -s 127.0.0.1", &line[8..])],
            )
        } else {
            common::pair(&names, "check(shm)", &line)
        };
        for text in said {
            assert!(text.contains("nicety: check: "), "{line}: {text}");
            // The programs do not end their last line.
            for found in text.split("nicety: check: [").skip(1) {
                assert!(known.iter().any(|kind| found.starts_with(kind)), "{line}: {text}");
            }
        }
    }
}

#[test]
fn findings_go_to_a_file_and_each_is_written_once() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("found.txt");
    let ended = run("region_leak", "shm", &format!(",log={}", file.display()), "hca");
    assert_eq!(said(&ended), "done\n");
    let text = std::fs::read_to_string(&file).expect("findings");
    assert_eq!(text.matches("ibv_mr").count(), 2, "{text}");
    assert!(text.ends_with("findings\n") && kinds(&text).contains(&"leak"), "{text}");
}

/// The guide shows lines of the example, and its mistake is found.
#[test]
fn guide_shows_the_example() {
    let (guide, example) =
        (include_str!("../../../docs/guides/checking.md"), include_str!("../examples/journal.c"));
    let (_, rest) = guide.split_once("```c\n").expect("some lines");
    let (shown, _) = rest.split_once("```").expect("their end");
    for line in shown.lines() {
        assert!(example.contains(line), "{line}");
    }
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "../../examples/journal.c");
    let ended = end(names.command(&program, "check(shm)").spawn().expect("it starts"), "journal");
    let text = said(&ended);
    assert_eq!((kinds(&text), ended.status.code()), (vec!["buffer-changed"], Some(0)), "{text}");
    assert!(text.contains("entry 0, entry 1 ... entry 7") && text.contains("write_line at "), "{text}");
}
