/* Sample sort of numbers that are distributed over all ranks: each rank ends with a sorted part, with no number below those of the
 * rank before: sort [NUMBERS OF EACH RANK] */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mixed(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return (x > y) - (x < y);
}

/* Invariants of sorting: the count, the sum, and the sum of a hash of each number. */
static void sums(const uint64_t *numbers, long count, uint64_t all[3])
{
    uint64_t mine[3] = {(uint64_t) count, 0, 0};
    for (long i = 0; i < count; i++) {
        mine[1] += numbers[i];
        mine[2] += mixed(numbers[i]);
    }
    MPI_Allreduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* Every rank has a different count. */
    int count = (argc > 1 ? atoi(argv[1]) : 50000) + rank;
    uint64_t *numbers = malloc(sizeof *numbers * (count + 1)), before[3], after[3];
    for (int i = 0; i < count; i++) numbers[i] = mixed((uint64_t) rank << 32 | (uint64_t) i) >> (i % 3 ? 0 : 50);
    sums(numbers, count, before);
    qsort(numbers, count, sizeof *numbers, compare);

    /* Splitters between ranks are samples of all samples. */
    uint64_t *samples = malloc(sizeof *samples * size), *all = malloc(sizeof *all * size * size), *borders = malloc(sizeof *borders * size);
    for (int i = 0; i < size; i++) samples[i] = count ? numbers[(long) i * count / size] : 0;
    MPI_Gather(samples, size, MPI_UINT64_T, all, size, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(all, (size_t) size * size, sizeof *all, compare);
        for (int i = 1; i < size; i++) borders[i - 1] = all[(size_t) i * size];
    }
    MPI_Bcast(borders, size - 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

    int *to = calloc(size, sizeof *to), *from = calloc(size, sizeof *from), *to_at = calloc(size, sizeof *to_at), *from_at = calloc(size, sizeof *from_at);
    for (int i = 0, target = 0; i < count; i++) {
        while (target < size - 1 && numbers[i] >= borders[target]) target++;
        to[target]++;
    }
    MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 1; i < size; i++) {
        to_at[i] = to_at[i - 1] + to[i - 1];
        from_at[i] = from_at[i - 1] + from[i - 1];
    }
    int mine = from_at[size - 1] + from[size - 1];
    uint64_t *sorted = malloc(sizeof *sorted * (mine + 1));
    MPI_Alltoallv(numbers, to, to_at, MPI_UINT64_T, sorted, from, from_at, MPI_UINT64_T, MPI_COMM_WORLD);
    qsort(sorted, mine, sizeof *sorted, compare);

    /* No number is below the largest one of all ranks before. */
    uint64_t largest = mine ? sorted[mine - 1] : 0, largest_before = 0;
    MPI_Exscan(&largest, &largest_before, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    int in_order = rank == 0 || mine == 0 || sorted[0] >= largest_before, all_in_order;
    MPI_Allreduce(&in_order, &all_in_order, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    sums(sorted, mine, after);
    int is_same = before[0] == after[0] && before[1] == after[1] && before[2] == after[2];
    if (rank == 0) printf("%llu numbers %s, and %s\n", (unsigned long long) after[0], all_in_order ? "in order" : "NOT in order", is_same ? "none is lost" : "SOME ARE LOST");

    free(numbers), free(samples), free(all), free(borders), free(to), free(from), free(to_at), free(from_at), free(sorted);
    MPI_Finalize();
    return all_in_order && is_same ? 0 : 1;
}
