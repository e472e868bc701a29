/* Receives from itself; another thread sends once it has read a line. Ends at the end of the input. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

static void *send_later(void *unused)
{
    int value = 1;

    (void) unused;
    if (getchar() != EOF)
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    return 0;
}

int main(void)
{
    int provided, value = 0;
    pthread_t thread;

    MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &provided);
    if (pthread_create(&thread, 0, send_later, 0) != 0)
        return 1;
    MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    while (getchar() != EOF)
        ;
    pthread_join(thread, 0);
    MPI_Finalize();
    return value != 1;
}
