//! Hardware resources: those that contain this process, and communicators of the processes that share a resource (MPI 5.0,
//! sections 7.4.2 and 9.1.2).

use std::fs;

use ffi::{Out, lock};
use host::bounded;
use mpi::{SplitType, UNDEFINED};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::info::{hints, new_info};
use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::objects::{get, insert_comm};
use crate::types::{self, Comm, Info};

/// The resource types, from large to small: a host, under the standard's name, and the types from sysfs.
const KINDS: [&str; 5] =
    ["mpi_shared_memory", "sysfs://package", "sysfs://numa_node", "sysfs://core", "sysfs://processor"];
/// The info key that names a resource type.
const HINT: &str = "mpi_hw_resource_type";
/// The number of types from sysfs.
const PARTS: usize = KINDS.len() - 1;
/// The process is not restricted to a single resource of this type.
const NONE: u32 = u32::MAX;

/// The number of the resource of each sysfs type that contains all of these processors; [`NONE`] without such a resource.
fn parts_of(processors: &[usize], number: impl Fn(usize, usize) -> Option<u32>) -> [u32; PARTS] {
    let mut parts = [NONE; PARTS];
    for (kind, part) in parts.iter_mut().enumerate() {
        let mut numbers = processors.iter().map(|processor| number(kind, *processor).unwrap_or(NONE));
        let first = numbers.next().unwrap_or(NONE);
        *part = if numbers.all(|other| other == first) { first } else { NONE };
    }
    parts
}

/// The resources that this thread is currently restricted to.
fn own_parts() -> [u32; PARTS] {
    let Ok(set) = sched_getaffinity(None) else { return [NONE; PARTS] };
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect();
    parts_of(&processors, |kind, processor| {
        let folder = format!("/sys/devices/system/cpu/cpu{processor}");
        let read =
            |file: &str| bounded::kernel_text(format!("{folder}/topology/{file}")).ok()?.trim().parse().ok();
        let package = || read("physical_package_id");
        match kind {
            0 => package(),
            1 => fs::read_dir(&folder)
                .ok()?
                .filter_map(Result::ok)
                .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()),
            // Core numbers are per package.
            2 => Some((package()? << 16) | read("core_id")?),
            _ => u32::try_from(processor).ok(),
        }
    })
}

/// For each resource type, whether this process is restricted to one resource. Every process has a host (MPI 5.0, section 9.1.2).
pub(crate) fn get_hw_resource_info(info: Out<Info>) -> Answer {
    let mut pairs = mpi::Info::default();
    pairs.set(KINDS[0], "true")?;
    for (kind, part) in KINDS[1..].iter().zip(own_parts()) {
        pairs.set(kind, if part == NONE { "false" } else { "true" })?;
    }
    info.set(new_info(pairs)?);
    Ok(())
}

/// The resources that each member is restricted to, beginning with its host, identified by the lowest rank on it. Collective.
fn parts_of_all(comm: &mpi::Comm) -> Answer<Vec<[u32; PARTS + 1]>> {
    let host = comm.split_type(&SplitType::Shared, 0)?;
    let lowest = host.map_or(comm.rank(), |host| {
        let first = host.group().process(0);
        first.and_then(|process| comm.group().rank_of(process)).unwrap_or_default()
    });
    let own: Vec<u8> = std::iter::once(lowest as u32).chain(own_parts()).flat_map(u32::to_ne_bytes).collect();
    let bytes = comm.allgather_bytes(&own)?;
    let number = |four: &[u8]| four.try_into().map_or(NONE, u32::from_ne_bytes);
    let of = |parts: &[u8]| std::array::from_fn(|kind| number(&parts[4 * kind..][..4]));
    Ok(bytes.chunks_exact(4 * (PARTS + 1)).map(of).collect())
}

/// The color of each member for splitting by a resource type within a host.
fn colors(all: &[[u32; PARTS + 1]], kind: usize) -> Vec<i32> {
    let same = |a: &[u32; PARTS + 1], b: &[u32; PARTS + 1]| a[0] == b[0] && a[kind] == b[kind];
    let color = |own: &[u32; PARTS + 1]| match own[kind] {
        NONE => UNDEFINED,
        _ => all.iter().position(|other| same(other, own)).map_or(UNDEFINED, |first| first as i32),
    };
    all.iter().map(color).collect()
}

