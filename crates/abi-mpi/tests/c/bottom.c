/* Absolute addresses: MPI_BOTTOM with absolute datatypes and displacements is valid in every data call; and MPI_IN_PLACE is an error
   at ranks where it has no meaning. */
#include "check.h"

static int rank, size;

/* A datatype of `count` integers at their absolute address. */
static MPI_Datatype absolute(const void *data, int count) {
    MPI_Aint address;
    MPI_Datatype type;
    OK(MPI_Get_address(data, &address));
    OK(MPI_Type_create_hindexed(1, &count, &address, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    return type;
}

static void bottom(void) {
    int in[4] = {1, 2, 3, 4}, out[8] = {0}, position = 0, ones[1] = {1}, zero[1] = {0}, periods[1] = {1}, dims[1] = {1};
    char packed[64];
    MPI_Datatype from = absolute(in, 4), into = absolute(out, 4), types[2] = {MPI_INT, MPI_INT};
    MPI_Count counts[1] = {16};
    MPI_Aint places[2], sources[2];
    MPI_Comm ring;
    OK(MPI_Sendrecv(MPI_BOTTOM, 1, from, 0, 0, MPI_BOTTOM, 1, into, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(memcmp(in, out, sizeof in) == 0);
    memset(out, 0, sizeof out);
    OK(MPI_Pack(MPI_BOTTOM, 1, from, packed, sizeof packed, &position, MPI_COMM_SELF));
    position = 0;
    OK(MPI_Unpack(packed, sizeof packed, &position, MPI_BOTTOM, 1, into, MPI_COMM_SELF));
    CHECK(memcmp(in, out, sizeof in) == 0);
    OK(MPI_Reduce_local(in, out, 4, MPI_INT, MPI_SUM));
    memset(out, 0, sizeof out);
    OK(MPI_Alltoallv(MPI_BOTTOM, ones, zero, from, MPI_BOTTOM, ones, zero, into, MPI_COMM_SELF));
    CHECK(memcmp(in, out, sizeof in) == 0);
    memset(out, 0, sizeof out);
    /* The displacements of this form can hold addresses. */
    OK(MPI_Get_address(out, places));
    OK(MPI_Allgatherv_c(in, 16, MPI_BYTE, MPI_BOTTOM, counts, places, MPI_BYTE, MPI_COMM_SELF));
    CHECK(memcmp(in, out, sizeof in) == 0);
    memset(out, 0, sizeof out);
    OK(MPI_Cart_create(MPI_COMM_SELF, 1, dims, periods, 0, &ring));
    OK(MPI_Get_address(out + 2, places + 1));
    OK(MPI_Get_address(in, sources));
    OK(MPI_Get_address(in + 2, sources + 1));
    OK(MPI_Neighbor_alltoallw(MPI_BOTTOM, (int[2]) {2, 2}, sources, types, MPI_BOTTOM, (int[2]) {2, 2}, places, types, ring));
    CHECK(out[0] + out[1] + out[2] + out[3] == 10);
    OK(MPI_Comm_free(&ring));
    OK(MPI_Type_free(&from));
    OK(MPI_Type_free(&into));
}

/* Each call fails before it communicates. */
static void misplaced(void) {
    int x[8] = {0}, counts[4] = {1, 1, 1, 1}, places[4] = {0, 1, 2, 3};
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (rank > 0) {
        FAILS(MPI_ERR_BUFFER, MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, x, 1, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Gatherv(MPI_IN_PLACE, 1, MPI_INT, x, counts, places, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Scatter(x, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Scatterv(x, counts, places, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Reduce(MPI_IN_PLACE, x, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    } else {
        /* The root's other buffer. */
        FAILS(MPI_ERR_BUFFER, MPI_Gather(x, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Scatter(MPI_IN_PLACE, 1, MPI_INT, x, 1, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Reduce(x, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
        /* A displacement far away from NULL. */
        places[0] = 1 << 20;
        FAILS(MPI_ERR_BUFFER, MPI_Scatterv(NULL, counts, places, MPI_INT, x, 1, MPI_INT, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Alltoallv(x, counts, places, MPI_INT, MPI_IN_PLACE, counts, places, MPI_INT, MPI_COMM_WORLD));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    /* Members without elements take the same path with any datatype. */
    OK(MPI_Allreduce(NULL, NULL, 0, rank ? MPI_INT : MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD));
    /* Arguments that are not significant are not read. */
    OK(MPI_Gather(x, 1, MPI_INT, rank ? MPI_IN_PLACE : x + 1, 1, MPI_INT, 0, MPI_COMM_WORLD));
    OK(MPI_Reduce(x, rank ? NULL : x + 1, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    OK(MPI_Bcast(x, 1, MPI_INT, 0, MPI_COMM_WORLD));
}

/* Memory of windows. */
static void windows(void) {
    MPI_Win win;
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_BASE, MPI_Win_create(NULL, 8, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win));
    FAILS(MPI_ERR_BASE, MPI_Win_create(MPI_IN_PLACE, 8, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win));
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_SELF, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, NULL, 8));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, MPI_IN_PLACE, 8));
    OK(MPI_Win_free(&win));
}

int main(void) {
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    bottom();
    misplaced();
    windows();
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
