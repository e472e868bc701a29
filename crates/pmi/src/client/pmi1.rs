//! A rank's side of PMI-1: joins in seven steps, and encodes requests.

use super::answer::{Next, count_of, granted, name_of, refusal, version_of};
use super::failure::Failure;
use super::job::{Job, checked};
use super::request::{Awaited, Group, Request};
use crate::mapping;
use crate::spawn::{CAN_DECODE, OwnError};
use crate::value::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::wire::{Draft, Framing, Message};

/// The step of joining that the server's next answer completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Port,
    Version,
    Limits,
    Name,
    Appnum,
    UniverseSize,
    Mapping,
}

/// The state machine of PMI-1.
#[derive(Debug)]
pub(super) struct Pmi1 {
    step: Step,
    /// Whether the server accepts encoded values in spawn requests.
    can_decode: bool,
}

impl Pmi1 {
    /// For a rank that knows its rank number. Also returns the first message.
    pub(super) fn at_descriptor() -> (Self, Vec<u8>) {
        (Self { step: Step::Version, can_decode: false }, init())
    }

    /// For a rank that knows only its number at the server. Also returns the first message.
    pub(super) fn at_port(id: u32) -> (Self, Vec<u8>) {
        (Self { step: Step::Port, can_decode: false }, draft("initack").with("pmiid", id).finish())
    }

    /// Handles the server's next answer while joining, and returns the next message.
    pub(super) fn join(&mut self, message: &Message<'_>, job: &mut Job) -> Result<Next, Failure> {
        let (step, command) = match self.step {
            Step::Port => {
                granted(message, "initack", "this rank's number")?;
                (Step::Version, init())
            }
            // After the answer to the number, lines with rank and size follow. Some servers include both in the answer, too.
            Step::Version if message.name() == "set" => {
                job.size = message.number("size")?.unwrap_or(job.size);
                job.rank = message.number("rank")?.unwrap_or(job.rank);
                return Ok(Next::Wait);
            }
            Step::Version => {
                job.version = version_of(message, 1)?;
                checked(job.clone())?;
                (Step::Limits, draft("get_maxes").finish())
            }
            Step::Limits => {
                granted(message, "maxes", "to say how long keys may be")?;
                // The server's limits include the terminating zero.
                let below = |key, most: usize| {
                    message.need_number::<usize>(key).map(|len| most.min(len.saturating_sub(1)))
                };
                job.key_len_max = below("keylen_max", KEY_LEN_MAX)?;
                job.value_len_max = below("vallen_max", VALUE_LEN_MAX)?;
                self.can_decode = message.get(CAN_DECODE) == Some("1");
                (Step::Name, draft("get_my_kvsname").finish())
            }
            Step::Name => {
                granted(message, "my_kvsname", "the name of the job's key-value space")?;
                job.name = name_of(message, "kvsname")?;
                (Step::Appnum, draft("get_appnum").finish())
            }
            Step::Appnum => {
                granted(message, "appnum", "the number of this rank's program")?;
                job.appnum = count_of(message.need_number("appnum")?);
                (Step::UniverseSize, draft("get_universe_size").finish())
            }
            Step::UniverseSize => {
                granted(message, "universe_size", "the size of the universe")?;
                job.universe_size = count_of(message.need_number("size")?);
                (Step::Mapping, get(&job.name, "PMI_process_mapping").finish())
            }
            Step::Mapping => return mapped(message, job),
        };
        self.step = step;
        Ok(Next::Say(command))
    }

    /// Encodes a request.
    pub(super) fn write(&self, request: &Request<'_>, name: &str) -> Result<Vec<u8>, OwnError> {
        let draft = match *request {
            Request::Put { key, value } => {
                draft("put").with("kvsname", name).with("key", key).with("value", value)
            }
            Request::Get { key } => get(name, key),
            Request::Fence => draft("barrier_in"),
            Request::Barrier { group, tag } => draft("barrier_in").with("group", barrier(group, tag)),
            Request::Publish { service, port } => {
                draft("publish_name").with("service", service).with("port", port)
            }
            Request::Unpublish { service } => draft("unpublish_name").with("service", service),
            Request::Lookup { service } => draft("lookup_name").with("service", service),
            Request::Spawn(spawn) => return spawn.to_lines(self.can_decode),
            Request::Abort { code, message } => {
                draft("abort").with("exitcode", code).with("message", message.replace(' ', "_"))
            }
            Request::Finalize => draft("finalize"),
        };
        Ok(draft.finish())
    }
}

/// Reads the process mapping, which is optional for a server.
fn mapped(message: &Message<'_>, job: &mut Job) -> Result<Next, Failure> {
    let expected = reply_to(Awaited::Get);
    if message.name() != expected || refusal(message)?.is_none() {
        granted(message, expected, "the process mapping")?;
        job.nodes = Some(mapping::nodes(message.need("value")?, job.size)?);
    }
    Ok(Next::Joined)
}

fn draft(name: &str) -> Draft {
    Draft::new(Framing::Lines, name)
}

/// Announces version 1.1 in any case: servers of 1.1 end the job of a rank that requests a later version.
fn init() -> Vec<u8> {
    draft("init").with("pmi_version", 1).with("pmi_subversion", 1).finish()
}

/// The name of the message that answers a request.
pub(super) fn reply_to(awaited: Awaited) -> &'static str {
    match awaited {
        Awaited::Put => "put_result",
        Awaited::Get => "get_result",
        Awaited::Fence => "barrier_out",
        Awaited::Publish => "publish_result",
        Awaited::Unpublish => "unpublish_result",
        Awaited::Lookup => "lookup_result",
        Awaited::Spawn => "spawn_result",
        Awaited::Finalize => "finalize_ack",
    }
}

fn get(name: &str, key: &str) -> Draft {
    draft("get").with("kvsname", name).with("key", key)
}

/// A group and a tag as one word.
fn barrier(group: Group<'_>, tag: u32) -> String {
    match group {
        Group::World => format!("WORLD:{tag}"),
        Group::Node => format!("NODE:{tag}"),
        Group::Ranks(ranks) => {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("{}:{tag}", ranks.join(","))
        }
    }
}
