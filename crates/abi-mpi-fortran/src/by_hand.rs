//! Entry points that no table describes: strings with lengths, spawned programs, values, and what only Fortran has.

use crate::arg::{
    address_of, address_of_items, address_of_text, as_logical, characters, codes, count as number_of, finish,
    handles, int, long, put, put_logical, put_text, read, text_buffer, trimmed_text, write,
};
use crate::c::*;
use crate::entry::entry;
use crate::places;

entry! { mpi_init ["mpi_init" "mpi_init_f08"] (ierror) {
    finish(ierror, MPI_Init(0, 0));
} }

entry! { mpi_init_thread ["mpi_init_thread" "mpi_init_thread_f08"] (required, provided, ierror) {
    finish(ierror, MPI_Init_thread(0, 0, int(required), provided));
} }

entry! { mpi_pcontrol ["mpi_pcontrol" "mpi_pcontrol_f08"] (level) {
    MPI_Pcontrol(int(level));
} }

entry! { mpi_wtime ["mpi_wtime" "mpi_wtime_f08"] () -> f64 {
    MPI_Wtime()
} }

entry! { mpi_wtick ["mpi_wtick" "mpi_wtick_f08"] () -> f64 {
    MPI_Wtick()
} }

entry! { mpi_aint_add ["mpi_aint_add" "mpi_aint_add_f08"] (base, disp) -> i64 {
    MPI_Aint_add(long(base), long(disp))
} }

entry! { mpi_aint_diff ["mpi_aint_diff" "mpi_aint_diff_f08"] (one, other) -> i64 {
    MPI_Aint_diff(long(one), long(other))
} }

/// Whether the calling process is the one whose arguments are read.
fn is_root(comm: usize, root: usize) -> bool {
    let mut rank = -1_i32;
    MPI_Comm_rank(comm, address_of(&mut rank)) == 0 && rank == int(root)
}

/// The length of a string for C, which counts the byte at its end.
fn with_end(length: i32) -> i32 {
    length.max(0).saturating_add(1)
}

entry! { mpi_info_get ["mpi_info_get" "mpi_info_get_f08"]
(info, key, valuelen, value, flag, ierror, key_len, value_len) {
    let key = trimmed_text(key, key_len);
    let mut room = text_buffer(with_end(int(valuelen)) as usize);
    let mut is_set = 0_i32;
    let info = MPI_Info_fromint(int(info));
    let (name, place) = (address_of_text(&key), address_of_items(&mut room));
    let code = MPI_Info_get(info, name, int(valuelen), place, address_of(&mut is_set));
    if code == 0 {
        put_logical(flag, is_set);
        if is_set != 0 {
            put_text(value, value_len, &room);
        }
    }
    finish(ierror, code);
} }

entry! { mpi_info_get_string ["mpi_info_get_string" "mpi_info_get_string_f08"]
(info, key, buflen, value, flag, ierror, key_len, value_len) {
    let key = trimmed_text(key, key_len);
    let (mut length, mut is_set) = (if int(buflen) > 0 { with_end(int(buflen)) } else { 0 }, 0_i32);
    let mut room = text_buffer(length as usize);
    let is_wanted = length > 0;
    let (info, name, place) = (MPI_Info_fromint(int(info)), address_of_text(&key), address_of_items(&mut room));
    let code = MPI_Info_get_string(info, name, address_of(&mut length), place, address_of(&mut is_set));
    if code == 0 {
        put_logical(flag, is_set);
        if is_set != 0 {
            put(buflen, length - 1);
            if is_wanted {
                put_text(value, value_len, &room);
            }
        }
    }
    finish(ierror, code);
} }

entry! { mpi_session_get_nth_pset ["mpi_session_get_nth_pset" "mpi_session_get_nth_pset_f08"]
(session, info, n, pset_len, pset_name, ierror, name_len) {
    let mut length = if int(pset_len) > 0 { with_end(int(pset_len)) } else { 0 };
    let mut room = text_buffer(length as usize);
    let is_wanted = length > 0;
    let (session, info) = (MPI_Session_fromint(int(session)), MPI_Info_fromint(int(info)));
    let place = address_of_items(&mut room);
    let code = MPI_Session_get_nth_pset(session, info, int(n), address_of(&mut length), place);
    if code == 0 {
        put(pset_len, length - 1);
        if is_wanted {
            put_text(pset_name, name_len, &room);
        }
    }
    finish(ierror, code);
} }

/// Arguments of a program for C: strings, and the addresses of all, which a 0 ends.
struct Arguments {
    /// The strings behind the addresses.
    _texts: Vec<Vec<u8>>,
    addresses: Vec<usize>,
}

impl Arguments {
    /// Reads strings of this length, `step` bytes apart, until one is blank; blanks around them do not count (MPI 5.0, section 11.8.2).
    fn read(first: usize, length: usize, step: usize) -> Self {
        let at = |item: usize| first + item * step;
        let is_blank = |item: &usize| length == 0 || characters(at(*item), length).is_empty();
        let texts: Vec<Vec<u8>> =
            (0..).take_while(|item| !is_blank(item)).map(|item| trimmed_text(at(item), length)).collect();
        let addresses = texts.iter().map(|text| address_of_text(text)).chain([0]).collect();
        Self { _texts: texts, addresses }
    }
}

