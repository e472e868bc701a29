/* Everything that a single process can do: the environment, objects, datatypes, messages to itself. */
#include "check.h"

static void environment(void) {
    int version, subversion, len, flag, level;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    void *memory;
    double before = MPI_Wtime();
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version == 5 && subversion == 0);
    OK(MPI_Abi_get_version(&version, &subversion));
    CHECK(version == 1 && subversion == 0);
    OK(MPI_Get_library_version(text, &len));
    CHECK(strncmp(text, "Nicety ", 7) == 0 && (int) strlen(text) == len);
    OK(MPI_Get_processor_name(text, &len));
    CHECK(len > 0 && (int) strlen(text) == len);
    OK(MPI_Query_thread(&level));
    OK(MPI_Is_thread_main(&flag));
    CHECK(level == MPI_THREAD_SINGLE && flag);
    OK(MPI_Alloc_mem(100000, MPI_INFO_NULL, &memory));
    CHECK((size_t) memory % 64 == 0);
    memset(memory, 1, 100000);
    OK(MPI_Free_mem(memory));
    CHECK(MPI_Wtime() >= before && MPI_Wtick() > 0);
    CHECK(MPI_Comm_toint(MPI_COMM_WORLD) == 0x101 && MPI_Comm_fromint(0x101) == MPI_COMM_WORLD);
}

static int heard;

static void hear(MPI_Comm *comm, int *code, ...) {
    CHECK(*comm == MPI_COMM_SELF);
    MPI_Error_class(*code, &heard);
}

static void errors(void) {
    MPI_Errhandler own, got;
    char text[MPI_MAX_ERROR_STRING];
    int code, class, len, value = 1;
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    code = MPI_Send(&value, 1, MPI_INT, 7, 0, MPI_COMM_SELF);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_RANK);
    OK(MPI_Error_string(code, text, &len));
    CHECK(strstr(text, "MPI_Send") && strstr(text, "7"));
    FAILS(MPI_ERR_TAG, MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_SELF));
    FAILS(MPI_ERR_COUNT, MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_TYPE, MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_COMM, MPI_Comm_size(MPI_COMM_NULL, &len));
    FAILS(MPI_ERR_COMM, MPI_Comm_size((MPI_Comm) &value, &len));
    FAILS(MPI_ERR_GROUP, MPI_Group_size(MPI_GROUP_NULL, &len));
    OK(MPI_Comm_create_errhandler(hear, &own));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, own));
    OK(MPI_Comm_get_errhandler(MPI_COMM_SELF, &got));
    /* One handle, which is valid until it is freed as often as it was returned. */
    CHECK(got == own);
    OK(MPI_Errhandler_free(&got));
    CHECK(got == MPI_ERRHANDLER_NULL);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, own));
    got = own;
    OK(MPI_Errhandler_free(&own));
    CHECK(own == MPI_ERRHANDLER_NULL);
    FAILS(MPI_ERR_ERRHANDLER, MPI_Comm_set_errhandler(MPI_COMM_SELF, got));
    OK(MPI_Comm_get_errhandler(MPI_COMM_SELF, &got));
    OK(MPI_Errhandler_free(&got));
    CHECK(MPI_Recv(&value, 1, MPI_INT, 3, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE) != MPI_SUCCESS && heard == MPI_ERR_RANK);
    OK(MPI_Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_OTHER));
    CHECK(heard == MPI_ERR_OTHER);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Add_error_class(&class));
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(code, "a program's own"));
    OK(MPI_Error_string(code, text, &len));
    CHECK(class > MPI_ERR_LASTCODE && strcmp(text, "a program's own") == 0);
    FAILS(class, code);
    FAILS(MPI_ERR_ARG, MPI_Remove_error_code(code));
    OK(MPI_Remove_error_string(code));
    OK(MPI_Remove_error_code(code));
    OK(MPI_Remove_error_class(class));
}

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    CHECK(comm == MPI_COMM_SELF && extra == &copies && key > 0);
    copies++;
    *(void **) out = (char *) in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    CHECK(comm != MPI_COMM_NULL && extra == &copies && key > 0 && value);
    deletes++;
    return MPI_SUCCESS;
}

