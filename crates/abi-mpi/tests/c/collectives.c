/* Collective operations through the C ABI: every family, each in all three forms, compared with results of plain C. */
#define _GNU_SOURCE
#include "check.h"
#include <sched.h>

#define N 5

static int rank, size;
static MPI_Comm comm;

/* Runs an operation in its three forms: `reset` before each, `verify` after each. */
#define THRICE(reset, wait, begin, make, verify)                                                                                \
    do {                                                                                                                        \
        MPI_Request request_;                                                                                                   \
        reset;                                                                                                                  \
        OK(wait);                                                                                                               \
        verify;                                                                                                                 \
        reset;                                                                                                                  \
        OK(begin);                                                                                                              \
        OK(MPI_Wait(&request_, MPI_STATUS_IGNORE));                                                                             \
        verify;                                                                                                                 \
        OK(make);                                                                                                               \
        for (int start_ = 0; start_ < 2; start_++) {                                                                            \
            reset;                                                                                                              \
            OK(MPI_Start(&request_));                                                                                           \
            OK(MPI_Wait(&request_, MPI_STATUS_IGNORE));                                                                         \
            verify;                                                                                                             \
        }                                                                                                                       \
        OK(MPI_Request_free(&request_));                                                                                        \
    } while (0)

static int in[1024], out[1024], counts[64], displs[64];
static MPI_Count many_counts[64];
static MPI_Aint many_displs[64];

static void fill(void) {
    for (int at = 0; at < 1024; at++) in[at] = 1000 * rank + at, out[at] = -1;
}

static void rooted(int root) {
    THRICE(if (rank == root) fill(); else memset(in, 0, sizeof in),
           MPI_Bcast(in, N, MPI_INT, root, comm),
           MPI_Ibcast_c(in, N, MPI_INT, root, comm, &request_),
           MPI_Bcast_init(in, N, MPI_INT, root, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N; at++) CHECK(in[at] == 1000 * root + at));
    /* Arguments that are not significant are invalid. */
    void *into = rank == root ? out : (void *) 8;
    MPI_Datatype type = rank == root ? MPI_INT : (MPI_Datatype) &rank;
    THRICE(fill(),
           MPI_Gather(in, N, MPI_INT, into, N, type, root, comm),
           MPI_Igather(in, N, MPI_INT, into, N, type, root, comm, &request_),
           MPI_Gather_init_c(in, N, MPI_INT, into, N, type, root, comm, MPI_INFO_NULL, &request_),
           if (rank == root) for (int at = 0; at < N * size; at++) CHECK(out[at] == 1000 * (at / N) + at % N));
    THRICE(fill(),
           MPI_Scatter(rank == root ? in : (void *) 8, N, type, out, N, MPI_INT, root, comm),
           MPI_Iscatter(rank == root ? in : (void *) 8, N, type, out, N, MPI_INT, root, comm, &request_),
           MPI_Scatter_init(rank == root ? in : (void *) 8, N, type, out, N, MPI_INT, root, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N; at++) CHECK(out[at] == 1000 * root + N * rank + at));
    THRICE(fill(),
           MPI_Gatherv(in, rank + 1, MPI_INT, into, counts, displs, type, root, comm),
           MPI_Igatherv_c(in, rank + 1, MPI_INT, into, many_counts, many_displs, type, root, comm, &request_),
           MPI_Gatherv_init(in, rank + 1, MPI_INT, into, counts, displs, type, root, comm, MPI_INFO_NULL, &request_),
           if (rank == root) for (int r = 0; r < size; r++) CHECK(out[displs[r]] == 1000 * r && out[displs[r] + r] == 1000 * r + r));
    THRICE(fill(),
           MPI_Scatterv(rank == root ? in : (void *) 8, counts, displs, type, out, rank + 1, MPI_INT, root, comm),
           MPI_Iscatterv(rank == root ? in : (void *) 8, counts, displs, type, out, rank + 1, MPI_INT, root, comm, &request_),
           MPI_Scatterv_init(rank == root ? in : (void *) 8, counts, displs, type, out, rank + 1, MPI_INT, root, comm, MPI_INFO_NULL, &request_),
           CHECK(out[rank] == 1000 * root + displs[rank] + rank));
    THRICE(fill(),
           MPI_Reduce(in, rank == root ? out : NULL, N, MPI_INT, MPI_SUM, root, comm),
           MPI_Ireduce(in, rank == root ? out : NULL, N, MPI_INT, MPI_SUM, root, comm, &request_),
           MPI_Reduce_init(in, rank == root ? out : NULL, N, MPI_INT, MPI_SUM, root, comm, MPI_INFO_NULL, &request_),
           if (rank == root) for (int at = 0; at < N; at++) CHECK(out[at] == 500 * size * (size - 1) + size * at));
}

