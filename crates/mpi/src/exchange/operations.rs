//! [`Exchange`]: the collective operations of members that map the same [`Desks`].

use datatypes::Op;
use verbs::Mr;

use crate::collective::Collective;
use crate::comm::Comm;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::exchange::desks::{Desks, PLACES, Retired, SHOWN_MAX};
use crate::memory::Buffer;

/// Of so many operations one makes progress for everything else, as those may never wait.
const PROGRESS_EVERY: u64 = 64;
/// Looks in a row at what a member is to write.
const LOOKS: u32 = 256;

/// A communicator's, as one member has it.
#[derive(Debug)]
pub(super) struct Exchange {
    core: Core,
    /// There until it is retired.
    desks: Option<Desks>,
    /// The memory, at rank 0.
    region: Option<Mr>,
    me: usize,
    /// The members.
    processes: Vec<u32>,
    /// Operations begun.
    number: u64,
    /// In this one this member has shown something, and has woken the others.
    has_shown: bool,
    has_rung: bool,
    /// Up to which operation each member is known to have passed.
    passed: Vec<u64>,
    /// Room for an operand.
    operand: Buffer,
}

impl Exchange {
    pub(super) fn new(comm: &Comm, desks: Desks, region: Option<Mr>) -> Result<Self> {
        let processes = comm.group().members().to_vec();
        Ok(Self {
            core: comm.core().clone(),
            desks: Some(desks),
            region,
            me: comm.rank() as usize,
            passed: vec![0; processes.len()],
            processes,
            number: 0,
            has_shown: false,
            has_rung: false,
            operand: Buffer::own(&[0; SHOWN_MAX])?,
        })
    }

    fn desks(&self) -> &Desks {
        self.desks.as_ref().expect("there until it is dropped")
    }

    /// Carries out an operation of those that [`super::choice`] lets through.
    ///
    /// # Errors
    /// [`Class::TRUNCATE`] and [`Class::NOT_SAME`] for members whose arguments do not fit; [`Class::PROC_ABORTED`] when one is lost
    /// that something is wanted of; an operator's.
    pub(super) fn carry_out(&mut self, call: &Collective) -> Result<()> {
        self.number += 1;
        (self.has_shown, self.has_rung) = (false, false);
        let done = match call {
            Collective::Bcast { buffer, root } => self.bcast(buffer, *root as usize),
            Collective::Allgather { input, output } => self.allgather(input.as_ref(), output),
            Collective::Alltoall { input, output } => self.alltoall(input.as_ref(), output),
            Collective::Reduce { input, output, op, root } => {
                let gets = *root as usize == self.me;
                self.reduce((input.as_ref(), output, op), gets, call.name())
            }
            Collective::Allreduce { input, output, op } => {
                self.reduce((input.as_ref(), output, op), true, call.name())
            }
            _ => self.barrier(call.name()),
        };
        // Whatever came of it: who would show something must not wait for this member.
        self.desks().pass(self.me, self.number);
        if !self.has_rung {
            self.ring();
        }
        if self.number.is_multiple_of(PROGRESS_EVERY) {
            self.core.test(|_| None::<()>);
        }
        done
    }

    fn barrier(&mut self, call: &'static str) -> Result<()> {
        self.show(&Buffer::nothing(), call)?;
        self.await_all(call)
    }

    fn bcast(&mut self, buffer: &Buffer, root: usize) -> Result<()> {
        if root == self.me {
            return self.show(buffer, "MPI_Bcast");
        }
        self.await_shown(root, "MPI_Bcast")?;
        self.take(root, (0, buffer.len() as usize), buffer)
    }

    fn allgather(&mut self, input: Option<&Buffer>, output: &Buffer) -> Result<()> {
        let len = output.len() as usize / self.processes.len();
        let block = |member: usize| output.clone().window((member * len) as u64, len as u64);
        self.show(input.unwrap_or(&block(self.me)), "MPI_Allgather")?;
        self.await_all("MPI_Allgather")?;
        for member in self.givers(input.is_some()) {
            self.take(member, (0, len), &block(member))?;
        }
        Ok(())
    }

    fn alltoall(&mut self, input: Option<&Buffer>, output: &Buffer) -> Result<()> {
        let all = output.len() as usize;
        let len = all / self.processes.len();
        self.show(input.unwrap_or(output), "MPI_Alltoall")?;
        self.await_all("MPI_Alltoall")?;
        for member in self.givers(input.is_some()) {
            let block = output.clone().window((member * len) as u64, len as u64);
            self.take(member, (self.me * len, all), &block)?;
        }
        Ok(())
    }