static void attributes(void) {
    int key, used, again, flag, **bound;
    char cells[4], *value;
    MPI_Comm twin;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag));
    CHECK(flag && *(int *) bound >= 32767);
    OK(MPI_Comm_create_keyval(copy, delete, &key, &copies));
    used = again = key;
    OK(MPI_Comm_set_attr(MPI_COMM_SELF, key, cells));
    OK(MPI_Comm_free_keyval(&again)); /* still in use: its number stays valid */
    OK(MPI_Comm_dup(MPI_COMM_SELF, &twin));
    OK(MPI_Comm_get_attr(twin, key, &value, &flag));
    CHECK(flag && value == cells + 1 && copies == 1);
    OK(MPI_Comm_free(&twin));
    CHECK(twin == MPI_COMM_NULL && deletes == 1);
    OK(MPI_Comm_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Comm_delete_attr(MPI_COMM_SELF, used));
    CHECK(deletes == 2);
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_delete_attr(MPI_COMM_SELF, used));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_free_keyval(&used));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_set_attr(MPI_COMM_SELF, 99999, cells));
}

static void fortran(void) {
    int flag = 1, yes = -1, no = 0, got[2];
    signed char small[2] = {0};
    char value[8];
    MPI_Info info;
    OK(MPI_Abi_get_fortran_booleans(4, &got[0], &got[1], &flag));
    CHECK(!flag);
    FAILS(MPI_ERR_ABI, MPI_Abi_set_fortran_booleans(4, &no, &yes));
    FAILS(MPI_ERR_ARG, MPI_Abi_set_fortran_booleans(3, &yes, &no));
    OK(MPI_Abi_set_fortran_booleans(4, &yes, &no));
    FAILS(MPI_ERR_ABI, MPI_Abi_set_fortran_booleans(4, &yes, &no));
    OK(MPI_Abi_get_fortran_booleans(4, &got[0], &got[1], &flag));
    CHECK(flag && got[0] == -1 && got[1] == 0);
    OK(MPI_Abi_get_fortran_booleans(1, &small[0], &small[1], &flag));
    CHECK(small[0] == -1 && small[1] == 0);
    OK(MPI_Abi_get_fortran_info(&info));
    OK(MPI_Info_get(info, "mpi_integer_size", 7, value, &flag));
    CHECK(flag && strcmp(value, "4") == 0);
    OK(MPI_Abi_set_fortran_info(info));
    OK(MPI_Info_set(info, "mpi_integer_size", "8"));
    FAILS(MPI_ERR_ABI, MPI_Abi_set_fortran_info(info));
    OK(MPI_Info_free(&info));
}

static void info_and_groups(void) {
    MPI_Info info;
    MPI_Group all, none, back;
    char value[8];
    int flag, room = sizeof value, size, result;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "color", "blueish-green"));
    OK(MPI_Info_get_string(info, "color", &room, value, &flag));
    CHECK(flag && room == 14 && strcmp(value, "blueish") == 0);
    FAILS(MPI_ERR_INFO_NOKEY, MPI_Info_delete(info, "shape"));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_group(MPI_COMM_SELF, &all));
    OK(MPI_Group_excl(all, 1, (int[]){0}, &none));
    CHECK(none == MPI_GROUP_EMPTY);
    OK(MPI_Group_union(none, all, &back));
    OK(MPI_Group_compare(all, back, &result));
    OK(MPI_Group_size(back, &size));
    CHECK(result == MPI_IDENT && size == 1);
    FAILS(MPI_ERR_RANK, MPI_Group_incl(all, 1, (int[]){4}, &none));
    OK(MPI_Group_free(&all));
    OK(MPI_Group_free(&back));
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    for (int at = 0; at < *count; at++) ((int *) inout)[at] += 10 * ((int *) in)[at];
}

