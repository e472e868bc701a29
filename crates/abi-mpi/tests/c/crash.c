// Two ranks exchange messages and share a window; then rank 1 crashes.
#include <mpi.h>
#include <stddef.h>

int *volatile nowhere = NULL;

int main(void) {
    MPI_Init(NULL, NULL);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long *base, word = rank;
    MPI_Win window;
    MPI_Win_allocate(1 << 20, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&word, 1, MPI_LONG, 1 - rank, 1000, 1, MPI_LONG, window);
    MPI_Win_fence(0, window);
    MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 1)
        *nowhere = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
