/* Windows of all kinds, their operations in both forms, and errors of their arguments. */
#include "check.h"

static int rank, size;

static void attributes(MPI_Win win, void *base, MPI_Aint bytes, int unit, int flavor) {
    void *found = NULL;
    int flag = 0;
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &found, &flag));
    CHECK(flag && found == base);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &found, &flag));
    CHECK(flag && *(MPI_Aint *)found == bytes);
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &found, &flag));
    CHECK(flag && *(int *)found == unit);
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &found, &flag));
    CHECK(flag && *(int *)found == flavor);
    OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &found, &flag));
    CHECK(flag && *(int *)found == MPI_WIN_UNIFIED);
}

static int deleted;

static int on_delete(MPI_Win win, int key, void *value, void *extra) {
    CHECK(win != MPI_WIN_NULL && key > 0 && value == &deleted && extra == &rank);
    deleted++;
    return MPI_SUCCESS;
}

static void objects(MPI_Win win) {
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1, key = MPI_KEYVAL_INVALID, flag = -1;
    void *found = NULL;
    OK(MPI_Win_set_name(win, "a window"));
    OK(MPI_Win_get_name(win, name, &length));
    CHECK(length == 8 && strcmp(name, "a window") == 0);
    OK(MPI_Win_get_name(MPI_WIN_NULL, name, &length));
    CHECK(strcmp(name, "MPI_WIN_NULL") == 0);
    MPI_Group group, world;
    OK(MPI_Win_get_group(win, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_compare(group, world, &flag));
    CHECK(flag == MPI_IDENT);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no_locks", "false"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_nkeys(info, &length));
    CHECK(length == 1);
    OK(MPI_Info_free(&info));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &key, &rank));
    OK(MPI_Win_get_attr(win, key, &found, &flag));
    CHECK(flag == 0);
    OK(MPI_Win_set_attr(win, key, &deleted));
    OK(MPI_Win_get_attr(win, key, &found, &flag));
    CHECK(flag && found == &deleted);
    OK(MPI_Win_delete_attr(win, key));
    CHECK(deleted == 1);
    OK(MPI_Win_set_attr(win, key, &deleted));
    OK(MPI_Win_free_keyval(&key));
    CHECK(MPI_Win_fromint(MPI_Win_toint(win)) == win);
}

