/* A task farm: rank 0 hands out ranges of numbers on request and sums up how many primes they contain. A single rank counts by itself:
 * farm [NUMBERS] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TASK = 500, WORK = 1, STOP = 2, RESULT = 3 };

static long primes(long from, long to)
{
    long count = 0;
    for (long n = from < 2 ? 2 : from; n < to; n++) {
        long divisor = 2;
        while (divisor * divisor <= n && n % divisor) divisor++;
        count += divisor * divisor > n;
    }
    return count;
}

/* Hands out all tasks, and then sends each worker a stop message. */
static long give(long numbers, int workers, int *tasks)
{
    long next = 0, found = 0;
    int working = 0;
    for (int worker = 1; worker <= workers; worker++) {
        MPI_Send(&next, 1, MPI_LONG, worker, next < numbers ? WORK : STOP, MPI_COMM_WORLD);
        working += next < numbers;
        next += TASK;
    }
    while (working) {
        long count;
        MPI_Status status;
        MPI_Recv(&count, 1, MPI_LONG, MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD, &status);
        found += count;
        ++*tasks;
        MPI_Send(&next, 1, MPI_LONG, status.MPI_SOURCE, next < numbers ? WORK : STOP, MPI_COMM_WORLD);
        working -= next >= numbers;
        next += TASK;
    }
    return found;
}

static void work(long numbers)
{
    for (;;) {
        long from;
        MPI_Status status;
        MPI_Recv(&from, 1, MPI_LONG, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == STOP) return;
        long count = primes(from, from + TASK < numbers ? from + TASK : numbers);
        MPI_Send(&count, 1, MPI_LONG, 0, RESULT, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank, size, tasks = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long numbers = argc > 1 ? atol(argv[1]) : 100000;
    if (rank > 0) {
        work(numbers);
    } else {
        long found = size > 1 ? give(numbers, size - 1, &tasks) : primes(0, numbers);
        printf("%ld primes below %ld, in %d tasks\n", found, numbers, size > 1 ? tasks : 1);
    }
    MPI_Finalize();
    return 0;
}
