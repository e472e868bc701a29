//! The constructors: each checks its arguments and builds the shape of the type (MPI 5.0, section 5.1.2).

use crate::datatype::{Block, ConstructorCall, Shape, index_offset};
use crate::{Basic, BasicKind, Combiner, Datatype, Error, ErrorKind, Result};

/// MPI's value for an omitted argument.
const UNDEFINED: i64 = -32766;

/// Checks that a count is not negative.
pub(crate) fn check_count(name: &str, count: i64) -> Result<i64> {
    if count < 0 {
        return Err(Error::new(ErrorKind::Count, format!("{name}: {count} is negative")));
    }
    Ok(count)
}

/// Checks that lists have the same length, and returns it.
pub(crate) fn check_same_length(name: &str, length: usize, other: &str, found: usize) -> Result<i64> {
    if length != found {
        return Err(Error::arg(format!("{other}: {found} of them, but {length} {name}")));
    }
    Ok(length as i64)
}

/// Converts elements to bytes.
fn scaled(name: &str, elements: i64, old: &Datatype) -> Result<i64> {
    let each = old.extent();
    elements
        .checked_mul(each)
        .ok_or_else(|| Error::overflow(&format!("{name}: {elements} extents of {each} bytes")))
}

fn blocks(lengths: &[i64], displacements: &[i64], old: &Datatype) -> Result<Shape> {
    let block = |(at, (&count, &displacement)): (usize, (&i64, &i64))| {
        let count = check_count("blocklengths", count).map_err(|error| at_index(error, at))?;
        Ok(Block { displacement, count, old: old.clone() })
    };
    let blocks: Result<Vec<_>> = lengths.iter().zip(displacements).enumerate().map(block).collect();
    Ok(Shape::Blocks(blocks?))
}

fn at_index(error: Error, at: usize) -> Error {
    Error { text: format!("{} (at index {at})", error.text), ..error }
}

/// Constructors. Counts and blocklengths may be zero, displacements and strides negative, and elements may overlap. An error has
/// the kind that MPI defines, and names the argument; sizes or addresses beyond 64 bits are errors, too.
impl Datatype {
    /// `count` consecutive elements.
    ///
    /// # Errors
    /// If the count is negative or too large.
    pub fn contiguous(count: i64, old: &Self) -> Result<Self> {
        let shape = Shape::Strided {
            count: 1,
            blocklength: check_count("count", count)?,
            stride: 0,
            old: old.clone(),
        };
        Self::from_shape(
            ConstructorCall::new(Combiner::Contiguous, vec![count], vec![], vec![old.clone()]),
            shape,
        )
    }

    /// `count` blocks of `blocklength` elements, each `stride` extents after the one before.
    ///
    /// If a count is negative, or the total too large.
    /// If a count is negative, or all together too large.
    pub fn vector(count: i64, blocklength: i64, stride: i64, old: &Self) -> Result<Self> {
        let constructor_call = ConstructorCall::new(
            Combiner::Vector,
            vec![count, blocklength, stride],
            vec![],
            vec![old.clone()],
        );
        Self::strided(constructor_call, count, blocklength, scaled("stride", stride, old)?, old)
    }

    /// `count` blocks of `blocklength` elements, each `stride` bytes after the one before.
    ///
    /// # Errors
    /// If a count is negative, or the total too large.
    pub fn hvector(count: i64, blocklength: i64, stride: i64, old: &Self) -> Result<Self> {
        let constructor_call = ConstructorCall::new(
            Combiner::Hvector,
            vec![count, blocklength],
            vec![stride],
            vec![old.clone()],
        );
        Self::strided(constructor_call, count, blocklength, stride, old)
    }

    fn strided(
        constructor_call: ConstructorCall,
        count: i64,
        blocklength: i64,
        stride: i64,
        old: &Self,
    ) -> Result<Self> {
        let (count, blocklength) = (check_count("count", count)?, check_count("blocklength", blocklength)?);
        Self::from_shape(constructor_call, Shape::Strided { count, blocklength, stride, old: old.clone() })
    }

