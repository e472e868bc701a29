/* Conway's life on a torus that is distributed over a grid of ranks: each exchanges the edges of its part with its neighbours by
 * persistent requests. A glider travels around the torus once, so that the last generation equals the first one: halo [GENERATIONS] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 60, COLUMNS = 60 };

/* This rank's part of a line of n cells, and its start. */
static int part(int n, int parts, int which, int *start)
{
    *start = n / parts * which + (which < n % parts ? which : n % parts);
    return n / parts + (which < n % parts);
}

int main(int argc, char **argv)
{
    static const int glider[5][2] = {{1, 2}, {2, 3}, {3, 1}, {3, 2}, {3, 3}};
    int size, rank, dims[2] = {0, 0}, periods[2] = {1, 1}, at[2], north, south, west, east, starts[2];
    MPI_Comm torus;

    MPI_Init(&argc, &argv);
    int generations = argc > 1 ? atoi(argv[1]) : 4 * ROWS;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &torus);
    MPI_Comm_rank(torus, &rank);
    MPI_Cart_coords(torus, rank, 2, at);
    MPI_Cart_shift(torus, 0, 1, &north, &south);
    MPI_Cart_shift(torus, 1, 1, &west, &east);
    int rows = part(ROWS, dims[0], at[0], &starts[0]), columns = part(COLUMNS, dims[1], at[1], &starts[1]), width = columns + 2;
    size_t cells = (size_t) (rows + 2) * width;
    unsigned char *now = calloc(cells, 1), *next = calloc(cells, 1), *first = calloc(cells, 1);
#define CELL(field, row, column) field[(size_t) (row) * width + (column)]
    for (int i = 0; i < 5; i++) {
        int row = glider[i][0] - starts[0], column = glider[i][1] - starts[1];
        if (row >= 0 && row < rows && column >= 0 && column < columns) CELL(now, row + 1, column + 1) = 1;
    }
    memcpy(first, now, cells);

    /* Columns are sent west and east first, then rows with the corners received from north and south. */
    MPI_Datatype column;
    MPI_Request sides[4], ends[4];
    MPI_Type_vector(rows, 1, width, MPI_UNSIGNED_CHAR, &column);
    MPI_Type_commit(&column);
    MPI_Recv_init(&CELL(now, 1, columns + 1), 1, column, east, 0, torus, &sides[0]);
    MPI_Recv_init(&CELL(now, 1, 0), 1, column, west, 1, torus, &sides[1]);
    MPI_Send_init(&CELL(now, 1, 1), 1, column, west, 0, torus, &sides[2]);
    MPI_Send_init(&CELL(now, 1, columns), 1, column, east, 1, torus, &sides[3]);
    MPI_Recv_init(&CELL(now, rows + 1, 0), width, MPI_UNSIGNED_CHAR, south, 2, torus, &ends[0]);
    MPI_Recv_init(&CELL(now, 0, 0), width, MPI_UNSIGNED_CHAR, north, 3, torus, &ends[1]);
    MPI_Send_init(&CELL(now, 1, 0), width, MPI_UNSIGNED_CHAR, north, 2, torus, &ends[2]);
    MPI_Send_init(&CELL(now, rows, 0), width, MPI_UNSIGNED_CHAR, south, 3, torus, &ends[3]);
    for (int generation = 0; generation < generations; generation++) {
        MPI_Startall(4, sides);
        MPI_Waitall(4, sides, MPI_STATUSES_IGNORE);
        MPI_Startall(4, ends);
        MPI_Waitall(4, ends, MPI_STATUSES_IGNORE);
        for (int row = 1; row <= rows; row++)
            for (int column = 1; column <= columns; column++) {
                int around = -CELL(now, row, column);
                for (int i = -1; i <= 1; i++)
                    for (int j = -1; j <= 1; j++) around += CELL(now, row + i, column + j);
                CELL(next, row, column) = around == 3 || (around == 2 && CELL(now, row, column));
            }
        for (int row = 1; row <= rows; row++) memcpy(&CELL(now, row, 1), &CELL(next, row, 1), columns);
    }

    int mine[2] = {0, 0}, all[2];
    for (int row = 1; row <= rows; row++)
        for (int column = 1; column <= columns; column++) {
            mine[0] += CELL(now, row, column);
            mine[1] += CELL(now, row, column) != CELL(first, row, column);
        }
    MPI_Reduce(mine, all, 2, MPI_INT, MPI_SUM, 0, torus);
    if (rank == 0) printf("after %d generations %d cells live, and %d are not as at first\n", generations, all[0], all[1]);

    for (int i = 0; i < 4; i++) {
        MPI_Request_free(&sides[i]);
        MPI_Request_free(&ends[i]);
    }
    MPI_Type_free(&column);
    MPI_Comm_free(&torus);
    free(now);
    free(next);
    free(first);
    MPI_Finalize();
    return 0;
}