    /// All show their operands; those who get the result reduce them, from the last rank to the first.
    fn reduce(
        &mut self,
        (input, output, op): (Option<&Buffer>, &Buffer, &Op),
        gets: bool,
        call: &'static str,
    ) -> Result<()> {
        self.show(input.unwrap_or(output), call)?;
        if !gets {
            return Ok(());
        }
        self.await_all(call)?;
        let (last, len) = (self.processes.len() - 1, output.len() as usize);
        let (count, datatype) = (output.count(), output.datatype());
        // This member's own operand need not be taken from its desk, unless the result begins to lie there.
        let own = input.filter(|input| input.count() == count && input.datatype().same(datatype));
        match own {
            Some(own) if last == self.me => output.copy_of(own),
            None if last == self.me && input.is_none() => {}
            _ => self.take(last, (0, len), output)?,
        }
        let operand = match self.operand.seen_as(count, datatype) {
            Some(operand) => operand,
            None => Buffer::own_elements(datatype.clone(), count)?,
        };
        for member in (0..last).rev() {
            if let Some(own) = own.filter(|_| member == self.me) {
                output.reduce(own, op)?;
                continue;
            }
            self.take(member, (0, len), &operand)?;
            output.reduce(&operand, op)?;
        }
        Ok(())
    }

    /// Those whose blocks are to be taken; one's own is there already in place.
    fn givers(&self, with_own: bool) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.processes.len()).filter(move |member| with_own || *member != me)
    }

    /// Shows what this member gives, as soon as nobody needs any more what was there before.
    fn show(&mut self, buffer: &Buffer, call: &'static str) -> Result<()> {
        if buffer.len() > SHOWN_MAX as u64 {
            let text = format!("this rank gives {} bytes, and gets fewer", buffer.len());
            return Err(Error::new(Class::TRUNCATE, text));
        }
        for member in 0..self.processes.len() {
            let needed = self.number.saturating_sub(PLACES);
            if member != self.me && self.passed[member] < needed {
                self.wait(member, call, |desks| desks.passed(member) >= needed)?;
                self.passed[member] = self.desks().passed(member);
            }
        }
        self.desks().show(self.me, self.number, buffer)?;
        self.has_shown = true;
        Ok(())
    }

    fn await_all(&mut self, call: &'static str) -> Result<()> {
        (0..self.processes.len()).try_for_each(|member| self.await_shown(member, call))
    }

    fn await_shown(&mut self, member: usize, call: &'static str) -> Result<()> {
        let number = self.number;
        self.wait(member, call, |desks| desks.has_shown(member, number))?;
        // Who has begun this operation has passed the one before.
        self.passed[member] = self.passed[member].max(number - 1);
        Ok(())
    }

    /// Waits for what a member is to write. The first looks are at that alone.
    fn wait(&mut self, member: usize, call: &'static str, is_there: impl Fn(&Desks) -> bool) -> Result<()> {
        if (0..LOOKS).any(|_| is_there(self.desks())) {
            return Ok(());
        }
        if self.has_shown && !self.has_rung {
            self.ring();
        }
        let desks = self.desks();
        self.core.await_store(call, self.processes[member], || is_there(desks))
    }

    /// Takes bytes from a place on, of as many as a member must have shown.
    fn take(&self, member: usize, (from, all): (usize, usize), into: &Buffer) -> Result<()> {
        let shown = self.desks().shown_len(member, self.number)?;
        if shown != all {
            let class = if shown > all { Class::TRUNCATE } else { Class::NOT_SAME };
            let text = format!("rank {member} gives {shown} bytes, where {all} belong");
            return Err(Error::new(class, text));
        }
        match into.len() {
            0 => Ok(()),
            _ => self.desks().take((member, self.number), (from, shown), into),
        }
    }

    /// Wakes those that sleep, once in each operation: behind what this member shows, or else behind the note that it has passed. Who
    /// waits for a note that came later hears of it in the next operation, which it may wait for as well, as MPI lets every collective
    /// operation wait for all. The lock in here is a fence, which waits until others have let go of the line that was written: so it
    /// comes when this member has found what it wants, or is about to wait for long.
    fn ring(&mut self) {
        self.has_rung = true;
        self.core.with(|engine| {
            let others = self.processes.iter().enumerate().filter(|(member, _)| *member != self.me);
            others.for_each(|(_, process)| engine.transport.ring(*process));
        });
    }
}

impl Drop for Exchange {
    /// The memory stays until all members are done with it.
    fn drop(&mut self) {
        if let (Some(desks), Some(region)) = (self.desks.take(), self.region.take()) {
            self.core.retire(Retired { desks, number: self.number, _region: region });
        }
    }
}
