/* What the tests use of MPICH's ABI, written from its documents: handles are integers, and MPI_Status has five of them. Independent of
 * constants.txt, so that a wrong value there makes a test fail. */
#ifndef MPICH_FACTS_H
#define MPICH_FACTS_H

typedef int MPI_Comm, MPI_Datatype, MPI_Errhandler, MPI_Group, MPI_Info, MPI_Message, MPI_Op, MPI_Request, MPI_Win;
typedef struct ADIOI_FileD *MPI_File;
typedef long MPI_Aint, MPI_Offset, MPI_Count;
typedef int MPI_Fint;
typedef struct {
    int count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
typedef void(MPI_User_function)(void *, void *, int *, MPI_Datatype *);

enum {
    MPI_COMM_NULL = 0x04000000, MPI_COMM_WORLD = 0x44000000, MPI_COMM_SELF = 0x44000001, MPI_GROUP_NULL = 0x08000000,
    MPI_DATATYPE_NULL = 0x0c000000, MPI_REQUEST_NULL = 0x2c000000, MPI_MESSAGE_NULL = 0x2c000000, MPI_INFO_NULL = 0x1c000000,
    MPI_OP_NULL = 0x18000000, MPI_MESSAGE_NO_PROC = 0x6c000000, MPI_WIN_NULL = 0x20000000,
    MPI_CHAR = 0x4c000101, MPI_BYTE = 0x4c00010d, MPI_INT = 0x4c000405, MPI_LONG = 0x4c000807, MPI_DOUBLE = 0x4c00080b,
    MPI_UB = 0x4c000011, MPI_LB = 0x4c000010, MPI_2INT = 0x4c000816,
    MPI_MAX = 0x58000001, MPI_SUM = 0x58000003, MPI_MAXLOC = 0x5800000c, MPI_REPLACE = 0x5800000d,
    MPI_ERRORS_ARE_FATAL = 0x54000000, MPI_ERRORS_RETURN = 0x54000001,
    MPI_PROC_NULL = -1, MPI_ANY_SOURCE = -2, MPI_ROOT = -3, MPI_ANY_TAG = -1, MPI_UNDEFINED = -32766,
    MPI_IDENT = 0, MPI_CONGRUENT = 1, MPI_SIMILAR = 2, MPI_UNEQUAL = 3, MPI_CART = 2, MPI_DIST_GRAPH = 3,
    MPI_THREAD_SINGLE = 0, MPI_THREAD_FUNNELED = 1, MPI_THREAD_SERIALIZED = 2, MPI_THREAD_MULTIPLE = 3,
    MPI_SUCCESS = 0, MPI_ERR_TYPE = 3, MPI_ERR_COMM = 5, MPI_ERR_RANK = 6, MPI_ERR_ARG = 12, MPI_ERR_TRUNCATE = 14,
    MPI_ERR_OTHER = 15, MPI_ERR_IN_STATUS = 17, MPI_ERR_NO_SUCH_FILE = 37, MPI_ERR_UNSUPPORTED_OPERATION = 44,
    MPI_ERR_LASTCODE = 0x3fffffff,
    MPI_COMBINER_NAMED = 1, MPI_COMBINER_CONTIGUOUS = 3, MPI_COMBINER_SUBARRAY = 13, MPI_COMBINER_DARRAY = 14,
    MPI_ORDER_C = 56, MPI_ORDER_FORTRAN = 57, MPI_DISTRIBUTE_BLOCK = 121, MPI_DISTRIBUTE_CYCLIC = 122,
    MPI_DISTRIBUTE_DFLT_DARG = -49767,
    MPI_COMM_TYPE_SHARED = 1, MPI_LOCK_EXCLUSIVE = 234, MPI_LOCK_SHARED = 235, MPI_MODE_NOCHECK = 1024,
    MPI_TAG_UB = 0x64400001, MPI_HOST = 0x64400003, MPI_IO = 0x64400005, MPI_LASTUSEDCODE = 0x6440000b,
    MPI_WIN_BASE = 0x66000001, MPI_WIN_SIZE = 0x66000003, MPI_WIN_CREATE_FLAVOR = 0x66000007, MPI_WIN_MODEL = 0x66000009,
    MPI_WIN_FLAVOR_ALLOCATE = 2, MPI_WIN_UNIFIED = 2, MPI_KEYVAL_INVALID = 0x24000000,
    MPI_MODE_CREATE = 1, MPI_MODE_RDONLY = 2, MPI_MODE_RDWR = 8, MPI_MODE_DELETE_ON_CLOSE = 16, MPI_SEEK_SET = 600,
    MPI_SEEK_END = 604, MPI_MAX_PROCESSOR_NAME = 128, MPI_MAX_ERROR_STRING = 512, MPI_MAX_PORT_NAME = 256
};
#define MPI_BOTTOM ((void *)0)
#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)
#define MPI_FILE_NULL ((MPI_File)0)
#define MPI_DISPLACEMENT_CURRENT (-54278278)
#define MPI_COMM_DUP_FN MPIR_Dup_fn
extern int *const MPI_UNWEIGHTED;
extern int *const MPI_WEIGHTS_EMPTY;

int MPI_Init(int *, char ***);
int MPI_Init_thread(int *, char ***, int, int *);
int MPI_Query_thread(int *);
int MPI_Finalize(void);
int MPI_Comm_rank(MPI_Comm, int *);
int MPI_Comm_size(MPI_Comm, int *);
int MPI_Comm_dup(MPI_Comm, MPI_Comm *);
int MPI_Comm_split(MPI_Comm, int, int, MPI_Comm *);
int MPI_Comm_split_type(MPI_Comm, int, int, MPI_Info, MPI_Comm *);
int MPI_Comm_compare(MPI_Comm, MPI_Comm, int *);
int MPI_Comm_free(MPI_Comm *);
int MPI_Comm_group(MPI_Comm, MPI_Group *);
int MPI_Group_translate_ranks(MPI_Group, int, const int[], MPI_Group, int[]);
int MPI_Group_free(MPI_Group *);
int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int PMPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Sendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Send_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Start(MPI_Request *);
int MPI_Request_free(MPI_Request *);
int MPI_Cancel(MPI_Request *);
int MPI_Test_cancelled(const MPI_Status *, int *);
int MPI_Wait(MPI_Request *, MPI_Status *);
int MPI_Waitall(int, MPI_Request[], MPI_Status[]);
int MPI_Waitany(int, MPI_Request[], int *, MPI_Status *);
int MPI_Testall(int, MPI_Request[], int *, MPI_Status[]);
int MPI_Probe(int, int, MPI_Comm, MPI_Status *);
int MPI_Mprobe(int, int, MPI_Comm, MPI_Message *, MPI_Status *);
int MPI_Mrecv(void *, int, MPI_Datatype, MPI_Message *, MPI_Status *);
int MPI_Get_count(const MPI_Status *, MPI_Datatype, int *);
int MPI_Status_set_elements(MPI_Status *, MPI_Datatype, int);
int MPI_Status_set_cancelled(MPI_Status *, int);
int MPI_Barrier(MPI_Comm);
int MPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Iallreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int MPI_Alltoallw(const void *, const int[], const int[], const MPI_Datatype[], void *, const int[], const int[],
                  const MPI_Datatype[], MPI_Comm);
int MPI_Op_create(MPI_User_function *, int, MPI_Op *);
int MPI_Op_free(MPI_Op *);
int MPI_Error_class(int, int *);
int MPI_Error_string(int, char *, int *);
int MPI_Add_error_class(int *);
int MPI_Add_error_code(int, int *);
int MPI_Comm_create_errhandler(void (*)(MPI_Comm *, int *, ...), MPI_Errhandler *);
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler);
int MPI_Comm_call_errhandler(MPI_Comm, int);
int MPI_Errhandler_free(MPI_Errhandler *);
int MPI_Comm_get_attr(MPI_Comm, int, void *, int *);
int MPI_Comm_set_attr(MPI_Comm, int, void *);
int MPI_Comm_create_keyval(int (*)(MPI_Comm, int, void *, void *, void *, int *), int (*)(MPI_Comm, int, void *, void *), int *, void *);
int MPI_Comm_free_keyval(int *);
int MPIR_Dup_fn(MPI_Comm, int, void *, void *, void *, int *);
int MPI_Grequest_start(int (*)(void *, MPI_Status *), int (*)(void *), int (*)(void *, int), void *, MPI_Request *);
int MPI_Grequest_complete(MPI_Request);
int MPI_Type_contiguous(int, MPI_Datatype, MPI_Datatype *);
int MPI_Type_create_subarray(int, const int[], const int[], const int[], int, MPI_Datatype, MPI_Datatype *);
int MPI_Type_create_darray(int, int, int, const int[], const int[], const int[], const int[], int, MPI_Datatype, MPI_Datatype *);
int MPI_Type_create_struct(int, const int[], const MPI_Aint[], const MPI_Datatype[], MPI_Datatype *);
int MPI_Type_get_envelope(MPI_Datatype, int *, int *, int *, int *);
int MPI_Type_get_contents(MPI_Datatype, int, int, int, int[], MPI_Aint[], MPI_Datatype[]);
int MPI_Type_get_extent(MPI_Datatype, MPI_Aint *, MPI_Aint *);
int MPI_Type_commit(MPI_Datatype *);
int MPI_Type_free(MPI_Datatype *);
int MPI_Type_size(MPI_Datatype, int *);
int MPI_Cart_create(MPI_Comm, int, const int[], const int[], int, MPI_Comm *);
int MPI_Cart_shift(MPI_Comm, int, int, int *, int *);
int MPI_Topo_test(MPI_Comm, int *);
int MPI_Dist_graph_create_adjacent(MPI_Comm, int, const int[], const int[], int, const int[], const int[], MPI_Info, int, MPI_Comm *);
int MPI_Dist_graph_neighbors_count(MPI_Comm, int *, int *, int *);
int MPI_Neighbor_alltoallw(const void *, const int[], const MPI_Aint[], const MPI_Datatype[], void *, const int[], const MPI_Aint[],
                           const MPI_Datatype[], MPI_Comm);
int MPI_Win_allocate(MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *);
int MPI_Win_get_attr(MPI_Win, int, void *, int *);
int MPI_Win_lock(int, int, int, MPI_Win);
int MPI_Win_unlock(int, MPI_Win);
int MPI_Win_fence(int, MPI_Win);
int MPI_Accumulate(const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op, MPI_Win);
int MPI_Win_free(MPI_Win *);
int MPI_File_open(MPI_Comm, const char *, int, MPI_Info, MPI_File *);
int MPI_File_get_amode(MPI_File, int *);
int MPI_File_write_at(MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Status *);
int MPI_File_seek(MPI_File, MPI_Offset, int);
int MPI_File_read(MPI_File, void *, int, MPI_Datatype, MPI_Status *);
int MPI_File_set_view(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char *, MPI_Info);
int MPI_File_close(MPI_File *);
int MPI_Get_processor_name(char *, int *);
int MPI_Open_port(MPI_Info, char *);
int MPI_Close_port(const char *);
int MPI_Info_create(MPI_Info *);
int MPI_Info_free(MPI_Info *);
int MPIX_Query_cuda_support(void);
int MPIX_Comm_revoke(MPI_Comm);
#endif
