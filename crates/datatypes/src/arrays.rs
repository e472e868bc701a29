//! Parts of multidimensional arrays, built from the simpler constructors: subarrays, and one process's blocks of a distributed
//! array (MPI 5.0, sections 5.1.3 and 5.1.4).

use crate::construct::check_same_length;
use crate::datatype::ConstructorCall;
use crate::{Combiner, Datatype, Error, ErrorKind, Result};

/// The ABI's value of `MPI_DISTRIBUTE_DFLT_DARG`.
const DEFAULT_ARGUMENT: i64 = 19;

/// The index of an array that varies fastest. Its number is the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The last index.
    C = 12,
    /// The first index.
    Fortran = 15,
}

/// The distribution of a dimension among processes. Its number is the ABI's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// No distribution: one process has the whole dimension.
    None = 16,
    /// One block for each process.
    Block = 17,
    /// Blocks assigned in turn.
    Cyclic = 18,
}

impl Order {
    /// Dimensions, starting with the one that varies fastest.
    fn dimensions(self, count: usize) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::C => Box::new((0..count).rev()),
            Self::Fortran => Box::new(0..count),
        }
    }
}

/// A process's elements of one dimension: blocks of `length` from `start` on, `count` of them at a stride, then one block of
/// `rest`. All in elements of that dimension.
struct LocalBlocks {
    start: i64,
    length: i64,
    count: i64,
    stride: i64,
    rest: i64,
}

impl Datatype {
    /// A block of an array, with the extent of the whole array. Sizes and starts are in elements; starts count from 0.
    ///
    /// # Errors
    /// If the lists differ in length or are empty, or the block is empty or not inside the array.
    pub fn subarray(
        sizes: &[i64],
        subsizes: &[i64],
        starts: &[i64],
        order: Order,
        old: &Self,
    ) -> Result<Self> {
        let dims = check_same_length("sizes", sizes.len(), "subsizes", subsizes.len())?;
        check_same_length("sizes", sizes.len(), "starts", starts.len())?;
        check_sizes(sizes)?;
        let mut local = Vec::with_capacity(sizes.len());
        for (at, ((&size, &subsize), &start)) in sizes.iter().zip(subsizes).zip(starts).enumerate() {
            if subsize < 1 || subsize > size {
                return Err(Error::arg(format!("subsizes: {subsize} at index {at} is not from 1 to {size}")));
            }
            if start < 0 || start > size - subsize {
                return Err(Error::arg(format!(
                    "starts: {start} at index {at} is not from 0 to {}",
                    size - subsize
                )));
            }
            local.push(LocalBlocks { start, length: subsize, count: 1, stride: 0, rest: 0 });
        }
        let integers = [&[dims], sizes, subsizes, starts, &[order as i64]].concat();
        local_part(
            ConstructorCall::new(Combiner::Subarray, integers, vec![], vec![old.clone()]),
            sizes,
            &local,
            order,
            old,
        )
    }

    /// The part of process `rank` of `size` in an array distributed over a grid of processes, with the extent of the whole array.
    /// Ranks go through the grid with the last dimension fastest. An argument of `None` is `MPI_DISTRIBUTE_DFLT_DARG`.
    ///
    /// # Errors
    /// If the lists differ in length or are empty, the grid does not have `size` processes, or an argument is invalid for its
    /// distribution.
    #[expect(clippy::too_many_arguments, reason = "the standard's")]
    pub fn darray(
        size: i64,
        rank: i64,
        sizes: &[i64],
        distributions: &[Distribution],
        arguments: &[Option<i64>],
        processes: &[i64],
        order: Order,
        old: &Self,
    ) -> Result<Self> {
        let dims = check_same_length("gsizes", sizes.len(), "distribs", distributions.len())?;
        check_same_length("gsizes", sizes.len(), "dargs", arguments.len())?;
        check_same_length("gsizes", sizes.len(), "psizes", processes.len())?;
        check_sizes(sizes)?;
        let coordinates = coordinates(size, rank, processes)?;
        let mut local = Vec::with_capacity(sizes.len());
        for at in 0..sizes.len() {
            let one = distribute(sizes[at], distributions[at], arguments[at], processes[at], coordinates[at]);
            local.push(
                one.map_err(|error| Error { text: format!("{} (at index {at})", error.text), ..error })?,
            );
        }
        let distributions: Vec<i64> = distributions.iter().map(|&distribution| distribution as i64).collect();
        let arguments: Vec<i64> =
            arguments.iter().map(|argument| argument.unwrap_or(DEFAULT_ARGUMENT)).collect();
        let head = [size, rank, dims];
        let integers = [&head, sizes, &distributions, &arguments, processes, &[order as i64]].concat();
        local_part(
            ConstructorCall::new(Combiner::Darray, integers, vec![], vec![old.clone()]),
            sizes,
            &local,
            order,
            old,
        )
    }
}

