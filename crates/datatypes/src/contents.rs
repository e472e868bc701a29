//! Envelope and contents: how a type was made, exactly as its constructor was told.

use crate::combiner::Combiner;
use crate::datatype::{Contents, Datatype, Given};
use crate::{Error, ErrorKind, Result};

/// How many of each the [`Contents`] are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Which constructor it was.
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

impl Given {
    /// These arguments, with counts given as large ones. Displacements and bounds are counts then, too.
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
                let behind = 3 + integers[2] as usize;
                contents.counts = integers[3..behind].to_vec();
                contents.integers = [&integers[..3], &integers[behind..]].concat();
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
    /// What a constructor's large-count form makes: the same type, its counts given as large ones. It is another object, so it
    /// is to be called before the type is handed on.
    #[must_use]
    pub fn with_large_counts(self) -> Self {
        self.with_given(self.given().clone().with_large_counts())
    }

    /// How many arguments of each sort its constructor was given.
    pub fn envelope(&self) -> Envelope {
        let Contents { integers, addresses, counts, datatypes } = &self.given().contents;
        Envelope {
            combiner: self.combiner(),
            integers: integers.len(),
            addresses: addresses.len(),
            counts: counts.len(),
            datatypes: datatypes.len(),
        }
    }

    /// What its constructor was given.
    ///
    /// # Errors
    /// If it is predefined: nobody made it.
    pub fn contents(&self) -> Result<&Contents> {
        if self.combiner() == Combiner::Named {
            let text = format!("datatype: {self:?} is predefined and has no contents");
            return Err(Error::new(ErrorKind::Type, text));
        }
        Ok(&self.given().contents)
    }
}
