//! Whole jobs in one process: ranks and server exchange streams that are split anywhere and delivered in any order.

use pmi::client::{Client, Event, Group, Join, Request};
use pmi::server::{self, Departure, Job, Placement, RankId, Server};
use pmi::spawn::{Program, Spawn};
use pmi::value;

/// Deterministic pseudo-random numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A rank with its program: its remaining requests, and its events.
struct Rank {
    client: Client,
    id: RankId,
    /// Requests in program order.
    todo: Vec<Action>,
    at: usize,
    heard: Vec<Event>,
    /// Bytes in flight in either direction.
    up: Vec<u8>,
    down: Vec<u8>,
    ended: bool,
}

/// A request that owns its strings.
#[derive(Clone)]
enum Action {
    Put(String, String),
    Get(String),
    Fence,
    Barrier(Vec<u32>, u32),
    Node(u32),
    Spawn(Spawn),
    Finalize,
}

impl Action {
    fn ask(&self, client: &mut Client) -> Result<(), pmi::client::RequestError> {
        client.request(&match self {
            Self::Put(key, value) => Request::Put { key, value },
            Self::Get(key) => Request::Get { key },
            Self::Fence => Request::Fence,
            Self::Barrier(ranks, tag) => Request::Barrier { group: Group::Ranks(ranks), tag: *tag },
            Self::Node(tag) => Request::Barrier { group: Group::Node, tag: *tag },
            Self::Spawn(spawn) => Request::Spawn(spawn),
            Self::Finalize => Request::Finalize,
        })
    }
}

impl Rank {
    /// Transfers some bytes in either direction. Returns whether anything happened.
    fn step(&mut self, server: &mut Server, random: &mut Random) -> bool {
        let mut happened = false;
        for _ in 0..2 {
            let n = random.below(40);
            self.up.extend_from_slice(&self.client.transmit()[..n.min(self.client.transmit().len())]);
            self.client.sent(n);
            let n = random.below(40).min(self.up.len());
            server.handle_bytes(self.id, &self.up[..n]);
            self.up.drain(..n);
            let n = random.below(40).min(server.transmit(self.id).len());
            self.down.extend_from_slice(&server.transmit(self.id)[..n]);
            server.sent(self.id, n);
            let n = random.below(40).min(self.down.len());
            self.client.handle_bytes(&self.down[..n]).expect("what our server says is right");
            happened |=
                self.down.drain(..n).count() > 0 || !self.up.is_empty() || !self.client.transmit().is_empty();
        }
        while let Some(event) = self.client.poll_event() {
            self.heard.push(event);
        }
        while let Some(todo) = self.todo.get(self.at) {
            if todo.ask(&mut self.client).is_err() {
                break;
            }
            self.at += 1;
            happened = true;
        }
        if self.heard.last() == Some(&Event::Finalized) && !self.ended {
            self.ended = true;
            server.handle_eof(self.id);
            happened = true;
        }
        happened
    }
}

fn ranks(ids: &[RankId], program: impl Fn(u32) -> Vec<Action>) -> Vec<Rank> {
    let rank = |&id: &RankId| {
        let join = Join::Descriptor { rank: id.rank(), size: ids.len() as u32 };
        let client = Client::new(join).expect("a rank of the job");
        let (up, down, heard) = (Vec::new(), Vec::new(), Vec::new());
        Rank { client, id, todo: program(id.rank()), at: 0, heard, up, down, ended: false }
    };
    ids.iter().map(rank).collect()
}

/// Runs all ranks to their ends, in any order.
fn run(server: &mut Server, ranks: &mut [Rank], random: &mut Random) {
    let mut idle = 0;
    while ranks.iter().any(|rank| !rank.ended) {
        let at = random.below(ranks.len());
        idle = if ranks[at].step(server, random) { 0 } else { idle + 1 };
        assert!(
            idle < 100_000,
            "nothing moves any more; heard: {:?}",
            ranks.iter().map(|r| &r.heard).collect::<Vec<_>>()
        );
    }
}

fn job(name: &str, size: u32, per_node: u32) -> Job {
    let ranks = (0..size).map(|rank| Placement { node: rank / per_node, appnum: 0 }).collect();
    Job { name: name.into(), ranks, ..Job::default() }
}

