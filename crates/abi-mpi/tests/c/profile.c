/* A profile includes calls between MPI_Pcontrol(1) and MPI_Pcontrol(0), and excludes those before MPI_Pcontrol(2). */
#include "check.h"

static int rank, size;
static char bytes[70000];

static void send(int count, int tag) {
    if (rank == 0)
        OK(MPI_Send(bytes, count, MPI_BYTE, 1, tag, MPI_COMM_WORLD));
    if (rank == 1)
        OK(MPI_Recv(bytes, count, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

int main(int argc, char **argv) {
    OK(MPI_Pcontrol(1));
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    send(1000, 1);
    OK(MPI_Pcontrol(2));
    for (int i = 0; i < 10; i++)
        send(100, 2);
    OK(MPI_Pcontrol(0));
    send(70000, 3);
    OK(MPI_Pcontrol(0));
    OK(MPI_Pcontrol(1));
    send(70000, 4);
    OK(MPI_Pcontrol(7));
    if (argc > 1 && rank == 1)
        abort();
    OK(MPI_Finalize());
    OK(MPI_Pcontrol(2));
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
