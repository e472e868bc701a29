/* MPI 3's rule for MPICH's tests, which go by it: an error that belongs to no communicator is that of MPI_COMM_WORLD, and not, as since
   MPI 4, of MPI_COMM_SELF. A handler that is set for the one is set for both. A few still use the name that MPI 3 removed. */
#include <mpi.h>

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
    if (comm == MPI_COMM_WORLD) PMPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    return PMPI_Comm_set_errhandler(comm, handler);
}

int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler handler) {
    return MPI_Comm_set_errhandler(comm, handler);
}