    /// Blocks at displacements in extents.
    ///
    /// # Errors
    /// If the lists differ in length, a blocklength is negative, or the total is too large.
    pub fn indexed(blocklengths: &[i64], displacements: &[i64], old: &Self) -> Result<Self> {
        let count =
            check_same_length("blocklengths", blocklengths.len(), "displacements", displacements.len())?;
        let integers = [&[count], blocklengths, displacements].concat();
        let constructor_call = ConstructorCall::new(Combiner::Indexed, integers, vec![], vec![old.clone()]);
        let bytes: Result<Vec<_>> =
            displacements.iter().map(|&at| scaled("displacements", at, old)).collect();
        Self::from_shape(constructor_call, blocks(blocklengths, &bytes?, old)?)
    }

    /// Blocks at displacements in bytes.
    ///
    /// # Errors
    /// If the lists differ in length, a blocklength is negative, or the total is too large.
    pub fn hindexed(blocklengths: &[i64], displacements: &[i64], old: &Self) -> Result<Self> {
        let count =
            check_same_length("blocklengths", blocklengths.len(), "displacements", displacements.len())?;
        let integers = [&[count], blocklengths].concat();
        let constructor_call =
            ConstructorCall::new(Combiner::Hindexed, integers, displacements.to_vec(), vec![old.clone()]);
        Self::from_shape(constructor_call, blocks(blocklengths, displacements, old)?)
    }

    /// Blocks of one length at displacements in extents.
    ///
    /// # Errors
    /// If the blocklength is negative, or the total too large.
    pub fn indexed_block(blocklength: i64, displacements: &[i64], old: &Self) -> Result<Self> {
        let lengths = vec![check_count("blocklength", blocklength)?; displacements.len()];
        let integers = [&[displacements.len() as i64, blocklength], displacements].concat();
        let constructor_call =
            ConstructorCall::new(Combiner::IndexedBlock, integers, vec![], vec![old.clone()]);
        let bytes: Result<Vec<_>> =
            displacements.iter().map(|&at| scaled("displacements", at, old)).collect();
        Self::from_shape(constructor_call, blocks(&lengths, &bytes?, old)?)
    }

    /// Blocks of one length at displacements in bytes.
    ///
    /// # Errors
    /// If the blocklength is negative, or the total too large.
    pub fn hindexed_block(blocklength: i64, displacements: &[i64], old: &Self) -> Result<Self> {
        let lengths = vec![check_count("blocklength", blocklength)?; displacements.len()];
        let integers = vec![displacements.len() as i64, blocklength];
        let constructor_call = ConstructorCall::new(
            Combiner::HindexedBlock,
            integers,
            displacements.to_vec(),
            vec![old.clone()],
        );
        Self::from_shape(constructor_call, blocks(&lengths, displacements, old)?)
    }

    /// Blocks with a type for each, at displacements in bytes; `MPI_Type_create_struct`.
    ///
    /// # Errors
    /// If the lists differ in length, a blocklength is negative, or the total is too large.
    pub fn structure(blocklengths: &[i64], displacements: &[i64], types: &[Self]) -> Result<Self> {
        let count =
            check_same_length("blocklengths", blocklengths.len(), "displacements", displacements.len())?;
        check_same_length("blocklengths", blocklengths.len(), "types", types.len())?;
        let integers = [&[count], blocklengths].concat();
        let constructor_call =
            ConstructorCall::new(Combiner::Struct, integers, displacements.to_vec(), types.to_vec());
        let mut blocks = Vec::with_capacity(types.len());
        for (at, old) in types.iter().enumerate() {
            let count = check_count("blocklengths", blocklengths[at]).map_err(|error| at_index(error, at))?;
            blocks.push(Block { displacement: displacements[at], count, old: old.clone() });
        }
        Self::from_shape(constructor_call, Shape::Blocks(blocks))
    }

    /// The elements of another type with a new lower bound and extent, in bytes.
    ///
    /// # Errors
    /// If the upper bound exceeds 64 bits.
    pub fn resized(old: &Self, lb: i64, extent: i64) -> Result<Self> {
        let constructor_call =
            ConstructorCall::new(Combiner::Resized, vec![], vec![lb, extent], vec![old.clone()]);
        Self::with_bounds(constructor_call, old, lb, extent)
    }

    /// Another object with the same type, committed if this one is.
    #[must_use]
    pub fn duplicate(old: &Self) -> Self {
        let constructor_call = ConstructorCall::new(Combiner::Dup, vec![], vec![], vec![old.clone()]);
        let dup = Self::from_shape(constructor_call, Shape::Duplicate(old.clone()))
            .expect("the bounds of a type that is there fit");
        if old.is_committed() {
            dup.commit();
        }
        dup
    }

