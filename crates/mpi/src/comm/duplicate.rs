//! Duplicates a communicator without blocking (`MPI_Comm_idup`): the members learn the name in the background (MPI 5.0, section
//! 7.4.2).

use host::SlotKey;

use crate::comm::communicator::Comm;
use crate::comm::context::{Context, Plane};
use crate::comm::create::parse_context;
use crate::comm::group::Group;
use crate::error::{Error, Result};
use crate::info::Info;
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Mode, Started, Task};
use crate::p2p::matching::MatchCriteria;
use crate::p2p::operation::{Receive, SourceRanks};
use crate::p2p::wire::MatchKey;
use crate::req::request::Request;
use crate::status::Status;

/// The current step of a member.
enum AgreementStep {
    /// It receives the name.
    ReceiveName(SlotKey, Buffer),
    /// The first members of the two groups exchange the names that they propose.
    CompareNames { sent: Option<SlotKey>, received: SlotKey, own: Context, theirs: Buffer },
    /// It sends the name to the other members of its group.
    SendName(Vec<SlotKey>),
}

/// A member's part in naming a copy.
struct ContextAgreement {
    copy: Comm,
    /// Of messages within its group.
    match_key: MatchKey,
    step: AgreementStep,
}

impl Task for ContextAgreement {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        self.try_advance(engine).unwrap_or_else(|error| Some(Status::failed(error)))
    }
}

impl ContextAgreement {
    fn try_advance(&mut self, engine: &mut Engine) -> Result<Option<Status>> {
        match &mut self.step {
            AgreementStep::ReceiveName(key, payload) => {
                let Some(status) = engine.take_status(*key) else { return Ok(None) };
                status.ok()?;
                self.copy.set_context(parse_context(&payload.to_vec())?);
                Ok(Some(Status::empty()))
            }
            AgreementStep::CompareNames { sent, received, own, theirs } => {
                if let Some(status) = sent.and_then(|key| engine.take_status(key)) {
                    status.ok()?;
                    *sent = None;
                }
                let Some(status) = sent.is_none().then(|| engine.take_status(*received)).flatten() else {
                    return Ok(None);
                };
                status.ok()?;
                let identity = |process| engine.transport.strangers().identity(process);
                let first = |group: &Group| group.process(0).map(identity);
                let own_first = first(self.copy.group()) < first(self.copy.peers());
                let name = if own_first { *own } else { parse_context(&theirs.to_vec())? };
                self.start_send_name(engine, name)?;
                self.try_advance(engine)
            }
            AgreementStep::SendName(left) => {
                let mut failed = None;
                left.retain(|key| match engine.take_status(*key) {
                    Some(status) => {
                        failed = status.error.or(failed.take());
                        false
                    }
                    None => true,
                });
                failed.map_or(Ok(()), |error| Err(Error::clone(&error)))?;
                Ok(left.is_empty().then(Status::empty))
            }
        }
    }

    /// Sends the name from the first member of a group to the others.
    fn start_send_name(&mut self, engine: &mut Engine, name: Context) -> Result<()> {
        self.copy.set_context(name);
        let payload = Buffer::from_bytes(&name.number().to_le_bytes())?;
        let mut left = Vec::new();
        for process in &self.copy.group().members()[1..] {
            left.extend(key_in_progress(engine.send(*process, self.match_key, &payload, Mode::Standard)?)?);
        }
        self.step = AgreementStep::SendName(left);
        Ok(())
    }
}

/// The key of an operation in progress; an error if it has failed already.
fn key_in_progress(started: Started) -> Result<Option<SlotKey>, Error> {
    match started {
        Started::InProgress(key) => Ok(Some(key)),
        Started::Completed(status) => status.ok().map(|_| None),
    }
}

impl Comm {
    /// Starts to duplicate it, with these hints or its own: the copy may be used when the request has completed. The copy functions
    /// of attributes are called immediately. Collective.
    ///
    /// # Errors
    /// As [`Comm::dup`].
    pub fn idup(&self, info: Option<Info>) -> Result<(Self, Request)> {
        let copy = self.copy(None)?;
        self.copy_properties_to(&copy, info)?;
        let side = if self.is_inter() { Plane::LocalGroup } else { Plane::Collective };
        let tag = self.next_nonblocking_tag();
        let match_key = MatchKey { context: self.context(side)?, tag };
        let between = MatchKey { context: self.context(Plane::Collective)?, tag };
        let own = if self.rank() == 0 { Some(self.core().new_context()?) } else { None };
        let agreement = self.core().with(|engine| -> Result<ContextAgreement> {
            let mut agreement =
                ContextAgreement { copy: copy.clone(), match_key, step: AgreementStep::SendName(Vec::new()) };
            match own {
                None => {
                    let (key, payload) = start_receive_name(engine, match_key, self.group())?;
                    agreement.step = AgreementStep::ReceiveName(key, payload);
                }
                Some(own) if self.is_inter() => {
                    let payload = Buffer::from_bytes(&own.number().to_le_bytes())?;
                    let first = self.peers().process(0).unwrap_or_default();
                    let sent = key_in_progress(engine.send(first, between, &payload, Mode::Standard)?)?;
                    let (received, theirs) = start_receive_name(engine, between, self.peers())?;
                    agreement.step = AgreementStep::CompareNames { sent, received, own, theirs };
                }
                Some(own) => agreement.start_send_name(engine, own)?,
            }
            Ok(agreement)
        })?;
        let started = self.core().with(|engine| engine.start_task(Box::new(agreement)));
        Ok((copy, Request::new(self, started)))
    }
}

/// Starts to receive a name from the first member of a group.
fn start_receive_name(engine: &mut Engine, match_key: MatchKey, from: &Group) -> Result<(SlotKey, Buffer)> {
    let payload = Buffer::from_bytes(&[0; 8])?;
    let wanted =
        MatchCriteria { context: match_key.context, source: from.process(0), tag: Some(match_key.tag) };
    let started = engine.receive(Receive {
        wanted,
        buffer: payload.clone(),
        sources: SourceRanks::Group(from.clone()),
    });
    Ok((engine.key_of(started), payload))
}
