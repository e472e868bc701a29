//! [`Target`]: another member of a window and access to its memory; and the elements at a rank and displacement.

use std::sync::OnceLock;

use datatypes::Datatype;
use verbs::{Buf, RemoteAddr};

use crate::comm::communicator::Comm;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::rma::control_messages::ControlClient;
use crate::rma::control_words::ControlWords;
use crate::rma::desc::WindowDesc;
use crate::rma::directory::DirectoryCache;
use crate::rma::epoch::AccessGrant;

/// Elements in a member's memory (`target_rank`, `target_disp`, `target_count`, `target_datatype`).
#[derive(Clone, Debug)]
pub struct TargetRange {
    /// The member's rank.
    pub rank: i32,
    /// Offset of the first element, in the member's displacement units; in a dynamic window, its address there.
    pub displacement: i64,
    /// Their number.
    pub count: i64,
    /// Their type.
    pub datatype: Datatype,
}

/// The location of a member's part of the window.
pub(super) enum PartLocation {
    /// At an address in this process: its own part, or mapped here.
    Mapped { address: usize, _mapped: Option<Buf> },
    /// At an address for the device.
    Remote(RemoteAddr),
}

/// How to reach a member's memory, determined by the first operation on it.
pub(super) struct TargetAccess {
    pub(super) data: PartLocation,
    pub(super) words: ControlWords,
    /// The member's port that is used.
    pub(super) port: usize,
}

/// A member of a window, as another process sees it.
pub(super) struct Target {
    rank: i32,
    pub(super) process: u32,
    pub(super) desc: WindowDesc,
    /// Bytes of its control block.
    block: usize,
    /// The address where its part is mapped here, if known from the start.
    mapped_at: Option<usize>,
    access: OnceLock<TargetAccess>,
    /// Valid if operations on its part may complete immediately.
    pub(super) grant: AccessGrant,
    /// Its attached memory, as last read.
    pub(super) attached: DirectoryCache,
}

/// The location of a member's elements.
pub(super) enum ElementLocation {
    /// In memory of this process.
    Mapped(Buffer),
    /// In a peer's memory: contiguous runs of bytes in type-map order.
    Remote(Vec<(RemoteAddr, u64)>),
}

impl Target {
    /// A member, by rank and process, with a control block of `block` bytes. Its part is mapped at `mapped_at`, if given.
    pub(super) fn new(
        (rank, process): (i32, u32),
        desc: WindowDesc,
        block: usize,
        mapped_at: Option<usize>,
    ) -> Self {
        let (access, grant, attached) = (OnceLock::new(), AccessGrant::default(), DirectoryCache::default());
        Self { rank, process, desc, block, mapped_at, access, grant, attached }
    }

    /// This process itself.
    pub(super) fn own(who: (i32, u32), desc: WindowDesc, address: usize, words: ControlWords) -> Self {
        let target = Self::new(who, desc, 0, Some(address));
        let access = TargetAccess { data: PartLocation::Mapped { address, _mapped: None }, words, port: 0 };
        Self { access: OnceLock::from(access), ..target }
    }

    /// Its rank in the window.
    pub(super) fn rank(&self) -> i32 {
        self.rank
    }

    /// The address where its part is mapped here, if known without connecting.
    pub(super) fn mapped_at(&self) -> Option<usize> {
        self.mapped_at
    }

    /// How to reach it from a member of the window's communicator. The first call connects to it.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when it is lost.
    pub(super) fn access(&self, comm: &Comm) -> Result<&TargetAccess> {
        if let Some(access) = self.access.get() {
            return Ok(access);
        }
        let found = self.resolve_access(comm)?;
        // Another thread may have stored its result first.
        Ok(self.access.get_or_init(|| found))
    }

    /// The address where its part is mapped here, and its words, if they were determined before.
    #[inline(always)]
    pub(super) fn mapped_part(&self) -> Option<(usize, &ControlWords)> {
        let access = self.access.get()?;
        match access.data {
            PartLocation::Mapped { address, .. } => Some((address, &access.words)),
            PartLocation::Remote(_) => None,
        }
    }

