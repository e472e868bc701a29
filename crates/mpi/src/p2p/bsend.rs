//! Space for buffered sends: attached to the process, to communicators and to sessions, flushed and detached.

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::core::Core;
use crate::error::Result;
use crate::p2p::bsend_space::{BsendSpace, Whose};
use crate::p2p::engine::{Begun, Engine, Task};
use crate::process::Process;
use crate::req::request::Request;
use crate::status::Status;

/// A request that is over when nothing is in a space.
struct Flush(Whose);

impl Task for Flush {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        engine.spaces.is_flushed(self.0).then(Status::empty)
    }
}

fn flush(core: &Core, whose: Whose) -> Begun {
    core.with(|engine| engine.begin(Box::new(Flush(whose))))
}

impl Process {
    /// Attaches space for buffered sends of communicators that have none of their own.
    ///
    /// # Errors
    /// [`crate::Class::BUFFER`] when there is some already.
    pub fn attach_buffer(&self, space: BsendSpace) -> Result<()> {
        self.core().with(|engine| engine.spaces.attach(None, space))
    }

    /// Waits until nothing is in the space for buffered sends, and detaches it; [`BsendSpace::None`] if there was none.
    ///
    /// # Errors
    /// [`crate::Class::OTHER`] when the world of this process ends first.
    pub fn detach_buffer(&self) -> Result<BsendSpace> {
        self.core().wait("MPI_Buffer_detach", |engine| engine.spaces.detach(None))
    }

    /// Waits until nothing is in the space for buffered sends.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn flush_buffer(&self) -> Result<()> {
        self.core().wait("MPI_Buffer_flush", |engine| engine.spaces.is_flushed(None).then_some(()))
    }

    /// A request that is over when nothing is in the space for buffered sends.
    pub fn iflush_buffer(&self) -> Request {
        Request::of_process(self.core(), flush(self.core(), None))
    }
}

/// What a session has of its own (`MPI_Session`): a space for buffered sends.
#[derive(Clone, Debug)]
pub struct Session {
    core: Core,
    /// By what the space is known.
    whose: Whose,
}

impl Process {
    /// What a new session has.
    ///
    /// # Errors
    /// [`crate::Class::OTHER`] after 2^29 communicators and sessions.
    pub fn session(&self) -> Result<Session> {
        let whose = Some(self.core().name_context()?.plane(Plane::Point));
        Ok(Session { core: self.core().clone(), whose })
    }
}

impl Session {
    /// As [`Process::attach_buffer`], for this session.
    ///
    /// # Errors
    /// As [`Process::attach_buffer`].
    pub fn attach_buffer(&self, space: BsendSpace) -> Result<()> {
        self.core.with(|engine| engine.spaces.attach(self.whose, space))
    }

    /// As [`Process::detach_buffer`], of its own space.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn detach_buffer(&self) -> Result<BsendSpace> {
        self.core.wait("MPI_Session_detach_buffer", |engine| engine.spaces.detach(self.whose))
    }

    /// As [`Process::flush_buffer`], of its own space.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn flush_buffer(&self) -> Result<()> {
        let look = |engine: &mut Engine| engine.spaces.is_flushed(self.whose).then_some(());
        self.core.wait("MPI_Session_flush_buffer", look)
    }

    /// As [`Process::iflush_buffer`], of its own space.
    pub fn iflush_buffer(&self) -> Request {
        Request::of_process(&self.core, flush(&self.core, self.whose))
    }
}

impl Comm {
    /// As [`Process::attach_buffer`], for its sends alone.
    ///
    /// # Errors
    /// As [`Process::attach_buffer`].
    pub fn attach_buffer(&self, space: BsendSpace) -> Result<()> {
        let whose = Some(self.context(Plane::Point)?);
        self.core().with(|engine| engine.spaces.attach(whose, space))
    }

    /// As [`Process::detach_buffer`], of its own space.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn detach_buffer(&self) -> Result<BsendSpace> {
        let whose = Some(self.context(Plane::Point)?);
        self.core().wait("MPI_Comm_detach_buffer", |engine| engine.spaces.detach(whose))
    }

    /// As [`Process::flush_buffer`], of its own space.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn flush_buffer(&self) -> Result<()> {
        let whose = Some(self.context(Plane::Point)?);
        self.core().wait("MPI_Comm_flush_buffer", |engine| engine.spaces.is_flushed(whose).then_some(()))
    }

    /// As [`Process::iflush_buffer`], of its own space.
    ///
    /// # Errors
    /// [`crate::Class::COMM`] while it is being made.
    pub fn iflush_buffer(&self) -> Result<Request> {
        Ok(Request::new(self, flush(self.core(), Some(self.context(Plane::Point)?))))
    }
}
