/* Files: the calls in all their forms, and errors of their arguments. TEST_FILE names the file. */
#include "check.h"

static int rank, size;
static const char *name;

static MPI_File opened(int amode) {
    MPI_File fh = MPI_FILE_NULL;
    OK(MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &fh));
    CHECK(fh != MPI_FILE_NULL);
    return fh;
}

static int count_of(MPI_Status *status) {
    int count = -1;
    OK(MPI_Get_count(status, MPI_INT, &count));
    return count;
}

/* Each rank has every size-th int. */
static void interleave(MPI_File fh) {
    MPI_Datatype one, tiled, etype, filetype;
    MPI_Offset disp;
    char datarep[MPI_MAX_DATAREP_STRING];
    OK(MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint) sizeof(int) * size, &one));
    OK(MPI_Type_dup(one, &tiled));
    OK(MPI_Type_commit(&tiled));
    OK(MPI_File_set_view(fh, (MPI_Offset) sizeof(int) * rank, MPI_INT, tiled, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&one));
    OK(MPI_Type_free(&tiled));
    OK(MPI_File_get_view(fh, &disp, &etype, &filetype, datarep));
    CHECK(disp == (MPI_Offset) sizeof(int) * rank && etype == MPI_INT && strcmp(datarep, "native") == 0);
    OK(MPI_Type_free(&filetype));
    OK(MPI_File_get_byte_offset(fh, 2, &disp));
    CHECK(disp == (MPI_Offset) sizeof(int) * (2 * size + rank));
}

enum { N = 100 };

static void check(const int *got, int factor) {
    for (int i = 0; i < N; i++) CHECK(got[i] == factor * (i * size + rank));
}

static void forms(void) {
    MPI_File fh = opened(MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_EXCL);
    int mine[N], got[N];
    MPI_Offset position;
    MPI_Status status;
    MPI_Request request;
    interleave(fh);
    for (int factor = 1; factor <= 7; factor++) {
        for (int i = 0; i < N; i++) mine[i] = factor * (i * size + rank);
        memset(got, 0, sizeof got);
        OK(MPI_File_seek(fh, 0, MPI_SEEK_SET));
        switch (factor) {
        case 1: OK(MPI_File_write_all(fh, mine, N, MPI_INT, &status)); break;
        case 2: OK(MPI_File_write_at(fh, 0, mine, N, MPI_INT, &status)); break;
        case 3: OK(MPI_File_write_at_all_c(fh, 0, mine, N, MPI_INT, &status)); break;
        case 4: OK(MPI_File_iwrite(fh, mine, N, MPI_INT, &request)); OK(MPI_Wait(&request, &status)); break;
        case 5: OK(MPI_File_iwrite_at_all(fh, 0, mine, N, MPI_INT, &request)); OK(MPI_Wait(&request, &status)); break;
        case 6: OK(MPI_File_write_all_begin(fh, mine, N, MPI_INT)); OK(MPI_File_write_all_end(fh, mine, &status)); break;
        case 7: OK(MPI_File_write_at_all_begin(fh, 0, mine, N, MPI_INT));
                OK(MPI_File_write_at_all_end(fh, mine, &status)); break;
        }
        CHECK(count_of(&status) == N);
        OK(MPI_File_sync(fh));
        OK(MPI_File_seek(fh, 0, MPI_SEEK_SET));
        switch (factor) {
        case 1: OK(MPI_File_read_all(fh, got, N, MPI_INT, &status)); break;
        case 2: OK(MPI_File_read_at(fh, 0, got, N, MPI_INT, &status)); break;
        case 3: OK(MPI_File_read_at_all(fh, 0, got, N, MPI_INT, &status)); break;
        case 4: OK(MPI_File_iread(fh, got, N, MPI_INT, &request)); OK(MPI_Wait(&request, &status)); break;
        case 5: OK(MPI_File_iread_all(fh, got, N, MPI_INT, &request)); OK(MPI_Wait(&request, &status)); break;
        case 6: OK(MPI_File_read_all_begin(fh, got, N, MPI_INT)); OK(MPI_File_read_all_end(fh, got, &status)); break;
        case 7: OK(MPI_File_read_c(fh, got, N, MPI_INT, &status)); break;
        }
        CHECK(count_of(&status) == N);
        check(got, factor);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_File_seek(fh, -1, MPI_SEEK_END));
    OK(MPI_File_get_position(fh, &position));
    CHECK(position == N - 1);
    OK(MPI_File_read(fh, got, N, MPI_INT, &status));
    CHECK(count_of(&status) == 1);
    OK(MPI_File_read(fh, got, N, MPI_INT, &status));
    CHECK(count_of(&status) == 0);
    OK(MPI_File_close(&fh));
    CHECK(fh == MPI_FILE_NULL);
}

