//! Groups (MPI 5.0, section 7.3).

use ffi::{In, Out};
use mpi::Group;

use crate::answer::{Answer, Fault, null_result};
use crate::constants as c;
use crate::objects::{get, insert, remove};
use crate::state;
use crate::types::{self, Handle};

/// A new handle; the predefined one for an empty group.
pub(crate) fn new_group(group: Group) -> Answer<types::Group> {
    if group.size() == 0 { Ok(Handle::new(c::MPI_GROUP_EMPTY)) } else { insert(group) }
}

/// Reads an array of `count` integers.
pub(crate) fn integers(array: In<i32>, count: i32, argument: &str) -> Answer<Vec<i32>> {
    let count = usize::try_from(count)
        .map_err(|_| Fault::new(c::MPI_ERR_ARG, format!("{argument}: a count is negative")))?;
    let items =
        array.items(count).ok_or_else(|| Fault::new(c::MPI_ERR_ARG, format!("{argument}: it is NULL")))?;
    Ok(items.collect())
}

/// MPI 5.0, section 7.3.1.
pub(crate) fn group_size(group: types::Group, size: Out<i32>) -> Answer {
    size.set(get(group, "group")?.size());
    Ok(())
}

/// MPI 5.0, section 7.3.1.
pub(crate) fn group_rank(group: types::Group, rank: Out<i32>) -> Answer {
    let own = get(group, "group")?.rank_of(state::process()?.bootstrap().rank());
    rank.set(own.unwrap_or(c::MPI_UNDEFINED));
    Ok(())
}

/// MPI 5.0, section 7.3.1.
pub(crate) fn group_translate_ranks(
    group1: types::Group,
    n: i32,
    ranks1: In<i32>,
    group2: types::Group,
    ranks2: Out<i32>,
) -> Answer {
    let ranks = integers(ranks1, n, "ranks1")?;
    if !ranks.is_empty() && !ranks2.is_some() {
        return null_result("ranks2");
    }
    let translated = get(group1, "group1")?.translate(&ranks, &*get(group2, "group2")?)?;
    translated.into_iter().enumerate().for_each(|(at, rank)| ranks2.element(at).set(rank));
    Ok(())
}

/// MPI 5.0, section 7.3.1.
pub(crate) fn group_compare(group1: types::Group, group2: types::Group, result: Out<i32>) -> Answer {
    result.set(get(group1, "group1")?.compare(&*get(group2, "group2")?) as i32);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_union(group1: types::Group, group2: types::Group, newgroup: Out<types::Group>) -> Answer {
    newgroup.set(new_group(get(group1, "group1")?.union(&*get(group2, "group2")?)?)?);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_intersection(
    group1: types::Group,
    group2: types::Group,
    newgroup: Out<types::Group>,
) -> Answer {
    newgroup.set(new_group(get(group1, "group1")?.intersection(&*get(group2, "group2")?))?);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_difference(
    group1: types::Group,
    group2: types::Group,
    newgroup: Out<types::Group>,
) -> Answer {
    newgroup.set(new_group(get(group1, "group1")?.difference(&*get(group2, "group2")?))?);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_incl(group: types::Group, n: i32, ranks: In<i32>, newgroup: Out<types::Group>) -> Answer {
    newgroup.set(new_group(get(group, "group")?.include(&integers(ranks, n, "ranks")?)?)?);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_excl(group: types::Group, n: i32, ranks: In<i32>, newgroup: Out<types::Group>) -> Answer {
    newgroup.set(new_group(get(group, "group")?.exclude(&integers(ranks, n, "ranks")?)?)?);
    Ok(())
}

/// Reads triples of first rank, last rank and stride, which C passes as consecutive integers.
fn ranges(array: Out<i32>, count: i32) -> Answer<Vec<[i32; 3]>> {
    let wrong = |why| Fault::new(c::MPI_ERR_ARG, format!("ranges: {why}"));
    let count = usize::try_from(count).map_err(|_| wrong("their number is negative"))?;
    let number = |at| array.element(at).get().ok_or_else(|| wrong("it is NULL"));
    (0..count).map(|at| Ok([number(3 * at)?, number(3 * at + 1)?, number(3 * at + 2)?])).collect()
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_range_incl(
    group: types::Group,
    n: i32,
    array: Out<i32>,
    newgroup: Out<types::Group>,
) -> Answer {
    newgroup.set(new_group(get(group, "group")?.include_ranges(&ranges(array, n)?)?)?);
    Ok(())
}

/// MPI 5.0, section 7.3.2.
pub(crate) fn group_range_excl(
    group: types::Group,
    n: i32,
    array: Out<i32>,
    newgroup: Out<types::Group>,
) -> Answer {
    newgroup.set(new_group(get(group, "group")?.exclude_ranges(&ranges(array, n)?)?)?);
    Ok(())
}

/// MPI 5.0, section 7.3.3.
pub(crate) fn group_free(group: Out<types::Group>) -> Answer {
    let handle = group.get().unwrap_or(Handle::new(c::MPI_GROUP_NULL));
    get(handle, "group")?;
    // The empty group has only its predefined handle; freeing it resets the variable.
    remove(handle);
    group.set(Handle::new(c::MPI_GROUP_NULL));
    Ok(())
}
