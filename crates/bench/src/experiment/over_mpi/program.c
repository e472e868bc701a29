/* What `nicety bench mpi-... --against LIBRARY` measures with: the loops of pair.rs and collective.rs as a program of MPI's standard
   ABI, which runs under any library of it.

     program NAME BYTES WINDOW

   Rank 0 says `library TEXT` and then, for each line `LEAD_IN SAMPLES BATCH` that it reads, as many lines as samples: picoseconds of a
   batch, or the per cent that overlap has. At `verify` it says `right` or `wrong`; at the end of its input it leaves. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWER = 4, DATA = 1, ANSWERED = 2, ORDER = 3 };

static int rank, size, bytes, window, peer, sends;
static char *source, *sink;
static MPI_Request *requests;
static int *counts;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e12 + at.tv_nsec * 1e3;
}

static void ping_pong(void)
{
    if (sends) {
        MPI_Send(source, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD);
        MPI_Recv(sink, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(sink, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(source, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD);
    }
}

static void windows(int both)
{
    int n = 0;
    char answer[ANSWER] = {0};
    for (int i = 0; i < window && (both || !sends); i++)
        MPI_Irecv(sink, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[n++]);
    for (int i = 0; i < window && (both || sends); i++)
        MPI_Isend(source, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[n++]);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    if (sends)
        MPI_Recv(answer, ANSWER, MPI_BYTE, peer, ANSWERED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(answer, ANSWER, MPI_BYTE, peer, ANSWERED, MPI_COMM_WORLD);
}

static void one_way(void) { windows(0); }
static void both_ways(void) { windows(1); }

/* What a message each way takes if so long is computed before it is waited for. */
static double exchange(double computing)
{
    double began, until;
    MPI_Barrier(MPI_COMM_WORLD);
    began = now();
    MPI_Irecv(sink, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(source, bytes, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, &requests[1]);
    until = now() + computing;
    while (computing > 0 && now() < until)
        ;
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    return now() - began;
}

static double hidden(int count)
{
    double alone = 0, beside = 0, part;
    for (int i = 0; i < count; i++) {
        double one = exchange(0);
        alone += one;
        beside += exchange(one);
    }
    part = (2 * alone - beside) / (alone > 1 ? alone : 1);
    return 100 * (part < 0 ? 0 : part > 1 ? 1 : part);
}

#define FLOATS (bytes / 4)
static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void bcast(void) { MPI_Bcast(sink, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void gather(void) { MPI_Gather(source, bytes, MPI_BYTE, sink, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void scatter(void) { MPI_Scatter(source, bytes, MPI_BYTE, sink, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void allgather(void) { MPI_Allgather(source, bytes, MPI_BYTE, sink, bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void alltoall(void) { MPI_Alltoall(source, bytes, MPI_BYTE, sink, bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void reduce(void) { MPI_Reduce(source, sink, FLOATS, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); }
static void allreduce(void) { MPI_Allreduce(source, sink, FLOATS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void reduce_scatter(void) { MPI_Reduce_scatter(source, sink, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void scan(void) { MPI_Scan(source, sink, FLOATS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void exscan(void) { MPI_Exscan(source, sink, FLOATS, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

/* Pairs are timed as they are, collectives call by call. */
static const struct {
    const char *name;
    void (*pair)(void), (*call)(void);
} KINDS[] = {
    {"mpi-latency", ping_pong, NULL},  {"mpi-bandwidth", one_way, NULL},   {"mpi-bibw", both_ways, NULL},
    {"mpi-rate", one_way, NULL},       {"mpi-overlap", NULL, NULL},        {"mpi-barrier", NULL, barrier},
    {"mpi-bcast", NULL, bcast},        {"mpi-gather", NULL, gather},       {"mpi-scatter", NULL, scatter},
    {"mpi-allgather", NULL, allgather}, {"mpi-alltoall", NULL, alltoall},  {"mpi-reduce", NULL, reduce},
    {"mpi-allreduce", NULL, allreduce}, {"mpi-reduce-scatter", NULL, reduce_scatter},
    {"mpi-scan", NULL, scan},          {"mpi-exscan", NULL, exscan},
};
static int kind = -1;

static double operate(int count)
{
    double began, mine = 0, all = 0;
    if (KINDS[kind].pair) {
        if (size > 2)
            MPI_Barrier(MPI_COMM_WORLD);
        began = now();
        for (int i = 0; i < count; i++)
            KINDS[kind].pair();
        return now() - began;
    }
    if (!KINDS[kind].call)
        return hidden(count);
    for (int i = 0; i < count; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        began = now();
        KINDS[kind].call();
        mine += now() - began;
    }
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return all / size;
}

/* What rank 0 reads, all know; whether there is more. Messages carry it, so that collectives are only those that are measured. */
static int ordered(int *order)
{
    char line[64];
    if (rank > 0) {
        MPI_Recv(order, 3, MPI_INT, 0, ORDER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return order[0] >= 0;
    }
    order[0] = -1;
    if (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "verify\n"))
            order[0] = order[1] = order[2] = 0;
        else if (sscanf(line, "%d %d %d", &order[0], &order[1], &order[2]) != 3)
            order[0] = -1;
    }
    for (int to = 1; to < size; to++)
        MPI_Send(order, 3, MPI_INT, to, ORDER, MPI_COMM_WORLD);
    return order[0] >= 0;
}

/* One more operation, and whether a peer's bytes, a root's, or a sum of ones are there. What others get is theirs to check. */
static int verified(void)
{
    const char *name = KINDS[kind].name;
    int wrong = 0, sums, everywhere;
    sums = !strcmp(name, "mpi-reduce") || !strcmp(name, "mpi-allreduce");
    everywhere = !strcmp(name, "mpi-latency") || !strcmp(name, "mpi-bibw");
    for (int i = 0; i < FLOATS; i++)
        ((float *)source)[i] = 1;
    if (!sums)
        memset(source, 'a' + rank % 16, (size_t)bytes);
    if (!strcmp(name, "mpi-bcast"))
        memset(sink, 'a' + rank % 16, (size_t)bytes);
    operate(1);
    for (int i = 0; sums && i < FLOATS && (rank == 0 || !strcmp(name, "mpi-allreduce")); i++)
        wrong |= ((float *)sink)[i] != (float)size;
    for (int i = 0; i < bytes && everywhere; i++)
        wrong |= sink[i] != 'a' + peer % 16;
    for (int i = 0; i < bytes && !strcmp(name, "mpi-bcast"); i++)
        wrong |= sink[i] != 'a';
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return !wrong;
}

static int prepare(char **words)
{
    size_t room;
    for (int i = 0; i < (int)(sizeof KINDS / sizeof *KINDS); i++)
        if (!strcmp(words[1], KINDS[i].name))
            kind = i;
    bytes = atoi(words[2]);
    window = atoi(words[3]);
    sends = rank < size / 2;
    peer = sends ? rank + size / 2 : rank - size / 2;
    room = (size_t)bytes * (size_t)size + 64;
    source = malloc(room);
    sink = malloc(room);
    requests = calloc(2 * (size_t)window + 2, sizeof *requests);
    counts = calloc((size_t)size, sizeof *counts);
    if (kind < 0 || !source || !sink || !requests || !counts)
        return -1;
    memset(source, 0, room);
    memset(sink, 0, room);
    for (int i = 0; i < size; i++)
        counts[i] = FLOATS / size + (i < FLOATS % size);
    return 0;
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, order[3];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4 || prepare(argv)) {
        fprintf(stderr, "no such measurement, or no memory for it\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = 0;
    if (rank == 0) {
        printf("library %s\n", version);
        fflush(stdout);
    }
    while (ordered(order)) {
        if (order[2] == 0) {
            int right = verified();
            if (rank == 0)
                printf("%s\n", right ? "right" : "wrong");
        } else {
            operate(order[0]);
            for (int i = 0; i < order[1]; i++) {
                double reading = operate(order[2]);
                if (rank == 0)
                    printf("%.0f\n", reading);
            }
        }
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
