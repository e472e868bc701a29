//! Entry points for the fuzz targets in `fuzz/`, and tests that replay their corpora.
//!
//! Each takes any bytes as input from the other side. Nothing may panic, and nothing may exceed its limits.

use crate::client::{Client, Event, Group, Join, Request};
use crate::mapping;
use crate::server::{self, Departure, Job, Placement, RankId, Server};
use crate::spawn::{Program, REQUEST_LEN_MAX, Spawn};
use crate::value::VALUE_LEN_MAX;
use crate::wire::{COMMAND_LEN_MAX, MESSAGE_LEN_MAX};

/// A rank's request for a turn number.
fn request<'a>(turn: usize, spawn: &'a Spawn) -> Request<'a> {
    match turn % 9 {
        0 => Request::Put { key: "A", value: "V" },
        1 => Request::Barrier { group: Group::Node, tag: 1 + turn as u32 },
        2 => Request::Fence,
        3 => Request::Get { key: "A" },
        4 => Request::Spawn(spawn),
        5 => Request::Barrier { group: Group::Ranks(&[1, 0]), tag: 1 + turn as u32 },
        6 => Request::Lookup { service: "s" },
        7 => Request::Publish { service: "s", port: "p" },
        _ => Request::Unpublish { service: "s" },
    }
}

/// Goal: whatever arrives instead of a server's answers, a rank reports an event or a failure, and its output stays within its
/// limits. The first byte selects how it joins, the second how the rest is split.
pub fn client(data: &[u8]) {
    let [how, cut, stream @ ..] = data else { return };
    let join = match how % 3 {
        0 => Join::Descriptor { rank: 0, size: 2 },
        1 => Join::Port { id: 0 },
        _ => Join::Pmi2 { rank: 0, size: 2 },
    };
    let mut client = Client::new(join).expect("a rank of two");
    let program = Program { file: "a".into(), processes: 1, ..Program::default() };
    let spawn = Spawn { programs: vec![program], preput: Vec::new() };
    let mut turn = 0;
    for piece in stream.chunks(usize::from(*cut) + 1) {
        let result = client.handle_bytes(piece);
        while let Some(event) = client.poll_event() {
            if let Event::Value(Some(value)) = event {
                assert!(value.len() <= MESSAGE_LEN_MAX);
            }
        }
        if let Some(job) = client.job() {
            assert!(job.rank < job.size && job.value_len_max_for("A") <= VALUE_LEN_MAX);
            assert!(job.nodes.as_ref().is_none_or(|nodes| nodes.len() == job.size as usize));
        }
        if client.request(&request(turn, &spawn)).is_ok() {
            turn += 1;
        }
        while !client.transmit().is_empty() {
            assert!(client.transmit().len() <= if turn % 9 == 5 { REQUEST_LEN_MAX } else { COMMAND_LEN_MAX });
            client.sent(client.transmit().len());
        }
        if let Err(failure) = result {
            assert_eq!(client.handle_bytes(b"\n"), Err(failure.clone()));
            assert_eq!(client.handle_eof(), Err(failure));
            return;
        }
    }
    // Either result is valid.
    let _ = client.handle_eof();
}

/// Handles the server's events, and records which ranks still have a stream.
fn own(server: &mut Server, open: &mut [bool], ids: &[RankId]) {
    while let Some(event) = server.poll_event() {
        match event {
            server::Event::Spawn { rank, spawn } => {
                assert!((1..=crate::spawn::PROGRAMS_MAX).contains(&spawn.programs.len()));
                server.spawned(rank, &[0]);
            }
            server::Event::Left { rank, how } => {
                assert!(
                    !matches!(how, Departure::Finalized) || !open[rank.rank() as usize],
                    "a stream ended by itself"
                );
                assert!(server.transmit(rank).is_empty() && ids.contains(&rank));
                open[rank.rank() as usize] = false;
            }
            server::Event::Abort { message, .. } => assert!(message.len() <= MESSAGE_LEN_MAX),
            server::Event::Finalized(_) => {}
        }
    }
}

/// Goal: whatever three ranks send, the server answers or disconnects them, and still serves a fourth, well-behaved rank. Each
/// piece has a byte for the rank, one for its length, then the data; a length of 255 is the end of its stream.
pub fn server(data: &[u8]) {
    let ranks = [0, 0, 1, 1].map(|node| Placement { node, appnum: 0 }).to_vec();
    let mut server = Server::new();
    let ids = server.add_job(Job { name: "k".into(), ranks, ..Job::default() }).expect("a job");
    let mut open = [true; 4];
    let mut rest = data;
    while let [rank, len, after @ ..] = rest {
        let id = ids[usize::from(*rank) % 3];
        rest = if *len == 255 {
            open[id.rank() as usize] = false;
            server.handle_eof(id);
            after
        } else {
            let (now, later) = after.split_at(usize::from(*len).min(after.len()));
            server.handle_bytes(id, now);
            // A rank that sends requests without reading answers is disconnected, too.
            if rank & 0x80 == 0 {
                server.sent(id, server.transmit(id).len());
            }
            later
        };
        own(&mut server, &mut open, &ids);
    }
    good_rank(&mut server, ids[3]);
}

/// Runs a well-behaved rank to its end.
fn good_rank(server: &mut Server, id: RankId) {
    let mut client = Client::new(Join::Descriptor { rank: 3, size: 4 }).expect("a rank of four");
    let mut heard = Vec::new();
    for request in [Request::Get { key: "A" }, Request::Finalize] {
        loop {
            server.handle_bytes(id, client.transmit());
            client.sent(client.transmit().len());
            client.handle_bytes(server.transmit(id)).expect("what our server says is right");
            server.sent(id, server.transmit(id).len());
            heard.extend(client.poll_event());
            if client.request(&request).is_ok() {
                break;
            }
        }
    }
    assert_eq!(heard, [Event::Joined, heard[1].clone()]);
    assert!(matches!(heard[1], Event::Value(_)));
    assert!(client.job().is_some_and(|job| job.nodes == Some(vec![0, 0, 1, 1])));
}

/// Goal: any text is a valid mapping or an error, and a valid one survives writing and reading.
pub fn process_mapping(data: &[u8]) {
    let [size, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Ok(nodes) = mapping::parse(text, u32::from(*size)) {
        assert_eq!(nodes.len(), usize::from(*size));
        if !nodes.is_empty() {
            assert_eq!(mapping::parse(&mapping::format(&nodes), u32::from(*size)), Ok(nodes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(corpus: &str, run: fn(&[u8])) {
        let folder = format!("{}/../../{corpus}", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus") {
            run(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
            count += 1;
        }
        assert!(count > 0, "{folder} is empty");
    }

    /// Goal: inputs that the fuzzer found once stay covered. Method: every input of the corpus, here and below.
    #[test]
    fn servers_of_the_corpus() {
        replay("fuzz/corpus/pmi_client", client);
    }

    #[test]
    fn ranks_of_the_corpus() {
        replay("fuzz/corpus/pmi_server", server);
    }

    #[test]
    fn mappings_of_the_corpus() {
        replay("fuzz/corpus/pmi_mapping", process_mapping);
    }
}
