/* Heat diffusion on a plate that is distributed over a grid of ranks; all write the result collectively, as one array of doubles in
 * row order. The file is the same for any number of ranks: heat FILE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 120, COLUMNS = 96, STEPS = 200 };

/* This rank's part of a line of n cells, and its start. */
static int part(int n, int parts, int which, int *start)
{
    *start = n / parts * which + (which < n % parts ? which : n % parts);
    return n / parts + (which < n % parts);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 2) {
        fprintf(stderr, "heat FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int size, rank, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2], north, south, west, east;
    MPI_Comm grid;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, at);
    MPI_Cart_shift(grid, 0, 1, &north, &south);
    MPI_Cart_shift(grid, 1, 1, &west, &east);

    int starts[2], sizes[2] = {ROWS, COLUMNS}, mine[2];
    mine[0] = part(ROWS, dims[0], at[0], &starts[0]);
    mine[1] = part(COLUMNS, dims[1], at[1], &starts[1]);
    int width = mine[1] + 2;
    double *now = calloc((size_t) (mine[0] + 2) * width, sizeof *now), *next = calloc((size_t) (mine[0] + 2) * width, sizeof *next);
#define CELL(plate, row, column) plate[(size_t) (row) * width + (column)]
    /* The northern edge has a fixed high temperature. */
    if (north == MPI_PROC_NULL)
        for (int column = 0; column < width; column++) CELL(now, 0, column) = CELL(next, 0, column) = 100;

    MPI_Datatype edge, inside, whole;
    MPI_Type_vector(mine[0], 1, width, MPI_DOUBLE, &edge);
    MPI_Type_commit(&edge);
    for (int step = 0; step < STEPS; step++) {
        MPI_Sendrecv(&CELL(now, 1, 1), mine[1], MPI_DOUBLE, north, 0, &CELL(now, mine[0] + 1, 1), mine[1], MPI_DOUBLE, south, 0, grid,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(&CELL(now, mine[0], 1), mine[1], MPI_DOUBLE, south, 1, &CELL(now, 0, 1), mine[1], MPI_DOUBLE, north, 1, grid,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(&CELL(now, 1, 1), 1, edge, west, 2, &CELL(now, 1, mine[1] + 1), 1, edge, east, 2, grid, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&CELL(now, 1, mine[1]), 1, edge, east, 3, &CELL(now, 1, 0), 1, edge, west, 3, grid, MPI_STATUS_IGNORE);
        for (int row = 1; row <= mine[0]; row++)
            for (int column = 1; column <= mine[1]; column++)
                CELL(next, row, column) = CELL(now, row, column) / 2
                    + (CELL(now, row - 1, column) + CELL(now, row + 1, column) + CELL(now, row, column - 1) + CELL(now, row, column + 1)) / 8;
        double *swap = now;
        now = next, next = swap;
    }

    int around[2] = {mine[0] + 2, width}, one[2] = {1, 1};
    MPI_Type_create_subarray(2, around, mine, one, MPI_ORDER_C, MPI_DOUBLE, &inside);
    MPI_Type_create_subarray(2, sizes, mine, starts, MPI_ORDER_C, MPI_DOUBLE, &whole);
    MPI_Type_commit(&inside);
    MPI_Type_commit(&whole);
    MPI_File file;
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
    MPI_File_open(grid, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    MPI_File_set_size(file, 0);
    MPI_File_set_view(file, 0, MPI_DOUBLE, whole, "native", MPI_INFO_NULL);
    MPI_File_write_all(file, now, 1, inside, MPI_STATUS_IGNORE);
    MPI_File_close(&file);

    MPI_Type_free(&edge);
    MPI_Type_free(&inside);
    MPI_Type_free(&whole);
    MPI_Comm_free(&grid);
    free(now);
    free(next);
    if (rank == 0) printf("%d x %d doubles in %s\n", ROWS, COLUMNS, argv[1]);
    MPI_Finalize();
    return 0;
}
