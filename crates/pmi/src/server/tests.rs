//! Dialogues of ranks with the server, byte by byte as MPICH's client sends them; and with misbehaving ranks.

use super::*;
use crate::spawn::{Program, REQUEST_LEN_MAX, SpawnParseError};
use crate::wire::{MESSAGE_LEN_MAX, WireError};

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";
const FINALIZE: &str = "cmd=finalize\n";

fn job(name: &str, nodes: &[u32]) -> Job {
    let ranks = nodes.iter().map(|&node| Placement { node, appnum: 0 }).collect();
    Job { name: name.into(), ranks, ..Job::default() }
}

/// All pending output of the server for a rank.
fn replies(server: &mut Server, id: RankId) -> String {
    let mut replies = String::new();
    while !server.transmit(id).is_empty() {
        replies += std::str::from_utf8(server.transmit(id)).expect("text");
        server.sent(id, server.transmit(id).len());
    }
    replies
}

/// The server's output for a rank after this input.
fn ask(server: &mut Server, id: RankId, text: &str) -> String {
    server.handle_bytes(id, text.as_bytes());
    replies(server, id)
}

/// Ranks on these nodes that have sent `init`.
fn joined(nodes: &[u32]) -> (Server, Vec<RankId>) {
    let mut server = Server::new();
    let ids = server.add_job(job("k", nodes)).expect("a job");
    for &id in &ids {
        assert_eq!(ask(&mut server, id, INIT), "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n");
    }
    (server, ids)
}

fn events(server: &mut Server) -> Vec<Event> {
    std::iter::from_fn(|| server.poll_event()).collect()
}

/// The violation that this input of a joined rank causes.
fn broken_by(text: &str) -> Violation {
    let (mut server, ids) = joined(&[0, 0]);
    assert_eq!(ask(&mut server, ids[0], text), "", "{text:?}");
    match server.poll_event() {
        Some(Event::Left { rank, how: Departure::Broken(violation) }) if rank == ids[0] => violation,
        other => panic!("{text:?} makes {other:?}"),
    }
}

#[test]
fn the_owner_reads_values_that_ranks_have_put() {
    let (mut server, ids) = joined(&[0, 0]);
    ask(&mut server, ids[1], "cmd=put kvsname=k key=A value=B\n");
    assert_eq!((server.value(ids[0], "A"), server.value(ids[0], "B")), (Some("B"), None));
    for &id in &ids {
        ask(&mut server, id, FINALIZE);
        assert_eq!(server.value(id, "A"), Some("B"), "until the last one is gone");
        server.handle_eof(id);
    }
    assert_eq!(server.value(ids[0], "A"), None);
}

