//! `libmpi.so.12`: MPICH's ABI over the library of the MPI 5.0 standard ABI, so that programs linked to MPICH, Intel MPI or MVAPICH run
//! unmodified.
//!
//! Both libraries have the same function names. This one therefore loads `libmpi_abi.so.1` with `dlopen`, out of the program's scope, and
//! takes its functions with `dlsym`: if it were linked to it, its own names would hide those of the other.
//!
//! | what | MPICH's ABI | how it is converted |
//! |---|---|---|
//! | handles | integers; files are addresses | predefined ones by a table; others are the integers of `MPI_*_toint`, from 0x90000000 on |
//! | statuses | 20 bytes | by their fields (`status`) |
//! | constants | other values | tables from constants.txt, where words.txt says so |
//! | functions of the program | get MPICH's handles and codes | records and trampolines (`records`, `callbacks`, `attributes`) |
//!
//! The build script generates the entry points from the prototypes of abi-mpi, from words.txt, and from the words of mpi-fortran.
//!
//! | file | what it holds |
//! |---|---|
//! | `library`, `c` | loads the other library; its functions |
//! | `entry` | the generated entry points, and the macro that exports these and all others |
//! | `conversion`, `code`, `handle`, `status`, `arg` | conversions |
//! | `attributes`, `callbacks`, `records` | functions of the program |
//! | `types`, `by_hand`, `removed`, `extensions`, `places` | what no table describes |

mod arg;
mod attributes;
mod by_hand;
mod c;
mod callbacks;
mod code;
mod conversion;
mod entry;
mod extensions;
mod handle;
#[path = "../../abi-mpi-fortran/src/lengths.rs"]
#[allow(dead_code, reason = "Fortran uses the rest")]
mod lengths;
mod library;
mod places;
mod records;
mod removed;
mod status;
#[path = "../../abi-mpi-fortran/src/trampolines.rs"]
mod trampolines;
mod types;