/// Goal: after a fence, each rank finds the values put before it, while barriers of pairs and nodes run at the same time. Method:
/// jobs of 1 to 64 ranks, each with different splits.
#[test]
fn ranks_exchange_values_with_their_neighbours() {
    for (seed, size) in [1, 2, 3, 4, 7, 8, 16, 33, 64].into_iter().enumerate() {
        let mut random = Random(0x9e37_79b9 + seed as u64);
        let mut server = Server::new();
        let ids = server.add_job(job("job", size, 3)).expect("a job");
        let address =
            |rank: u32, round: u8| value::encode(&[rank.to_be_bytes(), [0, b' ', b'\n', round]].concat());
        let program = |rank: u32| {
            let mut todo = Vec::new();
            for round in 0..2 {
                todo.push(Action::Put(format!("card-{round}-{rank}"), address(rank, round)));
                todo.push(Action::Node(100 + u32::from(round)));
                if (rank ^ 1) < size {
                    todo.push(Action::Barrier(vec![rank, rank ^ 1], 1 + u32::from(round)));
                }
                todo.push(Action::Fence);
                todo.push(Action::Get(format!("card-{round}-{}", (rank + 1) % size)));
                todo.push(Action::Get("none".into()));
            }
            todo.push(Action::Finalize);
            todo
        };
        let mut ranks = ranks(&ids, program);
        run(&mut server, &mut ranks, &mut random);
        for rank in &ranks {
            let number = rank.id.rank();
            let job = rank.client.job().expect("it joined");
            let nodes: Vec<u32> = (0..size).map(|rank| rank / 3).collect();
            assert_eq!((job.rank, job.size, job.nodes.as_ref()), (number, size, Some(&nodes)));
            let is_answer = |event: &&Event| !matches!(event, Event::Barrier { .. });
            let answers: Vec<_> = rank.heard.iter().filter(is_answer).cloned().collect();
            let found = |round| Event::Value(Some(address((number + 1) % size, round)));
            let round = |round| [Event::Done, Event::Done, found(round), Event::Value(None)];
            let expected = [&[Event::Joined][..], &round(0), &round(1), &[Event::Finalized]].concat();
            assert_eq!(answers, expected, "rank {number} of {size}");
            let pairs = if (number ^ 1) < size { 2 } else { 0 };
            assert_eq!(rank.heard.len() - answers.len(), 2 + pairs, "barriers of rank {number} of {size}");
        }
        let left = std::iter::from_fn(|| server.poll_event());
        let good = |event: &server::Event| {
            matches!(
                event,
                server::Event::Finalized(_) | server::Event::Left { how: Departure::Finalized, .. }
            )
        };
        assert_eq!(left.filter(good).count(), 2 * size as usize);
    }
}

/// Goal: a rank starts another job, whose ranks find the values it put for them. Method: the owner adds the job on the event, and
/// runs both.
#[test]
fn a_job_spawns_another() {
    let mut random = Random(7);
    let mut server = Server::new();
    let ids = server.add_job(job("parents", 2, 2)).expect("a job");
    let program = Program {
        file: "./child".into(),
        processes: 3,
        arguments: vec!["an argument".into()],
        ..Program::default()
    };
    let preput = vec![("PARENT".to_owned(), "10.0.0.1:5000".to_owned())];
    let spawn = Spawn { programs: vec![program], preput };
    let parent = |rank| {
        let spawning = (rank == 0).then(|| Action::Spawn(spawn.clone()));
        spawning.into_iter().chain([Action::Fence, Action::Finalize]).collect()
    };
    let mut all = ranks(&ids, parent);
    let wanted = loop {
        let at = random.below(all.len());
        all[at].step(&mut server, &mut random);
        if let Some(event) = server.poll_event() {
            break event;
        }
    };
    assert_eq!(wanted, server::Event::Spawn { rank: ids[0], spawn: spawn.clone() });
    let children = server.add_job(Job { preput: spawn.preput, ..job("children", 3, 3) }).expect("a job");
    server.spawned(ids[0], &[0, 0, 0]);
    all.extend(ranks(&children, |_| vec![Action::Get("PARENT".into()), Action::Finalize]));
    run(&mut server, &mut all, &mut random);
    let [joined, finalized] = [Event::Joined, Event::Finalized];
    let found = Event::Value(Some("10.0.0.1:5000".into()));
    assert_eq!(all[0].heard, [joined.clone(), Event::Spawned(vec![0; 3]), Event::Done, finalized.clone()]);
    assert_eq!(all[1].heard, [joined.clone(), Event::Done, finalized.clone()]);
    for child in &all[2..] {
        assert_eq!(child.heard, [joined.clone(), found.clone(), finalized.clone()]);
    }
}
