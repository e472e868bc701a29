/* Arguments of spawned programs arrive unchanged, with any characters. */
#include "check.h"

int main(int argc, char **argv) {
    static char long_one[3000];
    char *given[] = {"", "a b", "q\"'\\;|=\n$x\t", "\xc3\xa4\xf0\x9f\x8c\x8d", "--", long_one, "", NULL};
    enum { GIVEN = sizeof given / sizeof *given - 1 };
    MPI_Comm other;
    int is_right;
    memset(long_one, '\\', sizeof long_one - 1);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_get_parent(&other));
    if (other == MPI_COMM_NULL) {
        OK(MPI_Comm_spawn(argv[0], given, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, MPI_ERRCODES_IGNORE));
        OK(MPI_Recv(&is_right, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE));
        CHECK(is_right);
        puts("all arguments arrived");
    } else {
        is_right = argc == GIVEN + 1;
        for (int i = 0; is_right && i < GIVEN; i++) is_right = strcmp(argv[1 + i], given[i]) == 0;
        OK(MPI_Send(&is_right, 1, MPI_INT, 0, 0, other));
    }
    OK(MPI_Comm_disconnect(&other));
    OK(MPI_Finalize());
    return 0;
}
