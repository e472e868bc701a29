/* Measures an MPI library from outside: the same program under each of them.

     probe CELL...        a cell is NAME:BYTES, such as latency:8, allreduce:1048576, barrier:0, memory:0;
                          with NAME:BYTES+SOURCE+SINK, the buffers begin so many bytes behind the beginning of a page

   Rank 0 prints a line for each cell: `NAME:BYTES UNIT VALUE...`, one value a sample.

     latency     half a round trip of rank 0 with rank 1 (OSU's osu_latency), ns
     bandwidth   a window of 64 messages to rank 1 and an answer (osu_bw), ns a message
     rate        the same of all pairs at once (osu_mbw_mr), ns a message of one pair
     bibw        both ways at once (osu_bibw), ns a message of one way
     overlap     rank 0 sends to rank 1, which waits for it, and computes meanwhile what takes as long as such a message: which part
                 of the shorter one was hidden (IMB-NBC's definition), from 0 to 1
     exchange100, exchange300, exchange1000
                 both ranks begin to send and to receive, compute for so many microseconds, and wait for both, ns
     put, get    rank 0 operates on rank 1's window and flushes, under MPI_Win_lock_all; rank 1 waits in a receive (OSU's osu_put_latency
                 and osu_get_latency), ns
     putepoch, getepoch
                 rank 0 operates on rank 1's window between MPI_Win_start and _complete, then rank 1 on rank 0's: half of both, as
                 osu_put_latency of 2007 has it, ns
     putwindow, getwindow
                 64 operations of rank 0 in each such epoch (osu_put_bw of 2007), ns an operation
     fetchadd    the same by MPI_Fetch_and_op on 8 bytes (osu_fop_latency), ns
     barrier, bcast, reduce, allreduce, allgather, alltoall
                 each between two barriers that are not timed; the mean of all ranks (OSU), ns
     memory      what a rank holds for itself when nothing goes on, KiB: the most of all ranks

   A sample of all but collectives is a batch that takes 100 us or more, twice in a row, so that no clock is in it, nor what is done
   once; of collectives it is the mean of a batch of as many. There are 5 to 100 samples in about 60 ms, after as many batches that are not counted. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 64, SAMPLES_MIN = 5, SAMPLES_MAX = 100, ROUNDS_MAX = 1 << 20 };
static const double BATCH_NS = 100e3, CELL_NS = 60e6;

static int rank, size, bytes;
/* The cell as it was named. */
static const char *cell_name;
static char *out, *in;
static MPI_Request requests[2 * WINDOW];

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

/* How ranks agree is made of messages, so that collectives are needed only where they are measured. */

/* What rank 0 says, everybody does. */
static int agreed(int value)
{
    if (rank > 0)
        MPI_Recv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int to = 1; rank == 0 && to < size; to++)
        MPI_Send(&value, 1, MPI_INT, to, 3, MPI_COMM_WORLD);
    return value;
}

