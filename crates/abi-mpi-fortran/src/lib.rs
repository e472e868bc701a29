//! `libmpi_abi_fortran.so.1`: MPI's entry points for Fortran, such as `mpi_send_`, over the C functions of MPI 5.0's standard ABI.
//!
//! It works on any library of that ABI, whose `MPI_*_fromint` and `MPI_*_toint` convert handles, if nonblocking calls copy their arrays of
//! datatypes, which exist during the call only. Statuses have one layout in both languages, so that only handles, `LOGICAL` values, strings,
//! indices and special addresses are converted.
//!
//! The names and conventions are those of gfortran, which flang shares: lower case, an underscore at the end, arguments by address, the
//! lengths of strings after all others. `mpif.h`, `mpi` and `mpi_f08` (crate mpi-fortran) call the same entry points: a `TYPE(MPI_Comm)` is
//! passed as the integer in it. Each entry point has the names `pmpi_send_`, weakly `mpi_send_`, and those with `_f08_`.
//!
//! | file | what it holds |
//! |---|---|
//! | `entry` | the exported functions that the build script generates from the table of mpi-fortran |
//! | `by_hand` | functions that no table describes: strings with lengths, spawned programs, values |
//! | `attributes`, `callbacks`, `records` | functions of the program: of attributes; operators and error handlers; requests and files |
//! | `arg`, `places` | arguments; special arguments that are known by their address |
//! | `lengths`, `trampolines` | lengths of arrays by communicator; functions without a state (also part of abi-mpich) |
//! | `c` | the functions of C |

mod arg;
mod attributes;
mod by_hand;
mod c;
mod callbacks;
mod entry;
mod lengths;
mod places;
mod records;
mod trampolines;
