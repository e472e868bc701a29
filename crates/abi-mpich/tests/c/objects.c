/* Datatypes, topologies, windows, files, attributes and ports: what has constants of its own. The argument is a file's name. */
#include "check.h"

static int rank, size;

static void datatypes(void)
{
    int integers[16], counts[4], three[2] = {4, 6}, two[2] = {2, 3}, start[2] = {1, 2};
    MPI_Datatype array, inner[2];
    MPI_Aint addresses[2], lower, extent;
    DO(MPI_Type_create_subarray(2, three, two, start, MPI_ORDER_FORTRAN, MPI_INT, &array));
    DO(MPI_Type_get_envelope(array, &counts[0], &counts[1], &counts[2], &counts[3]));
    CHECK(counts[0] == 8 && counts[2] == 1 && counts[3] == MPI_COMBINER_SUBARRAY);
    DO(MPI_Type_get_contents(array, 8, 0, 1, integers, addresses, inner));
    CHECK(integers[0] == 2 && integers[7] == MPI_ORDER_FORTRAN && inner[0] == MPI_INT);
    DO(MPI_Type_free(&array));
    int distribs[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, dargs[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2}, grid[2] = {2, 1};
    DO(MPI_Type_create_darray(2, 0, 2, three, distribs, dargs, grid, MPI_ORDER_C, MPI_DOUBLE, &array));
    DO(MPI_Type_get_envelope(array, &counts[0], &counts[1], &counts[2], &counts[3]));
    CHECK(counts[0] == 12 && counts[3] == MPI_COMBINER_DARRAY);
    DO(MPI_Type_get_contents(array, 12, 0, 1, integers, addresses, inner));
    CHECK(integers[5] == MPI_DISTRIBUTE_BLOCK && integers[6] == MPI_DISTRIBUTE_CYCLIC && integers[7] == MPI_DISTRIBUTE_DFLT_DARG);
    CHECK(integers[8] == 2 && integers[11] == MPI_ORDER_C && inner[0] == MPI_DOUBLE);
    DO(MPI_Type_free(&array));
    MPI_Datatype types[3] = {MPI_LB, MPI_INT, MPI_UB};
    int lengths[3] = {1, 1, 1};
    MPI_Aint places[3] = {-4, 0, 20};
    DO(MPI_Type_create_struct(3, lengths, places, types, &array));
    DO(MPI_Type_get_extent(array, &lower, &extent));
    CHECK(lower == -4 && extent == 24);
    DO(MPI_Type_free(&array));
    DO(MPI_Type_create_struct(1, lengths, places, types + 1, &array));
    DO(MPI_Type_size(array, &counts[0]));
    CHECK(counts[0] == 4);
    DO(MPI_Type_get_envelope(MPI_CHAR, &counts[0], &counts[1], &counts[2], &counts[3]));
    CHECK(counts[3] == MPI_COMBINER_NAMED);
    DO(MPI_Type_free(&array));
}

static void topologies(void)
{
    int dims[1] = {size}, periods[1] = {0}, kind, from, into, next = (rank + 1) % size, last = (rank + size - 1) % size, weighted;
    MPI_Comm line, graph;
    DO(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &line));
    DO(MPI_Topo_test(line, &kind));
    CHECK(kind == MPI_CART);
    DO(MPI_Topo_test(MPI_COMM_WORLD, &kind));
    CHECK(kind == MPI_UNDEFINED);
    DO(MPI_Cart_shift(line, 0, 1, &from, &into));
    CHECK(from == (rank == 0 ? MPI_PROC_NULL : rank - 1) && into == (rank == size - 1 ? MPI_PROC_NULL : rank + 1));
    DO(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &last, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
    DO(MPI_Dist_graph_neighbors_count(graph, &from, &into, &weighted));
    CHECK(from == 1 && into == 1 && weighted == 0);
    int one = 1, got = -1;
    MPI_Aint zero = 0;
    MPI_Datatype type = MPI_INT;
    DO(MPI_Neighbor_alltoallw(&rank, &one, &zero, &type, &got, &one, &zero, &type, graph));
    CHECK(got == last);
    DO(MPI_Comm_free(&line));
    DO(MPI_Comm_free(&graph));
}

static void windows(void)
{
    int *base, *flavor, *model, flag, value = 5;
    void *found;
    MPI_Aint *bytes;
    MPI_Win win;
    DO(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    *base = 0;
    DO(MPI_Win_get_attr(win, MPI_WIN_BASE, &found, &flag));
    CHECK(flag && found == base);
    DO(MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag));
    CHECK(flag && *bytes == sizeof(int));
    DO(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    CHECK(flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
    DO(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
    CHECK(flag && *model == MPI_WIN_UNIFIED);
    DO(MPI_Win_fence(0, win));
    DO(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    DO(MPI_Win_fence(0, win));
    CHECK(rank != 0 || *base == 5 * size);
    DO(MPI_Win_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK, win));
    DO(MPI_Win_unlock(rank, win));
    DO(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL);
}

static void files(const char *name)
{
    MPI_File file = MPI_FILE_NULL;
    MPI_Status status;
    int mode, count, value = rank + 10, got = 0;
    int code = MPI_File_open(MPI_COMM_SELF, "/nowhere/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    CHECK(class_of(code) == MPI_ERR_NO_SUCH_FILE && file == MPI_FILE_NULL);
    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    DO(MPI_File_get_amode(file, &mode));
    CHECK(mode == (MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE));
    DO(MPI_File_write_at(file, rank * (MPI_Offset)sizeof value, &value, 1, MPI_INT, &status));
    DO(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 1);
    DO(MPI_File_seek(file, rank * (MPI_Offset)sizeof value, MPI_SEEK_SET));
    DO(MPI_File_read(file, &got, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(got == value);
    DO(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    DO(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);
}

int main(int argc, char **argv)
{
    int *value, flag;
    DO(MPI_Init(&argc, &argv));
    CHECK(argc == 2);
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &size));
    DO(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag));
    CHECK(flag && *value >= 32767);
    DO(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag));
    CHECK(flag && *value == MPI_ANY_SOURCE);
    DO(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag));
    CHECK(flag && *value >= MPI_ERR_LASTCODE);
    datatypes();
    topologies();
    windows();
    files(argv[1]);
    DO(MPI_Finalize());
    if (rank == 0)
        puts("all objects are right");
    return 0;
}
