/* Jobs that spawn others: all ranks of the first job spawn two more of this program, TEST_ROUNDS times (2), and then two programs in
 * one call; parents and children communicate over the intercommunicator and in a merged communicator, and the children leave
 * immediately. With TEST_MISSING, the first call names a program that does not exist. */
#include "check.h"

static int rank, size;

/* Communication of both sides: a sum across, a message to each, all in one communicator. */
static void talk(MPI_Comm across, int is_child) {
    int others, sum = 0, got, all;
    MPI_Comm merged;
    OK(MPI_Comm_remote_size(across, &others));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, across));
    CHECK(sum == others * (others - 1) / 2);
    for (int peer = 0; peer < others; peer++) {
        OK(MPI_Sendrecv(&rank, 1, MPI_INT, peer, 7, &got, 1, MPI_INT, peer, 7, across, MPI_STATUS_IGNORE));
        CHECK(got == peer);
    }
    OK(MPI_Intercomm_merge(across, is_child, &merged));
    OK(MPI_Comm_size(merged, &all));
    OK(MPI_Allreduce(&is_child, &sum, 1, MPI_INT, MPI_SUM, merged));
    CHECK(all == size + others && sum == (is_child ? size : others));
    OK(MPI_Comm_free(&merged));
    OK(MPI_Comm_disconnect(&across));
}

static void start(char *program) {
    char *words[] = {"one word", "two=2", NULL}, *commands[] = {program, program}, **argvs[] = {words, words};
    int codes[3] = {-1, -1, -1}, many[] = {1, 2};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm children;
    int rounds = getenv("TEST_ROUNDS") ? atoi(getenv("TEST_ROUNDS")) : 2;
    if (getenv("TEST_MISSING"))
        FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn("/nowhere/program", words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, codes));
    for (int turn = 0; turn < rounds; turn++) {
        OK(MPI_Comm_spawn(program, words, 2, MPI_INFO_NULL, size - 1, MPI_COMM_WORLD, &children, codes));
        CHECK(codes[0] == MPI_SUCCESS && codes[1] == MPI_SUCCESS);
        talk(children, 0);
    }
    OK(MPI_Comm_spawn_multiple(2, commands, argvs, many, infos, 0, MPI_COMM_WORLD, &children, codes));
    CHECK(codes[2] == MPI_SUCCESS);
    talk(children, 0);
}

int main(int argc, char **argv) {
    MPI_Comm parent;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_get_parent(&parent));
    if (parent == MPI_COMM_NULL) {
        start(argv[0]);
    } else {
        CHECK(argc == 3 && strcmp(argv[1], "one word") == 0 && strcmp(argv[2], "two=2") == 0);
        talk(parent, 1);
    }
    printf("rank %d of %d is done%s\n", rank, size, parent == MPI_COMM_NULL ? "" : ", a child");
    OK(MPI_Finalize());
    return 0;
}
