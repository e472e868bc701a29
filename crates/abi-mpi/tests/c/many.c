/* Many objects and requests at the same time. With TEST_LIMITED, under a limit of data memory: a shortage is a reported error, and
   everything else continues to work. */
#include "check.h"

enum { TYPES = 300000, OTHERS = 80000, REQUESTS = 100000 };

static void many(void) {
    MPI_Datatype *types = malloc(TYPES * sizeof *types);
    MPI_Group *groups = malloc(OTHERS * sizeof *groups), world;
    MPI_Info *infos = malloc(OTHERS * sizeof *infos);
    MPI_Request *requests = malloc(REQUESTS * sizeof *requests);
    int *data = malloc(REQUESTS * sizeof *data), size;
    for (int i = 0; i < TYPES; i++) OK(MPI_Type_contiguous(i % 7 + 1, MPI_INT, &types[i]));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = 0; i < OTHERS; i++) {
        OK(MPI_Group_incl(world, 1, (int[1]) {0}, &groups[i]));
        OK(MPI_Info_create(&infos[i]));
    }
    for (int i = 0; i < TYPES; i += 997) {
        OK(MPI_Type_size(types[i], &size));
        CHECK(size == (i % 7 + 1) * (int) sizeof(int));
        CHECK(MPI_Type_fromint(MPI_Type_toint(types[i])) == types[i]);
    }
    for (int i = 0; i < REQUESTS; i++) OK(MPI_Irecv(&data[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]));
    CHECK(MPI_Request_fromint(MPI_Request_toint(requests[REQUESTS - 1])) == requests[REQUESTS - 1]);
    for (int i = 0; i < REQUESTS; i++) OK(MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_SELF));
    OK(MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < REQUESTS; i++) CHECK(data[i] == i);
    for (int i = 0; i < OTHERS; i++) {
        OK(MPI_Group_free(&groups[i]));
        OK(MPI_Info_free(&infos[i]));
    }
    for (int i = 0; i < TYPES; i++) OK(MPI_Type_free(&types[i]));
    FAILS(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype) &size, &size));
}

/* Creates datatypes with `blocks` blocks until memory runs out; after all are freed, memory is available again. */
static void exhausted(int blocks) {
    enum { MOST = 1000000 };
    static MPI_Datatype types[MOST], again;
    static int displacements[10000];
    int made = 0, code = MPI_SUCCESS, class;
    for (int i = 0; i < blocks; i++) displacements[i] = 3 * i * (1 + i % 3);
    while (made < MOST) {
        code = MPI_Type_create_indexed_block(blocks, 1, displacements, MPI_INT, &types[made]);
        if (code) break;
        made++;
    }
    OK(MPI_Error_class(code, &class));
    if (class != MPI_ERR_NO_MEM) fprintf(stderr, "%d types of %d blocks, class %d\n", made, blocks, class);
    CHECK(class == MPI_ERR_NO_MEM && made > 10);
    for (int i = 0; i < made; i++) OK(MPI_Type_free(&types[i]));
    OK(MPI_Type_contiguous(3, MPI_INT, &again));
    OK(MPI_Type_free(&again));
}

static void limited(void) {
    const MPI_Aint bytes = 1LL << 40;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Win win;
    MPI_Datatype type;
    void *memory;
    int code, len, class;
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Type_free(&type));
    OK(MPI_Win_allocate(1000, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_free(&win));
    code = MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    OK(MPI_Error_class(code, &class));
    OK(MPI_Error_string(code, text, &len));
    if (class != MPI_ERR_NO_MEM || !strstr(text, "1099511627776 bytes")) fprintf(stderr, "class %d: %s\n", class, text);
    CHECK(class == MPI_ERR_NO_MEM && strstr(text, "1099511627776 bytes"));
    code = MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_NO_MEM);
    exhausted(1);
    exhausted(100);
    exhausted(10000);
}

int main(void) {
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    if (getenv("TEST_LIMITED")) limited();
    else many();
    OK(MPI_Finalize());
    puts("done");
    return 0;
}
