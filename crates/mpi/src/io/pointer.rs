//! [`SharedPointer`]: the shared file pointer of all processes that opened a file, a word in a window at the first process (MPI 5.0,
//! section 14.4.4).

use datatypes::{Basic, Datatype, Op, Operator};

use crate::comm::communicator::Comm;
use crate::error::Result;
use crate::info::Info;
use crate::memory::Buffer;
use crate::rma::{Assert, TargetRange, Window};

/// A number of etypes that all members of a communicator can read and change.
#[derive(Debug)]
pub(crate) struct SharedPointer(Window);

impl SharedPointer {
    /// A pointer with value 0. Collective.
    pub(crate) fn new(comm: &Comm) -> Result<Self> {
        let word = size_of::<i64>() as i64;
        let window = Window::allocate(comm, if comm.rank() == 0 { word } else { 0 }, 1, Info::default())?;
        window.lock_all(Assert::NOCHECK)?;
        Ok(Self(window))
    }

    /// Changes it. Returns the former value.
    fn fetch_and_op(&self, by: i64, operator: Operator) -> Result<i64> {
        let datatype = || Datatype::from(Basic::Int64);
        let (value, before) = (Buffer::zeroed(datatype(), 1)?, Buffer::zeroed(datatype(), 1)?);
        value.store(&by.to_ne_bytes());
        let at = TargetRange { rank: 0, displacement: 0, count: 1, datatype: datatype() };
        self.0.get_accumulate(&value, &before, &at, &Op::Predefined(operator))?;
        self.0.flush(0)?;
        Ok(before.to_vec().try_into().map_or(0, i64::from_ne_bytes))
    }

    pub(crate) fn get(&self) -> Result<i64> {
        self.fetch_and_op(0, Operator::NoOp)
    }

    /// Advances it by this number of etypes. Returns the former value.
    pub(crate) fn add(&self, etypes: i64) -> Result<i64> {
        self.fetch_and_op(etypes, Operator::Sum)
    }

    pub(crate) fn set(&self, etypes: i64) -> Result<()> {
        self.fetch_and_op(etypes, Operator::Replace).map(drop)
    }

    /// Frees it. Collective.
    pub(crate) fn free(&self) -> Result<()> {
        self.0.unlock_all().and(self.0.free())
    }
}