static void datatypes(void) {
    MPI_Datatype column, inside;
    char name[MPI_MAX_OBJECT_NAME];
    int matrix[12], packed[3], position = 0, size, combiner, integers, addresses, types, got[3];
    MPI_Aint lb, extent;
    MPI_Op own;
    for (int at = 0; at < 12; at++) matrix[at] = at;
    OK(MPI_Type_get_name(MPI_DATATYPE_NULL, name, &size));
    CHECK(strcmp(name, "MPI_DATATYPE_NULL") == 0);
    OK(MPI_Type_get_name(MPI_INT, name, &size));
    CHECK(strcmp(name, "MPI_INT") == 0);
    OK(MPI_Type_vector(3, 1, 4, MPI_INT, &column));
    OK(MPI_Type_size(column, &size));
    OK(MPI_Type_get_extent(column, &lb, &extent));
    CHECK(size == 12 && lb == 0 && extent == 36);
    OK(MPI_Type_get_envelope(column, &integers, &addresses, &types, &combiner));
    CHECK(integers == 3 && addresses == 0 && types == 1 && combiner == MPI_COMBINER_VECTOR);
    OK(MPI_Type_get_contents(column, 3, 0, 1, got, NULL, &inside));
    CHECK(got[0] == 3 && got[1] == 1 && got[2] == 4 && inside == MPI_INT);
    FAILS(MPI_ERR_TYPE, MPI_Send(matrix, 1, column, 0, 0, MPI_COMM_SELF));
    OK(MPI_Type_commit(&column));
    OK(MPI_Pack(matrix + 1, 1, column, packed, sizeof packed, &position, MPI_COMM_SELF));
    CHECK(position == 12 && packed[0] == 1 && packed[1] == 5 && packed[2] == 9);
    position = 0;
    OK(MPI_Unpack(packed, sizeof packed, &position, matrix, 1, column, MPI_COMM_SELF));
    CHECK(matrix[0] == 1 && matrix[4] == 5 && matrix[8] == 9 && matrix[1] == 1);
    position = 4;
    FAILS(MPI_ERR_TRUNCATE, MPI_Pack(matrix, 1, column, packed, sizeof packed, &position, MPI_COMM_SELF));
    OK(MPI_Type_free(&column));
    FAILS(MPI_ERR_TYPE, MPI_Type_size((MPI_Datatype) packed, &size));
    OK(MPI_Reduce_local(matrix, packed, 2, MPI_INT, MPI_SUM));
    CHECK(packed[0] == 2 && packed[1] == 6);
    OK(MPI_Op_create(add, 1, &own));
    OK(MPI_Reduce_local(matrix, packed, 1, MPI_INT, own));
    CHECK(packed[0] == 12);
    OK(MPI_Op_free(&own));
    FAILS(MPI_ERR_OP, MPI_Reduce_local(matrix, packed, 1, MPI_DOUBLE, MPI_BAND));
}

/* Requests that are pending, completed at their start, persistent, and freed. */
static void handles(void) {
    int out = 41, in = 0, flag, index, integer;
    MPI_Request requests[2], twin, persistent;
    MPI_Status status;
    OK(MPI_Irecv(&in, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]));
    twin = requests[0];
    integer = MPI_Request_toint(twin);
    CHECK(integer > 0 && MPI_Request_fromint(integer) == twin);
    OK(MPI_Request_get_status(twin, &flag, &status));
    CHECK(!flag);
    OK(MPI_Send(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF));
    OK(MPI_Request_get_status(twin, &flag, &status));
    CHECK(flag && status.MPI_TAG == 3);
    OK(MPI_Wait(&requests[0], &status));
    CHECK(in == 41 && status.MPI_TAG == 3 && requests[0] == MPI_REQUEST_NULL && MPI_Request_fromint(integer) != twin);
    requests[0] = twin;
    FAILS(MPI_ERR_REQUEST, MPI_Wait(&requests[0], &status));
    FAILS(MPI_ERR_REQUEST, MPI_Test(&twin, &flag, &status));
    FAILS(MPI_ERR_REQUEST, MPI_Waitall(1, &twin, &status));
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&twin));
    FAILS(MPI_ERR_REQUEST, MPI_Request_free(&twin));
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[1]));
    CHECK(MPI_Request_fromint(MPI_Request_toint(requests[0])) == requests[0] && requests[0] != MPI_REQUEST_NULL);
    OK(MPI_Cancel(&requests[0]));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&requests[0]));
    OK(MPI_Waitany(2, requests, &index, &status));
    CHECK(index == 0 && requests[0] == MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
    OK(MPI_Request_free(&requests[1]));
    CHECK(requests[1] == MPI_REQUEST_NULL);
    OK(MPI_Recv_init(&in, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &persistent));
    CHECK(MPI_Request_fromint(MPI_Request_toint(persistent)) == persistent);
    for (index = 0; index < 2; index++) {
        OK(MPI_Start(&persistent));
        FAILS(MPI_ERR_REQUEST, MPI_Start(&persistent));
        OK(MPI_Wait(&persistent, &status));
        CHECK(status.MPI_TAG == 3 && persistent != MPI_REQUEST_NULL);
    }
    OK(MPI_Request_free(&persistent));
    CHECK(persistent == MPI_REQUEST_NULL && MPI_Request_toint(persistent) == MPI_Request_toint(MPI_REQUEST_NULL));
}

