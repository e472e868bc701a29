/* Thread levels, and two threads in each of two ranks that communicate concurrently at the highest level. */
#include "check.h"
#include <pthread.h>

enum { ROUNDS = 2000 };

static int rank, size;

static void *talk(void *comm_of_thread) {
    MPI_Comm comm = *(MPI_Comm *)comm_of_thread;
    int peer = rank ^ 1, sum = 0;
    for (int round = 0; round < ROUNDS && peer < size; round++) {
        int mine = rank + round, theirs = -1, both = 0;
        MPI_Request request;
        if (round % 2 == rank % 2) {
            OK(MPI_Send(&mine, 1, MPI_INT, peer, round, comm));
            OK(MPI_Recv(&theirs, 1, MPI_INT, peer, round, comm, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Irecv(&theirs, 1, MPI_INT, peer, round, comm, &request));
            OK(MPI_Send(&mine, 1, MPI_INT, peer, round, comm));
            OK(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE));
        }
        CHECK(theirs == peer + round);
        OK(MPI_Allreduce(&mine, &both, 1, MPI_INT, MPI_SUM, comm));
        sum += both;
    }
    CHECK(peer >= size || sum > 0);
    return NULL;
}

int main(int argc, char **argv) {
    int wanted = getenv("MULTIPLE") ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, level = -1;
    OK(MPI_Init_thread(&argc, &argv, wanted, &level));
    CHECK(level == wanted);
    OK(MPI_Query_thread(&level));
    CHECK(level == wanted);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    MPI_Comm pair, comms[2];
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair));
    int members;
    OK(MPI_Comm_size(pair, &members));
    for (int at = 0; at < 2; at++)
        OK(MPI_Comm_dup(pair, &comms[at]));
    rank %= 2;
    size = members;
    pthread_t thread;
    if (wanted == MPI_THREAD_MULTIPLE)
        CHECK(!pthread_create(&thread, NULL, talk, &comms[1]));
    talk(&comms[0]);
    if (wanted == MPI_THREAD_MULTIPLE)
        CHECK(!pthread_join(thread, NULL));
    else
        talk(&comms[1]);
    for (int at = 0; at < 2; at++)
        OK(MPI_Comm_free(&comms[at]));
    OK(MPI_Comm_free(&pair));
    int all_rank, all_size;
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &all_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &all_size));
    printf("rank %d of %d is done\n", all_rank, all_size);
    OK(MPI_Finalize());
    return 0;
}