static void among_all(void) {
    MPI_Datatype types[64];
    int bytes[64];
    for (int r = 0; r < size; r++) types[r] = MPI_INT, bytes[r] = sizeof(int) * displs[r];
    THRICE(fill(),
           MPI_Allgather(in, N, MPI_INT, out, N, MPI_INT, comm),
           MPI_Iallgather(in, N, MPI_INT, out, N, MPI_INT, comm, &request_),
           MPI_Allgather_init(in, N, MPI_INT, out, N, MPI_INT, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N * size; at++) CHECK(out[at] == 1000 * (at / N) + at % N));
    THRICE(fill(); memcpy(out + N * rank, in, sizeof(int[N])),
           MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, N, MPI_INT, comm),
           MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, N, MPI_INT, comm, &request_),
           MPI_Allgather_init(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, N, MPI_INT, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N * size; at++) CHECK(out[at] == 1000 * (at / N) + at % N));
    THRICE(fill(),
           MPI_Allgatherv(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, comm),
           MPI_Iallgatherv(in, rank + 1, MPI_INT, out, counts, displs, MPI_INT, comm, &request_),
           MPI_Allgatherv_init_c(in, rank + 1, MPI_INT, out, many_counts, many_displs, MPI_INT, comm, MPI_INFO_NULL, &request_),
           for (int r = 0; r < size; r++) CHECK(out[displs[r] + r] == 1000 * r + r));
    THRICE(fill(),
           MPI_Alltoall(in, N, MPI_INT, out, N, MPI_INT, comm),
           MPI_Ialltoall(in, N, MPI_INT, out, N, MPI_INT, comm, &request_),
           MPI_Alltoall_init(in, N, MPI_INT, out, N, MPI_INT, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N * size; at++) CHECK(out[at] == 1000 * (at / N) + N * rank + at % N));
    /* Each rank sends r + 1 elements to rank r, and receives rank + 1 elements from every rank. */
    int mine[64], places[64], mine_bytes[64];
    for (int r = 0; r < size; r++) mine[r] = rank + 1, places[r] = (rank + 1) * r, mine_bytes[r] = sizeof(int) * places[r];
    THRICE(fill(),
           MPI_Alltoallv(in, counts, displs, MPI_INT, out, mine, places, MPI_INT, comm),
           MPI_Ialltoallv(in, counts, displs, MPI_INT, out, mine, places, MPI_INT, comm, &request_),
           MPI_Alltoallv_init(in, counts, displs, MPI_INT, out, mine, places, MPI_INT, comm, MPI_INFO_NULL, &request_),
           for (int r = 0; r < size; r++) CHECK(out[places[r] + rank] == 1000 * r + displs[rank] + rank));
    THRICE(fill(),
           MPI_Alltoallw(in, counts, bytes, types, out, mine, mine_bytes, types, comm),
           MPI_Ialltoallw(in, counts, bytes, types, out, mine, mine_bytes, types, comm, &request_),
           MPI_Alltoallw_init(in, counts, bytes, types, out, mine, mine_bytes, types, comm, MPI_INFO_NULL, &request_),
           for (int r = 0; r < size; r++) CHECK(out[places[r] + rank] == 1000 * r + displs[rank] + rank));
    THRICE(, MPI_Barrier(comm), MPI_Ibarrier(comm, &request_), MPI_Barrier_init(comm, MPI_INFO_NULL, &request_), );
}

/* A noncommutative operator: the composition of two linear functions, each packed in two integers. */
static MPI_Datatype pair;

static void chain(void *in_, void *inout_, int *count, MPI_Datatype *type) {
    int *a = in_, *b = inout_;
    CHECK(*type == pair);
    for (int at = 0; at < *count; at++, a += 2, b += 2) {
        int slope = a[0] * b[0], shift = a[1] * b[0] + b[1];
        b[0] = slope, b[1] = shift;
    }
}

