/* Wrong arguments: the error class of each, and an error text that names the argument. */
#include "check.h"

/* Checks that a call fails with this class and a text with these words. */
#define SAYS(class, words, call)                                                                                                \
    do {                                                                                                                        \
        char said_[MPI_MAX_ERROR_STRING] = "";                                                                                  \
        int code__ = (call), len_;                                                                                              \
        FAILS(class, code__);                                                                                                   \
        OK(MPI_Error_string(code__, said_, &len_));                                                                             \
        if (!strstr(said_, words)) fprintf(stderr, "%s: %s\n", #call, said_);                                                   \
        CHECK(strstr(said_, words));                                                                                            \
    } while (0)

static int v = 1, flag, n;
static MPI_Status status;
static MPI_Comm self = MPI_COMM_SELF;
/* An address of the program, which is an invalid handle of any kind. */
#define NONE ((void *) &v)

static void messages(void) {
    MPI_Request null = MPI_REQUEST_NULL, none = NONE, request;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Datatype raw;
    OK(MPI_Type_contiguous(2, MPI_INT, &raw));
    SAYS(MPI_ERR_RANK, "destination 5", MPI_Send(&v, 1, MPI_INT, 5, 0, self));
    SAYS(MPI_ERR_RANK, "destination -1", MPI_Isend(&v, 1, MPI_INT, MPI_ANY_SOURCE, 0, self, &request));
    SAYS(MPI_ERR_TAG, "tag -2", MPI_Send(&v, 1, MPI_INT, 0, MPI_ANY_TAG, self));
    SAYS(MPI_ERR_COUNT, "count: -1", MPI_Send_c(&v, -1, MPI_INT, 0, 0, self));
    SAYS(MPI_ERR_BUFFER, "buf: ", MPI_Send(NULL, 1, MPI_INT, 0, 0, self));
    SAYS(MPI_ERR_TYPE, "datatype: ", MPI_Send(&v, 1, NONE, 0, 0, self));
    SAYS(MPI_ERR_TYPE, "MPI_Type_commit", MPI_Send(&v, 1, raw, 0, 0, self));
    SAYS(MPI_ERR_COMM, "comm: ", MPI_Send(&v, 1, MPI_INT, 0, 0, NONE));
    SAYS(MPI_ERR_COMM, "comm: ", MPI_Send(&v, 1, MPI_INT, 0, 0, MPI_COMM_NULL));
    SAYS(MPI_ERR_COUNT, "4611686018427387904 in 4 partitions", MPI_Psend_init(&v, 4, 1LL << 62, MPI_INT, 0, 0, self, MPI_INFO_NULL, &request));
    SAYS(MPI_ERR_ARG, "request: ", MPI_Isend(&v, 1, MPI_INT, 0, 0, self, NULL));
    SAYS(MPI_ERR_RANK, "source 5", MPI_Recv(&v, 1, MPI_INT, 5, 0, self, &status));
    SAYS(MPI_ERR_TAG, "tag -7", MPI_Recv(&v, 1, MPI_INT, 0, -7, self, &status));
    SAYS(MPI_ERR_RANK, "source 3", MPI_Probe(3, 0, self, &status));
    SAYS(MPI_ERR_COUNT, "sendcount: ", MPI_Sendrecv(&v, -1, MPI_INT, 0, 0, &v, 1, MPI_INT, 0, 0, self, &status));
    SAYS(MPI_ERR_TYPE, "recvtype: ", MPI_Sendrecv(&v, 1, MPI_INT, 0, 0, &v, 1, MPI_DATATYPE_NULL, 0, 0, self, &status));
    SAYS(MPI_ERR_BUFFER, "recvbuf: ", MPI_Sendrecv(&v, 1, MPI_INT, 0, 0, NULL, 1, MPI_INT, 0, 0, self, &status));
    SAYS(MPI_ERR_REQUEST, "request: ", MPI_Wait(&none, &status));
    SAYS(MPI_ERR_REQUEST, "request: ", MPI_Start(&null));
    SAYS(MPI_ERR_COUNT, "count: -1", MPI_Waitall(-1, &null, &status));
    SAYS(MPI_ERR_REQUEST, "array_of_requests: ", MPI_Waitall(1, &none, &status));
    SAYS(MPI_ERR_ARG, "array_of_requests: ", MPI_Testall(1, NULL, &flag, &status));
    SAYS(MPI_ERR_REQUEST, "message: ", MPI_Mrecv(&v, 1, MPI_INT, &message, &status));
    SAYS(MPI_ERR_BUFFER, "MPI_Buffer_attach", MPI_Bsend(&v, 1, MPI_INT, 0, 0, self));
    OK(MPI_Type_free(&raw));
    SAYS(MPI_ERR_TYPE, "datatype: ", MPI_Type_commit(&raw));
}

static void truncation(void) {
    int two[2] = {1, 2};
    MPI_Request request;
    OK(MPI_Isend(two, 2, MPI_INT, 0, 3, self, &request));
    SAYS(MPI_ERR_TRUNCATE, "8", MPI_Recv(&v, 1, MPI_INT, 0, 3, self, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* The same memory as send and receive buffer. */
static void aliases(void) {
    int two[2] = {1, 2}, one = 1, ones[1] = {1}, start[1] = {0}, part[1] = {1};
    MPI_Datatype ints[1] = {MPI_INT};
    MPI_Request request;
    SAYS(MPI_ERR_BUFFER, "MPI_IN_PLACE", MPI_Allreduce(two, two, 1, MPI_INT, MPI_SUM, self));
    SAYS(MPI_ERR_BUFFER, "recvbuf", MPI_Iallreduce(two, &two[1] - 1, 1, MPI_INT, MPI_SUM, self, &request));
    SAYS(MPI_ERR_BUFFER, "recvbuf", MPI_Reduce(two, (char *) two + 4, 2, MPI_INT, MPI_SUM, 0, self));
    SAYS(MPI_ERR_BUFFER, "recvbuf", MPI_Gather(two, 1, MPI_INT, two, 1, MPI_INT, 0, self));
    SAYS(MPI_ERR_BUFFER, "recvbuf", MPI_Scatterv(two, ones, start, MPI_INT, two, 1, MPI_INT, 0, self));
    SAYS(MPI_ERR_BUFFER, "recvbuf", MPI_Allgatherv(&two[1], 1, MPI_INT, two, ones, part, MPI_INT, self));
    SAYS(MPI_ERR_BUFFER, "recvbuf", MPI_Alltoallw(two, ones, start, ints, two, ones, start, ints, self));
    SAYS(MPI_ERR_BUFFER, "inoutbuf", MPI_Reduce_local(&one, &one, 1, MPI_INT, MPI_SUM));
    SAYS(MPI_ERR_BUFFER, "inbuf", MPI_Reduce_local(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM));
    SAYS(MPI_ERR_BUFFER, "inoutbuf", MPI_Reduce_local(&one, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM));
    OK(MPI_Gather(two, 1, MPI_INT, &two[1], 1, MPI_INT, 0, self));
    OK(MPI_Scan(two, two, 0, MPI_INT, MPI_SUM, self));
    CHECK(two[1] == 1);
}

static void objects(void) {
    MPI_Comm comm = MPI_COMM_SELF, merged;
    MPI_Group group = MPI_GROUP_EMPTY;
    MPI_Info info;
    MPI_Op sum = MPI_SUM;
    MPI_Datatype integer = MPI_INT, made;
    int lengths[1] = {-1};
    SAYS(MPI_ERR_ARG, "rank: ", MPI_Comm_rank(self, NULL));
    SAYS(MPI_ERR_COMM, "comm: ", MPI_Comm_free(&comm));
    SAYS(MPI_ERR_GROUP, "group: ", MPI_Comm_create(self, MPI_GROUP_NULL, &comm));
    SAYS(MPI_ERR_COMM, "intercommunicator", MPI_Intercomm_merge(self, 0, &merged));
    SAYS(MPI_ERR_ERRHANDLER, "errhandler: ", MPI_Comm_set_errhandler(self, MPI_ERRHANDLER_NULL));
    SAYS(MPI_ERR_KEYVAL, "keyval: 77", MPI_Comm_set_attr(self, 77, &v));
    SAYS(MPI_ERR_RANK, "rank 1", MPI_Group_incl(group, 1, &v, &group));
    SAYS(MPI_ERR_ARG, "ranks2: ", MPI_Group_translate_ranks(MPI_GROUP_EMPTY, 1, &(int){MPI_PROC_NULL}, group, NULL));
    SAYS(MPI_ERR_INFO, "info: ", MPI_Info_set(MPI_INFO_NULL, "a", "b"));
    OK(MPI_Info_create(&info));
    SAYS(MPI_ERR_INFO_KEY, "key", MPI_Info_set(info, "", "b"));
    SAYS(MPI_ERR_ARG, "n: ", MPI_Info_get_nthkey(info, 4, (char[MPI_MAX_INFO_KEY]){0}));
    OK(MPI_Info_free(&info));
    SAYS(MPI_ERR_OP, "op: ", MPI_Op_free(&sum));
    SAYS(MPI_ERR_OP, "op: ", MPI_Reduce_local(&v, &n, 1, MPI_INT, MPI_OP_NULL));
    SAYS(MPI_ERR_TYPE, "datatype: ", MPI_Type_free(&integer));
    SAYS(MPI_ERR_COUNT, "count: -3", MPI_Type_contiguous(-3, MPI_INT, &made));
    SAYS(MPI_ERR_COUNT, "blocklength", MPI_Type_indexed(1, lengths, lengths, MPI_INT, &made));
    SAYS(MPI_ERR_ARG, "array_of_displacements: ", MPI_Type_create_struct(1, &v, NULL, &integer, &made));
    SAYS(MPI_ERR_ARG, "status: ", MPI_Get_count(MPI_STATUS_IGNORE, MPI_INT, &n));
    SAYS(MPI_ERR_ARG, "errorcode: ", MPI_Error_class(-4, &n));
    SAYS(MPI_ERR_OTHER, "once", MPI_Init(NULL, NULL));
}

int main(void) {
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN));
    messages();
    truncation();
    aliases();
    objects();
    OK(MPI_Finalize());
    puts("every error is named");
    return 0;
}
