/* A program's functions that throw: the exception leaves the MPI call that ran the function, and the objects stay usable. With
   TEST_UNCAUGHT, an operator throws without a matching catch. */
#include "check.h"
#include <stdexcept>
#include <string>

/* Throws with its name, so that each catch can identify the exception. */
[[noreturn]] static void fail(const char *name) { throw std::runtime_error(name); }

/* Checks that a call throws this exception. */
#define THROWS(name, call)                                                                                                      \
    do {                                                                                                                        \
        std::string said_;                                                                                                      \
        try { call; } catch (const std::runtime_error &error) { said_ = error.what(); }                                \
        if (said_ != name) fprintf(stderr, "%s threw `%s`\n", #call, said_.c_str());                                            \
        CHECK(said_ == name);                                                                                                   \
    } while (0)

static int rank, size;
static bool armed;

/* The communicator still works, so it holds no lock. */
static void together(MPI_Comm comm) {
    int one = 1, sum = 0, members;
    OK(MPI_Comm_size(comm, &members));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == members);
}

static void on_comm(MPI_Comm *, int *, ...) { fail("comm handler"); }
static void on_win(MPI_Win *, int *, ...) { fail("win handler"); }
static void on_file(MPI_File *, int *, ...) { fail("file handler"); }
static void on_session(MPI_Session *, int *, ...) { fail("session handler"); }

static void handlers(void) {
    MPI_Errhandler handler;
    MPI_Win win;
    MPI_File fh;
    MPI_Session session;
    int *memory, x = 1;
    OK(MPI_Comm_create_errhandler(on_comm, &handler));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
    for (int i = 0; i < 20; i++) THROWS("comm handler", MPI_Send(&x, -1, MPI_INT, 0, 0, MPI_COMM_WORLD));
    THROWS("comm handler", MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Errhandler_free(&handler));
    together(MPI_COMM_WORLD);
    OK(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_create_errhandler(on_win, &handler));
    OK(MPI_Win_set_errhandler(win, handler));
    THROWS("win handler", MPI_Win_lock(77, 0, 0, win));
    THROWS("win handler", MPI_Put(&x, 1, MPI_INT, size, 0, 1, MPI_INT, win));
    THROWS("win handler", MPI_Win_call_errhandler(win, MPI_ERR_OTHER));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Win_free(&win));
    OK(MPI_File_open(MPI_COMM_SELF, getenv("TEST_FILE"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &fh));
    OK(MPI_File_create_errhandler(on_file, &handler));
    OK(MPI_File_set_errhandler(fh, handler));
    THROWS("file handler", MPI_File_read_at(fh, -3, &x, 1, MPI_INT, MPI_STATUS_IGNORE));
    THROWS("file handler", MPI_File_call_errhandler(fh, MPI_ERR_IO));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_File_close(&fh));
    OK(MPI_Session_create_errhandler(on_session, &handler));
    OK(MPI_Session_init(MPI_INFO_NULL, handler, &session));
    THROWS("session handler", MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 1000, &x, NULL));
    THROWS("session handler", MPI_Session_call_errhandler(session, MPI_ERR_OTHER));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Session_finalize(&session));
}

static void add(void *in, void *inout, int *len, MPI_Datatype *) {
    if (armed) fail("operator");
    for (int i = 0; i < *len; i++) ((int *) inout)[i] += ((int *) in)[i];
}

static void operators(void) {
    MPI_Op op;
    MPI_Request request;
    int one = 1, sum = 1, many[3000] = {0}, sums[3000];
    OK(MPI_Op_create(add, 1, &op));
    armed = true;
    for (int i = 0; i < 20; i++) THROWS("operator", MPI_Reduce_local(&one, &sum, 1, MPI_INT, op));
    if (size > 1) {
        /* All members reduce, and each has its own exception; other members' failures are errors for the handler. */
        OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
        THROWS("operator", MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD));
        THROWS("operator", MPI_Allreduce(many, sums, 3000, MPI_INT, op, MPI_COMM_WORLD));
        /* An operator runs in any call that makes progress. */
        THROWS("operator", {
            MPI_Iallreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        });
        OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    }
    armed = false;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    sum = 1;
    OK(MPI_Reduce_local(&one, &sum, 1, MPI_INT, op));
    CHECK(sum == 2);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD));
    CHECK(sum == size);
    OK(MPI_Op_free(&op));
}

static int copy_comm(MPI_Comm, int, void *, void *in, void *out, int *flag) {
    if (armed) fail("copy");
    *(void **) out = in, *flag = 1;
    return MPI_SUCCESS;
}
static int delete_comm(MPI_Comm, int, void *, void *) {
    if (armed) fail("delete");
    return MPI_SUCCESS;
}
static int copy_type(MPI_Datatype, int, void *, void *in, void *out, int *flag) {
    return copy_comm(MPI_COMM_NULL, 0, NULL, in, out, flag);
}
static int delete_type(MPI_Datatype, int, void *, void *) { return delete_comm(MPI_COMM_NULL, 0, NULL, NULL); }
static int delete_win(MPI_Win, int, void *, void *) { return delete_comm(MPI_COMM_NULL, 0, NULL, NULL); }

/* A delete function that calls MPI while another one's exception is kept: no exception is lost or mixed up. */
static int also_delete(MPI_Comm comm, int, void *, void *) {
    int members;
    OK(MPI_Comm_size(comm, &members));
    return MPI_SUCCESS;
}

