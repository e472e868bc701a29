//! Space for buffered sends: attached to the process, to communicators and to sessions, flushed and detached (MPI 5.0, section
//! 3.6).

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::core::Core;
use crate::error::Result;
use crate::p2p::bsend_space::{BsendSpace, SpaceOwner};
use crate::p2p::engine::{Engine, Started, Task};
use crate::process::Process;
use crate::req::request::Request;
use crate::status::Status;

/// Completes when a space holds no message.
struct FlushTask(SpaceOwner);

impl Task for FlushTask {
    fn advance(&mut self, engine: &mut Engine) -> Option<Status> {
        engine.spaces.is_flushed(self.0).then(Status::empty)
    }
}

fn flush(core: &Core, owner: SpaceOwner) -> Started {
    core.with(|engine| engine.start_task(Box::new(FlushTask(owner))))
}

impl Process {
    /// Attaches space for buffered sends, for communicators without a space of their own.
    ///
    /// # Errors
    /// [`crate::Class::BUFFER`] if a space is attached already.
    pub fn attach_buffer(&self, space: BsendSpace) -> Result<()> {
        self.core().with(|engine| engine.spaces.attach(None, space))
    }

    /// Waits until the space for buffered sends holds no message, and detaches it; [`BsendSpace::None`] if none was attached.
    ///
    /// # Errors
    /// [`crate::Class::OTHER`] when the world of this process ends first.
    pub fn detach_buffer(&self) -> Result<BsendSpace> {
        self.core().wait("MPI_Buffer_detach", |engine| engine.spaces.detach(None))
    }

    /// Waits until the space for buffered sends holds no message.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn flush_buffer(&self) -> Result<()> {
        self.core().wait("MPI_Buffer_flush", |engine| engine.spaces.is_flushed(None).then_some(()))
    }

    /// Returns a request that completes when the space for buffered sends holds no message.
    pub fn iflush_buffer(&self) -> Request {
        Request::of_process(self.core(), flush(self.core(), None))
    }
}

/// A session (`MPI_Session`), which has its own space for buffered sends.
#[derive(Clone, Debug)]
pub struct Session {
    core: Core,
    /// The owner's name for the space.
    owner: SpaceOwner,
}

impl Process {
    /// Creates a session.
    ///
    /// # Errors
    /// [`crate::Class::OTHER`] after 2^29 communicators and sessions.
    pub fn session(&self) -> Result<Session> {
        let owner = Some(self.core().new_context()?.plane(Plane::PointToPoint));
        Ok(Session { core: self.core().clone(), owner })
    }
}

impl Session {
    /// Attaches space as [`Process::attach_buffer`] does, for this session.
    ///
    /// # Errors
    /// As [`Process::attach_buffer`].
    pub fn attach_buffer(&self, space: BsendSpace) -> Result<()> {
        self.core.with(|engine| engine.spaces.attach(self.owner, space))
    }

    /// Detaches this session's space as [`Process::detach_buffer`] does.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn detach_buffer(&self) -> Result<BsendSpace> {
        self.core.wait("MPI_Session_detach_buffer", |engine| engine.spaces.detach(self.owner))
    }

    /// Flushes this session's space as [`Process::flush_buffer`] does.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn flush_buffer(&self) -> Result<()> {
        let check = |engine: &mut Engine| engine.spaces.is_flushed(self.owner).then_some(());
        self.core.wait("MPI_Session_flush_buffer", check)
    }

    /// Flushes this session's space as [`Process::iflush_buffer`] does.
    pub fn iflush_buffer(&self) -> Request {
        Request::of_process(&self.core, flush(&self.core, self.owner))
    }
}

impl Comm {
    /// Attaches space as [`Process::attach_buffer`] does, for this communicator's sends.
    ///
    /// # Errors
    /// As [`Process::attach_buffer`].
    pub fn attach_buffer(&self, space: BsendSpace) -> Result<()> {
        let owner = Some(self.context(Plane::PointToPoint)?);
        self.core().with(|engine| engine.spaces.attach(owner, space))
    }

    /// Detaches this communicator's space as [`Process::detach_buffer`] does.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn detach_buffer(&self) -> Result<BsendSpace> {
        let owner = Some(self.context(Plane::PointToPoint)?);
        self.core().wait("MPI_Comm_detach_buffer", |engine| engine.spaces.detach(owner))
    }

    /// Flushes this communicator's space as [`Process::flush_buffer`] does.
    ///
    /// # Errors
    /// As [`Process::detach_buffer`].
    pub fn flush_buffer(&self) -> Result<()> {
        let owner = Some(self.context(Plane::PointToPoint)?);
        self.core().wait("MPI_Comm_flush_buffer", |engine| engine.spaces.is_flushed(owner).then_some(()))
    }

    /// Flushes this communicator's space as [`Process::iflush_buffer`] does.
    ///
    /// # Errors
    /// [`crate::Class::COMM`] while the communicator is being created.
    pub fn iflush_buffer(&self) -> Result<Request> {
        Ok(Request::new(self, flush(self.core(), Some(self.context(Plane::PointToPoint)?))))
    }
}
