//! [`Representation`]: the data representation in a file, and conversions to and from it (MPI 5.0, section 14.5).

use std::fmt;
use std::sync::Arc;

use datatypes::{Basic, Combiner, Contents, Datatype, Distribution, Order};

use crate::error::{Class, Error, Result};
use crate::memory::Buffer;

/// User-defined conversions (`MPI_Register_datarep`). They are never called with a lock held.
pub trait Conversion: Send + Sync {
    /// The extent of a predefined datatype in a file, in bytes.
    ///
    /// # Errors
    /// The program's.
    fn extent(&self, datatype: &Datatype) -> Result<i64>;
    /// Converts `count` elements from their file representation `from`, and stores them at an address.
    ///
    /// # Errors
    /// The program's.
    fn read(&self, address: usize, count: i64, datatype: &Datatype, from: &[u8]) -> Result<()>;
    /// Converts `count` elements at an address to their file representation, which fills `into`.
    ///
    /// # Errors
    /// The program's.
    fn write(&self, address: usize, count: i64, datatype: &Datatype, into: &mut [u8]) -> Result<()>;
}

/// The representation of data in a file.
#[derive(Clone, Default)]
pub enum Representation {
    /// As in memory (`native`).
    #[default]
    Native,
    /// The library's own choice, which is the same as in memory (`internal`).
    Internal,
    /// The standard's representation for heterogeneous machines (`external32`).
    External32,
    /// A user-defined representation.
    User {
        /// The name under which it was registered.
        name: Arc<str>,
        /// The conversions; `None` if data are the same as in memory.
        conversion: Arc<dyn Conversion>,
    },
}

impl fmt::Debug for Representation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Representation {
    /// A standard representation by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Native, Self::Internal, Self::External32].into_iter().find(|known| known.name() == name)
    }

    /// Its name, such as `native`.
    pub fn name(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::Internal => "internal",
            Self::External32 => "external32",
            Self::User { name, .. } => name,
        }
    }

    /// The datatype that matches this one in the file, built from bytes where the sizes differ. Displacements given in bytes stay
    /// the same: such types are not portable.
    ///
    /// # Errors
    /// A conversion's; [`Class::TYPE`] for a type beyond 64 bits.
    pub(crate) fn file_type(&self, datatype: &Datatype) -> Result<Datatype> {
        let is_same = match self {
            Self::Native | Self::Internal => true,
            // No type is larger in external32 than here.
            Self::External32 => datatype.external32_size(1).ok() == u64::try_from(datatype.size()).ok(),
            Self::User { .. } => false,
        };
        if is_same { Ok(datatype.clone()) } else { self.rebuild(datatype) }
    }

    /// Size of a predefined type in a file, in bytes.
    fn extent(&self, datatype: &Datatype, basic: Basic) -> Result<i64> {
        match self {
            Self::Native | Self::Internal => Ok(datatype.extent()),
            Self::External32 => Ok(basic.external_size().into()),
            Self::User { conversion, .. } => conversion.extent(datatype),
        }
    }

    fn rebuild(&self, datatype: &Datatype) -> Result<Datatype> {
        let wrong = |error: datatypes::Error| Error::new(Class::TYPE, error.text);
        if let Some(basic) = datatype.basic() {
            let extent = self.extent(datatype, basic)?;
            return Datatype::contiguous(extent, &Basic::Byte.into()).map_err(wrong);
        }
        let Contents { integers, counts, addresses, datatypes } = datatype.contents().map_err(wrong)?;
        let parts = datatypes.iter().map(|part| self.file_type(part)).collect::<Result<Vec<_>>>()?;
        // In the form for large counts, these take the place of the other arguments.
        let numbers = [&integers[..], counts, addresses].concat();
        apply_constructor(datatype.combiner(), (integers, counts), &numbers, &parts).map_err(wrong)
    }

    /// A buffer's data in the file representation; `None` if that is the same.
    ///
    /// # Errors
    /// [`Class::CONVERSION`] for values that do not fit the representation; a conversion's error.
    pub(crate) fn encode(&self, buffer: &Buffer) -> Result<Option<Buffer>> {
        Ok(Some(match self {
            Self::Native | Self::Internal => return Ok(None),
            Self::External32 => Buffer::from_bytes(&buffer.to_external32()?)?,
            Self::User { conversion, .. } => {
                let mut bytes = vec![0; self.file_len(buffer)? as usize];
                conversion.write(buffer.address(), buffer.count(), buffer.datatype(), &mut bytes)?;
                Buffer::from_bytes(&bytes)?
            }
        }))
    }

    /// Memory for a buffer's data in the file representation; `None` if that is the same.
    pub(crate) fn file_buffer(&self, buffer: &Buffer) -> Result<Option<Buffer>> {
        match self {
            Self::Native | Self::Internal => Ok(None),
            _ => Buffer::zeroed(Basic::Byte.into(), self.file_len(buffer)? as i64).map(Some),
        }
    }

    /// Size of a buffer's elements in a file, in bytes.
    pub(crate) fn file_len(&self, buffer: &Buffer) -> Result<u64> {
        match self {
            Self::Native | Self::Internal => Ok(buffer.len()),
            Self::External32 | Self::User { .. } => {
                let each = self.file_type(buffer.datatype())?.size();
                let all = each.checked_mul(buffer.count()).and_then(|all| u64::try_from(all).ok());
                all.ok_or_else(|| Error::new(Class::COUNT, "more elements than a file can have"))
            }
        }
    }

    /// Converts bytes read from a file into a buffer, as far as they are whole elements. Returns their size in memory.
    ///
    /// # Errors
    /// A conversion's.
    pub(crate) fn decode(&self, bytes: &[u8], buffer: &Buffer) -> Result<u64> {
        let each = self.file_type(buffer.datatype())?.size();
        let count = (bytes.len() as i64).checked_div(each).unwrap_or(0).min(buffer.count());
        match self {
            Self::Native | Self::Internal => buffer.store(bytes),
            Self::External32 => buffer.store_external32(count, bytes)?,
            Self::User { conversion, .. } => {
                let from = &bytes[..(count * each) as usize];
                conversion.read(buffer.address(), count, buffer.datatype(), from)?;
            }
        }
        Ok((count * buffer.datatype().size()) as u64)
    }
}