entry! { mpi_comm_spawn ["mpi_comm_spawn" "mpi_comm_spawn_f08"]
(command, argv, maxprocs, info, root, comm, intercomm, errcodes, ierror, command_len, argv_len) {
    let command = trimmed_text(command, command_len);
    let (info, comm) = (MPI_Info_fromint(int(info)), MPI_Comm_fromint(int(comm)));
    let has_arguments = argv != places::argv_null() && is_root(comm, root);
    let mut arguments = has_arguments.then(|| Arguments::read(argv, argv_len, argv_len));
    let list = arguments.as_mut().map_or(0, |arguments| address_of_items(&mut arguments.addresses));
    let mut handle = 0_usize;
    let (file, place) = (address_of_text(&command), address_of(&mut handle));
    let code = MPI_Comm_spawn(file, list, int(maxprocs), info, int(root), comm, place, codes(errcodes));
    if code == 0 {
        put(intercomm, MPI_Comm_toint(handle));
    }
    finish(ierror, code);
} }

entry! { mpi_comm_spawn_multiple ["mpi_comm_spawn_multiple" "mpi_comm_spawn_multiple_f08"]
(count, commands, argvs, maxprocs, infos, root, comm, intercomm, errcodes, ierror, command_len, argv_len) {
    let comm = MPI_Comm_fromint(int(comm));
    let mut handle = 0_usize;
    let programs = if is_root(comm, root) { number_of(count) } else { 0 };
    let texts: Vec<Vec<u8>> =
        (0..programs).map(|program| trimmed_text(commands + program * command_len, command_len)).collect();
    let mut files: Vec<usize> = texts.iter().map(|text| address_of_text(text)).collect();
    let is_empty = argvs == places::argvs_null();
    let read = |program: usize| Arguments::read(argvs + program * argv_len, argv_len, programs * argv_len);
    let mut arguments: Vec<Arguments> = if is_empty { Vec::new() } else { (0..programs).map(read).collect() };
    let mut lists: Vec<usize> = arguments.iter_mut().map(|list| address_of_items(&mut list.addresses)).collect();
    let list = if is_empty { 0 } else { address_of_items(&mut lists) };
    let mut infos = handles(infos, programs, MPI_Info_fromint);
    let code = MPI_Comm_spawn_multiple(
        int(count), address_of_items(&mut files), list, maxprocs, address_of_items(&mut infos), int(root), comm,
        address_of(&mut handle), codes(errcodes),
    );
    if code == 0 {
        put(intercomm, MPI_Comm_toint(handle));
    }
    finish(ierror, code);
} }

// A call of this function keeps the compiler from moving accesses of a buffer across it (MPI 5.0, section 19.1.17).
entry! { mpi_f_sync_reg ["mpi_f_sync_reg"] (_buffer) {} }

/// Copies a status, which has one layout in all interfaces.
fn copy_status(from: usize, into: usize, ierror: usize) {
    (0..8).for_each(|item| write::<i32>(into, item, read(from, item)));
    finish(ierror, 0);
}

entry! { mpi_status_f2f08 ["mpi_status_f2f08"] (from, into, ierror) {
    copy_status(from, into, ierror);
} }

entry! { mpi_status_f082f ["mpi_status_f082f"] (from, into, ierror) {
    copy_status(from, into, ierror);
} }

macro_rules! comparisons {
    ($($equal:ident $differ:ident)*) => {
        $(
            // SAFETY: names of this library's own. Test: `programs_run_on_both_modules`.
            #[unsafe(no_mangle)]
            extern "C-unwind" fn $equal(one: usize, other: usize) -> i32 {
                as_logical((int(one) == int(other)).into())
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C-unwind" fn $differ(one: usize, other: usize) -> i32 {
                as_logical((int(one) != int(other)).into())
            }
        )*
    };
}

// The operators == and /= of handles.
comparisons! {
    nicety_comm_equal_ nicety_comm_differ_
    nicety_datatype_equal_ nicety_datatype_differ_
    nicety_errhandler_equal_ nicety_errhandler_differ_
    nicety_file_equal_ nicety_file_differ_
    nicety_group_equal_ nicety_group_differ_
    nicety_info_equal_ nicety_info_differ_
    nicety_message_equal_ nicety_message_differ_
    nicety_op_equal_ nicety_op_differ_
    nicety_request_equal_ nicety_request_differ_
    nicety_session_equal_ nicety_session_differ_
    nicety_win_equal_ nicety_win_differ_
}

/// `MPI_Sizeof`: a descriptor of Fortran's interface to C begins with an address and the length of an element (ISO Fortran 2018,
/// section 18.5.3).
// SAFETY: a name of this library's own. Test: `programs_run_on_both_modules`.
#[unsafe(no_mangle)]
extern "C-unwind" fn nicety_sizeof_(descriptor: usize, size: usize, ierror: usize) {
    put(size, read::<i64>(descriptor, 1) as i32);
    finish(ierror, 0);
}