/* A ring of puts and gets, with fences. */
static void ring(MPI_Win win, int *mine) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size, value = rank + 100, got = -1;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    OK(MPI_Put(&value, 1, MPI_INT, next, 1, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(mine[1] == before + 100);
    OK(MPI_Get_c(&got, 1, MPI_INT, next, 1, 1, MPI_INT, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(got == rank + 100);
}

/* Counters at rank 0, under locks. */
static void counters(MPI_Win win, int *mine) {
    int one = 1, was = -1, nothing = 0, high[2] = {rank, -rank}, result[2] = {-1, -1};
    MPI_Request requests[3];
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
    mine[4] = mine[5] = mine[6] = mine[7] = 0;
    OK(MPI_Win_unlock(rank, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Fetch_and_op(&one, &was, MPI_INT, 0, 4, MPI_SUM, win));
    OK(MPI_Win_flush(0, win));
    CHECK(was >= 0 && was < size);
    OK(MPI_Accumulate(high, 2, MPI_INT, 0, 5, 2, MPI_INT, MPI_MAX, win));
    OK(MPI_Win_flush_local(0, win));
    OK(MPI_Compare_and_swap(&one, &nothing, &was, MPI_INT, 0, 7, win));
    OK(MPI_Win_flush_local_all(win));
    CHECK(was == 0 || was == 1);
    OK(MPI_Rget_accumulate(NULL, 0, MPI_INT, result, 2, MPI_INT, 0, 5, 2, MPI_INT, MPI_NO_OP, win, &requests[0]));
    OK(MPI_Raccumulate_c(&nothing, 1, MPI_INT, 0, 4, 1, MPI_INT, MPI_SUM, win, &requests[1]));
    OK(MPI_Rget(&was, 1, MPI_INT, 0, 7, 1, MPI_INT, win, &requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(result[0] >= rank && result[1] <= 0 && was == 1);
    OK(MPI_Win_flush_all(win));
    OK(MPI_Win_sync(win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) CHECK(mine[4] == size && mine[5] == size - 1 && mine[6] == 0 && mine[7] == 1);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Single integers, most of them on the fast path: the result of each call, and the old value that it returns. */
static void integers(MPI_Win win, int *mine) {
    static const struct {
        MPI_Op op;
        int now;
    } ops[] = {{MPI_SUM, 17}, {MPI_REPLACE, 5}, {MPI_NO_OP, 12},   {MPI_BAND, 12 & 5}, {MPI_BOR, 12 | 5},
               {MPI_BXOR, 12 ^ 5}, {MPI_MAX, 12},  {MPI_PROD, 60}};
    int with = 5, expected = 12, was;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Get(&was, 1, MPI_INT, rank, 5, 1, MPI_INT, win));
    OK(MPI_Win_flush(rank, win));
    for (int i = 0; i < (int)(sizeof ops / sizeof *ops); i++) {
        mine[4] = mine[6] = -1;
        mine[5] = 12, was = 0;
        OK(MPI_Fetch_and_op(&with, &was, MPI_INT, rank, 5, ops[i].op, win));
        OK(MPI_Win_flush(rank, win));
        CHECK(was == 12 && mine[5] == ops[i].now);
        mine[5] = 12, was = 0;
        OK(MPI_Get_accumulate(&with, 1, MPI_INT, &was, 1, MPI_INT, rank, 5, 1, MPI_INT, ops[i].op, win));
        OK(MPI_Win_flush(rank, win));
        CHECK(was == 12 && mine[5] == ops[i].now);
        mine[5] = 12;
        if (ops[i].op != MPI_NO_OP) {
            OK(MPI_Accumulate(&with, 1, MPI_INT, rank, 5, 1, MPI_INT, ops[i].op, win));
            OK(MPI_Win_flush(rank, win));
            CHECK(mine[5] == ops[i].now);
        }
        CHECK(mine[4] == -1 && mine[6] == -1);
    }
    mine[5] = 12;
    OK(MPI_Compare_and_swap(&with, &expected, &was, MPI_INT, rank, 5, win));
    CHECK(was == 12);
    OK(MPI_Compare_and_swap(&expected, &expected, &was, MPI_INT, rank, 5, win));
    CHECK(was == 5);
    OK(MPI_Win_flush(rank, win));
    CHECK(mine[5] == 5 && mine[4] == -1 && mine[6] == -1);
    OK(MPI_Fetch_and_op(NULL, &was, MPI_INT, rank, 5, MPI_NO_OP, win));
    CHECK(was == 5);
    FAILS(MPI_ERR_OP, MPI_Accumulate(&with, 1, MPI_INT, rank, 5, 1, MPI_INT, MPI_NO_OP, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Fetch_and_op(&with, &was, MPI_INT, rank, 10, MPI_SUM, win));
    FAILS(MPI_ERR_RANK, MPI_Compare_and_swap(&with, &expected, &was, MPI_INT, size, 5, win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Rank 0 puts to the other ranks. */
static void posts(MPI_Win win, int *mine) {
    MPI_Group all, group;
    int zero = 0, flag = 0, numbers[8];
    OK(MPI_Win_get_group(win, &all));
    if (rank == 0) {
        OK(MPI_Group_excl(all, 1, &zero, &group));
        OK(MPI_Win_start(group, 0, win));
        for (int other = 1; other < size; other++) {
            numbers[other] = other;
            OK(MPI_Put(&numbers[other], 1, MPI_INT, other, 2, 1, MPI_INT, win));
        }
        OK(MPI_Win_complete(win));
    } else {
        OK(MPI_Group_incl(all, 1, &zero, &group));
        OK(MPI_Win_post(group, 0, win));
        if (rank == 1)
            OK(MPI_Win_wait(win));
        else
            while (!flag) OK(MPI_Win_test(win, &flag));
        CHECK(mine[2] == rank);
    }
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&all));
}

static void all_of(MPI_Win win, int *mine, int flavor) {
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    attributes(win, mine, 10 * sizeof(int), sizeof(int), flavor);
    ring(win, mine);
    counters(win, mine);
    integers(win, mine);
    posts(win, mine);
    objects(win);
    deleted = 0;
    OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL && deleted == 1);
    deleted = 0;
}

static void shared(void) {
    MPI_Win win;
    int *mine = NULL, *first = NULL, unit = -1;
    MPI_Aint bytes = -1, large = -1;
    OK(MPI_Win_allocate_shared(10 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
    OK(MPI_Win_shared_query(win, 0, &bytes, &unit, &first));
    CHECK(bytes == 10 * sizeof(int) && unit == sizeof(int) && first + 10 * rank == mine);
    OK(MPI_Win_shared_query_c(win, MPI_PROC_NULL, &bytes, &large, &first));
    CHECK(bytes == 10 * sizeof(int) && large == sizeof(int) && first + 10 * rank == mine);
    mine[3] = rank;
    OK(MPI_Win_fence(0, win));
    for (int other = 0; other < size; other++) CHECK(first[10 * other + 3] == other);
    OK(MPI_Win_fence(0, win));
    all_of(win, mine, MPI_WIN_FLAVOR_SHARED);
}

static void dynamic(void) {
    MPI_Win win;
    double memory[4] = {0};
    MPI_Aint place, places[64];
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    attributes(win, NULL, 0, 1, MPI_WIN_FLAVOR_DYNAMIC);
    OK(MPI_Win_attach(win, memory, sizeof memory));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, memory + 1, 8));
    OK(MPI_Get_address(memory, &place));
    OK(MPI_Allgather(&place, 1, MPI_AINT, places, 1, MPI_AINT, MPI_COMM_WORLD));
    double half = 0.5;
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    for (int other = 0; other < size; other++)
        OK(MPI_Accumulate(&half, 1, MPI_DOUBLE, other, places[other] + 8, 1, MPI_DOUBLE, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&half, 1, MPI_DOUBLE, 0, places[0] + 32, 1, MPI_DOUBLE, win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(memory[1] == 0.5 * size);
    OK(MPI_Win_detach(win, memory));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, memory));
    OK(MPI_Win_free(&win));
}

static int heard;

static void on_error(MPI_Win *win, int *code, ...) {
    CHECK(*win != MPI_WIN_NULL && *code != MPI_SUCCESS);
    heard++;
}

static void mistakes(void) {
    MPI_Win win, stale;
    int *mine, value = 0;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_SIZE, MPI_Win_create(&value, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_DISP, MPI_Win_create(&value, 4, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_COMM, MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_NULL, &mine, &win));
    OK(MPI_Win_allocate(40, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
    MPI_Errhandler handler;
    OK(MPI_Win_create_errhandler(on_error, &handler));
    OK(MPI_Win_set_errhandler(win, handler));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    CHECK(heard == 1);
    OK(MPI_Win_call_errhandler(win, MPI_ERR_OTHER));
    CHECK(heard == 2);
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_LOCKTYPE, MPI_Win_lock(7, 0, 0, win));
    FAILS(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, 0, 1, win));
    FAILS(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock(0, win));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_attach(win, &value, 4));
    OK(MPI_Win_fence(0, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, 0, 10, 1, MPI_INT, win));
    FAILS(MPI_ERR_DISP, MPI_Put(&value, 1, MPI_INT, 0, -1, 1, MPI_INT, win));
    FAILS(MPI_ERR_RANK, MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_COUNT, MPI_Put(&value, -1, MPI_INT, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_TYPE, MPI_Put(&value, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_NO_OP, win));
    OK(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, -9, 1, MPI_INT, win));
    OK(MPI_Put(NULL, 0, MPI_INT, 0, 0, 0, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    stale = win;
    OK(MPI_Win_free(&win));
    FAILS(MPI_ERR_WIN, MPI_Win_fence(0, stale));
    FAILS(MPI_ERR_WIN, MPI_Win_fence(0, MPI_WIN_NULL));
    FAILS(MPI_ERR_WIN, MPI_Win_free(&win));
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    MPI_Win win;
    int memory[10] = {0}, *mine = NULL;
    OK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    all_of(win, memory, MPI_WIN_FLAVOR_CREATE);
    OK(MPI_Win_allocate_c(sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
    all_of(win, mine, MPI_WIN_FLAVOR_ALLOCATE);
    shared();
    dynamic();
    mistakes();
    printf("rank %d of %d is done\n", rank, size);
    OK(MPI_Finalize());
    return 0;
}
