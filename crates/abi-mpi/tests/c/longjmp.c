/* An error handler that leaves by longjmp, as programs did before exceptions. */
#include "check.h"
#include <setjmp.h>

static jmp_buf back;

static void leave(MPI_Comm *comm, int *code, ...) {
    (void) comm, (void) code;
    longjmp(back, 1);
}

int main(void) {
    volatile int jumps = 0;
    int x = 1, sum = 0, rank, size;
    MPI_Errhandler handler;
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_create_errhandler(leave, &handler));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
    for (int i = 0; i < 20; i++) {
        if (setjmp(back) == 0) {
            if (i % 2) MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
            else MPI_Send(&x, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
            CHECK(0);
        }
        jumps++;
    }
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Allreduce(&x, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(jumps == 20 && sum == size);
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
