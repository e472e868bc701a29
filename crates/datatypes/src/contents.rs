//! Envelope and contents of a type: the arguments of its constructor, unchanged (MPI 5.0, section 5.1.13).

use crate::combiner::Combiner;
use crate::datatype::{ConstructorCall, Contents, Datatype};
use crate::{Error, ErrorKind, Result};

/// The numbers of arguments in the [`Contents`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The constructor.
    pub combiner: Combiner,
    /// Length of [`Contents::integers`].
    pub integers: usize,
    /// Length of [`Contents::addresses`].
    pub addresses: usize,
    /// Length of [`Contents::counts`].
    pub counts: usize,
    /// Length of [`Contents::datatypes`].
    pub datatypes: usize,
}

impl ConstructorCall {
    /// These arguments, with counts as large counts. Displacements and bounds then also become counts.
    fn with_large_counts(mut self) -> Self {
        let contents = &mut self.contents;
        let integers = std::mem::take(&mut contents.integers);
        match self.combiner {
            Combiner::Subarray => {
                let (dims, order) = (integers[0], integers[integers.len() - 1]);
                contents.counts = integers[1..integers.len() - 1].to_vec();
                contents.integers = vec![dims, order];
            }
            Combiner::Darray => {
                let counts_end = 3 + integers[2] as usize;
                contents.counts = integers[3..counts_end].to_vec();
                contents.integers = [&integers[..3], &integers[counts_end..]].concat();
            }
            Combiner::F90Real | Combiner::F90Complex | Combiner::F90Integer => contents.integers = integers,
            _ => {
                contents.counts = integers;
                contents.counts.append(&mut contents.addresses);
            }
        }
        self
    }
}

impl Datatype {
    /// The type as made by the constructor's large-count form: the same type, with its counts as large counts. It is a new object,
    /// so call this before the type is used elsewhere.
    #[must_use]
    pub fn with_large_counts(self) -> Self {
        self.with_constructor_call(self.constructor_call().clone().with_large_counts())
    }

    /// The numbers of its constructor's arguments, by sort.
    pub fn envelope(&self) -> Envelope {
        let Contents { integers, addresses, counts, datatypes } = &self.constructor_call().contents;
        Envelope {
            combiner: self.combiner(),
            integers: integers.len(),
            addresses: addresses.len(),
            counts: counts.len(),
            datatypes: datatypes.len(),
        }
    }

    /// Its constructor's arguments.
    ///
    /// # Errors
    /// If it is predefined.
    pub fn contents(&self) -> Result<&Contents> {
        if self.combiner() == Combiner::Named {
            let text = format!("datatype: {self:?} is predefined and has no contents");
            return Err(Error::new(ErrorKind::Type, text));
        }
        Ok(&self.constructor_call().contents)
    }
}
