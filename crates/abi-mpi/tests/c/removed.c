/* Calls what MPI 3.0 removed; compiles with NICETY_MPI1 only. */
#include <mpi.h>
#include <stdio.h>

static void handle(MPI_Comm *comm, int *code, ...)
{
    (void) comm;
    (void) code;
}

int main(void)
{
    int values[2] = {1, 2}, lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, 8}, first, second, extent, lb, ub;
    MPI_Datatype types[2] = {MPI_INT, MPI_INT}, made, other;
    MPI_Errhandler handler, found;

    MPI_Init(0, 0);
    MPI_Address(&values[0], &first);
    MPI_Address(&values[1], &second);
    MPI_Type_struct(2, lengths, places, types, &made);
    MPI_Type_extent(made, &extent);
    MPI_Type_lb(made, &lb);
    MPI_Type_ub(made, &ub);
    MPI_Type_hindexed(2, lengths, places, MPI_INT, &other);
    MPI_Type_free(&other);
    MPI_Type_hvector(2, 1, 8, MPI_INT, &other);
    MPI_Type_free(&other);
    MPI_Type_free(&made);
    MPI_Errhandler_create(handle, &handler);
    MPI_Errhandler_set(MPI_COMM_WORLD, handler);
    MPI_Errhandler_get(MPI_COMM_WORLD, &found);
#ifndef NICETY_MPI1
    made = MPI_UB;
#endif
    if (found != MPI_ERRHANDLER_NULL)
        printf("extent %d, bounds %d and %d, 2 addresses apart by %d\n", (int) extent, (int) lb, (int) ub,
               (int) (second - first));
    MPI_Finalize();
    return 0;
}
