//! Our MPI against third-party programs, libraries and launchers, on this machine.
//!
//! | file | what it holds |
//! |---|---|
//! | `header` | MPI's header against MPICH's |
//! | `mpi4py` | mpi4py and its tests |
//! | `mpich/` | MPICH's own tests, from a checkout |
//! | `launchers` | MPICH's launchers and programs |
//! | `ring`, `slurm` | a program of our MPI under third-party launchers; Slurm on this machine alone |
//! | `hpcc`, `libraries`, `debian` | third-party programs and libraries, compiled for our MPI; their sources |

mod debian;
pub(crate) mod header;
mod hpcc;
pub(crate) mod launchers;
mod libraries;
pub(crate) mod mpi4py;
pub(crate) mod mpich;
pub(crate) mod ring;
mod slurm;
