/* Two jobs connect through a port: one accepts, the other connects, according to TEST_SIDE; TEST_FILE contains the name of the port.
 * Alone, the program checks the errors. */
#include "check.h"
#include <unistd.h>

static int rank, size;

static void publish(const char *port) {
    char temporary[1000];
    snprintf(temporary, sizeof temporary, "%s.new", getenv("TEST_FILE"));
    FILE *file = fopen(temporary, "w");
    CHECK(file && fputs(port, file) >= 0 && fclose(file) == 0);
    CHECK(rename(temporary, getenv("TEST_FILE")) == 0);
}

static void look_up(char *port) {
    FILE *file;
    while (!(file = fopen(getenv("TEST_FILE"), "r"))) usleep(1000);
    CHECK(fgets(port, MPI_MAX_PORT_NAME, file) && fclose(file) == 0);
}

/* Each rank sends a short and a long message to each remote rank; then all communicate in a merged communicator. */
static void talk(MPI_Comm across) {
    enum { LONG = 300000 };
    int others, sum = 0, is_high = strcmp(getenv("TEST_SIDE"), "connect") == 0, all, mine;
    int *data = malloc(LONG * sizeof *data), *got = malloc(LONG * sizeof *got);
    MPI_Comm merged, half, copy;
    OK(MPI_Comm_remote_size(across, &others));
    CHECK(size + others == 5);
    for (int i = 0; i < LONG; i++) data[i] = i + 1000 * is_high + rank;
    for (int len = 1; len <= LONG; len += LONG - 1) {
        MPI_Request requests[5];
        for (int to = 0; to < others; to++) OK(MPI_Isend(data, len, MPI_INT, to, len, across, &requests[to]));
        for (int from = 0; from < others; from++) {
            OK(MPI_Recv(got, len, MPI_INT, from, len, across, MPI_STATUS_IGNORE));
            CHECK(got[0] == 1000 * !is_high + from && got[len - 1] == len - 1 + got[0]);
        }
        OK(MPI_Waitall(others, requests, MPI_STATUSES_IGNORE));
    }
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, across));
    CHECK(sum == others * (others - 1) / 2);
    OK(MPI_Comm_dup(across, &copy));
    OK(MPI_Barrier(copy));
    OK(MPI_Comm_free(&copy));
    OK(MPI_Intercomm_merge(across, is_high, &merged));
    OK(MPI_Comm_rank(merged, &mine));
    OK(MPI_Comm_size(merged, &all));
    CHECK(all == 5 && mine == rank + (is_high ? others : 0));
    OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, merged));
    CHECK(sum == 10);
    OK(MPI_Comm_split(merged, mine % 2, 0, &half));
    OK(MPI_Bcast(data, LONG, MPI_INT, 0, half));
    CHECK(data[0] == mine % 2);
    OK(MPI_Comm_free(&half));
    OK(MPI_Comm_free(&merged));
    OK(MPI_Barrier(across));
    free(data);
    free(got);
}

static void meet(int accepts) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm across;
    for (int turn = 0; turn < 2; turn++) {
        /* The port stays the same; the root is another rank, which knows the port's name by then. */
        if (accepts && rank == 0 && turn == 0) {
            OK(MPI_Open_port(MPI_INFO_NULL, port));
            publish(port);
        }
        if (!accepts && rank == turn) look_up(port);
        if (accepts) OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &across));
        else OK(MPI_Comm_connect(port, MPI_INFO_NULL, turn, MPI_COMM_WORLD, &across));
        talk(across);
        OK(MPI_Comm_disconnect(&across));
        CHECK(across == MPI_COMM_NULL);
    }
    if (accepts && rank == 0) OK(MPI_Close_port(port));
}

static void alone(void) {
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    char *words[] = {"one", "two", NULL}, *commands[] = {"a", "b"}, **argvs[] = {words, MPI_ARGV_NULL};
    int ones[] = {1, 1}, codes[2];
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL}, hasty;
    MPI_Comm comm;
    OK(MPI_Open_port(MPI_INFO_NULL, port));
    OK(MPI_Publish_name("a service", MPI_INFO_NULL, port));
    OK(MPI_Lookup_name("a service", MPI_INFO_NULL, found));
    CHECK(strcmp(port, found) == 0);
    OK(MPI_Unpublish_name("a service", MPI_INFO_NULL, port));
    FAILS(MPI_ERR_SERVICE, MPI_Unpublish_name("a service", MPI_INFO_NULL, port));
    FAILS(MPI_ERR_NAME, MPI_Lookup_name("a service", MPI_INFO_NULL, found));
    OK(MPI_Info_create(&hasty));
    OK(MPI_Info_set(hasty, "timeout", "1"));
    FAILS(MPI_ERR_PORT, MPI_Comm_accept(port, hasty, 0, MPI_COMM_SELF, &comm));
    /* The port is open, and no process accepts. */
    FAILS(MPI_ERR_PORT, MPI_Comm_connect(port, hasty, 0, MPI_COMM_SELF, &comm));
    OK(MPI_Close_port(port));
    FAILS(MPI_ERR_PORT, MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm));
    FAILS(MPI_ERR_PORT, MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm));
    FAILS(MPI_ERR_PORT, MPI_Close_port(port));
    FAILS(MPI_ERR_PORT, MPI_Comm_connect("nothing", MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm));
    FAILS(MPI_ERR_ARG, MPI_Comm_join(-1, &comm));
    OK(MPI_Info_free(&hasty));
    FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn("a", words, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm, codes));
    FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn_multiple(2, commands, argvs, ones, infos, 0, MPI_COMM_SELF, &comm, MPI_ERRCODES_IGNORE));
    OK(MPI_Comm_get_parent(&comm));
    CHECK(comm == MPI_COMM_NULL);
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    const char *side = getenv("TEST_SIDE");
    if (strcmp(side, "alone") == 0) alone();
    else meet(strcmp(side, "accept") == 0);
    printf("rank %d of %d is done\n", rank, size);
    OK(MPI_Finalize());
    return 0;
}
