/* Two kernels of the NAS Parallel Benchmarks under any MPI library, from their specification and held to the results that it
   publishes; `nicety bench nas-is` and `nas-cg` are the same in Rust.

     nas CELL...         a cell is NAME:CLASS, such as is:A or cg:S; the ranks are a power of two

   Rank 0 prints a line for each cell: `NAME:CLASS ns VALUE...`, what the slowest rank took, once for each run; a result that is not
   the published one ends the job.

     is          whole numbers ranked ten times by counting: counts by bucket are summed (MPI_Allreduce), neighbouring buckets given to
                 ranks so that all get about as many keys, numbers of keys and keys exchanged (MPI_Alltoall, MPI_Alltoallv)
     cg          the smallest eigenvalue of a sparse matrix by inverse iteration, each step 25 steps of conjugate gradients. Ranks form
                 a grid with the matrix on it in blocks; products are summed along its rows, and swapped across its diagonal
                 (MPI_Irecv, MPI_Send, MPI_Wait)

   As the specification wants, keys and matrix are made beforehand, and one ranking or step goes before the timed ones. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3 };

static int rank, size;

static void fail(const char *why)
{
    fprintf(stderr, "nas: rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void *room(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory)
        fail("no memory");
    return memory;
}

/* Random numbers: x' = 5^13 x mod 2^46. */
enum { BITS = 46 };
static const uint64_t MASK = (1ull << BITS) - 1, MULTIPLIER = 1220703125, SEED = 314159265;
static uint64_t drawn;

static uint64_t draw(void) { return drawn = drawn * MULTIPLIER & MASK; }

/* Goes to the place behind so many numbers after the seed. */
static void skip_to(uint64_t skipped)
{
    uint64_t factor = MULTIPLIER;
    drawn = SEED;
    for (; skipped; skipped /= 2, factor = factor * factor & MASK)
        if (skipped % 2)
            drawn = drawn * factor & MASK;
}

/* IS */

enum { TIMES = 10, KNOWN = 5, BUCKETS_LOG2 = 10, BUCKETS = 1 << BUCKETS_LOG2 };

/* What NAS says of a class: places and ranks of known keys, which depend on the number n of the time by sign * (n + offset). */
static const struct sorting {
    char class;
    int keys_log2, largest_log2, places[KNOWN], ranks[KNOWN], signs[KNOWN], offsets[KNOWN];
} SORTING[] = {
    {'S', 16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, {1, 1, 1, -1, -1}, {0}},
    {'W', 20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018},
     {1, 1, -1, -1, -1}, {-2, -2, 0, 0, 0}},
    {'A', 23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264},
     {1, 1, 1, -1, -1}, {-1, -1, -1, -1, -1}},
    {'B', 25, 21, {41869, 812306, 5102857, 18232239, 26860214}, {33422937, 10244, 59149, 33135281, 99},
     {-1, 1, 1, -1, 1}, {0}},
};

static const struct sorting *sorting;
/* Keys in the order of the sequence, by bucket, and those that have come; how many are not above each key that belongs here. */
static int *keys, *by_bucket, *mine, *counts;
static int own, came, came_most, keys_before, smallest, range, confirmed;
static int *sent, *sent_at, *got, *got_at;

static void make_keys(int first, int count)
{
    int scale = BITS + 2 - sorting->largest_log2;
    skip_to(4 * (uint64_t)first);
    for (int i = 0; i < count; i++) {
        uint64_t sum = draw();
        for (int more = 0; more < 3; more++)
            sum += draw();
        keys[i] = (int)(sum >> scale);
    }
}

static void begin_is(void)
{
    own = (1 << sorting->keys_log2) / size;
    came_most = own + own / 2;
    keys = room((size_t)own, sizeof *keys);
    by_bucket = room((size_t)own, sizeof *keys);
    mine = room((size_t)came_most, sizeof *keys);
    counts = room((size_t)1 << sorting->largest_log2, sizeof *counts);
    sent = room((size_t)size, sizeof *sent);
    sent_at = room((size_t)size, sizeof *sent);
    got = room((size_t)size, sizeof *sent);
    got_at = room((size_t)size, sizeof *sent);
    make_keys(rank * own, own);
}

