/* Which operator reduces which type, in every call that reduces: what MPI says (5.0, 6.9.2), and MPI_CHAR as MPI_SIGNED_CHAR. With
   TEST_STRICT, MPI_CHAR is refused. */
#include "check.h"

#define NAMED(name) {#name, name}

static int rank, size;
static MPI_Win win;
static signed char *memory;

static const struct {
    const char *name;
    MPI_Op op;
} ops[] = {NAMED(MPI_SUM), NAMED(MPI_PROD), NAMED(MPI_MIN), NAMED(MPI_MAX), NAMED(MPI_BAND), NAMED(MPI_BOR), NAMED(MPI_BXOR),
           NAMED(MPI_LAND), NAMED(MPI_LOR), NAMED(MPI_LXOR), NAMED(MPI_MINLOC), NAMED(MPI_MAXLOC), NAMED(MPI_REPLACE), NAMED(MPI_NO_OP)};
enum { OPS = sizeof ops / sizeof *ops };

/* A letter per operator: y if it reduces the type. The last two reduce no type, except in accumulating operations. */
static const struct {
    const char *name;
    MPI_Datatype type;
    const char *reduced;
} types[] = {
    {"MPI_INT", MPI_INT, "yyyyyyyyyy----"},           {"MPI_SIGNED_CHAR", MPI_SIGNED_CHAR, "yyyyyyyyyy----"},
    {"MPI_UINT64_T", MPI_UINT64_T, "yyyyyyyyyy----"}, {"MPI_CHAR", MPI_CHAR, "yyyyyyyyyy----"},
    {"MPI_AINT", MPI_AINT, "yyyyyyyyyy----"},         {"MPI_INTEGER", MPI_INTEGER, "yyyyyyy-------"},
    {"MPI_BYTE", MPI_BYTE, "----yyy-------"},         {"MPI_C_BOOL", MPI_C_BOOL, "-------yyy----"},
    {"MPI_LOGICAL", MPI_LOGICAL, "-------yyy----"},   {"MPI_DOUBLE", MPI_DOUBLE, "yyyy----------"},
    {"MPI_C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX, "yy------------"},
    {"MPI_2INT", MPI_2INT, "----------yy--"},         {"MPI_DOUBLE_INT", MPI_DOUBLE_INT, "----------yy--"},
    {"MPI_WCHAR", MPI_WCHAR, "--------------"},       {"MPI_CHARACTER", MPI_CHARACTER, "--------------"},
    {"MPI_PACKED", MPI_PACKED, "--------------"},
};
enum { TYPES = sizeof types / sizeof *types, FORMS = 12, ACCUMULATES = 9 };

/* One of the calls that reduce. */
static int reduce(int form, const void *from, void *into, MPI_Datatype type, MPI_Op op) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS, counts[16];
    char all[16 * 32];
    for (int i = 0; i < size; i++) counts[i] = 1;
    for (int i = 0; i < 16; i++) memcpy(all + 32 * i, from, 32);
    switch (form) {
    case 0: return MPI_Allreduce(from, into, 1, type, op, MPI_COMM_WORLD);
    case 1: return MPI_Reduce_local(from, into, 1, type, op);
    case 2: return MPI_Reduce(from, into, 1, type, op, 0, MPI_COMM_WORLD);
    case 3: return MPI_Scan(from, into, 1, type, op, MPI_COMM_WORLD);
    case 4: return MPI_Exscan(from, into, 1, type, op, MPI_COMM_WORLD);
    case 5: return MPI_Reduce_scatter_block(all, into, 1, type, op, MPI_COMM_WORLD);
    case 6: return MPI_Reduce_scatter(all, into, counts, type, op, MPI_COMM_WORLD);
    case 7: code = MPI_Iallreduce(from, into, 1, type, op, MPI_COMM_WORLD, &request); break;
    case 8:
        code = MPI_Allreduce_init(from, into, 1, type, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        if (code) return code;
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        return MPI_Request_free(&request);
    case 9: return MPI_Accumulate(from, 1, type, rank, 0, 1, type, op, win);
    case 10: return MPI_Get_accumulate(from, 1, type, into, 1, type, rank, 0, 1, type, op, win);
    case 11: return MPI_Fetch_and_op(from, into, type, rank, 0, op, win);
    }
    return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void matrix(int is_strict) {
    char from[64], into[64];
    for (int form = 0; form < FORMS; form++) {
        for (int i = 0; i < TYPES; i++) {
            for (int j = 0; j < OPS; j++) {
                int accumulates = form >= ACCUMULATES, code, class = MPI_SUCCESS;
                int reduces = types[i].reduced[j] == 'y' && !(is_strict && types[i].type == MPI_CHAR);
                if (accumulates && ops[j].op == MPI_REPLACE) reduces = 1;
                if (form > ACCUMULATES && ops[j].op == MPI_NO_OP) reduces = 1;
                memset(from, 0, sizeof from), memset(into, 0, sizeof into);
                code = reduce(form, from, into, types[i].type, ops[j].op);
                if (code) OK(MPI_Error_class(code, &class));
                if (class != (reduces ? MPI_SUCCESS : MPI_ERR_OP))
                    fprintf(stderr, "form %d: %s of %s: class %d\n", form, ops[j].name, types[i].name, class);
                CHECK(class == (reduces ? MPI_SUCCESS : MPI_ERR_OP));
            }
        }
    }
}

/* Which types can be compared and swapped: MPI's, and characters. */
static void swaps(int is_strict) {
    static const char swapped[] = "yyyyyyyyy--" "--" "yy-";
    for (int i = 0; i < TYPES; i++) {
        char with[32], expected[32], was[32];
        int class = MPI_SUCCESS, code, size;
        int is_text = types[i].type == MPI_CHAR || types[i].type == MPI_WCHAR || types[i].type == MPI_CHARACTER;
        int goes = swapped[i] == 'y' && !(is_strict && is_text);
        memset(with, 5, 32), memset(expected, 0, 32), memset(was, 9, 32), memset(memory, 0, 32);
        code = MPI_Compare_and_swap(with, expected, was, types[i].type, rank, 0, win);
        if (code) OK(MPI_Error_class(code, &class));
        if (class != (goes ? MPI_SUCCESS : MPI_ERR_TYPE)) fprintf(stderr, "swap of %s: class %d\n", types[i].name, class);
        CHECK(class == (goes ? MPI_SUCCESS : MPI_ERR_TYPE));
        OK(MPI_Win_flush(rank, win));
        OK(MPI_Type_size(types[i].type, &size));
        CHECK(memory[0] == (goes ? 5 : 0) && memory[size] == 0 && was[0] == (goes ? 0 : 9));
    }
}

/* Results for MPI_CHAR equal those for MPI_SIGNED_CHAR. */
static void values(void) {
    signed char from[32], chars[32], integers[32];
    for (int form = 0; form < FORMS; form++) {
        for (int j = 0; j < 10; j++) {
            for (int i = 0; i < 32; i++) from[i] = (signed char) (i * 41 + rank * 3 - 64), chars[i] = integers[i] = (signed char) (i - 7);
            memory[0] = -5;
            OK(reduce(form, from, chars, MPI_CHAR, ops[j].op));
            int there = memory[0];
            memory[0] = -5;
            OK(reduce(form, from, integers, MPI_SIGNED_CHAR, ops[j].op));
            CHECK(memcmp(chars, integers, sizeof chars) == 0 && there == memory[0]);
        }
    }
    /* Longer buffers, which take other code paths; and a derived datatype of characters. */
    static signed char many[20000], sums[20000];
    MPI_Datatype pairs;
    memset(many, 1, sizeof many);
    OK(MPI_Allreduce(many, sums, sizeof many, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < sizeof sums; i++) CHECK(sums[i] == size);
    OK(MPI_Type_contiguous(2, MPI_CHAR, &pairs));
    OK(MPI_Type_commit(&pairs));
    memory[0] = memory[1] = 1;
    OK(MPI_Accumulate(many, 1, pairs, rank, 0, 1, pairs, MPI_SUM, win));
    OK(MPI_Win_flush(rank, win));
    CHECK(memory[0] == 2 && memory[1] == 2);
    OK(MPI_Type_free(&pairs));
}

int main(void) {
    int is_strict = getenv("NICETY_STRICT") != NULL;
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_lock_all(0, win));
    matrix(is_strict);
    swaps(is_strict);
    if (!is_strict) values();
    else {
        MPI_Datatype pairs;
        OK(MPI_Type_contiguous(2, MPI_CHAR, &pairs));
        OK(MPI_Type_commit(&pairs));
        FAILS(MPI_ERR_OP, MPI_Accumulate("ab", 1, pairs, rank, 0, 1, pairs, MPI_SUM, win));
        OK(MPI_Type_free(&pairs));
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    OK(MPI_Finalize());
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