    fn resolve_access(&self, comm: &Comm) -> Result<TargetAccess> {
        let (core, process) = (comm.core(), self.process);
        core.with(|engine| engine.transport.connect(process))?;
        core.wait("connecting to a member of a window", |engine| match engine.transport.lost(process) {
            Some(error) => Some(Err(error.clone())),
            None => engine.transport.is_open(process).then_some(Ok(())),
        })??;
        core.with(|engine| {
            let (local_port, port) = engine.transport.ports_to(process)?;
            let (data, control) = (self.desc.data[port], self.desc.control[port]);
            let mapped = |of: u8, at: RemoteAddr, len: usize| {
                (usize::from(of) == port && len > 0).then(|| engine.transport.map(process, at, len)).flatten()
            };
            let map_data = || mapped(self.desc.data_port, data, self.desc.size as usize);
            let data = match self
                .mapped_at
                .map(|address| (address, None))
                .or_else(|| map_data().map(|memory| (memory.as_ptr().expose_provenance(), Some(memory))))
            {
                Some((address, _mapped)) => PartLocation::Mapped { address, _mapped },
                None => PartLocation::Remote(data),
            };
            let words = match mapped(self.desc.control_port, control, self.block) {
                Some(block) => ControlWords::mapped(block)?,
                None if engine.transport.nics()[local_port].has_atomics() => {
                    ControlWords::remote(process, control)
                }
                None => ControlWords::ByMessage(ControlClient::new(comm, process)?),
            };
            Ok(TargetAccess { data, words, port })
        })
    }

    /// The byte offset of elements in this member's part, if all of them are inside it.
    ///
    /// # Errors
    /// [`Class::DISP`] for a negative displacement; [`Class::RMA_RANGE`] for elements outside of it.
    pub(super) fn offset(&self, at: &TargetRange) -> Result<i64> {
        if at.displacement < 0 {
            let text = format!("the target's displacement {} is negative", at.displacement);
            return Err(Error::new(Class::DISP, text));
        }
        let span = match at.datatype.single_run(at.count) {
            Some(run) => run.offset..run.offset.saturating_add_unsigned(run.length),
            None => at.datatype.span(at.count).map_err(|error| Error::new(Class::COUNT, error.text))?,
        };
        let (begin, size) = (at.displacement.checked_mul(self.desc.unit as i64), self.desc.size);
        let inside = |begin: &i64| {
            let (first, end) = (begin.checked_add(span.start), begin.checked_add(span.end));
            span.is_empty()
                || (first.is_some_and(|first| first >= 0) && end.is_some_and(|end| end as u64 <= size))
        };
        begin.filter(inside).ok_or_else(|| {
            let text = format!(
                "bytes {} to {} from displacement {} on, in units of {}, are not in the {size} bytes of rank {}",
                span.start, span.end, at.displacement, self.desc.unit, at.rank
            );
            Error::new(Class::RMA_RANGE, text)
        })
    }

    /// The elements at an [`Target::offset`] in this member's part.
    pub(super) fn elements(&self, comm: &Comm, at: &TargetRange, offset: i64) -> Result<ElementLocation> {
        match &self.access(comm)?.data {
            PartLocation::Mapped { address, .. } => {
                let begin = address.wrapping_add_signed(offset as isize);
                // SAFETY: within the member's part, which was checked, and which is mapped here until the window is freed.
                // Test: puts_and_gets_move_elements.
                unsafe { Buffer::new(begin, at.count, at.datatype.clone()) }.map(ElementLocation::Mapped)
            }
            PartLocation::Remote(part) => runs(*part, offset, at).map(ElementLocation::Remote),
        }
    }
}

/// The contiguous runs of elements that start `offset` bytes from `part`.
pub(super) fn runs(part: RemoteAddr, offset: i64, at: &TargetRange) -> Result<Vec<(RemoteAddr, u64)>> {
    if let Some(run) = at.datatype.single_run(at.count) {
        return Ok(vec![(part.offset((offset + run.offset) as u64), run.length)]);
    }
    let runs = at.datatype.runs(at.count).map_err(|error| Error::new(Class::COUNT, error.text))?;
    Ok(runs.map(|run| (part.offset((offset + run.offset) as u64), run.length)).collect())
}
