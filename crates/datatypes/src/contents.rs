//! Envelope and contents: how a type was made, exactly as its constructor was told.

use crate::{Datatype, Error, ErrorKind, Result};

/// Which constructor made a type. Its number is the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Combiner {
    /// None: the type is predefined.
    Named = 101,
    /// [`Datatype::duplicate`].
    Dup,
    /// [`Datatype::contiguous`].
    Contiguous,
    /// [`Datatype::vector`].
    Vector,
    /// [`Datatype::hvector`].
    Hvector,
    /// [`Datatype::indexed`].
    Indexed,
    /// [`Datatype::hindexed`].
    Hindexed,
    /// [`Datatype::indexed_block`].
    IndexedBlock,
    /// [`Datatype::hindexed_block`].
    HindexedBlock,
    /// [`Datatype::structure`].
    Struct,
    /// [`Datatype::subarray`].
    Subarray,
    /// [`Datatype::darray`].
    Darray,
    /// [`Datatype::f90_real`].
    F90Real,
    /// [`Datatype::f90_complex`].
    F90Complex,
    /// [`Datatype::f90_integer`].
    F90Integer,
    /// [`Datatype::resized`].
    Resized,
    /// [`Datatype::value_index`].
    ValueIndex,
}

impl Combiner {
    /// Its number in the ABI.
    pub const fn abi(self) -> i32 {
        self as i32
    }
}

/// What a constructor was given, in the standard's order. Orders, distributions, the default argument of a distribution and
/// undefined precisions are the ABI's numbers.
#[derive(Clone, Default, Debug)]
pub struct Contents {
    /// Integers, and counts unless they were given as large ones.
    pub integers: Vec<i64>,
    /// Addresses, unless they were given as large counts.
    pub addresses: Vec<i64>,
    /// Large counts.
    pub counts: Vec<i64>,
    /// Datatypes.
    pub datatypes: Vec<Datatype>,
}

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

/// A constructor and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    combiner: Combiner,
    contents: Contents,
}

impl Given {
    pub(crate) fn named() -> Self {
        Self { combiner: Combiner::Named, contents: Contents::default() }
    }

    pub(crate) fn new(
        combiner: Combiner,
        integers: Vec<i64>,
        addresses: Vec<i64>,
        datatypes: Vec<Datatype>,
    ) -> Self {
        Self { combiner, contents: Contents { integers, addresses, counts: Vec::new(), datatypes } }
    }

    /// The arguments that decide sizes and addresses, for an error's text.
    pub(crate) fn arguments(&self) -> &'static str {
        match self.combiner {
            Combiner::Named | Combiner::Dup | Combiner::ValueIndex => "the datatype",
            Combiner::F90Real | Combiner::F90Complex | Combiner::F90Integer => "precision and range",
            Combiner::Contiguous => "count",
            Combiner::Vector | Combiner::Hvector => "count, blocklength and stride",
            Combiner::Indexed | Combiner::Hindexed | Combiner::Struct => "blocklengths and displacements",
            Combiner::IndexedBlock | Combiner::HindexedBlock => "blocklength and displacements",
            Combiner::Subarray | Combiner::Darray => "the sizes of the array",
            Combiner::Resized => "lb and extent",
        }
    }

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

    /// Which constructor made it.
    pub fn combiner(&self) -> Combiner {
        self.given().combiner
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