static void messages(void) {
    int out = 41, in = 0, count, flag, index;
    MPI_Request requests[2], persistent;
    MPI_Status status, statuses[2];
    MPI_Message message;
    OK(MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Test(&requests[0], &flag, &status));
    CHECK(!flag && requests[0] != MPI_REQUEST_NULL);
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &requests[1]));
    OK(MPI_Waitall(2, requests, statuses));
    OK(MPI_Get_count(&statuses[0], MPI_INT, &count));
    CHECK(in == 41 && count == 1 && statuses[0].MPI_SOURCE == 0 && statuses[0].MPI_TAG == 9);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    OK(MPI_Waitany(2, requests, &index, &status));
    CHECK(index == MPI_UNDEFINED);
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 4, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Mprobe(0, 4, MPI_COMM_SELF, &message, &status));
    OK(MPI_Mrecv(&in, 1, MPI_INT, &message, &status));
    CHECK(message == MPI_MESSAGE_NULL && status.MPI_TAG == 4);
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Send_init(&out, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &persistent));
    for (out = 0; out < 3; out++) {
        OK(MPI_Start(&persistent));
        OK(MPI_Recv(&in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
        CHECK(in == out && persistent != MPI_REQUEST_NULL);
    }
    OK(MPI_Request_free(&persistent));
    OK(MPI_Irecv(&in, 1, MPI_INT, 0, 77, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Cancel(&requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);
    OK(MPI_Irecv(&in, 1, MPI_BYTE, 0, 5, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &requests[1]));
    /* The code itself, not one of its class (MPI 5.0, section 3.7.5). */
    CHECK(MPI_Waitall(2, requests, statuses) == MPI_ERR_IN_STATUS);
    FAILS(MPI_ERR_TRUNCATE, statuses[0].MPI_ERROR);
    OK(statuses[1].MPI_ERROR);
    statuses[0].MPI_ERROR = 5;
    OK(MPI_Wait(&requests[0], &statuses[0]));
    CHECK(statuses[0].MPI_ERROR == MPI_SUCCESS && statuses[0].MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_SELF, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Imrecv(&in, 1, MPI_INT, &message, &requests[0]));
    CHECK(message == MPI_MESSAGE_NULL && requests[0] != MPI_REQUEST_NULL);
    OK(MPI_Wait(&requests[0], &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Recv(&in, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

static int queries, frees, cancels;

static int query(void *extra, MPI_Status *status) {
    CHECK(extra == &queries);
    queries++;
    status->MPI_SOURCE = 7;
    status->MPI_TAG = 8;
    OK(MPI_Status_set_elements(status, MPI_INT, 3));
    OK(MPI_Status_set_cancelled(status, cancels));
    return MPI_SUCCESS;
}

static int release(void *extra) {
    CHECK(extra == &queries);
    frees++;
    return MPI_SUCCESS;
}

static int stop(void *extra, int has_ended) {
    CHECK(extra == &queries && !has_ended);
    cancels++;
    return MPI_SUCCESS;
}

static void generalized(void) {
    MPI_Request request, twin;
    MPI_Status status;
    int flag, count;
    OK(MPI_Grequest_start(query, release, stop, &queries, &request));
    OK(MPI_Test(&request, &flag, &status));
    CHECK(!flag && !queries);
    OK(MPI_Cancel(&request));
    OK(MPI_Grequest_complete(request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(request == MPI_REQUEST_NULL && queries == 1 && frees == 1 && cancels == 1);
    CHECK(status.MPI_SOURCE == 7 && status.MPI_TAG == 8 && count == 3 && flag);
    OK(MPI_Grequest_start(query, release, stop, &queries, &request));
    twin = request;
    OK(MPI_Request_free(&request));
    CHECK(frees == 1);
    (void) twin;
}

/* Programs pass a null datatype with a count of 0. */
static void nothing(void) {
    MPI_Status status;
    OK(MPI_Sendrecv(NULL, 0, MPI_DATATYPE_NULL, 0, 9, NULL, 0, MPI_DATATYPE_NULL, 0, 9, MPI_COMM_SELF, &status));
    CHECK(status.MPI_TAG == 9);
    OK(MPI_Recv(NULL, 0, MPI_DATATYPE_NULL, MPI_PROC_NULL, 9, MPI_COMM_SELF, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
}

static void space(void) {
    char room[1024];
    void *got;
    int out = 6, in = 0, size;
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_attach_buffer(comm, room, sizeof room));
    OK(MPI_Bsend(&out, 1, MPI_INT, 0, 0, comm));
    OK(MPI_Recv(&in, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE));
    OK(MPI_Comm_flush_buffer(comm));
    FAILS(MPI_ERR_BUFFER, MPI_Bsend(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
    OK(MPI_Comm_detach_buffer(comm, &got, &size));
    CHECK(in == 6 && got == room && size == sizeof room);
    OK(MPI_Comm_free(&comm));
}

/* Splitting by hardware resource: a single process has no smaller group, and an unknown resource type gives none. */
static void hardware(void) {
    MPI_Info info;
    MPI_Comm part;
    MPI_Datatype pair;
    int count, flag, size, len = 8;
    char value[8];
    OK(MPI_Get_hw_resource_info(&info));
    OK(MPI_Info_get_nkeys(info, &count));
    OK(MPI_Info_get_string(info, "mpi_shared_memory", &len, value, &flag));
    CHECK(count == 5 && flag && strcmp(value, "true") == 0);
    OK(MPI_Info_free(&info));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory"));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &part));
    OK(MPI_Comm_size(part, &size));
    CHECK(size == 1);
    OK(MPI_Comm_disconnect(&part));
    CHECK(part == MPI_COMM_NULL);
    OK(MPI_Info_set(info, "mpi_hw_resource_type", "nothing"));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &part));
    CHECK(part == MPI_COMM_NULL);
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, MPI_INFO_NULL, &part));
    CHECK(part == MPI_COMM_NULL);
    OK(MPI_Info_free(&info));
    OK(MPI_Type_get_value_index(MPI_LONG, MPI_INT, &pair));
    CHECK(pair == MPI_LONG_INT);
    OK(MPI_Type_get_value_index(MPI_INT64_T, MPI_INT64_T, &pair));
    CHECK(pair == MPI_DATATYPE_NULL);
}

int main(int argc, char **argv) {
    int flag;
    OK(MPI_Initialized(&flag));
    CHECK(!flag);
    OK(MPI_Init(&argc, &argv));
    environment();
    errors();
    attributes();
    fortran();
    info_and_groups();
    datatypes();
    messages();
    handles();
    generalized();
    nothing();
    hardware();
    space();
    OK(MPI_Finalize());
    OK(MPI_Finalized(&flag));
    printf("all is well %d\n", flag);
    return 0;
}
