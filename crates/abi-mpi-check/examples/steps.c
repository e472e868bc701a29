/* Rank 0 sends the squares of eight steps to rank 1, which prints them. It has a bug that nicety mpirun --check finds. */
#include <mpi.h>
#include <stdio.h>

enum { STEPS = 8 };

static void send_all(void)
{
	MPI_Request requests[STEPS];
	int square;

	for (int step = 0; step < STEPS; step++) {
		square = step * step;
		MPI_Isend(&square, 1, MPI_INT, 1, step, MPI_COMM_WORLD, &requests[step]);
	}
	MPI_Waitall(STEPS, requests, MPI_STATUSES_IGNORE);
}

static void receive_all(void)
{
	int square;

	for (int step = 0; step < STEPS; step++) {
		MPI_Recv(&square, 1, MPI_INT, 0, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		printf("%d ", square);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		send_all();
	else if (rank == 1)
		receive_all();
	MPI_Finalize();
	return 0;
}
