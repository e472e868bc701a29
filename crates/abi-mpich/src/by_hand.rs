//! Entry points that no table describes: ranks in arrays, spawned programs, variables of tools, and conversions of files and statuses.

use crate::c;
use crate::entry::entry;
use crate::status::WORDS;
use crate::{arg, code, conversion, handle};

// A program of MPICH's ABI has no version of the standard's, and no Fortran datatypes by that (MPI 5.0, section 20.3).
entry! { PMPI_Abi_get_version "MPI_Abi_get_version" (major: usize, minor: usize) -> i32 {
    [major, minor].into_iter().for_each(|place| arg::write(place, 0, -1_i32));
    0
} }

entry! { PMPI_Abi_get_fortran_info "MPI_Abi_get_fortran_info" (info: usize) -> i32 {
    handle::info::put(info, NO_INFO);
    0
} }

entry! { PMPI_Group_translate_ranks "MPI_Group_translate_ranks"
(group1: i32, count: i32, ranks1: usize, group2: i32, ranks2: usize) -> i32 {
    let number = if ranks1 == 0 || ranks2 == 0 { 0 } else { arg::count(count.into()) };
    let mut ranks = arg::Items::<i32, 64>::new(number, 0);
    for (at, rank) in ranks.all().iter_mut().enumerate() {
        *rank = conversion::rank::to_standard(arg::read(ranks1, at));
    }
    let groups = [group1, group2].map(handle::group::to_standard);
    let code = c::MPI_Group_translate_ranks(groups[0], count, ranks.address(), groups[1], ranks2);
    if code == 0 {
        (0..number).for_each(|at| arg::write(ranks2, at, conversion::rank::to_mpich(arg::read(ranks2, at))));
    }
    arg::finish(code)
} }

/// `MPI_INFO_NULL` of the standard ABI.
const NO_INFO: usize = 0x130;

/// Whether the calling process is the one whose arguments are read.
fn is_root(comm: usize, root: i32) -> bool {
    let mut rank = -1_i32;
    c::MPI_Comm_rank(comm, arg::address_of(&mut rank)) == 0 && rank == root
}

/// Converts the error codes of processes that were not started. After a success there are none.
fn convert_codes(code: i32, codes: usize, count: usize) {
    if code != 0 && codes != 0 {
        (0..count).for_each(|at| arg::write(codes, at, code::to_mpich(arg::read(codes, at))));
    }
}

entry! { PMPI_Comm_spawn "MPI_Comm_spawn" (
    command: usize, argv: usize, maxprocs: i32, info: i32, root: i32, comm: i32, intercomm: usize, codes: usize
) -> i32 {
    let (comm, info) = (handle::comm::to_standard(comm), handle::info::to_standard(info));
    let count = if is_root(comm, root) { arg::count(maxprocs.into()) } else { 0 };
    let mut new = 0_usize;
    let code = c::MPI_Comm_spawn(command, argv, maxprocs, info, root, comm, arg::place(intercomm, &mut new), codes);
    if new != 0 {
        handle::comm::put(intercomm, new);
    }
    convert_codes(code, codes, count);
    arg::finish(code)
} }

entry! { PMPI_Comm_spawn_multiple "MPI_Comm_spawn_multiple" (
    count: i32, commands: usize, argvs: usize, maxprocs: usize, infos: usize, root: i32, comm: i32, intercomm: usize,
    codes: usize
) -> i32 {
    let comm = handle::comm::to_standard(comm);
    let programs = if is_root(comm, root) { arg::count(count.into()) } else { 0 };
    let mut list = handle::info::List::read(infos, programs);
    let processes = if maxprocs == 0 { 0 } else { (0..programs).map(|at| arg::count(arg::read::<i32>(maxprocs, at).into())).sum() };
    let mut new = 0_usize;
    let place = arg::place(intercomm, &mut new);
    let code =
        c::MPI_Comm_spawn_multiple(count, commands, argvs, maxprocs, list.address(), root, comm, place, codes);
    if new != 0 {
        handle::comm::put(intercomm, new);
    }
    convert_codes(code, codes, processes);
    arg::finish(code)
} }