static void reductions(void) {
    MPI_Op own;
    int sum = 500 * size * (size - 1);
    THRICE(fill(),
           MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, comm),
           MPI_Iallreduce(in, out, N, MPI_INT, MPI_SUM, comm, &request_),
           MPI_Allreduce_init_c(in, out, N, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N; at++) CHECK(out[at] == sum + size * at));
    THRICE(fill(),
           MPI_Reduce_scatter_block(in, out, N, MPI_INT, MPI_SUM, comm),
           MPI_Ireduce_scatter_block(in, out, N, MPI_INT, MPI_SUM, comm, &request_),
           MPI_Reduce_scatter_block_init(in, out, N, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request_),
           for (int at = 0; at < N; at++) CHECK(out[at] == sum + size * (N * rank + at)));
    THRICE(fill(),
           MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm),
           MPI_Ireduce_scatter_c(in, out, many_counts, MPI_INT, MPI_SUM, comm, &request_),
           MPI_Reduce_scatter_init(in, out, counts, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request_),
           CHECK(out[rank] == sum + size * (rank * (rank + 1) / 2 + rank) && out[rank + 1] == -1));
    THRICE(fill(),
           MPI_Scan(in, out, N, MPI_INT, MPI_MAX, comm),
           MPI_Iscan(in, out, N, MPI_INT, MPI_MAX, comm, &request_),
           MPI_Scan_init(in, out, N, MPI_INT, MPI_MAX, comm, MPI_INFO_NULL, &request_),
           CHECK(out[N - 1] == 1000 * rank + N - 1));
    THRICE(fill(),
           MPI_Exscan(in, out, N, MPI_INT, MPI_SUM, comm),
           MPI_Iexscan(in, out, N, MPI_INT, MPI_SUM, comm, &request_),
           MPI_Exscan_init(in, out, N, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request_),
           CHECK(rank == 0 || out[1] == 500 * rank * (rank - 1) + rank));
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Op_create(chain, 0, &own));
    int mine[2] = {2, rank}, want[2] = {2, 0}, all[2];
    for (int r = 1; r < size; r++) want[0] *= 2, want[1] = want[1] * 2 + r;
    OK(MPI_Allreduce(mine, all, 1, pair, own, comm));
    CHECK(all[0] == want[0] && all[1] == want[1]);
    OK(MPI_Op_free(&own));
    OK(MPI_Type_free(&pair));
}

static int element_ints;

/* Adds elements of element_ints integers and a gap of one. */
static void add_elements(void *in_, void *inout_, int *len, MPI_Datatype *type) {
    (void) type;
    for (int element = 0; element < *len; element++)
        for (int at = 0; at < element_ints; at++) {
            int place = element * (element_ints + 1) + at;
            ((int *) inout_)[place] += ((int *) in_)[place];
        }
}

/* Reductions of fewer elements than there are processes, each longer than a message's data usually are. */
static void long_elements(void) {
    static const int lengths[] = {1000, 3000, 5000, 20000, 300000};
    MPI_Op add;
    OK(MPI_Op_create(add_elements, 1, &add));
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        MPI_Datatype packed, gapped;
        element_ints = lengths[i];
        OK(MPI_Type_contiguous(element_ints, MPI_INT, &packed));
        OK(MPI_Type_create_resized(packed, 0, (MPI_Aint) sizeof(int) * (element_ints + 1), &gapped));
        OK(MPI_Type_commit(&gapped));
        for (int count = 1; count <= 3; count++) {
            int ints = count * (element_ints + 1), sum = size * (size - 1) / 2;
            int *from = malloc(sizeof(int) * ints), *into = malloc(sizeof(int) * ints);
            for (int at = 0; at < ints; at++) from[at] = at + rank, into[at] = -1;
            OK(MPI_Allreduce(from, into, count, gapped, add, comm));
            for (int at = 0; at < ints; at++) CHECK(into[at] == ((at + 1) % (element_ints + 1) ? size * at + sum : -1));
            for (int at = 0; at < ints; at++) into[at] = -1;
            OK(MPI_Reduce(from, into, count, gapped, add, size - 1, comm));
            for (int at = 0; at < ints && rank == size - 1; at++)
                CHECK(into[at] == ((at + 1) % (element_ints + 1) ? size * at + sum : -1));
            OK(MPI_Allreduce(MPI_IN_PLACE, from, count, gapped, add, comm));
            for (int at = 0; at < ints; at++) CHECK(from[at] == ((at + 1) % (element_ints + 1) ? size * at + sum : at + rank));
            free(from);
            free(into);
        }
        OK(MPI_Type_free(&gapped));
        OK(MPI_Type_free(&packed));
    }
    OK(MPI_Op_free(&add));
}