static void attributes(void) {
    int key, other, flag;
    void *value;
    MPI_Comm comm, copy = MPI_COMM_NULL;
    MPI_Datatype type, twin;
    MPI_Win win;
    OK(MPI_Comm_create_keyval(copy_comm, delete_comm, &key, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, also_delete, &other, NULL));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_attr(comm, key, &key));
    OK(MPI_Comm_set_attr(comm, other, &other));
    armed = true;
    THROWS("copy", MPI_Comm_dup(comm, &copy));
    THROWS("delete", MPI_Comm_delete_attr(comm, key));
    THROWS("delete", MPI_Comm_set_attr(comm, key, &flag));
    OK(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(flag && value == &key);
    THROWS("delete", MPI_Comm_free(&comm));
    CHECK(comm != MPI_COMM_NULL);
    armed = false;
    together(comm);
    OK(MPI_Comm_dup(comm, &copy));
    OK(MPI_Comm_get_attr(copy, key, &value, &flag));
    CHECK(flag && value == &key);
    together(copy);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_free_keyval(&key));
    OK(MPI_Comm_free_keyval(&other));
    OK(MPI_Type_create_keyval(copy_type, delete_type, &key, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, &key));
    armed = true;
    THROWS("copy", MPI_Type_dup(type, &twin));
    THROWS("delete", MPI_Type_free(&type));
    armed = false;
    CHECK(type != MPI_DATATYPE_NULL);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free_keyval(&key));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_win, &key, NULL));
    OK(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_attr(win, key, &key));
    armed = true;
    THROWS("delete", MPI_Win_delete_attr(win, key));
    THROWS("delete", MPI_Win_free(&win));
    armed = false;
    CHECK(win != MPI_WIN_NULL);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
    OK(MPI_Win_free_keyval(&key));
}

static int query(void *extra, MPI_Status *status) {
    if (armed && *(int *) extra == 0) fail("query");
    OK(MPI_Status_set_elements(status, MPI_INT, 1));
    OK(MPI_Status_set_cancelled(status, 0));
    return MPI_SUCCESS;
}
static int release(void *extra) {
    if (armed && *(int *) extra == 1) fail("free");
    return MPI_SUCCESS;
}
static int cancel(void *extra, int) {
    if (armed && *(int *) extra == 2) fail("cancel");
    return MPI_SUCCESS;
}

static void generalized(void) {
    static int which[3] = {0, 1, 2};
    MPI_Request request;
    armed = true;
    for (int i = 0; i < 3; i++) {
        OK(MPI_Grequest_start(query, release, cancel, &which[i], &request));
        if (i == 2) THROWS("cancel", MPI_Cancel(&request));
        OK(MPI_Grequest_complete(request));
        if (i < 2) THROWS(std::string(i ? "free" : "query"), MPI_Wait(&request, MPI_STATUS_IGNORE));
        else OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    armed = false;
    together(MPI_COMM_WORLD);
}

static int extent_of(MPI_Datatype type, MPI_Aint *extent, void *) {
    MPI_Aint lb;
    if (armed) fail("extent");
    return MPI_Type_get_extent(type, &lb, extent);
}
static int read_all(void *, MPI_Datatype, int, void *, MPI_Offset, void *) { fail("read"); }
static int write_all(void *, MPI_Datatype, int, void *, MPI_Offset, void *) { fail("write"); }

static void representations(void) {
    MPI_File fh;
    int x[2] = {1, 2};
    MPI_Aint extent;
    OK(MPI_Register_datarep("thrown", read_all, write_all, extent_of, NULL));
    OK(MPI_File_open(MPI_COMM_SELF, getenv("TEST_FILE"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &fh));
    OK(MPI_File_write(fh, x, 2, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "thrown", MPI_INFO_NULL));
    for (int i = 0; i < 5; i++) {
        THROWS("write", MPI_File_write_at(fh, 0, x, 1, MPI_INT, MPI_STATUS_IGNORE));
        THROWS("read", MPI_File_read_at(fh, 0, x, 1, MPI_INT, MPI_STATUS_IGNORE));
    }
    armed = true;
    THROWS("extent", MPI_File_get_type_extent(fh, MPI_INT, &extent));
    armed = false;
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_read(fh, x, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(x[0] == 1 && x[1] == 2);
    OK(MPI_File_close(&fh));
}

static void heard(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *) { fail("event"); }

static void events(void) {
    int index, provided, x = 0;
    MPI_T_event_registration messages;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_event_get_index("message_unexpected", &index));
    OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &messages));
    OK(MPI_T_event_register_callback(messages, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, heard));
    THROWS("event", MPI_Send(&rank, 1, MPI_INT, 0, 77, MPI_COMM_SELF));
    OK(MPI_T_event_handle_free(messages, NULL, NULL));
    OK(MPI_Recv(&x, 1, MPI_INT, 0, 77, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(x == rank);
    OK(MPI_T_finalize());
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (getenv("TEST_UNCAUGHT")) {
        MPI_Op op;
        int one = 1, two = 2;
        OK(MPI_Op_create(add, 1, &op));
        armed = true;
        MPI_Reduce_local(&one, &two, 1, MPI_INT, op);
    }
    handlers();
    operators();
    attributes();
    generalized();
    representations();
    events();
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
