//! A rank's side of PMI-2: joins in five steps, and encodes requests.

use super::answer::{Next, check_granted, kvs_name, non_negative, refusal, version_of};
use super::failure::Failure;
use super::job::{Job, check_rank_and_size};
use super::request::{PendingReply, Request};
use crate::mapping;
use crate::spawn::SpawnRequestError;
use crate::wire::{Draft, Framing, Message};

/// The step of joining that the server's next answer completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Version,
    Placement,
    Name,
    Mapping,
    UniverseSize,
}

/// The state machine of PMI-2.
#[derive(Debug)]
pub(super) struct Pmi2 {
    step: Step,
}

impl Pmi2 {
    /// Starts joining. Also returns the first message, which is still a line.
    pub(super) fn new() -> (Self, Vec<u8>) {
        let first = Draft::new(Framing::Lines, "init").with("pmi_version", 2).with("pmi_subversion", 0);
        (Self { step: Step::Version }, first.finish())
    }

    /// The answer to the first line is a line, too.
    pub(super) fn framing(&self) -> Framing {
        if self.step == Step::Version { Framing::Lines } else { Framing::Packets }
    }

    /// Handles the server's next answer while joining, and returns the next message.
    pub(super) fn join(&mut self, message: &Message<'_>, job: &mut Job) -> Result<Next, Failure> {
        let (step, command) = match self.step {
            Step::Version => {
                job.version = version_of(message, 2)?;
                (Step::Placement, draft("fullinit").with("pmirank", job.rank).with("threaded", "FALSE"))
            }
            Step::Placement => {
                check_granted(message, "fullinit-response", "to let this rank join")?;
                job.rank = message.need_number("rank")?;
                job.size = message.need_number("size")?;
                check_rank_and_size(job.clone())?;
                job.appnum = message.number("appnum")?.and_then(non_negative);
                (Step::Name, draft("job-getid"))
            }
            Step::Name => {
                check_granted(message, "job-getid-response", "the job's name")?;
                job.name = kvs_name(message, "jobid")?;
                (Step::Mapping, attribute("PMI_process_mapping"))
            }
            Step::Mapping => {
                if let Some(text) = found(message)? {
                    job.nodes = Some(mapping::parse(text, job.size)?);
                }
                (Step::UniverseSize, attribute("universeSize"))
            }
            Step::UniverseSize => {
                if found(message)?.is_some() {
                    job.universe_size = non_negative(message.need_number("value")?);
                }
                return Ok(Next::Joined);
            }
        };
        self.step = step;
        Ok(Next::Send(command.finish()))
    }
}

fn draft(name: &str) -> Draft {
    Draft::new(Framing::Packets, name)
}

fn attribute(key: &str) -> Draft {
    draft("info-getjobattr").with("key", key)
}

/// An attribute of the job, which is optional for a server.
fn found<'a>(message: &Message<'a>) -> Result<Option<&'a str>, Failure> {
    const EXPECTED: &str = "info-getjobattr-response";
    if message.name() == EXPECTED && (refusal(message)?.is_some() || message.get("found") == Some("FALSE")) {
        return Ok(None);
    }
    check_granted(message, EXPECTED, "an attribute of the job")?;
    Ok(Some(message.need("value")?))
}

/// The name of the message that answers a request.
pub(super) fn reply_to(awaited: PendingReply) -> &'static str {
    match awaited {
        PendingReply::Put => "kvs-put-response",
        PendingReply::Get => "kvs-get-response",
        PendingReply::Fence => "kvs-fence-response",
        PendingReply::Publish => "name-publish-response",
        PendingReply::Unpublish => "name-unpublish-response",
        PendingReply::Lookup => "name-lookup-response",
        PendingReply::Spawn => "spawn-response",
        PendingReply::Finalize => "finalize-response",
    }
}

/// Encodes a request.
pub(super) fn write(request: &Request<'_>, name: &str) -> Result<Vec<u8>, SpawnRequestError> {
    let draft = match *request {
        Request::Put { key, value } => draft("kvs-put").with("key", key).with("value", value),
        Request::Get { key } => draft("kvs-get").with("jobid", name).with("srcid", -1).with("key", key),
        // Group barriers were refused earlier.
        Request::Fence | Request::Barrier { .. } => draft("kvs-fence"),
        Request::Publish { service, port } => draft("name-publish").with("name", service).with("port", port),
        Request::Unpublish { service } => draft("name-unpublish").with("name", service),
        Request::Lookup { service } => draft("name-lookup").with("name", service),
        Request::Spawn(spawn) => return spawn.to_packet(),
        // The protocol has no field for the exit code.
        Request::Abort { message, .. } => draft("abort").with("isworld", "TRUE").with("msg", message),
        Request::Finalize => draft("finalize"),
    };
    Ok(draft.finish())
}
