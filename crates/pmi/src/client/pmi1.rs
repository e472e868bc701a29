//! A rank's side of PMI-1: joins in seven steps, and encodes requests.

use super::answer::{Next, check_granted, kvs_name, non_negative, refusal, version_of};
use super::failure::Failure;
use super::job::{Job, check_rank_and_size};
use super::request::{Group, PendingReply, Request};
use crate::mapping;
use crate::spawn::{ACCEPTS_ENCODED, SpawnRequestError};
use crate::value::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::wire::{Draft, Framing, Message};

/// The step of joining that the server's next answer completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    InitAck,
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
        (Self { step: Step::InitAck, can_decode: false }, draft("initack").with("pmiid", id).finish())
    }

    /// Handles the server's next answer while joining, and returns the next message.
    pub(super) fn join(&mut self, message: &Message<'_>, job: &mut Job) -> Result<Next, Failure> {
        let (step, command) = match self.step {
            Step::InitAck => {
                check_granted(message, "initack", "this rank's number")?;
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
                check_rank_and_size(job.clone())?;
                (Step::Limits, draft("get_maxes").finish())
            }
            Step::Limits => {
                check_granted(message, "maxes", "to say how long keys may be")?;
                // The server's limits include the terminating zero.
                let below = |key, most: usize| {
                    message.need_number::<usize>(key).map(|len| most.min(len.saturating_sub(1)))
                };
                job.key_len_max = below("keylen_max", KEY_LEN_MAX)?;
                job.value_len_max = below("vallen_max", VALUE_LEN_MAX)?;
                self.can_decode = message.get(ACCEPTS_ENCODED) == Some("1");
                (Step::Name, draft("get_my_kvsname").finish())
            }
            Step::Name => {
                check_granted(message, "my_kvsname", "the name of the job's key-value space")?;
                job.name = kvs_name(message, "kvsname")?;
                (Step::Appnum, draft("get_appnum").finish())
            }
            Step::Appnum => {
                check_granted(message, "appnum", "the number of this rank's program")?;
                job.appnum = non_negative(message.need_number("appnum")?);
                (Step::UniverseSize, draft("get_universe_size").finish())
            }
            Step::UniverseSize => {
                check_granted(message, "universe_size", "the size of the universe")?;
                job.universe_size = non_negative(message.need_number("size")?);
                (Step::Mapping, get(&job.name, "PMI_process_mapping").finish())
            }
            Step::Mapping => return read_mapping(message, job),
        };
        self.step = step;
        Ok(Next::Send(command))
    }

    /// Encodes a request.
    pub(super) fn write(&self, request: &Request<'_>, name: &str) -> Result<Vec<u8>, SpawnRequestError> {
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
fn read_mapping(message: &Message<'_>, job: &mut Job) -> Result<Next, Failure> {
    let expected = reply_to(PendingReply::Get);
    if message.name() != expected || refusal(message)?.is_none() {
        check_granted(message, expected, "the process mapping")?;
        job.nodes = Some(mapping::parse(message.need("value")?, job.size)?);
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
pub(super) fn reply_to(awaited: PendingReply) -> &'static str {
    match awaited {
        PendingReply::Put => "put_result",
        PendingReply::Get => "get_result",
        PendingReply::Fence => "barrier_out",
        PendingReply::Publish => "publish_result",
        PendingReply::Unpublish => "unpublish_result",
        PendingReply::Lookup => "lookup_result",
        PendingReply::Spawn => "spawn_result",
        PendingReply::Finalize => "finalize_ack",
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
