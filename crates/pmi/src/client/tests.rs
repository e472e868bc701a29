//! Dialogues of a rank with servers, byte by byte, as recorded from Hydra 5.0.2, mpiexec.gforker and Slurm 22.05; and with servers
//! that break the connection, refuse, or send garbage.

use super::*;
use crate::mapping::RANKS_MAX;
use crate::spawn::{Program, Spawn};
use crate::wire::{MESSAGE_LEN_MAX, PAIRS_MAX};

/// Expects this command from the client, and passes it the answer.
fn exchange(client: &mut Client, command: &str, answer: &str) -> Result<(), Failure> {
    assert_eq!(String::from_utf8_lossy(client.transmit()), command);
    client.sent(command.len());
    assert_eq!(client.transmit(), b"", "one command at a time");
    client.handle_bytes(answer.as_bytes())
}

fn packet(text: &str) -> String {
    format!("{:6}{text}", text.len())
}

const HYDRA: [(&str, &str); 6] = [
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n",
    ),
    ("cmd=get_maxes\n", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
    ("cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=kvs_1_0_vm\n"),
    ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=0\n"),
    ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=-1\n"),
    ("cmd=get kvsname=kvs_1_0_vm key=PMI_process_mapping\n", "cmd=get_result rc=0 value=(vector,(0,1,2))\n"),
];

/// A rank that has joined a job of Hydra, or of a server with an older subversion.
fn joined(subversion: u32) -> Client {
    let mut client = Client::new(Join::Descriptor { rank: 0, size: 2 }).expect("a rank of two");
    for (command, answer) in &HYDRA {
        let answer = answer.replace("subversion=2", &format!("subversion={subversion}"));
        exchange(&mut client, command, &answer).expect("a valid answer");
    }
    assert_eq!((client.poll_event(), client.poll_event()), (Some(Event::Joined), None));
    client
}

/// Sends a request, passes the answer, and returns the event.
fn ask(client: &mut Client, request: &Request<'_>, command: &str, answer: &str) -> Event {
    client.request(request).expect("a valid request");
    exchange(client, command, answer).expect("a valid answer");
    client.poll_event().expect("an event")
}

#[test]
fn joining_under_hydra() {
    let client = joined(2);
    let job = client.job().expect("joined");
    assert_eq!((job.rank, job.size, job.name.as_str(), job.version), (0, 2, "kvs_1_0_vm", (1, 2)));
    assert_eq!((job.appnum, job.universe_size, job.nodes.as_deref()), (Some(0), None, Some(&[0, 0][..])));
    assert_eq!((job.key_len_max, job.value_len_max), (63, 1023));
    // The first command has 40 characters around the value, and an answer up to 64.
    assert_eq!(
        (job.value_len_max_for("a"), job.value_len_max_for(&"k".repeat(63))),
        (960, 1024 - 29 - 10 - 63)
    );
}

