/* Ranks send in a ring and to each other: small and large messages, both forms of counts, any source, communicators. */
#include "check.h"

#define LARGE (1 << 20)

static void ring(int rank, int size, MPI_Comm comm) {
    long token = 0;
    MPI_Status status;
    MPI_Count count;
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    if (rank == 0) {
        token = 1;
        OK(MPI_Send(&token, 1, MPI_LONG, next, 7, comm));
        OK(MPI_Recv(&token, 1, MPI_LONG, last, 7, comm, &status));
        CHECK(token == size);
    } else {
        OK(MPI_Recv_c(&token, 1, MPI_LONG, MPI_ANY_SOURCE, 7, comm, &status));
        CHECK(status.MPI_SOURCE == last && token == rank);
        OK(MPI_Get_count_c(&status, MPI_LONG, &count));
        CHECK(count == 1);
        token++;
        OK(MPI_Send_c(&token, 1, MPI_LONG, next, 7, comm));
    }
}

static void large(int rank, int size) {
    unsigned char *out = malloc(LARGE), *in = malloc(LARGE);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int len = 1; len <= LARGE; len *= 32) {
        memset(out, rank + len, len);
        memset(in, 0, len);
        OK(MPI_Sendrecv(out, len, MPI_BYTE, next, 1, in, len, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int at = 0; at < len; at++) CHECK(in[at] == (unsigned char) (last + len));
    }
    free(out);
    free(in);
}

static void communicators(int rank, int size) {
    MPI_Comm half, twin;
    int color = rank % 2, own_rank, own_size, result;
    OK(MPI_Comm_split(MPI_COMM_WORLD, color, -rank, &half));
    OK(MPI_Comm_rank(half, &own_rank));
    OK(MPI_Comm_size(half, &own_size));
    CHECK(own_size == (size + 1 - color) / 2 && own_rank == own_size - 1 - rank / 2);
    ring(own_rank, own_size, half);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &twin));
    OK(MPI_Comm_compare(twin, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_CONGRUENT);
    ring(rank, size, twin);
    OK(MPI_Comm_free(&twin));
    OK(MPI_Comm_free(&half));
}

int main(int argc, char **argv) {
    int rank, size;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    ring(rank, size, MPI_COMM_WORLD);
    large(rank, size);
    communicators(rank, size);
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
