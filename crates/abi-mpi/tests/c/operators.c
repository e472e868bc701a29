/* A program's operators that call MPI while they reduce: every function that does not communicate is allowed there. */
#include "check.h"

static int calls;

static void add(void *in, void *inout, int *len, MPI_Datatype *type) {
    int size, rank, flag, length;
    MPI_Aint lb, extent;
    void *value;
    char name[MPI_MAX_OBJECT_NAME];
    OK(MPI_Type_size(*type, &size));
    OK(MPI_Type_get_extent(*type, &lb, &extent));
    OK(MPI_Type_get_name(*type, name, &length));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag));
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    OK(MPI_Comm_set_name(MPI_COMM_SELF, "busy"));
    CHECK(size == sizeof(int) && MPI_Wtime() > 0);
    for (int i = 0; i < *len; i++)
        ((int *)inout)[i] += ((int *)in)[i];
    calls++;
}

int main(void) {
    int rank, size, one = 1, sum = 0, before = 0, together = 0, here = 1;
    MPI_Op op;
    MPI_Request request;
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD));
    OK(MPI_Scan(&one, &before, 1, MPI_INT, op, MPI_COMM_WORLD));
    OK(MPI_Ireduce(&one, &together, 1, MPI_INT, op, 0, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Reduce_local(&one, &here, 1, MPI_INT, op));
    CHECK(sum == size && before == rank + 1 && together == (rank ? 0 : size) && here == 2 && calls > 1);
    OK(MPI_Op_free(&op));
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