#[test]
fn joining_under_gforker_with_fewer_attributes() {
    let mut client = Client::new(Join::Descriptor { rank: 1, size: 2 }).expect("a rank of two");
    for (command, answer) in [
        (
            "cmd=init pmi_version=1 pmi_subversion=1\n",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
        ),
        ("cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
        ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_7_0\n"),
        ("cmd=get_appnum\n", "cmd=appnum appnum=0\n"),
        ("cmd=get_universe_size\n", "cmd=universe_size size=8\n"),
        (
            "cmd=get kvsname=kvs_7_0 key=PMI_process_mapping\n",
            "cmd=get_result rc=-1 msg=key_kvs_7_0_not_found value=unknown\n",
        ),
    ] {
        exchange(&mut client, command, answer).expect("a valid answer");
    }
    let job = client.job().expect("joined");
    assert_eq!((job.version, job.universe_size, job.nodes.as_ref()), ((1, 1), Some(8), None));
}

/// Goal: a server that decodes gets every argument; for another server, an argument that PMI-1 cannot carry is an error.
#[test]
fn arguments_are_encoded_for_servers_that_decode() {
    let program =
        Program { file: "a".into(), processes: 1, arguments: vec![String::new()], ..Program::default() };
    let spawn = Spawn { programs: vec![program], preput: Vec::new() };
    for (limits, is_sent) in
        [(HYDRA[1].1, false), ("cmd=maxes keylen_max=64 vallen_max=1024 nicety_encoded=1\n", true)]
    {
        let mut client = Client::new(Join::Descriptor { rank: 0, size: 2 }).expect("a rank of two");
        for (step, (command, answer)) in HYDRA.iter().enumerate() {
            let answer = if step == 1 { limits } else { answer };
            exchange(&mut client, command, answer).expect("a valid answer");
        }
        while client.poll_event().is_some() {}
        assert_eq!(client.request(&Request::Spawn(&spawn)).is_ok(), is_sent, "{limits}");
        let sent = String::from_utf8_lossy(client.transmit());
        assert_eq!(sent.contains("argcnt=1\narg1_encoded=x\n"), is_sent, "{sent}");
    }
}

#[test]
fn joining_by_a_port() {
    let mut client = Client::new(Join::Port { id: 1 }).expect("a rank");
    let answer =
        "cmd=initack rc=0 rank=1 size=2 appnum=0 debug=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n";
    exchange(&mut client, "cmd=initack pmiid=1\n", answer).expect("a valid answer");
    for (command, answer) in &HYDRA {
        exchange(&mut client, command, answer).expect("a valid answer");
    }
    assert_eq!(client.job().map(|job| (job.rank, job.size)), Some((1, 2)));
}

#[test]
fn joining_by_a_port_needs_the_job_size() {
    let mut client = Client::new(Join::Port { id: 1 }).expect("a rank");
    exchange(&mut client, "cmd=initack pmiid=1\n", "cmd=initack\ncmd=set debug=0\n").expect("not wrong yet");
    let failure = exchange(&mut client, HYDRA[0].0, HYDRA[0].1);
    assert_eq!(failure, Err(Failure::Placement { rank: 1, size: 0 }));
}

/// A rank that has joined through PMI-2.
fn joined_2() -> Client {
    let mut client = Client::new(Join::Pmi2 { rank: 1, size: 2 }).expect("a rank of two");
    let first = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
    exchange(&mut client, "cmd=init pmi_version=2 pmi_subversion=0\n", first).expect("a valid answer");
    for (command, answer) in [
        (
            "cmd=fullinit;pmirank=1;threaded=FALSE;",
            "cmd=fullinit-response;rc=0;rank=1;size=2;appnum=0;pmiverbose=0;",
        ),
        ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=kvs_1_0_vm;"),
        (
            "cmd=info-getjobattr;key=PMI_process_mapping;",
            "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,2,1));",
        ),
        ("cmd=info-getjobattr;key=universeSize;", "cmd=info-getjobattr-response;rc=0;found=FALSE;"),
    ] {
        exchange(&mut client, &packet(command), &packet(answer)).expect("a valid answer");
    }
    assert_eq!(client.poll_event(), Some(Event::Joined));
    client
}

#[test]
fn joining_by_pmi_2() {
    let mut client = joined_2();
    let job = client.job().expect("joined");
    assert_eq!((job.rank, job.size, job.version), (1, 2, (2, 0)));
    assert_eq!((job.appnum, job.universe_size, job.nodes.as_deref()), (Some(0), None, Some(&[0, 1][..])));
    let barrier = Request::Barrier { group: Group::World, tag: 1 };
    assert_eq!(client.request(&barrier), Err(RequestError::NoGroups(2, 0)));
}

#[test]
fn requests_of_pmi_1() {
    let mut client = joined(1);
    let spawn = Spawn {
        programs: vec![Program { file: "a".into(), processes: 1, ..Program::default() }],
        preput: Vec::new(),
    };
    let lines = "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    let value = |text: &str| Event::Value(Some(text.to_owned()));
    for (request, command, answer, event) in [
        (
            Request::Put { key: "A", value: "V=(0)" },
            "cmd=put kvsname=kvs_1_0_vm key=A value=V=(0)\n",
            "cmd=put_result rc=0\n",
            Event::Done,
        ),
        (
            Request::Put { key: "A", value: "V" },
            "cmd=put kvsname=kvs_1_0_vm key=A value=V\n",
            "cmd=put_result rc=1\n",
            Event::Refused("error 1, without a message".into()),
        ),
        (
            Request::Get { key: "A" },
            "cmd=get kvsname=kvs_1_0_vm key=A\n",
            "cmd=get_result rc=0 msg=success value=V=(0)\n",
            value("V=(0)"),
        ),
        (
            Request::Get { key: "B" },
            "cmd=get kvsname=kvs_1_0_vm key=B\n",
            "cmd=get_result rc=1\n",
            Event::Value(None),
        ),
        (Request::Fence, "cmd=barrier_in\n", "cmd=barrier_out\n", Event::Done),
        (Request::Fence, "cmd=barrier_in\n", "cmd=barrier_out tag=0\n", Event::Done),
        (
            Request::Publish { service: "s", port: "p" },
            "cmd=publish_name service=s port=p\n",
            "cmd=publish_result rc=1 msg=twice\n",
            Event::Refused("twice".into()),
        ),
        (
            Request::Lookup { service: "s" },
            "cmd=lookup_name service=s\n",
            "cmd=lookup_result rc=0 port=p\n",
            value("p"),
        ),
        (
            Request::Lookup { service: "t" },
            "cmd=lookup_name service=t\n",
            "cmd=lookup_result rc=1\n",
            Event::Value(None),
        ),
        (
            Request::Unpublish { service: "s" },
            "cmd=unpublish_name service=s\n",
            "cmd=unpublish_result rc=0\n",
            Event::Done,
        ),
        (Request::Spawn(&spawn), lines, "cmd=spawn_result rc=0\n", Event::Spawned(Vec::new())),
        (Request::Spawn(&spawn), lines, "cmd=spawn_result rc=0 errcodes=0,-3\n", Event::Spawned(vec![0, -3])),
        (Request::Finalize, "cmd=finalize\n", "cmd=finalize_ack\n", Event::Finalized),
    ] {
        assert_eq!(ask(&mut client, &request, command, answer), event, "{request:?}");
    }
    assert_eq!((client.handle_eof(), client.request(&Request::Fence)), (Ok(()), Err(RequestError::Closed)));
}

#[test]
fn requests_of_pmi_2() {
    let mut client = joined_2();
    let value = |text: &str| Event::Value(Some(text.to_owned()));
    for (request, command, answer, event) in [
        (
            Request::Put { key: "A", value: "V=(0)" },
            "cmd=kvs-put;key=A;value=V=(0);",
            "cmd=kvs-put-response;rc=0;",
            Event::Done,
        ),
        (Request::Fence, "cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;", Event::Done),
        (
            Request::Get { key: "A" },
            "cmd=kvs-get;jobid=kvs_1_0_vm;srcid=-1;key=A;",
            "cmd=kvs-get-response;rc=0;found=TRUE;value=V=(0);",
            value("V=(0)"),
        ),
        (
            Request::Get { key: "B" },
            "cmd=kvs-get;jobid=kvs_1_0_vm;srcid=-1;key=B;",
            "cmd=kvs-get-response;rc=0;found=FALSE;",
            Event::Value(None),
        ),
        (
            Request::Publish { service: "s", port: "p" },
            "cmd=name-publish;name=s;port=p;",
            "cmd=name-publish-response;rc=0;",
            Event::Done,
        ),
        (
            Request::Lookup { service: "s" },
            "cmd=name-lookup;name=s;",
            "cmd=name-lookup-response;rc=0;port=p 1;",
            value("p 1"),
        ),
        (
            Request::Unpublish { service: "s" },
            "cmd=name-unpublish;name=s;",
            "cmd=name-unpublish-response;rc=1;errmsg=gone;",
            Event::Refused("gone".into()),
        ),
        (Request::Finalize, "cmd=finalize;", "cmd=finalize-response;rc=0;", Event::Finalized),
    ] {
        assert_eq!(ask(&mut client, &request, &packet(command), &packet(answer)), event, "{request:?}");
    }
}

/// Goal: an abort is sent while an answer is pending, and is the last message. Method: in the middle of a fence, in both protocols.
#[test]
fn aborting_needs_no_answer() {
    let abort = Request::Abort { code: 7, message: "out of luck" };
    for (mut client, command) in [
        (joined(1), "cmd=abort exitcode=7 message=out_of_luck\n".to_owned()),
        (joined_2(), packet("cmd=abort;isworld=TRUE;msg=out of luck;")),
    ] {
        client.request(&Request::Fence).expect("a valid request");
        client.sent(usize::MAX);
        client.request(&abort).expect("at any time");
        assert_eq!(String::from_utf8_lossy(client.transmit()), command);
        assert_eq!(client.handle_bytes(b"\xff whatever \n"), Ok(()));
        assert_eq!((client.handle_eof(), client.poll_event()), (Ok(()), None));
        assert_eq!(client.request(&abort), Err(RequestError::Closed));
    }
}

/// Goal: the answer to a group barrier is recognized among other answers. Method: a barrier of two ranks, then a get and a fence,
/// answered in an order that only the tags identify.
#[test]
fn group_barriers_are_answered_in_any_order() {
    let mut client = joined(2);
    for (group, tag, word) in
        [(Group::Ranks(&[1, 0]), 19, "1,0:19"), (Group::Node, 18, "NODE:18"), (Group::World, 17, "WORLD:17")]
    {
        client.request(&Request::Barrier { group, tag }).expect("the server has them");
        assert_eq!(client.transmit(), format!("cmd=barrier_in group={word}\n").as_bytes());
        client.sent(usize::MAX);
    }
    client.request(&Request::Get { key: "A" }).expect("a barrier does not stand in its way");
    client.sent(usize::MAX);
    client.handle_bytes(b"cmd=barrier_out tag=18\ncmd=get_result rc=0 value=V\n").expect("in order");
    assert_eq!(client.poll_event(), Some(Event::Barrier { tag: 18 }));
    assert_eq!(client.poll_event(), Some(Event::Value(Some("V".into()))));
    client.request(&Request::Fence).expect("nor here");
    client.sent(usize::MAX);
    client.handle_bytes(b"cmd=barrier_out rc=1 msg=left tag=17\ncmd=barrier_out tag=0\n").expect("in order");
    assert_eq!(client.poll_event(), Some(Event::BarrierRefused { tag: 17, why: "left".into() }));
    assert_eq!(client.poll_event(), Some(Event::Done));
    client.handle_bytes(b"cmd=barrier_out tag=19\n").expect("in order");
    assert_eq!(client.poll_event(), Some(Event::Barrier { tag: 19 }));
    let unexpected = Failure::Unexpected { got: "barrier_out".into(), expected: None };
    assert_eq!(client.handle_bytes(b"cmd=barrier_out tag=19\n"), Err(unexpected));
}

#[test]
fn barriers_that_cannot_complete_are_refused() {
    let barrier = |group, tag| Request::Barrier { group, tag };
    assert_eq!(joined(1).request(&barrier(Group::World, 1)), Err(RequestError::NoGroups(1, 1)));
    let mut client = joined(2);
    for ranks in [&[][..], &[1], &[0, 2], &[0, 0]] {
        assert_eq!(client.request(&barrier(Group::Ranks(ranks), 1)), Err(RequestError::Group), "{ranks:?}");
    }
    assert_eq!(client.request(&barrier(Group::World, 0)), Err(RequestError::Tag(0)));
    for tag in 1..=BARRIERS_MAX as u32 {
        assert_eq!(client.request(&barrier(Group::World, tag)), Ok(()));
    }
    assert_eq!(client.request(&barrier(Group::World, 1)), Err(RequestError::Tag(1)));
    assert_eq!(client.request(&barrier(Group::World, 99)), Err(RequestError::TooManyBarriers));
}

#[test]
fn one_request_at_a_time() {
    let mut client = Client::new(Join::Descriptor { rank: 0, size: 2 }).expect("a rank of two");
    assert_eq!(client.request(&Request::Fence), Err(RequestError::NotJoined));
    let mut client = joined(1);
    assert_eq!(client.request(&Request::Fence), Ok(()));
    assert_eq!(client.request(&Request::Get { key: "A" }), Err(RequestError::Busy));
}

/// Goal: texts that a server would truncate are refused, and nothing of them is sent.
#[test]
fn texts_that_servers_would_truncate_are_refused() {
    let mut client = joined(1);
    let room = client.job().expect("joined").value_len_max_for("A");
    let (fits, too_long) = ("v".repeat(room), "v".repeat(room + 1));
    for request in [
        Request::Put { key: "A", value: "a b" },
        Request::Put { key: "A", value: &too_long },
        Request::Put { key: "A", value: "" },
        Request::Put { key: "PMI_A", value: "V" },
        Request::Put { key: "A.B", value: "V" },
        Request::Get { key: "A\ncmd=abort" },
        Request::Publish { service: "s t", port: "p" },
        Request::Publish { service: "s", port: "a b" },
        Request::Lookup { service: "" },
        Request::Unpublish { service: "s=t" },
        Request::Abort { code: 1, message: "a\ncmd=finalize" },
    ] {
        assert!(matches!(client.request(&request), Err(RequestError::Text(_))), "{request:?}");
    }
    assert_eq!(client.transmit(), b"");
    assert_eq!(client.request(&Request::Put { key: "A", value: &fits }), Ok(()));
    assert!(client.transmit().len() <= COMMAND_LEN_MAX);
}

#[test]
fn groups_too_large_for_a_command_are_refused() {
    let mut client = joined(2);
    client.job.size = 1000;
    let ranks: Vec<u32> = (0..1000).collect();
    let request = Request::Barrier { group: Group::Ranks(&ranks), tag: 1 };
    assert!(matches!(client.request(&request), Err(RequestError::TooLong(_))));
    assert_eq!((client.transmit(), client.tags.len()), (&b""[..], 0));
}

/// Goal: each answer that does not match its request ends the connection permanently. Method: for every step of joining, all other
/// answers, refusals, truncated numbers, garbage.
#[test]
fn wrong_answers_while_joining() {
    for step in 0..6 {
        let at_step = || {
            let mut client = Client::new(Join::Descriptor { rank: 0, size: 2 }).expect("a rank of two");
            for (command, answer) in &HYDRA[..step] {
                exchange(&mut client, command, answer).expect("a valid answer");
            }
            client
        };
        let others =
            HYDRA.iter().enumerate().filter(|(other, _)| *other != step).map(|(_, (_, answer))| *answer);
        let nonsense = [
            "cmd=\n",
            "\n",
            "cmd=barrier_out tag=1\n",
            "cmd=maxes keylen_max=x vallen_max=1\n",
            "cmd=appnum\n",
        ];
        for answer in others.chain(nonsense) {
            let mut client = at_step();
            let failure = client.handle_bytes(answer.as_bytes()).expect_err(answer);
            assert_eq!(client.handle_bytes(b"cmd=finalize_ack\n"), Err(failure.clone()));
            assert_eq!((client.handle_eof(), client.poll_event(), client.job()), (Err(failure), None, None));
        }
        let mut client = at_step();
        assert_eq!(
            (client.handle_eof(), client.handle_bytes(b"x")),
            (Err(Failure::Closed), Err(Failure::Closed))
        );
        // Only the mapping may be missing.
        let refused = HYDRA[step].1.replace("rc=0", "rc=1 msg=no");
        match at_step().handle_bytes(refused.as_bytes()) {
            Err(Failure::Refused { why, .. }) => assert_eq!((why.as_str(), step < 5), ("no", true)),
            other => assert_eq!((other, step), (Ok(()), 5)),
        }
    }
}

#[test]
fn servers_of_other_versions() {
    let mut client = Client::new(Join::Pmi2 { rank: 0, size: 1 }).expect("a rank");
    let answer = b"cmd=response_to_init rc=1 msg=speak_PMI_1 pmi_version=1 pmi_subversion=2\n";
    assert_eq!(client.handle_bytes(answer), Err(Failure::Version(1, 2)));
    let mut client = Client::new(Join::Descriptor { rank: 0, size: 1 }).expect("a rank");
    let answer = b"cmd=response_to_init pmi_version=2 pmi_subversion=0\n";
    assert_eq!(client.handle_bytes(answer), Err(Failure::Version(2, 0)));
}

#[test]
fn invalid_ranks_and_sizes_are_refused() {
    for (rank, size) in [(0, 0), (1, 1), (0, RANKS_MAX + 1), (u32::MAX, u32::MAX)] {
        for join in [Join::Descriptor { rank, size }, Join::Pmi2 { rank, size }] {
            assert_eq!(Client::new(join).err(), Some(Failure::Placement { rank, size }));
        }
    }
    assert!(Client::new(Join::Descriptor { rank: RANKS_MAX - 1, size: RANKS_MAX }).is_ok());
}

/// Goal: a server cannot make a rank buffer more than one message. Method: endless lines, keys, sizes, errors.
#[test]
fn server_messages_have_a_length_limit() {
    let endless = vec![b'x'; MESSAGE_LEN_MAX + 1];
    assert_eq!(joined(1).handle_bytes(&endless), Err(Failure::Wire(WireError::TooLong)));
    assert_eq!(joined_2().handle_bytes(b"999999cmd="), Err(Failure::Wire(WireError::TooLong)));
    let keys = format!("cmd=get_result{}\n", " a=b".repeat(PAIRS_MAX + 1));
    assert!(matches!(
        joined(1).handle_bytes(keys.as_bytes()),
        Err(Failure::Wire(WireError::TooManyPairs(_)))
    ));
    let mut client = Client::new(Join::Port { id: 0 }).expect("a rank");
    client.handle_bytes(b"cmd=initack\ncmd=set size=4294967295\n").expect("not wrong yet");
    let failure = client.handle_bytes(HYDRA[0].1.as_bytes());
    assert_eq!(failure, Err(Failure::Placement { rank: 0, size: u32::MAX }));
}

#[test]
fn names_of_jobs_have_a_limit() {
    for (len, expected) in [(1, Ok(())), (NAME_LEN_MAX, Ok(())), (NAME_LEN_MAX + 1, Err(Failure::Name(256)))]
    {
        let mut client = Client::new(Join::Descriptor { rank: 0, size: 2 }).expect("a rank of two");
        for (command, answer) in &HYDRA[..2] {
            exchange(&mut client, command, answer).expect("a valid answer");
        }
        let answer = format!("cmd=my_kvsname kvsname={}\n", "k".repeat(len));
        assert_eq!(exchange(&mut client, HYDRA[2].0, &answer), expected);
    }
}

#[test]
fn unexpected_answers_are_failures() {
    for answer in ["cmd=put_result rc=0", "cmd=barrier_out", "cmd=init", "mcmd=spawn", ""] {
        let mut client = joined(2);
        client.handle_bytes(format!("{answer}\n").as_bytes()).expect_err(answer);
        assert_eq!(client.request(&Request::Fence), Err(RequestError::Closed));
    }
    let mut client = joined(2);
    client.request(&Request::Fence).expect("a valid request");
    let failure = Failure::Unexpected { got: "put_result".into(), expected: Some("barrier_out") };
    assert_eq!(client.handle_bytes(b"cmd=put_result rc=0\n"), Err(failure));
}