/* At rank 0, the sum over all ranks, and the most of all. */
static double total(double mine, double *most)
{
    double sum = mine, value;
    *most = mine;
    if (rank > 0)
        MPI_Send(&mine, 1, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD);
    for (int from = 1; rank == 0 && from < size; from++) {
        MPI_Recv(&value, 1, MPI_DOUBLE, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += value;
        *most = value > *most ? value : *most;
    }
    return sum;
}

static void meet(void)
{
    double most;
    total(0, &most);
    agreed(0);
}

static double latency(int rounds)
{
    double began = now();
    for (int i = 0; i < rounds; i++) {
        if (rank == 0) {
            MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    return (now() - began) / rounds / 2;
}

/* The first half of the ranks that take part sends to the second. */
static double streams(int rounds, int pairs, int both_ways)
{
    int sends = rank < pairs, takes_part = rank < 2 * pairs;
    int peer = sends ? rank + pairs : rank - pairs;
    double began = now();
    for (int i = 0; i < rounds && takes_part; i++) {
        int n = 0;
        for (int w = 0; w < WINDOW && (both_ways || !sends); w++)
            MPI_Irecv(in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[n++]);
        for (int w = 0; w < WINDOW && (both_ways || sends); w++)
            MPI_Isend(out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[n++]);
        MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        if (sends)
            MPI_Recv(in, 4, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(out, 4, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
    }
    return (now() - began) / rounds / WINDOW;
}

static double bandwidth(int rounds) { return streams(rounds, 1, 0); }
static double bibw(int rounds) { return streams(rounds, 1, 1); }
static double rate(int rounds) { return streams(rounds, size / 2, 0); }

/* The same work for so many turns, whatever else the machine does. */
static double compute(int turns)
{
    volatile double value = 1;
    double began = now();
    for (int i = 0; i < turns; i++)
        value = value * 0.999999 + 1e-6;
    return now() - began;
}

/* What a message takes rank 0 that waits for it when it has computed; rank 1 is a receiver with a core of its own. */
static double message(int turns)
{
    double began = now();
    if (rank == 0) {
        MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[0]);
        if (turns > 0)
            compute(turns);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return now() - began;
}

static double messages(int rounds, int turns)
{
    double sum = 0;
    for (int i = 0; i < rounds; i++) {
        meet();
        sum += message(turns);
    }
    return sum / rounds;
}

static double overlap(int rounds)
{
    enum { TURNS = 1 << 16 };
    double pure = messages(rounds, 0), each = compute(TURNS) / TURNS;
    int turns = agreed((int)(pure / each) + 1);
    double alone = compute(turns), both = messages(rounds, turns);
    double hidden = (pure + alone - both) / (pure < alone ? pure : alone);
    return hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
}

static double exchange(int rounds, double span)
{
    double began = now();
    for (int i = 0; i < rounds && rank < 2; i++) {
        MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[1]);
        for (double until = now() + span; now() < until;)
            continue;
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    return (now() - began) / rounds;
}

static double exchange100(int rounds) { return exchange(rounds, 100e3); }
static double exchange300(int rounds) { return exchange(rounds, 300e3); }
static double exchange1000(int rounds) { return exchange(rounds, 1000e3); }

/* What others reach of this rank, where a cell is about that. */
static MPI_Win window;

enum operation { PUT, GET, FETCH_ADD };

static double operations(int rounds, enum operation operation)
{
    double began = now();
    for (int i = 0; i < rounds && rank == 0; i++) {
        if (operation == PUT)
            MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
        else if (operation == GET)
            MPI_Get(in, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
        else
            MPI_Fetch_and_op(out, in, MPI_INT64_T, 1, 0, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
    return (now() - began) / rounds;
}

static MPI_Group peer;

/* One epoch of a rank on the other, with so many operations. */
static void epoch(int origin, int count, enum operation operation)
{
    if (rank != origin) {
        MPI_Win_post(peer, 0, window);
        MPI_Win_wait(window);
        return;
    }
    MPI_Win_start(peer, 0, window);
    for (int i = 0; i < count; i++) {
        char *own = operation == PUT ? out : in;
        MPI_Aint at = (MPI_Aint)i * bytes;
        if (operation == PUT)
            MPI_Put(own, bytes, MPI_BYTE, 1 - rank, at, bytes, MPI_BYTE, window);
        else
            MPI_Get(own + at, bytes, MPI_BYTE, 1 - rank, at, bytes, MPI_BYTE, window);
    }
    MPI_Win_complete(window);
}

static double epochs(int rounds, enum operation operation)
{
    double began = now();
    for (int i = 0; i < rounds && rank < 2; i++) {
        epoch(0, 1, operation);
        epoch(1, 1, operation);
    }
    return (now() - began) / rounds / 2;
}

static double windows(int rounds, enum operation operation)
{
    double began = now();
    for (int i = 0; i < rounds && rank < 2; i++)
        epoch(0, WINDOW, operation);
    return (now() - began) / rounds / WINDOW;
}

static double putepoch(int rounds) { return epochs(rounds, PUT); }
static double getepoch(int rounds) { return epochs(rounds, GET); }
static double putwindow(int rounds) { return windows(rounds, PUT); }
static double getwindow(int rounds) { return windows(rounds, GET); }

static double put(int rounds) { return operations(rounds, PUT); }
static double get(int rounds) { return operations(rounds, GET); }
static double fetchadd(int rounds) { return operations(rounds, FETCH_ADD); }

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void bcast(void) { MPI_Bcast(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void reduce(void) { MPI_Reduce(out, in, bytes / 4, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); }
static void allreduce(void) { MPI_Allreduce(out, in, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void allgather(void) { MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void alltoall(void) { MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD); }

/* The mean over all ranks, at rank 0. */
static double collective(void (*call)(void), int rounds)
{
    double mine = 0, most;
    for (int i = 0; i < rounds; i++) {
        double began;
        MPI_Barrier(MPI_COMM_WORLD);
        began = now();
        call();
        mine += now() - began;
    }
    return total(mine / rounds, &most) / size;
}

static double own_kib(void)
{
    char line[256];
    double kib, sum = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %lf", &kib) == 1)
            sum = kib;
    if (file)
        fclose(file);
    return sum;
}

static void memory(void)
{
    double most;
    total(own_kib(), &most);
    if (rank == 0)
        printf("memory:0 KiB %.0f\n", most);
}

static const struct {
    const char *name, *unit;
    double (*pairs)(int rounds);
    void (*all)(void);
} CELLS[] = {
    {"latency", "ns", latency, NULL},    {"bandwidth", "ns", bandwidth, NULL}, {"bibw", "ns", bibw, NULL},
    {"rate", "ns", rate, NULL},          {"overlap", "part", overlap, NULL},   {"barrier", "ns", NULL, barrier},
    {"bcast", "ns", NULL, bcast},        {"reduce", "ns", NULL, reduce},       {"allreduce", "ns", NULL, allreduce},
    {"allgather", "ns", NULL, allgather}, {"alltoall", "ns", NULL, alltoall},
    {"put", "ns", put, NULL},            {"get", "ns", get, NULL},             {"fetchadd", "ns", fetchadd, NULL},
    {"exchange100", "ns", exchange100, NULL}, {"exchange300", "ns", exchange300, NULL},
    {"exchange1000", "ns", exchange1000, NULL},
    {"putepoch", "ns", putepoch, NULL},  {"getepoch", "ns", getepoch, NULL},
    {"putwindow", "ns", putwindow, NULL}, {"getwindow", "ns", getwindow, NULL},
};
enum { KINDS = sizeof CELLS / sizeof *CELLS };

static double sample(int kind, int rounds)
{
    return CELLS[kind].pairs ? CELLS[kind].pairs(rounds) : collective(CELLS[kind].all, rounds);
}

static void measure(int kind)
{
    double values[SAMPLES_MAX], took = 0;
    int rounds = 1, samples = 0;
    for (;;) {
        took = CELL_NS;
        for (int again = 0; again < 2; again++) {
            double began = now(), lasted;
            sample(kind, rounds);
            lasted = now() - began;
            took = lasted < took ? lasted : took;
        }
        if (agreed(took >= BATCH_NS || rounds >= ROUNDS_MAX))
            break;
        rounds *= 2;
    }
    samples = agreed((int)(CELL_NS / took));
    samples = samples < SAMPLES_MIN ? SAMPLES_MIN : samples > SAMPLES_MAX ? SAMPLES_MAX : samples;
    for (int i = -samples / 4; i < samples; i++) {
        double value = sample(kind, rounds);
        if (i >= 0)
            values[i] = value;
        meet();
    }
    if (rank != 0)
        return;
    printf("%s %s", cell_name, CELLS[kind].unit);
    for (int i = 0; i < samples; i++)
        printf(" %.4g", values[i]);
    printf("\n");
    fflush(stdout);
}

static void begin_epochs(void)
{
    MPI_Group world;
    void *base;
    int other = 1 - rank;
    MPI_Win_allocate((MPI_Aint)bytes * WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    memset(base, 0, (size_t)bytes * WINDOW);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &other, &peer);
    MPI_Group_free(&world);
}

/* A buffer that begins `offset` bytes behind the beginning of a page, or wherever malloc puts it if that is negative; `base` is to be
   freed. */
static char *buffer(size_t room, int offset, void **base)
{
    enum { PAGE = 4096 };
    *base = offset < 0 ? malloc(room) : aligned_alloc(PAGE, (room + (size_t)offset + PAGE) / PAGE * PAGE);
    return *base && offset > 0 ? (char *)*base + offset : *base;
}

static int cell(const char *word)
{
    const char *colon = strchr(word, ':');
    int source_at = -1, sink_at = -1;
    void *source, *sink;
    size_t room, length = colon ? (size_t)(colon - word) : 0;
    if (!colon)
        return -1;
    cell_name = word;
    bytes = 0;
    sscanf(colon + 1, "%d+%d+%d", &bytes, &source_at, &sink_at);
    if (length == 6 && !strncmp(word, "memory", length)) {
        memory();
        return 0;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (strlen(CELLS[kind].name) != length || strncmp(word, CELLS[kind].name, length))
            continue;
        int has_epochs = CELLS[kind].pairs == putepoch || CELLS[kind].pairs == getepoch || CELLS[kind].pairs == putwindow ||
                         CELLS[kind].pairs == getwindow;
        room = (size_t)(bytes + 64) * (size_t)(has_epochs ? WINDOW : size);
        out = buffer(room, source_at, &source);
        in = buffer(room, sink_at, &sink);
        if (!out || !in)
            return -1;
        memset(out, 1, room);
        memset(in, 2, room);
        int has_window = CELLS[kind].pairs == put || CELLS[kind].pairs == get || CELLS[kind].pairs == fetchadd;
        if (has_window) {
            void *base;
            MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
            memset(base, 0, (size_t)bytes);
            MPI_Win_lock_all(0, window);
        }
        if (has_epochs)
            begin_epochs();
        measure(kind);
        if (has_epochs) {
            MPI_Group_free(&peer);
            MPI_Win_free(&window);
        }
        if (has_window) {
            MPI_Win_unlock_all(window);
            MPI_Win_free(&window);
        }
        free(source);
        free(sink);
        return 0;
    }
    return -1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        if (cell(argv[i])) {
            fprintf(stderr, "probe: no such cell, or no memory for it: %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Finalize();
    return 0;
}