/// `MPI_DISTRIBUTE_DFLT_DARG`.
const DEFAULT: i64 = 19;

/// Applies a datatype's constructor to other parts.
fn apply_constructor(
    combiner: Combiner,
    (integers, counts): (&[i64], &[i64]),
    numbers: &[i64],
    parts: &[Datatype],
) -> datatypes::Result<Datatype> {
    let lists = || {
        let n = numbers[0] as usize;
        (&numbers[1..=n], &numbers[n + 1..])
    };
    let order = |number: i64| if number == Order::C as i64 { Order::C } else { Order::Fortran };
    match combiner {
        Combiner::Contiguous => Datatype::contiguous(numbers[0], &parts[0]),
        Combiner::Vector => Datatype::vector(numbers[0], numbers[1], numbers[2], &parts[0]),
        Combiner::Hvector => Datatype::hvector(numbers[0], numbers[1], numbers[2], &parts[0]),
        Combiner::Indexed => Datatype::indexed(lists().0, lists().1, &parts[0]),
        Combiner::Hindexed => Datatype::hindexed(lists().0, lists().1, &parts[0]),
        Combiner::IndexedBlock => Datatype::indexed_block(numbers[1], &numbers[2..], &parts[0]),
        Combiner::HindexedBlock => Datatype::hindexed_block(numbers[1], &numbers[2..], &parts[0]),
        Combiner::Struct => Datatype::structure(lists().0, lists().1, parts),
        Combiner::Resized => Datatype::resized(&parts[0], numbers[0], numbers[1]),
        Combiner::Subarray => {
            let dims = integers[0] as usize;
            let all = if counts.is_empty() { &integers[1..] } else { counts };
            let of = |at: usize| &all[at * dims..(at + 1) * dims];
            Datatype::subarray(of(0), of(1), of(2), order(integers[integers.len() - 1]), &parts[0])
        }
        Combiner::Darray => {
            let dims = integers[2] as usize;
            let (sizes, rest) =
                if counts.is_empty() { integers[3..].split_at(dims) } else { (counts, &integers[3..]) };
            let of = |at: usize| &rest[at * dims..(at + 1) * dims];
            let dealt: Vec<Distribution> = of(0).iter().map(|number| distribution(*number)).collect();
            let arguments: Vec<Option<i64>> =
                of(1).iter().map(|number| Some(*number).filter(|n| *n != DEFAULT)).collect();
            let order = order(rest[rest.len() - 1]);
            Datatype::darray(integers[0], integers[1], sizes, &dealt, &arguments, of(2), order, &parts[0])
        }
        // A wrapper of one part, or of a predefined type, which stands for its content.
        _ => Ok(parts.first().cloned().unwrap_or_else(|| Basic::Byte.into())),
    }
}

fn distribution(number: i64) -> Distribution {
    let known = [Distribution::Block, Distribution::Cyclic];
    known.into_iter().find(|known| *known as i64 == number).unwrap_or(Distribution::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_sizes_of_external32_in_a_file() {
        let long = || Datatype::from(Basic::Long);
        let file_type = |datatype: Datatype| {
            let found = Representation::External32.file_type(&datatype).expect("a type");
            (found.size(), found.extent())
        };
        assert_eq!(file_type(long()), (4, 4));
        assert_eq!(file_type(Basic::Double.into()), (8, 8));
        assert_eq!(file_type(Datatype::vector(3, 1, 2, &long()).expect("a type")), (12, 20));
        assert_eq!(
            file_type(Datatype::vector(3, 1, 2, &long()).expect("a type").with_large_counts()),
            (12, 20)
        );
        let hvector = Datatype::hvector(3, 1, 16, &long()).expect("a type");
        assert_eq!(file_type(hvector.clone()), (12, 36), "bytes stay");
        assert_eq!(file_type(hvector.with_large_counts()), (12, 36));
        let subarray = || Datatype::subarray(&[4, 6], &[2, 3], &[1, 1], Order::C, &long()).expect("a type");
        assert_eq!(file_type(subarray()), (24, 96));
        assert_eq!(file_type(subarray().with_large_counts()), (24, 96));
        let darray = || {
            let dealt = [Distribution::Cyclic, Distribution::Block];
            Datatype::darray(4, 1, &[4, 6], &dealt, &[Some(1), None], &[2, 2], Order::C, &long())
                .expect("a type")
        };
        assert_eq!(file_type(darray()), (24, 96));
        assert_eq!(file_type(darray().with_large_counts()), (24, 96));
        let indexed = Datatype::indexed(&[2, 1], &[0, 5], &long()).expect("a type");
        assert_eq!(file_type(Datatype::duplicate(&indexed)), (12, 24));
        let block = Datatype::indexed_block(2, &[0, 5], &long()).expect("a type");
        assert_eq!(file_type(Datatype::resized(&block, 0, 100).expect("a type")), (16, 100));
        let two = Datatype::structure(&[1, 2], &[0, 8], &[long(), Basic::Int.into()]).expect("a type");
        assert_eq!(file_type(two).0, 12);
    }
}
