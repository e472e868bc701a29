/* Functions of the program that MPI calls: operators, error handlers, attributes and generalized requests. */
#include "check.h"

static int calls;

static void add_twice(void *in, void *inout, int *count, MPI_Datatype *type)
{
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += 2 * ((int *)in)[i];
    calls++;
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    CHECK(*comm == MPI_COMM_SELF && class_of(*code) == MPI_ERR_RANK);
    calls += 100;
}

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    CHECK(comm == MPI_COMM_SELF && key != MPI_KEYVAL_INVALID && extra == &calls);
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int drop(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value;
    CHECK(extra == &calls);
    calls += 1000;
    return calls > 100000 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int query(void *extra, MPI_Status *status)
{
    CHECK(extra == &calls);
    DO(MPI_Status_set_elements(status, MPI_INT, 3));
    DO(MPI_Status_set_cancelled(status, 0));
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = 6;
    return MPI_SUCCESS;
}

static int release(void *extra)
{
    CHECK(extra == &calls);
    calls += 10000;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra, (void)complete;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int rank, size, sum, flag, key, other, count;
    char *value;
    MPI_Op op;
    MPI_Errhandler handle;
    MPI_Comm dup;
    MPI_Request request;
    MPI_Status status;
    DO(MPI_Init(&argc, &argv));
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &size));
    DO(MPI_Op_create(add_twice, 1, &op));
    sum = 1;
    DO(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, op, MPI_COMM_SELF));
    CHECK(sum == 1);
    DO(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, op, MPI_COMM_WORLD));
    CHECK(size == 1 || sum > size);
    DO(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);

    DO(MPI_Comm_create_errhandler(handler, &handle));
    DO(MPI_Comm_set_errhandler(MPI_COMM_SELF, handle));
    DO(MPI_Errhandler_free(&handle));
    calls = 0;
    CHECK(class_of(MPI_Send(&sum, 1, MPI_INT, 5, 0, MPI_COMM_SELF)) == MPI_ERR_RANK && calls == 100);

    DO(MPI_Comm_create_keyval(copy, drop, &key, &calls));
    DO(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, 0, &other, 0));
    DO(MPI_Comm_set_attr(MPI_COMM_SELF, key, argv));
    DO(MPI_Comm_set_attr(MPI_COMM_SELF, other, argv));
    DO(MPI_Comm_dup(MPI_COMM_SELF, &dup));
    DO(MPI_Comm_get_attr(dup, key, &value, &flag));
    CHECK(flag && value == (char *)argv + 1);
    DO(MPI_Comm_get_attr(dup, other, &value, &flag));
    CHECK(flag && value == (char *)argv);
    calls = 0;
    DO(MPI_Comm_free(&dup));
    CHECK(calls == 1000);
    DO(MPI_Comm_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);

    calls = 0;
    DO(MPI_Grequest_start(query, release, cancel, &calls, &request));
    DO(MPI_Grequest_complete(request));
    DO(MPI_Wait(&request, &status));
    DO(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 3 && status.MPI_SOURCE == MPI_UNDEFINED && status.MPI_TAG == 6 && calls == 10000);
    DO(MPI_Finalize());
    if (rank == 0)
        puts("all functions were called");
    return 0;
}