#[test]
fn requests_of_mpich() {
    let mut server = Server::new();
    let mut job = job("job-0", &[0, 0, 1, 1]);
    job.ranks[2].appnum = 1;
    job.universe_size = Some(16);
    job.preput = vec![("PARENT_ROOT_PORT_NAME".into(), "tag#0$a b".into())];
    let ids = server.add_job(job).expect("a job");
    for (text, answer) in [
        (INIT, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"),
        (
            "cmd=get_maxes\n",
            "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024 nicety_encoded=1\n",
        ),
        ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=1\n"),
        ("cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=job-0\n"),
        ("cmd=get kvsname=job-0 key=PMI_process_mapping\n", "cmd=get_result rc=0 value=(vector,(0,2,2))\n"),
        ("cmd=get kvsname=job-0 key=PMI_hwloc_xmlfile\n", "cmd=get_result rc=1 msg=no_such_key\n"),
        ("cmd=get kvsname=job-0 key=PARENT_ROOT_PORT_NAME\n", "cmd=get_result rc=0 value=tag#0$a b\n"),
        ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=16\n"),
        ("cmd=put kvsname=job-0 key=A.b value=a=b\\;c\n", "cmd=put_result rc=0\n"),
        ("cmd=get kvsname=job-0 key=A.b\n", "cmd=get_result rc=0 value=a=b\\;c\n"),
        ("cmd=put kvsname=job-0 key=A.b value=again\n", "cmd=put_result rc=0\n"),
        ("cmd=get kvsname=job-0 key=A.b\n", "cmd=get_result rc=0 value=again\n"),
        ("cmd=put kvsname=job-1 key=A value=B\n", "cmd=put_result rc=1 msg=no_such_kvsname\n"),
        ("cmd=get kvsname=job-1 key=A\n", "cmd=get_result rc=1 msg=no_such_kvsname\n"),
        ("cmd=put kvsname=job-0 key=PMI_x value=B\n", "cmd=put_result rc=1 msg=keys_with_PMI_are_reserved\n"),
        ("cmd=put kvsname=job-0 key=A value=\n", "cmd=put_result rc=1 msg=key_or_value_empty_or_too_long\n"),
        ("cmd=lookup_name service=s\n", "cmd=lookup_result rc=1 msg=no_such_service\n"),
        ("cmd=publish_name service=s port=p\n", "cmd=publish_result rc=0\n"),
        ("cmd=publish_name service=s port=q\n", "cmd=publish_result rc=1 msg=service_is_published\n"),
        ("cmd=lookup_name service=s\n", "cmd=lookup_result rc=0 port=p\n"),
        ("cmd=unpublish_name service=s\n", "cmd=unpublish_result rc=0\n"),
        ("cmd=unpublish_name service=s\n", "cmd=unpublish_result rc=1 msg=no_such_service\n"),
        (FINALIZE, "cmd=finalize_ack rc=0\n"),
    ] {
        assert_eq!(ask(&mut server, ids[2], text), answer, "{text}");
    }
    server.handle_eof(ids[2]);
    let left = Event::Left { rank: ids[2], how: Departure::Finalized };
    assert_eq!(events(&mut server), [Event::Finalized(ids[2]), left]);
}

#[test]
fn a_rank_refused_for_pmi_2_may_retry_with_pmi_1() {
    let mut server = Server::new();
    let ids = server.add_job(job("k", &[0])).expect("a job");
    let refusal = "cmd=response_to_init rc=1 msg=speak_PMI_1 pmi_version=1 pmi_subversion=2\n";
    assert_eq!(ask(&mut server, ids[0], "cmd=init pmi_version=2 pmi_subversion=0\n"), refusal);
    assert!(ask(&mut server, ids[0], INIT).contains("rc=0"));
}

#[test]
fn a_fence_waits_for_all() {
    let (mut server, ids) = joined(&[0, 0, 1]);
    for round in 0..2 {
        assert_eq!(ask(&mut server, ids[2], "cmd=barrier_in\n"), "");
        assert_eq!(ask(&mut server, ids[0], "cmd=barrier_in\n"), "", "round {round}");
        assert_eq!(ask(&mut server, ids[1], "cmd=barrier_in\n"), "cmd=barrier_out rc=0\n");
        for &id in &[ids[0], ids[2]] {
            assert_eq!(replies(&mut server, id), "cmd=barrier_out rc=0\n");
        }
    }
}

/// Goal: group barriers do not mix. Method: one of a node, two of a list with different tags and one of all ranks, entered
/// alternately, while a rank sends other requests.
#[test]
fn barriers_of_groups() {
    let (mut server, ids) = joined(&[0, 0, 1, 1]);
    let mut say = |rank: usize, text: &str| {
        server.handle_bytes(ids[rank], format!("{text}\n").as_bytes());
        [0, 1, 2, 3].map(|rank| replies(&mut server, ids[rank]))
    };
    let out = |ranks: &[usize], tag: u32| {
        [0, 1, 2, 3].map(|rank| match ranks.contains(&rank) {
            true => format!("cmd=barrier_out rc=0 tag={tag}\n"),
            false => String::new(),
        })
    };
    let none = || out(&[], 0);
    assert_eq!(say(0, "cmd=barrier_in group=NODE:1"), none());
    assert_eq!(say(2, "cmd=barrier_in group=NODE:1"), none());
    assert_eq!(say(0, "cmd=barrier_in group=0,2:1"), none());
    assert_eq!(say(0, "cmd=barrier_in group=0,2:2"), none());
    assert_eq!(say(0, "cmd=barrier_in group=WORLD:1"), none());
    assert_eq!(say(0, "cmd=get_appnum")[0], "cmd=appnum rc=0 appnum=0\n");
    assert_eq!(say(1, "cmd=barrier_in group=NODE:1"), out(&[0, 1], 1));
    assert_eq!(say(2, "cmd=barrier_in group=2,0:2"), out(&[0, 2], 2));
    assert_eq!(say(2, "cmd=barrier_in group=2,0:1"), out(&[0, 2], 1));
    for rank in [1, 2] {
        assert_eq!(say(rank, "cmd=barrier_in group=WORLD:1"), none());
    }
    assert_eq!(say(3, "cmd=barrier_in group=WORLD:1"), out(&[0, 1, 2, 3], 1));
    assert_eq!(say(3, "cmd=barrier_in group=NODE:1"), out(&[2, 3], 1));
    assert_eq!(say(3, "cmd=barrier_in group=3:1"), out(&[3], 1));
}

/// Goal: no rank waits for a rank that will not enter. Method: it finalizes, or vanishes, before and while others wait.
#[test]
fn barriers_of_departed_ranks_are_refused() {
    const REFUSED: &str = "cmd=barrier_out rc=1 msg=a_rank_has_left\n";
    let finalize: fn(&mut Server, RankId) = |server, id| server.handle_bytes(id, FINALIZE.as_bytes());
    for leave in [finalize, Server::handle_eof] {
        let (mut server, ids) = joined(&[0, 0, 1]);
        assert_eq!(ask(&mut server, ids[0], "cmd=barrier_in\n"), "");
        assert_eq!(ask(&mut server, ids[1], "cmd=barrier_in group=0,1:5\n"), "");
        leave(&mut server, ids[2]);
        assert_eq!(replies(&mut server, ids[0]), REFUSED);
        assert_eq!(ask(&mut server, ids[0], "cmd=barrier_in\n"), REFUSED);
        assert_eq!(
            ask(&mut server, ids[0], "cmd=barrier_in group=0,2:5\n").trim_end(),
            format!("{} tag=5", REFUSED.trim_end())
        );
        assert_eq!(ask(&mut server, ids[0], "cmd=barrier_in group=1,0:5\n"), "cmd=barrier_out rc=0 tag=5\n");
        assert_eq!(replies(&mut server, ids[1]), "cmd=barrier_out rc=0 tag=5\n");
    }
}

#[test]
fn departures_are_reported() {
    let (mut server, ids) = joined(&[0; 5]);
    let silent = server.add_job(job("other", &[0])).expect("a job")[0];
    server.handle_eof(silent);
    server.handle_eof(ids[0]);
    server.handle_bytes(ids[1], b"cmd=abort exitcode=7 message=Fatal error (a=b; c)\ncmd=finalize\n");
    server.handle_eof(ids[1]);
    server.handle_bytes(ids[2], b"cmd=abort\n");
    server.handle_bytes(ids[3], FINALIZE.as_bytes());
    server.handle_eof(ids[3]);
    server.handle_bytes(ids[4], b"cmd=nonsense\n");
    for &id in &ids {
        server.handle_bytes(id, b"cmd=get_appnum\n");
    }
    server.handle_eof(ids[4]);
    let left = |rank, how| Event::Left { rank, how };
    let abort = |rank, code, message: &str| Event::Abort { rank, code, message: message.into() };
    assert_eq!(
        events(&mut server),
        [
            left(silent, Departure::Silent),
            left(ids[0], Departure::Vanished),
            abort(ids[1], 7, "Fatal error (a=b; c)"),
            left(ids[1], Departure::Aborted),
            abort(ids[2], 1, ""),
            Event::Finalized(ids[3]),
            left(ids[3], Departure::Finalized),
            left(ids[4], Departure::Broken(Violation::Unknown("nonsense".into()))),
        ]
    );
}

/// Goal: a rank may request a spawn, one at a time, and gets the owner's answer. Method: MPICH's lines, split anywhere.
#[test]
fn spawning() {
    let lines = "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=1\nspawnssofar=1\nargcnt=1\narg1=x y\npreput_num=1\n\
                 preput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0\ninfo_num=0\nendcmd\n";
    let (mut server, ids) = joined(&[0, 0]);
    let id = ids[1];
    for (errors, answer) in [
        (&[0, 0][..], "cmd=spawn_result rc=0 errcodes=0,0\n"),
        (&[0, 2], "cmd=spawn_result rc=1 errcodes=0,2\n"),
        (&[], "cmd=spawn_result rc=0\n"),
    ] {
        for byte in lines.bytes() {
            server.handle_bytes(id, &[byte]);
        }
        let program =
            Program { file: "./a".into(), processes: 2, arguments: vec!["x y".into()], info: Vec::new() };
        let preput = vec![("PARENT_ROOT_PORT_NAME".to_owned(), "tag#0".to_owned())];
        let spawn = Spawn { programs: vec![program], preput };
        assert_eq!(events(&mut server), [Event::Spawn { rank: id, spawn }]);
        assert_eq!(replies(&mut server, id), "");
        server.spawned(ids[0], errors);
        server.spawned(id, errors);
        server.spawned(id, errors);
        assert_eq!((replies(&mut server, id).as_str(), replies(&mut server, ids[0]).as_str()), (answer, ""));
    }
}

#[test]
fn malformed_commands_are_violations() {
    assert_eq!(broken_by("cmd=spawn nprocs=1\n"), Violation::Unknown("spawn".into()));
    assert_eq!(broken_by(INIT), Violation::Order("init".into()));
    assert_eq!(broken_by("cmd=barrier_in\ncmd=get_appnum\n"), Violation::OutOfTurn("get_appnum".into()));
    assert_eq!(broken_by("cmd=barrier_in\nmcmd=spawn\n"), Violation::OutOfTurn("spawn".into()));
    for text in ["\n", "hello\n", "cmd=\n", "\u{0}\n", "    14cmd=job-getid;\n"] {
        assert!(matches!(broken_by(text), Violation::Wire(WireError::NoName(_))), "{text:?}");
    }
    for text in [
        "cmd=put kvsname=k key=A\n",
        "cmd=get kvsname=k\n",
        "cmd=lookup_name\n",
        "cmd=publish_name service=s\n",
    ] {
        assert!(matches!(broken_by(text), Violation::Wire(WireError::Missing { .. })), "{text:?}");
    }
    for group in
        ["", "WORLD", "WORLD:", "WORLD:-1", "0,1", "1:1", "0,2:1", "0,0:1", ":1", "0,:1", "all:1", "0:1:1"]
    {
        assert!(
            matches!(broken_by(&format!("cmd=barrier_in group={group}\n")), Violation::Group(_)),
            "{group}"
        );
    }
    for text in [
        "mcmd=spawn\nendcmd\n",
        "mcmd=spawn\nmcmd=spawn\n",
        "mcmd=spawn\nnprocs\n",
        "mcmd=spawn\ncmd=finalize\nendcmd\n",
    ] {
        assert!(matches!(broken_by(text), Violation::Spawn(_)), "{text:?}");
    }
}

#[test]
fn init_comes_first_and_finalize_last() {
    let mut server = Server::new();
    let ids = server.add_job(job("k", &[0, 0])).expect("a job");
    server.handle_bytes(ids[0], b"cmd=get_maxes\n");
    server.handle_bytes(ids[1], format!("{INIT}{FINALIZE}cmd=get_maxes\n").as_bytes());
    let broken = |rank| Event::Left { rank, how: Departure::Broken(Violation::Order("get_maxes".into())) };
    assert_eq!(events(&mut server), [broken(ids[0]), Event::Finalized(ids[1]), broken(ids[1])]);
}

/// Goal: a rank's use of the server's memory is bounded. Method: each limit, at it and beyond.
#[test]
fn limits() {
    let put = |n: usize| format!("cmd=put kvsname=k key=A{n} value=B\n");
    let publish = |n: usize| format!("cmd=publish_name service=s{n} port=p\n");
    let (mut server, ids) = joined(&[0, 0]);
    for n in 0..KEYS_MAX {
        assert_eq!(ask(&mut server, ids[0], &put(n)), "cmd=put_result rc=0\n");
    }
    assert_eq!(ask(&mut server, ids[0], &put(KEYS_MAX)), "cmd=put_result rc=1 msg=too_many_keys\n");
    assert_eq!(ask(&mut server, ids[0], &put(0)), "cmd=put_result rc=0\n");
    assert_eq!(ask(&mut server, ids[1], &put(KEYS_MAX)), "cmd=put_result rc=0\n");
    for n in 0..NAMES_MAX {
        assert_eq!(ask(&mut server, ids[0], &publish(n)), "cmd=publish_result rc=0\n");
    }
    assert_eq!(ask(&mut server, ids[0], &publish(NAMES_MAX)), "cmd=publish_result rc=1 msg=too_many_names\n");
    assert_eq!(ask(&mut server, ids[1], "cmd=unpublish_name service=s0\n"), "cmd=unpublish_result rc=0\n");
    assert_eq!(ask(&mut server, ids[0], &publish(NAMES_MAX)), "cmd=publish_result rc=0\n");
    for (key, value, fits) in
        [(KEY_ROOM - 1, VALUE_ROOM - 1, true), (KEY_ROOM, 1, false), (1, VALUE_ROOM, false)]
    {
        let text = format!("cmd=put kvsname=k key={} value={}\n", "a".repeat(key), "b".repeat(value));
        assert_eq!(ask(&mut server, ids[1], &text).contains("rc=0"), fits, "{key} {value}");
    }
}

#[test]
fn exceeded_limits_are_violations() {
    assert_eq!(broken_by(&"x".repeat(MESSAGE_LEN_MAX + 1)), Violation::Wire(WireError::TooLong));
    let endless =
        format!("mcmd=spawn\n{}", (0..REQUEST_LEN_MAX / 8).map(|n| format!("arg{n}=\n")).collect::<String>());
    assert_eq!(broken_by(&endless), Violation::Spawn(SpawnParseError::TooLong));
    assert_eq!(broken_by(&"cmd=get_maxes\n".repeat(UNREAD_MAX + 1)), Violation::Unread);
    let barriers =
        |n: usize| (0..n).map(|tag| format!("cmd=barrier_in group=WORLD:{tag}\n")).collect::<String>();
    assert_eq!(broken_by(&barriers(BARRIERS_MAX + 1)), Violation::TooManyBarriers);
    assert!(matches!(broken_by(&barriers(1).repeat(2)), Violation::Group(_)));
    let (mut server, ids) = joined(&[0, 0]);
    let most = "cmd=get_maxes\n".repeat(UNREAD_MAX);
    assert!(!ask(&mut server, ids[0], &most).is_empty());
    assert_eq!(ask(&mut server, ids[0], &barriers(BARRIERS_MAX)), "");
    assert_eq!(events(&mut server), []);
}

#[test]
fn invalid_jobs_are_refused() {
    let mut server = Server::new();
    assert_eq!(server.add_job(job("k", &[])), Err(JobError::Ranks(0)));
    let long = "k".repeat(NAME_ROOM);
    for name in ["", "a b", "a\nb", &long] {
        assert!(matches!(server.add_job(job(name, &[0])), Err(JobError::Name(_))), "{name:?}");
    }
    for text in ["", "a\nb"] {
        let mut job = job("k", &[0]);
        job.preput = vec![("A".into(), text.into())];
        assert_eq!(server.add_job(job), Err(JobError::Preput("A".into())));
    }
    assert!(server.add_job(job(&long[1..], &[0])).is_ok());
    assert!(matches!(server.add_job(job(&long[1..], &[0])), Err(JobError::Name(_))));
}

/// Goal: nothing of a job remains after its end. Method: its published names and its own name are free again, and its ranks are
/// invalid.
#[test]
fn ended_jobs_are_removed() {
    let (mut server, ids) = joined(&[0, 0]);
    let other = server.add_job(job("other", &[0])).expect("a job")[0];
    assert!(ask(&mut server, other, INIT).contains("rc=0"));
    assert!(ask(&mut server, ids[0], "cmd=publish_name service=s port=p\n").contains("rc=0"));
    server.handle_eof(ids[0]);
    assert!(ask(&mut server, other, "cmd=lookup_name service=s\n").contains("port=p"));
    server.handle_eof(ids[1]);
    assert!(ask(&mut server, other, "cmd=lookup_name service=s\n").contains("rc=1"));
    server.handle_eof(ids[1]);
    server.handle_bytes(ids[0], INIT.as_bytes());
    server.spawned(ids[0], &[]);
    assert_eq!(server.transmit(ids[0]), b"");
    assert_eq!(events(&mut server).len(), 2);
    let again = server.add_job(job("k", &[0])).expect("the name is free");
    assert!(again[0].job() > ids[0].job());
}

#[test]
fn a_mapping_longer_than_a_value_is_omitted() {
    let (mut server, ids) = joined(&(0..200).map(|rank| rank * 2).collect::<Vec<_>>());
    let answer = ask(&mut server, ids[0], "cmd=get kvsname=k key=PMI_process_mapping\n");
    assert_eq!(answer, "cmd=get_result rc=1 msg=no_such_key\n");
}
