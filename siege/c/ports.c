/* A server with a port of MPI_Open_port, which strangers attack, and honest clients.
 * ports COUNT    prints the name of its port, accepts COUNT clients one after the other, and exchanges a word with each
 * ports          reads the name of a port, waits for a line, connects, exchanges a word, and prints how many microseconds both took */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define CHECK(holds) \
	do { \
		if (!(holds)) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, #holds); \
			exit(1); \
		} \
	} while (0)

enum { WORD = 0x17171717 };

/* Sends a word and receives one. */
static void exchange(MPI_Comm across)
{
	int word = WORD, theirs = 0;

	MPI_Sendrecv(&word, 1, MPI_INT, 0, 0, &theirs, 1, MPI_INT, 0, 0, across, MPI_STATUS_IGNORE);
	CHECK(theirs == WORD);
}

static void serve(int count)
{
	char name[MPI_MAX_PORT_NAME];
	MPI_Comm across;

	MPI_Open_port(MPI_INFO_NULL, name);
	printf("%s\n", name);
	for (; count > 0; count--) {
		MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &across);
		exchange(across);
		MPI_Comm_disconnect(&across);
	}
	MPI_Close_port(name);
}

static void call(void)
{
	char name[MPI_MAX_PORT_NAME + 1], line[100];
	MPI_Comm across;

	CHECK(fgets(name, sizeof name, stdin));
	name[strcspn(name, "\n")] = 0;
	CHECK(fgets(line, sizeof line, stdin));
	double began = MPI_Wtime();
	MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &across);
	exchange(across);
	printf("%.0f\n", (MPI_Wtime() - began) * 1e6);
	MPI_Comm_disconnect(&across);
}

int main(int count, char **arguments)
{
	/* It ends with the siege. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	MPI_Init(&count, &arguments);
	if (count == 2)
		serve(atoi(arguments[1]));
	else
		call();
	MPI_Finalize();
	return 0;
}
