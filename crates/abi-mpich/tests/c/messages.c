/* Messages, requests, statuses, communicators and collectives of three ranks or more. */
#include "check.h"

static int rank, size;

static void ring(MPI_Comm comm)
{
    int token = rank, from = -5, count;
    MPI_Status status;
    DO(MPI_Sendrecv(&token, 1, MPI_INT, (rank + 1) % size, 7, &from, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
    CHECK(from == (rank + size - 1) % size && status.MPI_SOURCE == from && status.MPI_TAG == 7);
    DO(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == 4);
    DO(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == MPI_UNDEFINED);
    status.MPI_ERROR = 99;
    DO(MPI_Recv(&from, 1, MPI_INT, MPI_PROC_NULL, 0, comm, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && status.MPI_ERROR == 99);
}

static void requests(void)
{
    enum { MANY = 100 };
    MPI_Request list[2 * MANY];
    MPI_Status statuses[2 * MANY];
    int in[MANY], out[MANY], index, flag, count, peer = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int i = 0; i < MANY; i++) {
        out[i] = rank * 1000 + i;
        DO(MPI_Irecv(&in[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &list[i]));
    }
    for (int i = 0; i < MANY; i++)
        DO(MPI_Isend(&out[i], 1, MPI_INT, peer, i, MPI_COMM_WORLD, &list[MANY + i]));
    DO(MPI_Waitall(2 * MANY, list, statuses));
    for (int i = 0; i < MANY; i++) {
        CHECK(in[i] == from * 1000 + i && list[i] == MPI_REQUEST_NULL && list[MANY + i] == MPI_REQUEST_NULL);
        CHECK(statuses[i].MPI_SOURCE == from && statuses[i].MPI_TAG == i);
        DO(MPI_Get_count(&statuses[i], MPI_INT, &count));
        CHECK(count == 1);
    }
    DO(MPI_Waitany(2, list, &index, MPI_STATUS_IGNORE));
    CHECK(index == MPI_UNDEFINED);
    DO(MPI_Testall(2, list, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag == 1);

    MPI_Request persistent;
    DO(MPI_Send_init(out, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, &persistent));
    for (int i = 0; i < 3; i++) {
        MPI_Request before = persistent;
        DO(MPI_Start(&persistent));
        DO(MPI_Recv(in, 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        DO(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
        CHECK(persistent == before);
    }
    DO(MPI_Request_free(&persistent));
    CHECK(persistent == MPI_REQUEST_NULL);

    DO(MPI_Irecv(in, 1, MPI_INT, from, 77, MPI_COMM_WORLD, &list[0]));
    DO(MPI_Cancel(&list[0]));
    DO(MPI_Wait(&list[0], &statuses[0]));
    DO(MPI_Test_cancelled(&statuses[0], &flag));
    CHECK(flag == 1);
}

static void probes(void)
{
    MPI_Message message;
    MPI_Status status;
    int value = 5, count;
    if (rank == 0) {
        DO(PMPI_Send(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD));
        DO(MPI_Send(&value, 1, MPI_INT, 1, 4, MPI_COMM_WORLD));
        DO(MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
        CHECK(message == MPI_MESSAGE_NO_PROC);
    } else if (rank == 1) {
        DO(MPI_Probe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status));
        CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 3);
        DO(MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        DO(MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
        DO(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(status.MPI_TAG == 4 && count == 1);
        DO(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
        CHECK(message == MPI_MESSAGE_NULL && value == 5);
    }
}

static void errors(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int code, length, class, buffer[2] = {1, 2};
    MPI_Status statuses[2];
    MPI_Request list[2];
    DO(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DO(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    code = MPI_Send(buffer, 1, MPI_INT, size + 5, 0, MPI_COMM_WORLD);
    CHECK(code != MPI_SUCCESS && class_of(code) == MPI_ERR_RANK);
    DO(MPI_Error_string(code, text, &length));
    CHECK(length > 10 && (int)strlen(text) == length);
    CHECK(class_of(MPI_Send(buffer, 1, MPI_INT, -4, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Send(buffer, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Barrier(MPI_COMM_NULL)) == MPI_ERR_COMM && class_of(MPI_Barrier(0x12345)) == MPI_ERR_COMM);
    DO(MPI_Irecv(&buffer[0], 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &list[0]));
    DO(MPI_Irecv(&buffer[1], 1, MPI_INT, rank, 2, MPI_COMM_WORLD, &list[1]));
    DO(MPI_Send(buffer, 2, MPI_INT, rank, 1, MPI_COMM_WORLD));
    DO(MPI_Send(buffer, 1, MPI_INT, rank, 2, MPI_COMM_WORLD));
    code = MPI_Waitall(2, list, statuses);
    CHECK(class_of(code) == MPI_ERR_IN_STATUS && class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
    CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS);
    DO(MPI_Add_error_class(&class));
    DO(MPI_Add_error_code(class, &code));
    CHECK(class > 100 && class_of(code) == class && class_of(MPI_Comm_call_errhandler(MPI_COMM_WORLD, code)) == MPI_SUCCESS);
    CHECK(MPIX_Query_cuda_support() == 0);
    CHECK(class_of(MPIX_Comm_revoke(MPI_COMM_WORLD)) == MPI_ERR_UNSUPPORTED_OPERATION);
}

int main(int argc, char **argv)
{
    int provided, result, sum, one = 1;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Comm dup, half, shared;
    MPI_Group world, part;
    DO(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
    CHECK(provided >= MPI_THREAD_FUNNELED && provided <= MPI_THREAD_MULTIPLE);
    DO(MPI_Query_thread(&result));
    CHECK(result == provided);
    DO(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DO(MPI_Comm_size(MPI_COMM_WORLD, &size));
    DO(MPI_Get_processor_name(name, &result));
    CHECK((int)strlen(name) == result);
    ring(MPI_COMM_WORLD);
    DO(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    ring(dup);
    DO(MPI_Comm_compare(MPI_COMM_WORLD, dup, &result));
    CHECK(result == MPI_CONGRUENT);
    DO(MPI_Comm_compare(dup, dup, &result));
    CHECK(result == MPI_IDENT);
    DO(MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, rank, &half));
    CHECK((half == MPI_COMM_NULL) == (rank == 0));
    DO(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
    if (rank != 0) {
        DO(MPI_Comm_compare(half, dup, &result));
        CHECK(result == MPI_UNEQUAL);
        DO(MPI_Comm_group(MPI_COMM_WORLD, &world));
        DO(MPI_Comm_group(half, &part));
        int of[3] = {0, 1, MPI_PROC_NULL}, into[3];
        DO(MPI_Group_translate_ranks(world, 3, of, part, into));
        CHECK(into[0] == MPI_UNDEFINED && into[1] == 0 && into[2] == MPI_PROC_NULL);
        DO(MPI_Group_free(&world));
        CHECK(world == MPI_GROUP_NULL);
        DO(MPI_Comm_free(&half));
        CHECK(half == MPI_COMM_NULL);
    }
    sum = rank + 1;
    DO(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, dup));
    CHECK(sum == size * (size + 1) / 2);
    MPI_Request request;
    DO(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    DO(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == size);
    int counts[16] = {0}, zeros[16] = {0}, values[16], places[16];
    MPI_Datatype types[16], pair;
    DO(MPI_Type_contiguous(2, MPI_INT, &pair));
    DO(MPI_Type_commit(&pair));
    int out[2] = {rank, -rank}, in[16][2];
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        types[i] = pair;
        places[i] = i * (int)sizeof in[0];
    }
    (void)values;
    DO(MPI_Alltoallw(out, counts, zeros, types, in, counts, places, types, MPI_COMM_WORLD));
    for (int i = 0; i < size; i++)
        CHECK(in[i][0] == i && in[i][1] == -i);
    DO(MPI_Type_free(&pair));
    CHECK(pair == MPI_DATATYPE_NULL);
    requests();
    probes();
    errors();
    DO(MPI_Comm_free(&dup));
    DO(MPI_Finalize());
    if (rank == 0)
        puts("all messages are right");
    return 0;
}