fn check_sizes(sizes: &[i64]) -> Result<()> {
    if sizes.is_empty() {
        return Err(Error::new(ErrorKind::Dims, "ndims: an array has at least one dimension"));
    }
    match sizes.iter().position(|&size| size < 1) {
        Some(at) => Err(Error::arg(format!("sizes: {} at index {at} is less than 1", sizes[at]))),
        None => Ok(()),
    }
}

/// The coordinates of a rank in a grid, with the last dimension fastest.
fn coordinates(size: i64, rank: i64, processes: &[i64]) -> Result<Vec<i64>> {
    if let Some(at) = processes.iter().position(|&processes| processes < 1) {
        return Err(Error::arg(format!("psizes: {} at index {at} is less than 1", processes[at])));
    }
    let grid = processes.iter().try_fold(1_i64, |all, &processes| all.checked_mul(processes));
    if grid != Some(size) {
        return Err(Error::arg(format!(
            "psizes: the grid {processes:?} does not have size = {size} processes"
        )));
    }
    if rank < 0 || rank >= size {
        return Err(Error::arg(format!("rank: {rank} is not from 0 to {}", size - 1)));
    }
    let mut rest = rank;
    let mut coordinates: Vec<i64> = processes
        .iter()
        .rev()
        .map(|&processes| {
            let coordinate = rest % processes;
            rest /= processes;
            coordinate
        })
        .collect();
    coordinates.reverse();
    Ok(coordinates)
}

/// The elements of one dimension at the process with a coordinate.
fn distribute(
    size: i64,
    distribution: Distribution,
    argument: Option<i64>,
    processes: i64,
    coordinate: i64,
) -> Result<LocalBlocks> {
    let least = size / processes + i64::from(size % processes != 0);
    let length = match (distribution, argument) {
        (Distribution::None, None) if processes == 1 => size,
        (Distribution::None, None) => {
            return Err(Error::arg(format!(
                "psizes: {processes} processes for a dimension that is not distributed"
            )));
        }
        (Distribution::None, Some(argument)) => {
            return Err(Error::arg(format!("dargs: {argument} for a dimension that is not distributed")));
        }
        (Distribution::Block, None) => least,
        (Distribution::Cyclic, None) => 1,
        (_, Some(length)) if length < 1 => return Err(Error::arg(format!("dargs: {length} is less than 1"))),
        (Distribution::Block, Some(length)) if length < least => {
            return Err(Error::arg(format!(
                "dargs: blocks of {length} on {processes} processes do not hold {size}"
            )));
        }
        (_, Some(length)) => length,
    };
    // A block as long as the dimension covers it; with this limit nothing below exceeds 64 bits.
    let length = length.min(size);
    let start = coordinate.saturating_mul(length).min(size);
    let stride = processes.saturating_mul(length);
    let left = size - start;
    let (count, rest) = (left / stride + i64::from(left % stride >= length), left % stride);
    Ok(LocalBlocks { start, length, count, stride, rest: if rest >= length { 0 } else { rest } })
}

/// The part of an array of these sizes that the parts of its dimensions define.
fn local_part(
    constructor_call: ConstructorCall,
    sizes: &[i64],
    local: &[LocalBlocks],
    order: Order,
    old: &Datatype,
) -> Result<Datatype> {
    let overflow = || Error::overflow(constructor_call.arguments());
    let (mut inner, mut start, mut extent) = (old.clone(), 0_i64, old.extent());
    for at in order.dimensions(sizes.len()) {
        let LocalBlocks { start: first, length, count, stride, rest } = local[at];
        let bytes = |elements: i64| elements.checked_mul(extent).ok_or_else(overflow);
        start = start.checked_add(bytes(first)?).ok_or_else(overflow)?;
        let block = |length| Datatype::hvector(length, 1, extent, &inner);
        let mut dimension = block(length)?;
        if count != 1 {
            dimension = Datatype::hvector(count, 1, if count > 1 { bytes(stride)? } else { 0 }, &dimension)?;
        }
        if rest > 0 {
            let rest_at = if count > 0 { bytes(count.checked_mul(stride).ok_or_else(overflow)?)? } else { 0 };
            dimension = Datatype::structure(&[1, 1], &[0, rest_at], &[dimension, block(rest)?])?;
        }
        inner = dimension;
        extent = bytes(sizes[at])?;
    }
    let shifted = Datatype::hindexed(&[1], &[start], &inner)?;
    Datatype::with_bounds(constructor_call, &shifted, 0, extent)
}