/* The address is invalid, and a compiler that sees that would warn. */
static int *volatile unweighted = MPI_UNWEIGHTED;

static void neighbours(void) {
    MPI_Comm ring;
    int dims[1] = {0}, periods[1] = {1}, coords[1], left, right, status, at;
    OK(MPI_Dims_create(size, 1, dims));
    CHECK(dims[0] == size);
    OK(MPI_Cart_create(comm, 1, dims, periods, 0, &ring));
    OK(MPI_Topo_test(ring, &status));
    CHECK(status == MPI_CART);
    OK(MPI_Cart_coords(ring, rank, 1, coords));
    OK(MPI_Cart_rank(ring, coords, &at));
    OK(MPI_Cart_shift(ring, 0, 1, &left, &right));
    CHECK(coords[0] == rank && at == rank && right == (rank + 1) % size && left == (rank + size - 1) % size);
    THRICE(fill(),
           MPI_Neighbor_allgather(in, N, MPI_INT, out, N, MPI_INT, ring),
           MPI_Ineighbor_allgather_c(in, N, MPI_INT, out, N, MPI_INT, ring, &request_),
           MPI_Neighbor_allgather_init(in, N, MPI_INT, out, N, MPI_INT, ring, MPI_INFO_NULL, &request_),
           CHECK(out[0] == 1000 * left && out[N] == 1000 * right));
    THRICE(fill(),
           MPI_Neighbor_alltoall(in, N, MPI_INT, out, N, MPI_INT, ring),
           MPI_Ineighbor_alltoall(in, N, MPI_INT, out, N, MPI_INT, ring, &request_),
           MPI_Neighbor_alltoall_init(in, N, MPI_INT, out, N, MPI_INT, ring, MPI_INFO_NULL, &request_),
           CHECK(out[0] == 1000 * left + N && out[N] == 1000 * right));
    OK(MPI_Comm_free(&ring));
    int to = (rank + 1) % size, from = (rank + size - 1) % size, indegree, outdegree, weighted;
    int one[1] = {N}, zero[1] = {0};
    MPI_Aint zero_bytes[1] = {0};
    MPI_Datatype types[1] = {MPI_INT};
    OK(MPI_Dist_graph_create_adjacent(comm, 1, &from, unweighted, 1, &to, unweighted, MPI_INFO_NULL, 0, &ring));
    OK(MPI_Dist_graph_neighbors_count(ring, &indegree, &outdegree, &weighted));
    CHECK(indegree == 1 && outdegree == 1 && !weighted);
    OK(MPI_Dist_graph_neighbors(ring, 1, &left, unweighted, 1, &right, unweighted));
    CHECK(left == from && right == to);
    THRICE(fill(),
           MPI_Neighbor_alltoallw(in, one, zero_bytes, types, out, one, zero_bytes, types, ring),
           MPI_Ineighbor_alltoallw(in, one, zero_bytes, types, out, one, zero_bytes, types, ring, &request_),
           MPI_Neighbor_alltoallw_init(in, one, zero_bytes, types, out, one, zero_bytes, types, ring, MPI_INFO_NULL, &request_),
           CHECK(out[N - 1] == 1000 * from + N - 1));
    THRICE(fill(),
           MPI_Neighbor_alltoallv(in, one, zero, MPI_INT, out, one, zero, MPI_INT, ring),
           MPI_Ineighbor_alltoallv(in, one, zero, MPI_INT, out, one, zero, MPI_INT, ring, &request_),
           MPI_Neighbor_alltoallv_init(in, one, zero, MPI_INT, out, one, zero, MPI_INT, ring, MPI_INFO_NULL, &request_),
           CHECK(out[N - 1] == 1000 * from + N - 1));
    THRICE(fill(),
           MPI_Neighbor_allgatherv(in, N, MPI_INT, out, one, zero, MPI_INT, ring),
           MPI_Ineighbor_allgatherv(in, N, MPI_INT, out, one, zero, MPI_INT, ring, &request_),
           MPI_Neighbor_allgatherv_init(in, N, MPI_INT, out, one, zero, MPI_INT, ring, MPI_INFO_NULL, &request_),
           CHECK(out[N - 1] == 1000 * from + N - 1));
    OK(MPI_Comm_free(&ring));
}