static void shared(void) {
    MPI_File fh = opened(MPI_MODE_RDWR);
    int got[2] = {-1, -1}, mine[2] = {rank, rank};
    MPI_Offset position;
    MPI_Status status;
    MPI_Request request;
    OK(MPI_File_set_size(fh, 0));
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_ordered(fh, mine, 2, MPI_INT, &status));
    OK(MPI_File_write_shared(fh, mine, 2, MPI_INT, &status));
    OK(MPI_File_iwrite_shared(fh, mine, 2, MPI_INT, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_get_position_shared(fh, &position));
    CHECK(position == 6 * size);
    OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
    OK(MPI_File_read_ordered(fh, got, 2, MPI_INT, &status));
    CHECK(got[0] == rank && got[1] == rank);
    OK(MPI_File_read_shared(fh, got, 2, MPI_INT, &status));
    CHECK(got[0] == got[1] && got[0] >= 0 && got[0] < size);
    OK(MPI_File_close(&fh));
}

static int doubled_extent(MPI_Datatype datatype, MPI_Aint *extent, void *extra) {
    MPI_Aint lb;
    PMPI_Type_get_extent(datatype, &lb, extent);
    *extent *= 2;
    return *(int *) extra == 17 ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static int doubled_write(void *here, MPI_Datatype datatype, int count, void *there, MPI_Offset position, void *extra) {
    int each;
    PMPI_Type_size(datatype, &each);
    CHECK(position == 0 && *(int *) extra == 17);
    for (int i = 0; i < count * each; i++) ((char *) there)[2 * i] = ((char *) there)[2 * i + 1] = ((char *) here)[i];
    return MPI_SUCCESS;
}

static int doubled_read(void *here, MPI_Datatype datatype, MPI_Count count, void *there, MPI_Offset position, void *extra) {
    int each;
    PMPI_Type_size(datatype, &each);
    CHECK(position == 0 && *(int *) extra == 17);
    for (int i = 0; i < count * each; i++) ((char *) here)[i] = ((char *) there)[2 * i];
    return MPI_SUCCESS;
}

static int doubled_read_plain(void *here, MPI_Datatype datatype, int count, void *there, MPI_Offset position, void *extra) {
    return doubled_read(here, datatype, count, there, position, extra);
}

static int doubled_write_large(void *here, MPI_Datatype datatype, MPI_Count count, void *there, MPI_Offset position, void *extra) {
    return doubled_write(here, datatype, (int) count, there, position, extra);
}

static void representations(void) {
    static int word = 17;
    static const char *names[] = {"doubled", "doubled large", "internal", "external32", "as it is"};
    MPI_File fh = opened(MPI_MODE_RDWR);
    MPI_Aint extent;
    MPI_Offset bytes;
    OK(MPI_Register_datarep(names[0], doubled_read_plain, doubled_write, doubled_extent, &word));
    OK(MPI_Register_datarep_c(names[1], doubled_read, doubled_write_large, doubled_extent, &word));
    OK(MPI_Register_datarep(names[4], MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, doubled_extent, &word));
    FAILS(MPI_ERR_DUP_DATAREP, MPI_Register_datarep("doubled", doubled_read_plain, doubled_write, doubled_extent, NULL));
    FAILS(MPI_ERR_DUP_DATAREP, MPI_Register_datarep("native", doubled_read_plain, doubled_write, doubled_extent, NULL));
    for (int i = 0; i < 4; i++) {
        int mine[3] = {rank, 2 * rank, -rank}, got[3] = {0}, factor = i < 2 ? 2 : 1;
        OK(MPI_File_set_size(fh, 0));
        OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, names[i], MPI_INFO_NULL));
        OK(MPI_File_get_type_extent(fh, MPI_INT, &extent));
        CHECK(extent == factor * (int) sizeof(int));
        OK(MPI_File_write_at(fh, 3 * rank, mine, 3, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_sync(fh));
        OK(MPI_File_get_size(fh, &bytes));
        CHECK(bytes == factor * size * (int) sizeof mine);
        OK(MPI_File_read_at_all(fh, 3 * rank, got, 3, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(memcmp(mine, got, sizeof mine) == 0);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    FAILS(MPI_ERR_UNSUPPORTED_DATAREP, MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "nothing", MPI_INFO_NULL));
    OK(MPI_File_close(&fh));
}

static int heard;

static void hear(MPI_File *fh, int *code, ...) {
    CHECK(*code != MPI_SUCCESS && (*fh == MPI_FILE_NULL || *fh != NULL));
    heard++;
}

static void mistakes(void) {
    MPI_File fh = MPI_FILE_NULL, stale;
    MPI_Errhandler handler, other;
    int value = 0;
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, 0, MPI_INFO_NULL, &fh));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, "/nowhere/x", MPI_MODE_RDONLY, MPI_INFO_NULL, &fh));
    FAILS(MPI_ERR_FILE_EXISTS,
          MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &fh));
    FAILS(MPI_ERR_COMM, MPI_File_open(MPI_COMM_NULL, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_delete("/nowhere/x", MPI_INFO_NULL));
    OK(MPI_File_create_errhandler(hear, &handler));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, handler));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, "/nowhere/x", MPI_MODE_RDONLY, MPI_INFO_NULL, &fh));
    FAILS(MPI_ERR_FILE, MPI_File_get_amode(MPI_FILE_NULL, &value));
    CHECK(heard == 2);
    fh = opened(MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE);
    FAILS(MPI_ERR_READ_ONLY, MPI_File_write(fh, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(heard == 3);
    OK(MPI_File_call_errhandler(fh, MPI_ERR_IO));
    CHECK(heard == 4);
    OK(MPI_File_get_errhandler(fh, &other));
    OK(MPI_File_set_errhandler(fh, MPI_ERRORS_RETURN));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Errhandler_free(&other));
    FAILS(MPI_ERR_ARG, MPI_File_read_at(fh, -1, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_COUNT, MPI_File_read_at(fh, 0, &value, -1, MPI_INT, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_TYPE, MPI_File_read_at(fh, 0, &value, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_File_seek(fh, 0, 7));
    FAILS(MPI_ERR_ARG, MPI_File_seek(fh, -1, MPI_SEEK_SET));
    FAILS(MPI_ERR_IO, MPI_File_read_all_end(fh, &value, MPI_STATUS_IGNORE));
    CHECK(heard == 4);
    stale = fh;
    OK(MPI_File_close(&fh));
    FAILS(MPI_ERR_FILE, MPI_File_close(&fh));
    FAILS(MPI_ERR_FILE, MPI_File_sync(stale));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh));
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    name = getenv("TEST_FILE");
    CHECK(name != NULL);
    forms();
    shared();
    representations();
    mistakes();
    printf("rank %d of %d is done\n", rank, size);
    OK(MPI_Finalize());
    return 0;
}