/// The largest resource type that does not cover all members, so that a split by it makes smaller groups.
fn next_kind(all: &[[u32; PARTS + 1]]) -> Option<usize> {
    (0..=PARTS).find(|kind| {
        let colors = colors(all, *kind);
        colors.iter().any(|color| *color != colors[0])
    })
}

/// MPI 5.0, section 7.4.2.
pub(crate) fn comm_split_type(
    comm: Comm,
    split_type: i32,
    key: i32,
    info: Info,
    newcomm: Out<Comm>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let hints = hints(info)?;
    let kind = match split_type {
        c::MPI_UNDEFINED => Some(None),
        c::MPI_COMM_TYPE_SHARED => Some(Some(0)),
        c::MPI_COMM_TYPE_HW_UNGUIDED => None,
        c::MPI_COMM_TYPE_HW_GUIDED | c::MPI_COMM_TYPE_RESOURCE_GUIDED => {
            let name = hints.get(HINT)?.unwrap_or_default();
            Some(KINDS.iter().position(|kind| *kind == name))
        }
        other => return Err(Fault::new(c::MPI_ERR_ARG, format!("split_type: there is no {other}"))),
    };
    if comm.is_inter() {
        let kind = if kind == Some(Some(0)) { SplitType::Shared } else { SplitType::Undefined };
        return put(comm.split_type(&kind, key)?, newcomm);
    }
    // Members pass the same type, or `MPI_UNDEFINED`.
    let all = parts_of_all(&comm)?;
    let is_guided = kind.is_some();
    let kind = kind.unwrap_or_else(|| next_kind(&all));
    let color = kind.map_or(UNDEFINED, |kind| colors(&all, kind)[comm.rank() as usize]);
    let part = comm.split(color, key)?;
    // An unguided split reports the resource type that it chose (MPI 5.0, section 7.4.2).
    if let Some(kind) = kind.filter(|_| !is_guided && part.is_some())
        && info.value() != c::MPI_INFO_NULL
    {
        lock(&*get(info, "info")?).set(HINT, KINDS[kind])?;
    }
    put(part, newcomm)
}

fn put(comm: Option<mpi::Comm>, newcomm: Out<types::Comm>) -> Answer {
    newcomm.set(insert_comm(comm)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_restricted_to_what_all_its_processors_share() {
        // Two packages, each with two cores of two processors.
        let number = |kind: usize, processor: usize| {
            let number = [processor / 4, processor / 4, processor / 2, processor][kind];
            u32::try_from(number).ok()
        };
        assert_eq!(parts_of(&[2], number), [0, 0, 1, 2]);
        assert_eq!(parts_of(&[4, 5], number), [1, 1, 2, NONE]);
        assert_eq!(parts_of(&[1, 2], number), [0, 0, NONE, NONE]);
        assert_eq!(parts_of(&[3, 4], number), [NONE; 4]);
        assert_eq!(parts_of(&[], number), [NONE; 4]);
        assert_eq!(parts_of(&[0, 1], |_, _| None), [NONE; 4]);
    }

    #[test]
    fn members_are_split_by_the_largest_part_that_they_do_not_share() {
        let at = |host: u32, package: u32, core: u32| [host, package, package, core, NONE];
        let hosts = [at(0, 0, 0), at(0, 1, 4), at(2, 0, 0)];
        assert_eq!((next_kind(&hosts), colors(&hosts, 0)), (Some(0), vec![0, 0, 2]));
        let packages = [at(0, 0, 0), at(0, 1, 4), at(0, 0, 1), at(0, NONE, NONE)];
        assert_eq!((next_kind(&packages), colors(&packages, 1)), (Some(1), vec![0, 1, 0, UNDEFINED]));
        let cores = [at(0, 0, 0), at(0, 0, 1)];
        assert_eq!((next_kind(&cores), colors(&cores, 3)), (Some(3), vec![0, 1]));
        assert_eq!(next_kind(&[at(0, 0, 0), at(0, 0, 0)]), None, "nothing smaller is known");
    }
}
