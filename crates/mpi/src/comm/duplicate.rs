//! Duplicates a communicator without blocking (`MPI_Comm_idup`): the members learn the name in the background (MPI 5.0, section
//! 7.4.2).

use host::SlotKey;

use crate::comm::communicator::Comm;
use crate::comm::context::{Context, Plane};
use crate::comm::create::name_of;
use crate::comm::group::Group;
use crate::error::{Error, Result};
use crate::info::Info;
use crate::memory::Buffer;
use crate::p2p::engine::{Begun, Engine, Mode, Task};
use crate::p2p::matching::Wanted;
use crate::p2p::operation::{Names, Receive};
use crate::p2p::wire::Label;
use crate::req::request::Request;
use crate::status::Status;

/// The current step of a member.
enum Step {
    /// It receives the name.
    ReceiveName(SlotKey, Buffer),
    /// The first members of the two groups exchange the names that they propose.
    CompareNames { sent: Option<SlotKey>, heard: SlotKey, own: Context, theirs: Buffer },
    /// It sends the name to the other members of its group.
    SendName(Vec<SlotKey>),
}

/// A member's part in naming a copy.
struct Naming {
    copy: Comm,
    /// Of messages within its group.
    label: Label,
    step: Step,
}

impl Task for Naming {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        self.try_advance(engine).unwrap_or_else(|error| Some(Status::failed(error)))
    }
}

impl Naming {
    fn try_advance(&mut self, engine: &mut Engine) -> Result<Option<Status>> {
        match &mut self.step {
            Step::ReceiveName(key, said) => {
                let Some(status) = engine.take(*key) else { return Ok(None) };
                status.ok()?;
                self.copy.set_context(name_of(&said.to_vec())?);
                Ok(Some(Status::empty()))
            }
            Step::CompareNames { sent, heard, own, theirs } => {
                if let Some(status) = sent.and_then(|key| engine.take(key)) {
                    status.ok()?;
                    *sent = None;
                }
                let Some(status) = sent.is_none().then(|| engine.take(*heard)).flatten() else {
                    return Ok(None);
                };
                status.ok()?;
                let identity = |process| engine.transport.strangers().identity(process);
                let first = |group: &Group| group.process(0).map(identity);
                let mine_counts = first(self.copy.group()) < first(self.copy.peers());
                let name = if mine_counts { *own } else { name_of(&theirs.to_vec())? };
                self.start_send_name(engine, name)?;
                self.try_advance(engine)
            }
            Step::SendName(left) => {
                let mut failed = None;
                left.retain(|key| match engine.take(*key) {
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
        let said = Buffer::own(&name.number().to_le_bytes())?;
        let mut left = Vec::new();
        for process in &self.copy.group().members()[1..] {
            left.extend(begun(engine.send(*process, self.label, &said, Mode::Standard)?)?);
        }
        self.step = Step::SendName(left);
        Ok(())
    }
}

/// The key of an operation in progress; an error if it has failed already.
fn begun(begun: Begun) -> Result<Option<SlotKey>, Error> {
    match begun {
        Begun::Under(key) => Ok(Some(key)),
        Begun::Over(status) => status.ok().map(|_| None),
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
        self.inherit(&copy, info)?;
        let side = if self.is_inter() { Plane::Side } else { Plane::Collective };
        let tag = self.next_background();
        let label = Label { context: self.context(side)?, tag };
        let between = Label { context: self.context(Plane::Collective)?, tag };
        let own = if self.rank() == 0 { Some(self.core().name_context()?) } else { None };
        let naming = self.core().with(|engine| -> Result<Naming> {
            let mut naming = Naming { copy: copy.clone(), label, step: Step::SendName(Vec::new()) };
            match own {
                None => {
                    let (key, said) = start_receive_name(engine, label, self.group())?;
                    naming.step = Step::ReceiveName(key, said);
                }
                Some(own) if self.is_inter() => {
                    let said = Buffer::own(&own.number().to_le_bytes())?;
                    let first = self.peers().process(0).unwrap_or_default();
                    let sent = begun(engine.send(first, between, &said, Mode::Standard)?)?;
                    let (heard, theirs) = start_receive_name(engine, between, self.peers())?;
                    naming.step = Step::CompareNames { sent, heard, own, theirs };
                }
                Some(own) => naming.start_send_name(engine, own)?,
            }
            Ok(naming)
        })?;
        let begun = self.core().with(|engine| engine.begin(Box::new(naming)));
        Ok((copy, Request::new(self, begun)))
    }
}

/// Starts to receive a name from the first member of a group.
fn start_receive_name(engine: &mut Engine, label: Label, from: &Group) -> Result<(SlotKey, Buffer)> {
    let said = Buffer::own(&[0; 8])?;
    let wanted = Wanted { context: label.context, source: from.process(0), tag: Some(label.tag) };
    let begun = engine.receive(Receive { wanted, buffer: said.clone(), names: Names::Of(from.clone()) });
    Ok((engine.under(begun), said))
}