/* Two pairs with the same tag: they match in the order of their initialization, in any order of starts. */
static void partitioned(void) {
    MPI_Request send[2], receive[2], none = MPI_REQUEST_NULL;
    MPI_Status statuses[2];
    int to = (rank + 1) % size, from = (rank + size - 1) % size, flag;
    for (int pair = 0; pair < 2; pair++) {
        OK(MPI_Psend_init(in + 100 * pair, 4, N, MPI_INT, to, 3, comm, MPI_INFO_NULL, &send[pair]));
        OK(MPI_Precv_init(out + 100 * pair, 2, 2 * N, MPI_INT, from, 3, comm, MPI_INFO_NULL, &receive[pair]));
    }
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    /* Inactive and null requests count as arrived. */
    flag = 0;
    OK(MPI_Parrived(receive[0], 1, &flag));
    CHECK(flag);
    FAILS(MPI_ERR_ARG, MPI_Parrived(receive[0], 2, &flag));
    FAILS(MPI_ERR_REQUEST, MPI_Parrived(send[0], 0, &flag));
    flag = 0;
    OK(MPI_Parrived(none, 0, &flag));
    CHECK(flag);
    for (int time = 0; time < 2; time++) {
        fill();
        for (int pair = 1; pair >= 0; pair--) {
            OK(MPI_Start(&receive[pair]));
            OK(MPI_Start(&send[pair]));
            OK(MPI_Pready(2, send[pair]));
            OK(MPI_Pready_range(0, 1, send[pair]));
            OK(MPI_Pready_list(1, (int[]){3}, send[pair]));
        }
        do OK(MPI_Parrived(receive[0], 1, &flag)); while (!flag);
        OK(MPI_Waitall(2, send, MPI_STATUSES_IGNORE));
        OK(MPI_Waitall(2, receive, statuses));
        for (int pair = 0; pair < 2; pair++) CHECK(statuses[pair].MPI_SOURCE == from && statuses[pair].MPI_TAG == 3);
        for (int at = 0; at < 4 * N; at++) CHECK(out[at] == 1000 * from + at && out[100 + at] == 1000 * from + 100 + at);
    }
    for (int pair = 0; pair < 2; pair++) {
        OK(MPI_Request_free(&send[pair]));
        OK(MPI_Request_free(&receive[pair]));
    }
}

/* Ranks with a processor of their own are split by it, and receive the resource type. */
static void hardware(void) {
    cpu_set_t all, own;
    MPI_Info info;
    MPI_Comm part;
    char kind[64] = "";
    int length = sizeof kind, flag;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    if (CPU_COUNT(&all) >= size && size > 1) {
        int at = 0;
        for (int left = rank; !CPU_ISSET(at, &all) || left-- > 0;) at++;
        CPU_ZERO(&own);
        CPU_SET(at, &own);
        CHECK(sched_setaffinity(0, sizeof own, &own) == 0);
        OK(MPI_Info_create(&info));
        OK(MPI_Comm_split_type(comm, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &part));
        CHECK(part != MPI_COMM_NULL);
        OK(MPI_Info_get_string(info, "mpi_hw_resource_type", &length, kind, &flag));
        CHECK(flag && strstr(kind, "sysfs://") == kind);
        OK(MPI_Comm_free(&part));
        OK(MPI_Info_free(&info));
        CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    }
}

static void wrong(void) {
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(in, 1, MPI_INT, size, comm));
    FAILS(MPI_ERR_COUNT, MPI_Allreduce(in, out, -1, MPI_INT, MPI_SUM, comm));
    FAILS(MPI_ERR_TYPE, MPI_Allreduce(in, out, 1, MPI_DATATYPE_NULL, MPI_SUM, comm));
    FAILS(MPI_ERR_OP, MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
    FAILS(MPI_ERR_OP, MPI_Allreduce(in, out, 1, MPI_FLOAT, MPI_BAND, comm));
    FAILS(MPI_ERR_BUFFER, MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm));
    FAILS(MPI_ERR_TOPOLOGY, MPI_Neighbor_allgather(in, 1, MPI_INT, out, 1, MPI_INT, comm));
    FAILS(MPI_ERR_DIMS, MPI_Dims_create(7, 1, (int[]){3}));
}

int main(void) {
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    for (int r = 0; r < size; r++) {
        counts[r] = many_counts[r] = r + 1;
        displs[r] = many_displs[r] = r * (r + 1) / 2;
    }
    for (int root = 0; root < size; root++) rooted(root);
    among_all();
    reductions();
    long_elements();
    neighbours();
    partitioned();
    hardware();
    wrong();
    OK(MPI_Comm_free(&comm));
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