    /// Fortran's integer with at least this many decimal digits, committed.
    ///
    /// # Errors
    /// If no type has as many.
    pub fn f90_integer(range: i64) -> Result<Self> {
        let basic = match range {
            ..=2 => Basic::Integer1,
            3..=4 => Basic::Integer2,
            5..=9 => Basic::Integer4,
            10..=18 => Basic::Integer8,
            19..=38 => Basic::Integer16,
            _ => return Err(Error::arg(format!("r: no integer type has {range} decimal digits"))),
        };
        Ok(Self::f90(Combiner::F90Integer, vec![range], basic))
    }

    /// Fortran's real with at least these decimal digits and decimal exponents, committed. `None` is `MPI_UNDEFINED`.
    ///
    /// # Errors
    /// If both are undefined, or there is no such type.
    pub fn f90_real(precision: Option<i64>, range: Option<i64>) -> Result<Self> {
        let basics = [Basic::Real4, Basic::Real8, Basic::Real16];
        let integers = vec![precision.unwrap_or(UNDEFINED), range.unwrap_or(UNDEFINED)];
        Ok(Self::f90(Combiner::F90Real, integers, f90_choice(precision, range, basics)?))
    }

    /// Fortran's complex of such reals, committed. `None` is `MPI_UNDEFINED`.
    ///
    /// # Errors
    /// If both are undefined, or there is no such type.
    pub fn f90_complex(precision: Option<i64>, range: Option<i64>) -> Result<Self> {
        let basics = [Basic::Complex8, Basic::Complex16, Basic::Complex32];
        let integers = vec![precision.unwrap_or(UNDEFINED), range.unwrap_or(UNDEFINED)];
        Ok(Self::f90(Combiner::F90Complex, integers, f90_choice(precision, range, basics)?))
    }

    fn f90(combiner: Combiner, integers: Vec<i64>, basic: Basic) -> Self {
        let constructor_call = ConstructorCall::new(combiner, integers, vec![], vec![]);
        let datatype = Self::from_shape(constructor_call, Shape::Duplicate(basic.into()))
            .expect("the bounds of a basic type fit");
        datatype.commit();
        datatype
    }

    /// The pair of a value and an index that `MPI_MINLOC` and `MPI_MAXLOC` reduce, laid out as in a C struct, committed; a
    /// predefined pair if there is one. `None`, for `MPI_DATATYPE_NULL`, if the types form no pair.
    ///
    /// # Errors
    /// If one of the types is not predefined.
    pub fn value_index(value: &Self, index: &Self) -> Result<Option<Self>> {
        let basic = |name: &str, datatype: &Self| {
            let text = format!("{name}: {datatype:?} is not predefined");
            datatype.basic().ok_or_else(|| Error::new(ErrorKind::Type, text))
        };
        let (first, second) = (basic("value_type", value)?, basic("index_type", index)?);
        if let Some(&pair) = Basic::ALL.iter().find(|pair| pair.pair() == Some((first, second))) {
            return Ok(Some(pair.into()));
        }
        if !(first.is_integer() || first.kind() == BasicKind::Real) || !second.is_integer() {
            return Ok(None);
        }
        let constructor_call =
            ConstructorCall::new(Combiner::ValueIndex, vec![], vec![], vec![value.clone(), index.clone()]);
        let block = |displacement, old: &Self| Block { displacement, count: 1, old: old.clone() };
        let blocks = vec![block(0, value), block(i64::from(index_offset(first, second)), index)];
        let pair = Self::from_shape(constructor_call, Shape::Blocks(blocks))?;
        pair.commit();
        Ok(Some(pair))
    }
}

/// The smallest of three floating point types, with 4, 8 and 16 bytes, that has these digits and exponents.
fn f90_choice(precision: Option<i64>, range: Option<i64>, types: [Basic; 3]) -> Result<Basic> {
    if precision.is_none() && range.is_none() {
        return Err(Error::arg("p and r: both are undefined"));
    }
    let (digits, exponents) = (precision.unwrap_or(0), range.unwrap_or(0));
    let fits = [(6, 37), (15, 307), (33, 4931)].iter().position(|&(p, r)| digits <= p && exponents <= r);
    fits.map(|at| types[at]).ok_or_else(|| {
        Error::arg(format!("p and r: no real type has {digits} digits and exponents to {exponents}"))
    })
}