static void end_is(void)
{
    int *all[] = {keys, by_bucket, mine, counts, sent, sent_at, got, got_at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Gives buckets to ranks in their order, each until it has its part of all keys. */
static void share(const int *here, const int *everywhere, int shift)
{
    int owner = 0, given = 0, first = -1, last = -1;
    memset(sent, 0, (size_t)size * sizeof *sent);
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        if (owner == rank) {
            if (first < 0) {
                first = bucket;
                keys_before = given;
            }
            last = bucket;
        }
        sent[owner] += here[bucket];
        given += everywhere[bucket];
        if (given >= (owner + 1) * own && owner + 1 < size)
            owner++;
    }
    smallest = first < 0 ? 0 : first << shift;
    range = first < 0 ? 0 : (last + 1 - first) << shift;
}

static void exchange_keys(void)
{
    MPI_Alltoall(sent, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD);
    came = 0;
    for (int peer = 0, at = 0; peer < size; peer++) {
        sent_at[peer] = at;
        got_at[peer] = came;
        at += sent[peer];
        came += got[peer];
    }
    if (came > came_most) {
        free(mine);
        came_most = came;
        mine = room((size_t)came, sizeof *mine);
    }
    MPI_Alltoallv(by_bucket, sent, sent_at, MPI_INT, mine, got, got_at, MPI_INT, MPI_COMM_WORLD);
}

/* Ranks all keys for the n-th time; two of rank 0's are others from then on. */
static void rank_keys(int n)
{
    int here[BUCKETS + KNOWN] = {0}, everywhere[BUCKETS + KNOWN], next[BUCKETS];
    int shift = sorting->largest_log2 - BUCKETS_LOG2;
    if (rank == 0) {
        keys[n] = n;
        keys[n + TIMES] = (1 << sorting->largest_log2) - n;
    }
    for (int i = 0; i < own; i++)
        here[keys[i] >> shift]++;
    for (int i = 0; i < KNOWN; i++)
        if (sorting->places[i] / own == rank)
            here[BUCKETS + i] = keys[sorting->places[i] % own];
    MPI_Allreduce(here, everywhere, BUCKETS + KNOWN, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    share(here, everywhere, shift);
    for (int bucket = 0, at = 0; bucket < BUCKETS; bucket++) {
        next[bucket] = at;
        at += here[bucket];
    }
    for (int i = 0; i < own; i++)
        by_bucket[next[keys[i] >> shift]++] = keys[i];
    exchange_keys();
    memset(counts, 0, (size_t)range * sizeof *counts);
    for (int i = 0; i < came; i++)
        counts[mine[i] - smallest]++;
    for (int i = 1; i < range; i++)
        counts[i] += counts[i - 1];
    for (int i = 0; i < KNOWN; i++) {
        int place = everywhere[BUCKETS + i] - smallest;
        int wanted = sorting->ranks[i] + sorting->signs[i] * (n + sorting->offsets[i]);
        if (place >= 0 && place < range)
            confirmed += keys_before + (place ? counts[place - 1] : 0) == wanted;
    }
}

/* Puts the keys in order by their ranks, and looks whether they are. */
static void check_is(void)
{
    int *sorted = room((size_t)came, sizeof *sorted), largest, below = -1, all[3] = {confirmed, came, 0}, sum[3];
    for (int i = 0; i < came; i++)
        sorted[--counts[mine[i] - smallest]] = mine[i];
    largest = came ? sorted[came - 1] : -1;
    MPI_Exscan(&largest, &below, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        below = -1;
    for (int i = 0; i < came; i++)
        all[2] += sorted[i] < (i ? sorted[i - 1] : below);
    MPI_Allreduce(all, sum, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum[0] != TIMES * KNOWN || sum[1] != 1 << sorting->keys_log2 || sum[2])
        fail("is: these are not the published ranks");
    free(sorted);
}

static double run_is(void)
{
    double began;
    if (rank == 0)
        make_keys(0, 2 * TIMES + 1);
    rank_keys(1);
    confirmed = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    began = MPI_Wtime();
    for (int n = 1; n <= TIMES; n++)
        rank_keys(n);
    began = MPI_Wtime() - began;
    check_is();
    return began;
}

/* CG */

enum { STEPS = 25, ELEMENTS_MAX = 16 };
static const double CONDITION = 0.1, EPSILON = 1e-10;

/* What NAS says of a class: rows, elements of a random vector, steps of the inverse iteration, shift, result. */
static const struct system_of {
    char class;
    int rows, elements, times;
    double shift, zeta;
} SYSTEMS[] = {
    {'S', 1400, 7, 15, 10, 8.5971775078648},
    {'W', 7000, 8, 15, 12, 10.362595087124},
    {'A', 14000, 11, 15, 20, 17.130235054029},
    {'B', 75000, 13, 75, 60, 22.712745482631},
};

static const struct system_of *problem;

/* The grid has as many columns as rows, or twice as many (two folds for each row). Vectors are cut by its columns. */
static int columns, row, column, folds, fold, across, from, part, row_from, row_part;
/* Of this rank's row of the grid, the piece that a fold sums up. */
static int piece_from[2], piece[2];
/* The block of the matrix, row by row. */
static int *starts, *column_of;
static double *values;
static double *x, *z, *p, *q, *r, *w, *other;

static int cut(int at) { return (int)((int64_t)problem->rows * at / columns); }

static void begin_grid(void)
{
    int rows = 1, first;
    while (rows * rows * 4 <= size)
        rows *= 2;
    columns = size / rows;
    folds = columns / rows;
    row = rank / columns;
    column = rank % columns;
    fold = column % folds;
    across = column / folds * columns + row * folds + fold;
    from = cut(column);
    part = cut(column + 1) - from;
    first = row * folds;
    row_from = cut(first);
    row_part = cut(first + folds) - row_from;
    for (int f = 0; f < folds; f++) {
        piece_from[f] = cut(first + f) - row_from;
        piece[f] = cut(first + f + 1) - cut(first + f);
    }
}

/* A sparse random vector, which has a half at its own row. */
struct vector {
    int elements, places[ELEMENTS_MAX];
    double values[ELEMENTS_MAX];
};

static void draw_vector(struct vector *vector, int own_row, int bits)
{
    int found = 0, n = 0;
    while (n < problem->elements) {
        double value = (double)draw() / (double)(MASK + 1);
        int place = (int)(draw() >> (BITS - bits)), is_new = place < problem->rows;
        for (int i = 0; i < n; i++)
            is_new &= vector->places[i] != place;
        if (is_new) {
            vector->places[n] = place;
            vector->values[n++] = value;
        }
    }
    for (int i = 0; i < n && !found; i++) {
        found = vector->places[i] == own_row;
        if (found)
            vector->values[i] = 0.5;
    }
    if (!found) {
        vector->places[n] = own_row;
        vector->values[n++] = 0.5;
    }
    vector->elements = n;
}

/* An element before those of one place are added up, in the order in which they were made, as sums depend on it. */
struct element {
    int column, order;
    double value;
};

static int by_column(const void *left, const void *right)
{
    const struct element *a = left, *b = right;
    return a->column != b->column ? (a->column > b->column) - (a->column < b->column) : (a->order > b->order) - (a->order < b->order);
}

/* Adds a vector's outer product with itself to the rows, or counts its elements if there are none yet. */
static void outer(const struct vector *vector, double weight, struct element *elements, int *ends)
{
    for (int i = 0; i < vector->elements; i++) {
        int to = vector->places[i] - from;
        if (to < 0 || to >= part)
            continue;
        for (int j = 0; j < vector->elements; j++) {
            int in = vector->places[j] - row_from;
            if (in < 0 || in >= row_part)
                continue;
            if (elements)
                elements[ends[in]] = (struct element){to, ends[in], vector->values[j] * (weight * vector->values[i])};
            ends[in]++;
        }
    }
}

/* The matrix is the sum of such products with weights from 1 to a tenth, and a shifted diagonal. */
static void make_matrix(void)
{
    struct vector *vectors = room((size_t)problem->rows, sizeof *vectors);
    int *ends = room((size_t)row_part + 1, sizeof *ends), *begins = room((size_t)row_part + 1, sizeof *begins), bits = 0, n = 0;
    double ratio = pow(CONDITION, 1.0 / problem->rows), weight = 1;
    struct element *elements;
    while (1 << bits < problem->rows)
        bits++;
    skip_to(1);
    for (int i = 0; i < problem->rows; i++) {
        draw_vector(&vectors[i], i, bits);
        outer(&vectors[i], 0, NULL, ends);
    }
    for (int i = 0; i < row_part; i++) {
        begins[i] = n;
        n += ends[i] + 1;
        ends[i] = begins[i];
    }
    elements = room((size_t)n, sizeof *elements);
    for (int i = 0; i < problem->rows; i++, weight *= ratio)
        outer(&vectors[i], weight, elements, ends);
    starts = room((size_t)row_part + 1, sizeof *starts);
    column_of = room((size_t)n, sizeof *column_of);
    values = room((size_t)n, sizeof *values);
    n = 0;
    for (int i = 0; i < row_part; i++) {
        int diagonal = row_from + i - from;
        if (diagonal >= 0 && diagonal < part) {
            elements[ends[i]] = (struct element){diagonal, ends[i], CONDITION - problem->shift};
            ends[i]++;
        }
        qsort(&elements[begins[i]], (size_t)(ends[i] - begins[i]), sizeof *elements, by_column);
        for (int e = begins[i]; e < ends[i]; e++) {
            if (e == begins[i] || elements[e].column != elements[e - 1].column) {
                column_of[n] = elements[e].column;
                values[n++] = 0;
            }
            values[n - 1] += elements[e].value;
        }
        starts[i + 1] = n;
    }
    free(elements);
    free(vectors);
    free(begins);
    free(ends);
}

static void begin_cg(void)
{
    double **all[] = {&x, &z, &p, &q, &r, &w, &other};
    begin_grid();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = room((size_t)(row_part > part ? row_part : part), sizeof(double));
    make_matrix();
}

static void end_cg(void)
{
    double *all[] = {x, z, p, q, r, w, other, values};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(starts);
    free(column_of);
}

static void swap(int with, const double *out, int count, double *in, int expected)
{
    MPI_Request request;
    MPI_Irecv(in, expected, MPI_DOUBLE, with, 1, MPI_COMM_WORLD, &request);
    MPI_Send(out, count, MPI_DOUBLE, with, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* The rank of this row at such a distance. */
static int partner(int distance) { return row * columns + (column ^ distance); }

/* Sums numbers along the row of the grid, whose ranks have all parts of a vector. */
static void sum(double *numbers, int count)
{
    double more[2];
    for (int distance = 1; distance < columns; distance *= 2) {
        swap(partner(distance), numbers, count, more, count);
        for (int i = 0; i < count; i++)
            numbers[i] += more[i];
    }
}

/* Sends a piece of the product to a partner, and adds what comes to the own. */
static void add_from(int with, int sends)
{
    double *to = w + piece_from[fold];
    swap(with, w + piece_from[sends], piece[sends], other, piece[fold]);
    for (int i = 0; i < piece[fold]; i++)
        to[i] += other[i];
}

/* The matrix times a vector, in q, cut as the vector is. */
static void multiply(const double *vector)
{
    for (int i = 0; i < row_part; i++) {
        double total = 0;
        for (int e = starts[i]; e < starts[i + 1]; e++)
            total += values[e] * vector[column_of[e]];
        w[i] = total;
    }
    if (folds > 1)
        add_from(partner(1), 1 - fold);
    for (int distance = folds; distance < columns; distance *= 2)
        add_from(partner(distance), fold);
    if (across == rank)
        memcpy(q, w + piece_from[fold], (size_t)part * sizeof *q);
    else
        swap(across, w + piece_from[fold], piece[fold], q, part);
}

static double dot(const double *a, const double *b)
{
    double total = 0;
    for (int i = 0; i < part; i++)
        total += a[i] * b[i];
    return total;
}

/* Solves for z what the matrix makes x of; how far it is off, which the specification computes, too, and does not publish. */
static double solve(void)
{
    double rho, off = 0;
    memset(z, 0, (size_t)part * sizeof *z);
    memcpy(r, x, (size_t)part * sizeof *r);
    memcpy(p, x, (size_t)part * sizeof *p);
    rho = dot(r, r);
    sum(&rho, 1);
    for (int step = 0; step < STEPS; step++) {
        double pq, alpha, before = rho;
        multiply(p);
        pq = dot(p, q);
        sum(&pq, 1);
        alpha = rho / pq;
        for (int i = 0; i < part; i++) {
            z[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        rho = dot(r, r);
        sum(&rho, 1);
        for (int i = 0; i < part; i++)
            p[i] = r[i] + rho / before * p[i];
    }
    multiply(z);
    for (int i = 0; i < part; i++)
        off += (x[i] - q[i]) * (x[i] - q[i]);
    sum(&off, 1);
    return off;
}

/* One step of the inverse iteration: what the eigenvalue seems to be. */
static double iterate(void)
{
    double products[2], scale, off = solve();
    products[0] = dot(x, z);
    products[1] = dot(z, z);
    sum(products, 2);
    scale = 1 / sqrt(products[1]);
    for (int i = 0; i < part; i++)
        x[i] = scale * z[i];
    /* Never, but compilers have to compute it. */
    return off < 0 ? -1 : problem->shift + 1 / products[0];
}

static void begin_vector(void)
{
    for (int i = 0; i < part; i++)
        x[i] = 1;
}

static double run_cg(void)
{
    double began, zeta = 0;
    begin_vector();
    iterate();
    begin_vector();
    MPI_Barrier(MPI_COMM_WORLD);
    began = MPI_Wtime();
    for (int i = 0; i < problem->times; i++)
        zeta = iterate();
    began = MPI_Wtime() - began;
    /* Not a number is not close to any. */
    if (!(fabs(zeta - problem->zeta) <= EPSILON))
        fail("cg: this is not the published eigenvalue");
    return began;
}

static void measure(const char *cell, void (*begin)(void), double (*run)(void), void (*end)(void))
{
    double took, slowest[RUNS];
    begin();
    for (int i = 0; i < RUNS; i++) {
        took = run();
        MPI_Reduce(&took, &slowest[i], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    }
    end();
    if (rank != 0)
        return;
    printf("%s ns", cell);
    for (int i = 0; i < RUNS; i++)
        printf(" %.0f", slowest[i] * 1e9);
    printf("\n");
    fflush(stdout);
}

static void cell(const char *word)
{
    char class = strlen(word) == 4 ? word[3] : 0;
    if (!strncmp(word, "is:", 3))
        for (size_t i = 0; i < sizeof SORTING / sizeof *SORTING; i++)
            if (SORTING[i].class == class) {
                sorting = &SORTING[i];
                measure(word, begin_is, run_is, end_is);
                return;
            }
    if (!strncmp(word, "cg:", 3))
        for (size_t i = 0; i < sizeof SYSTEMS / sizeof *SYSTEMS; i++)
            if (SYSTEMS[i].class == class) {
                problem = &SYSTEMS[i];
                measure(word, begin_cg, run_cg, end_cg);
                return;
            }
    fail("no such cell: there are is and cg, each with classes S, W, A and B, as in is:A");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size & (size - 1))
        fail("the ranks are no power of two");
    for (int i = 1; i < argc; i++)
        cell(argv[i]);
    MPI_Finalize();
    return 0;
}
