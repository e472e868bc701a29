/* Collective writing under any MPI library.

     write CELL...       a cell is write:MIB, such as write:256: so large is the array, a power of two

   Ranks form a grid and have an array of doubles, as many columns as rows or twice as many, in blocks of 64 by 64, dealt out to them along both dimensions
   (MPI_Type_create_darray). They write it into one file beside the program, which has the whole array row by row: opened anew, a view,
   one MPI_File_write_all, closed. Rank 0 prints `write:MIB ns VALUE...`, what the slowest rank took from opening to closing, once for
   each run; then it reads the file and takes it away. A file that is not the array ends the job. Nothing is forced to the disk. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNS = 3, BLOCK = 64 };

static int rank, size, sizes[2], grid[2], at[2], local[2];
static double *block;
static char path[4096];

static void fail(const char *why)
{
    fprintf(stderr, "write: rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void hold(int code, const char *what)
{
    if (code != MPI_SUCCESS)
        fail(what);
}

/* The row or column of the whole array that a local one is. */
static int whole(int dimension, int index)
{
    return (index / BLOCK * grid[dimension] + at[dimension]) * BLOCK + index % BLOCK;
}

/* What an element is: another one in each run. */
static double element(int run, int row, int column) { return (double)row * sizes[1] + column + run * 0.5; }

static void fill(int run)
{
    for (int i = 0; i < local[0]; i++)
        for (int j = 0; j < local[1]; j++)
            block[(size_t)i * local[1] + j] = element(run, whole(0, i), whole(1, j));
}

static double write_all(void)
{
    int cyclic[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC}, blocks[2] = {BLOCK, BLOCK};
    double began, took;
    MPI_Datatype view;
    MPI_Status status;
    MPI_File file;
    int written;
    MPI_Barrier(MPI_COMM_WORLD);
    began = MPI_Wtime();
    hold(MPI_Type_create_darray(size, rank, 2, sizes, cyclic, blocks, grid, MPI_ORDER_C, MPI_DOUBLE, &view), "no datatype");
    MPI_Type_commit(&view);
    hold(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file), "the file cannot be opened");
    hold(MPI_File_set_view(file, 0, MPI_DOUBLE, view, "native", MPI_INFO_NULL), "no view");
    hold(MPI_File_write_all(file, block, local[0] * local[1], MPI_DOUBLE, &status), "the array cannot be written");
    MPI_Get_count(&status, MPI_DOUBLE, &written);
    hold(MPI_File_close(&file), "the file cannot be closed");
    took = MPI_Wtime() - began;
    MPI_Type_free(&view);
    if (written != local[0] * local[1])
        fail("not all was written");
    return took;
}

/* Reads the file as anybody would. */
static void check(int run)
{
    double *row = malloc((size_t)sizes[1] * sizeof *row);
    FILE *file = fopen(path, "rb");
    if (!row || !file)
        fail("the file cannot be read");
    for (int i = 0; i < sizes[0]; i++) {
        if (fread(row, sizeof *row, (size_t)sizes[1], file) != (size_t)sizes[1])
            fail("the file is too short");
        for (int j = 0; j < sizes[1]; j++)
            if (row[j] != element(run, i, j))
                fail("the file is not the array");
    }
    if (getc(file) != EOF)
        fail("the file is too long");
    fclose(file);
    unlink(path);
    free(row);
}

static void cell(const char *word)
{
    double slowest[RUNS], took;
    int mib = strncmp(word, "write:", 6) ? 0 : atoi(word + 6);
    if (mib < 1 || mib & (mib - 1) || mib > 1 << 16)
        fail("no such cell: write:MIB, a power of two, as in write:256");
    for (sizes[0] = 256; 2l * sizes[0] * sizes[0] * 8 < (long)mib << 20; sizes[0] *= 2)
        ;
    sizes[1] = (int)(((long)mib << 17) / sizes[0]);
    grid[0] = grid[1] = 0;
    MPI_Dims_create(size, 2, grid);
    at[0] = rank / grid[1];
    at[1] = rank % grid[1];
    for (int d = 0; d < 2; d++) {
        if (sizes[d] % (BLOCK * grid[d]))
            fail("blocks cannot be dealt out evenly to so many ranks");
        local[d] = sizes[d] / grid[d];
    }
    block = malloc((size_t)local[0] * (size_t)local[1] * sizeof *block);
    if (!block)
        fail("no memory");
    for (int run = 0; run < RUNS; run++) {
        fill(run);
        took = write_all();
        MPI_Reduce(&took, &slowest[run], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            check(run);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(block);
    if (rank != 0)
        return;
    printf("%s ns", word);
    for (int run = 0; run < RUNS; run++)
        printf(" %.0f", slowest[run] * 1e9);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if ((size_t)snprintf(path, sizeof path, "%s.data", argv[0]) >= sizeof path)
        fail("the program's name is too long");
    for (int i = 1; i < argc; i++)
        cell(argv[i]);
    MPI_Finalize();
    return 0;
}
