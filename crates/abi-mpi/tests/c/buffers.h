/* The arguments and checks of the calls that tests/buffers.rs generates. */
#include "check.h"
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

enum { N = 4 };
/* Without data, or with an invalid buffer. */
static MPI_Comm comm;
static MPI_Win win;
static MPI_File fh;
static MPI_Session session;
static MPI_Message message;
static MPI_Request request;
static int some[2] = {N, N}, none[2], far[2] = {8, 8}, place;
static MPI_Count many[2] = {N, N}, nothing[2], place_c;
static MPI_Aint away[2] = {8, 8}, place_a;
static MPI_Datatype ints[2], no_types[2];
static char from[512] __attribute__((aligned(16))), into[512] __attribute__((aligned(16)));
static char attached[4096];
/* The current call, and the complaints so far. */
static const char *volatile now = "MPI_Init";
static int wrong;

static void report(const char *what) {
    if (write(1, now, strlen(now)) < 0 || write(1, what, strlen(what)) < 0) _exit(9);
}

/* Without the buffers of stdio, which may be in use. */
static void dies(int signal) {
    report(signal == SIGALRM ? ": it does not return\n" : ": it dies by a signal\n");
    _exit(8);
}

static void begin(void) {
    int sizes[1] = {1};
    void *memory;
    signal(SIGSEGV, dies), signal(SIGBUS, dies), signal(SIGALRM, dies);
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    /* Two neighbours, both of them this process. */
    OK(MPI_Cart_create(MPI_COMM_SELF, 1, sizes, sizes, 0, &comm));
    OK(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, comm, &memory, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_File_open(comm, getenv("TEST_FILE"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &fh));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Comm_attach_buffer(comm, attached, sizeof attached));
    for (int i = 0; i < 2; i++) ints[i] = MPI_INT, no_types[i] = MPI_DATATYPE_NULL;
}

/* A matched message of `count` integers from this process to itself. */
static void match(int count) {
    int data[N] = {0};
    OK(MPI_Send(data, count, MPI_INT, 0, 7, comm));
    OK(MPI_Mprobe(0, 7, comm, &message, MPI_STATUS_IGNORE));
}

/* Before a call. */
static void call(const char *what) {
    now = what, place = 0, place_c = 0, place_a = 0;
    request = MPI_REQUEST_NULL;
    alarm(20);
}

/* After a call: its error must have this class. */
static void expect(int class, int code) {
    int found = MPI_SUCCESS;
    char text[128];
    if (code) OK(MPI_Error_class(code, &found));
    if (found != class) {
        snprintf(text, sizeof text, ": class %d instead of %d\n", found, class);
        report(text);
        wrong++;
    }
    alarm(0);
}
