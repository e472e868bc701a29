/* Sessions without MPI_Init: process sets, their groups and communicators, one session after the other and two at a time. */
#include "check.h"

static int heard;

static void hear(MPI_Session *session, int *code, ...) {
    CHECK(*session != MPI_SESSION_NULL && *code != MPI_SUCCESS);
    heard++;
}

static MPI_Comm of(MPI_Session session, const char *set, const char *tag) {
    MPI_Group group;
    MPI_Comm comm;
    OK(MPI_Group_from_session_pset(session, set, &group));
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    return comm;
}

static MPI_Session begun(void) {
    MPI_Session session = MPI_SESSION_NULL;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    CHECK(session != MPI_SESSION_NULL);
    return session;
}

static void sets(MPI_Session session, int size) {
    int count = 0, length, flag;
    char name[MPI_MAX_PSET_NAME_LEN], value[20];
    MPI_Info info;
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    CHECK(count == 2);
    for (int i = 0; i < count; i++) {
        length = 0;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL));
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        CHECK(length == (int) strlen(name) + 1);
        OK(MPI_Session_get_pset_info(session, name, &info));
        length = sizeof value;
        OK(MPI_Info_get_string(info, "mpi_size", &length, value, &flag));
        CHECK(flag && atoi(value) == (strcmp(name, "mpi://SELF") == 0 ? 1 : size));
        OK(MPI_Info_free(&info));
    }
    MPI_Group group;
    FAILS(MPI_ERR_ARG, MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 2, &length, name));
    FAILS(MPI_ERR_ARG, MPI_Group_from_session_pset(session, "mpi://NOWHERE", &group));
}

/* With sessions alone there is only one attribute. */
static void attributes(MPI_Comm comm) {
    const int keys[] = {MPI_TAG_UB, MPI_HOST, MPI_IO, MPI_WTIME_IS_GLOBAL, MPI_APPNUM, MPI_UNIVERSE_SIZE, MPI_LASTUSEDCODE};
    int *value, flag;
    for (int at = 0; at < 7; at++) {
        OK(MPI_Comm_get_attr(comm, keys[at], &value, &flag));
        CHECK(flag == (at == 0));
    }
}

static void given(MPI_Comm *comm, int *code, ...) {
    CHECK(*comm == MPI_COMM_NULL && *code != MPI_SUCCESS);
    heard++;
    *code = MPI_SUCCESS; /* what the call returns */
}

/* The error handler that is passed for a new object is called for errors in its creation. */
static void handlers(MPI_Session session) {
    MPI_Errhandler handler;
    MPI_Session none;
    MPI_Group group;
    MPI_Info info;
    int length = 9;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_NONE"));
    FAILS(MPI_ERR_INFO_VALUE, MPI_Session_init(info, MPI_ERRORS_RETURN, &none));
    FAILS(MPI_ERR_ARG, MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, NULL));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_create_errhandler(given, &handler));
    OK(MPI_Group_from_session_pset(session, "mpi://SELF", &group));
    heard = 0;
    OK(MPI_Comm_create_from_group(group, "test", MPI_INFO_NULL, handler, NULL));
    CHECK(heard == 1);
    heard = 0;
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Group_free(&group));
}

int main(void) {
    int flag = 1, size, rank, sum = 0;
    MPI_Errhandler handler;
    MPI_Session first = begun(), second = begun(), stale;
    OK(MPI_Initialized(&flag));
    CHECK(!flag && first != second);
    MPI_Comm all = of(first, "mpi://WORLD", "test"), alone = of(second, "mpi://self", "test");
    OK(MPI_Comm_size(all, &size));
    OK(MPI_Comm_rank(all, &rank));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK(sum == size * (size - 1) / 2);
    sets(first, size);
    handlers(first);
    attributes(all);
    OK(MPI_Comm_size(alone, &sum));
    CHECK(sum == 1);
    OK(MPI_Comm_free(&alone));
    OK(MPI_Session_create_errhandler(hear, &handler));
    OK(MPI_Session_set_errhandler(second, handler));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Session_call_errhandler(second, MPI_ERR_OTHER));
    FAILS(MPI_ERR_ARG, MPI_Session_get_pset_info(second, "nothing", NULL));
    CHECK(heard == 2);
    stale = second;
    OK(MPI_Session_finalize(&second));
    CHECK(second == MPI_SESSION_NULL);
    OK(MPI_Barrier(all));
    OK(MPI_Comm_free(&all));
    OK(MPI_Session_finalize(&first));
    /* Again, together with the world model. */
    first = begun();
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_SESSION, MPI_Session_finalize(&stale));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    all = of(first, "mpi://WORLD", "again");
    OK(MPI_Barrier(all));
    OK(MPI_Comm_free(&all));
    OK(MPI_Session_finalize(&first));
    first = begun();
    OK(MPI_Session_finalize(&first));
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