/// `MPI_T_BIND_MPI_COMM` of the standard ABI: the only kind of object to which our variables are bound.
const BIND_COMM: i32 = 2;

/// Whether a performance variable is bound to a communicator.
fn is_per_comm(variable: i32) -> bool {
    let ([mut name, mut text], mut handles, mut rest) = ([0_i32; 2], [0_usize; 2], [0_i32; 6]);
    let lengths = [arg::address_of(&mut name), arg::address_of(&mut text)];
    let handles = handles.each_mut().map(arg::address_of);
    let rest_at = rest.each_mut().map(arg::address_of);
    let code = c::MPI_T_pvar_get_info(
        variable, 0, lengths[0], rest_at[0], rest_at[1], handles[0], handles[1], 0, lengths[1], rest_at[2],
        rest_at[3], rest_at[4], rest_at[5],
    );
    code == 0 && rest[2] == BIND_COMM
}

entry! { PMPI_T_pvar_handle_alloc "MPI_T_pvar_handle_alloc"
(session: usize, variable: i32, object: usize, handle: usize, count: usize) -> i32 {
    let mut comm = handle::comm::read(if is_per_comm(variable) { object } else { 0 });
    let object = if comm == 0 { object } else { arg::address_of(&mut comm) };
    arg::finish_tool(c::MPI_T_pvar_handle_alloc(session, variable, object, handle, count))
} }

entry! { PMPI_T_event_get_info "MPI_T_event_get_info" (
    event: i32, name: usize, name_len: usize, verbosity: usize, datatypes: usize, displacements: usize, elements: usize,
    enumtype: usize, info: usize, text: usize, text_len: usize, bind: usize
) -> i32 {
    let room = arg::number_at(elements).map_or(0, |elements| arg::count(elements.into()));
    let mut types = handle::datatype::List::room(datatypes, room);
    let ([mut level, mut object], mut new) = ([arg::UNSET; 2], 0_usize);
    let code = c::MPI_T_event_get_info(
        event, name, name_len, arg::place(verbosity, &mut level), types.address(), displacements, elements, enumtype,
        arg::place(info, &mut new), text, text_len, arg::place(bind, &mut object),
    );
    types.put_set(datatypes);
    if new != 0 {
        handle::info::put(info, new);
    }
    arg::put_number(verbosity, level, conversion::verbosity::to_mpich);
    arg::put_number(bind, object, conversion::bind::to_mpich);
    arg::finish_tool(code)
} }

macro_rules! file_integers {
    ($($to:ident $to_name:literal $from:ident $from_name:literal;)*) => {$(
        entry! { $to $to_name (file: usize) -> i32 { c::MPI_File_toint(handle::file::to_standard(file)) } }
        entry! { $from $from_name (file: i32) -> usize { handle::file::to_mpich(c::MPI_File_fromint(file)) } }
    )*};
}

file_integers! {
    PMPI_File_c2f "MPI_File_c2f" PMPI_File_f2c "MPI_File_f2c";
    PMPI_File_toint "MPI_File_toint" PMPI_File_fromint "MPI_File_fromint";
}

macro_rules! status_copies {
    ($($strong:ident $weak:literal)*) => {$(
        // Statuses have one layout in C and Fortran.
        entry! { $strong $weak (from: usize, into: usize) -> i32 {
            (0..WORDS).for_each(|word| arg::write::<i32>(into, word, arg::read(from, word)));
            0
        } }
    )*};
}

status_copies! {
    PMPI_Status_c2f "MPI_Status_c2f"
    PMPI_Status_f2c "MPI_Status_f2c"
    PMPI_Status_c2f08 "MPI_Status_c2f08"
    PMPI_Status_f082c "MPI_Status_f082c"
    PMPI_Status_f2f08 "MPI_Status_f2f08"
    PMPI_Status_f082f "MPI_Status_f082f"
}
