/* The tool interface: control variables before and after MPI_Init, performance variables that count what the program does, categories. */
#include "check.h"

static int rank, size;

static int cvar(const char *name) {
    int index = -1;
    OK(MPI_T_cvar_get_index(name, &index));
    return index;
}

static unsigned long limit(const char *name) {
    MPI_T_cvar_handle handle;
    unsigned long value = 0;
    int count = 0;
    OK(MPI_T_cvar_handle_alloc(cvar(name), NULL, &handle, &count));
    CHECK(count == 1);
    OK(MPI_T_cvar_read(handle, &value));
    OK(MPI_T_cvar_handle_free(&handle));
    CHECK(handle == MPI_T_CVAR_HANDLE_NULL);
    return value;
}

static int set(const char *name, const void *value) {
    MPI_T_cvar_handle handle;
    int count, done;
    OK(MPI_T_cvar_handle_alloc(cvar(name), NULL, &handle, &count));
    done = MPI_T_cvar_write(handle, value);
    OK(MPI_T_cvar_handle_free(&handle));
    return done;
}

/* Every control variable describes itself; algorithms have an enumeration. */
static void controls(int *binomial) {
    int count, verbosity, bind, scope, name_len, desc_len, items, value;
    char name[64], desc[200];
    MPI_Datatype type;
    MPI_T_enum names;
    OK(MPI_T_cvar_get_num(&count));
    CHECK(count > 10);
    for (int at = 0; at < count; at++) {
        name_len = sizeof name;
        desc_len = sizeof desc;
        OK(MPI_T_cvar_get_info(at, name, &name_len, &verbosity, &type, &names, desc, &desc_len, &bind, &scope));
        CHECK(name_len == (int) strlen(name) + 1 && desc_len == (int) strlen(desc) + 1 && cvar(name) == at);
        CHECK((names != MPI_T_ENUM_NULL) == (strncmp(name, "algorithm_", 10) == 0) && bind == MPI_T_BIND_NO_OBJECT);
    }
    CHECK(MPI_T_cvar_get_info(count, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
    name_len = 0;
    OK(MPI_T_cvar_get_info(cvar("algorithm_bcast"), name, &name_len, NULL, NULL, &names, NULL, NULL, NULL, &scope));
    CHECK(name_len == (int) sizeof "algorithm_bcast" && scope == MPI_T_SCOPE_ALL_EQ);
    OK(MPI_T_enum_get_info(names, &items, NULL, NULL));
    for (int at = 0; at < items; at++) {
        name_len = sizeof name;
        OK(MPI_T_enum_get_item(names, at, &value, name, &name_len));
        if (strcmp(name, "binomial") == 0) *binomial = value;
    }
    CHECK(*binomial > 0 && MPI_T_enum_get_item(names, items, &value, NULL, NULL) == MPI_T_ERR_INVALID_ITEM);
}

static MPI_T_pvar_handle pvar(MPI_T_pvar_session session, const char *name, int class, void *object, int expected) {
    MPI_T_pvar_handle handle;
    int index, count = 0;
    OK(MPI_T_pvar_get_index(name, class, &index));
    OK(MPI_T_pvar_handle_alloc(session, index, object, &handle, &count));
    CHECK(count == expected);
    return handle;
}

static unsigned long number(MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
    unsigned long value = 77;
    OK(MPI_T_pvar_read(session, handle, &value));
    return value;
}

/* Counters of the protocols of long messages. */
static MPI_T_pvar_handle long_ones[2];

static void count_long_ones(MPI_T_pvar_session session) {
    const char *names[] = {"messages_rndv_get", "messages_rndv_shm_both"};
    for (int at = 0; at < 2; at++) long_ones[at] = pvar(session, names[at], MPI_T_PVAR_CLASS_COUNTER, NULL, 1);
}

static unsigned long number_of_long_ones(MPI_T_pvar_session session) {
    unsigned long sum = 0;
    for (int at = 0; at < 2; at++) sum += number(session, long_ones[at]);
    return sum;
}

/* Messages to the next rank are counted while the handle is started; unexpected messages are visible. */
static void counts(void) {
    MPI_T_pvar_session session;
    MPI_Comm world = MPI_COMM_WORLD;
    unsigned long to[16], seven = 7;
    int next = (rank + 1) % size, last = (rank + size - 1) % size, out = 5, in, value, flag = 0;
    MPI_Request request;
    OK(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_handle all = pvar(session, "bytes_to", MPI_T_PVAR_CLASS_AGGREGATE, &world, size);
    MPI_T_pvar_handle early = pvar(session, "unexpected_messages", MPI_T_PVAR_CLASS_LEVEL, NULL, 1);
    MPI_T_pvar_handle posted = pvar(session, "posted_receives", MPI_T_PVAR_CLASS_LEVEL, NULL, 1);
    count_long_ones(session);
    OK(MPI_Barrier(world));
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_Send(&out, 1, MPI_INT, next, 3, world));
    while (!flag) OK(MPI_Iprobe(last, 3, world, &flag, MPI_STATUS_IGNORE));
    CHECK(number(session, early) >= 1);
    OK(MPI_Recv(&in, 1, MPI_INT, last, 3, world, MPI_STATUS_IGNORE));
    OK(MPI_Irecv(&value, 1, MPI_INT, last, 6, world, &request));
    CHECK(in == 5 && number(session, posted) >= 1);
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_T_pvar_read(session, all, to));
    CHECK(to[next] == sizeof out && number_of_long_ones(session) == 0);
    /* Above the limit of messages that carry their data. */
    static char block[5000000], back[5000000];
    OK(MPI_Sendrecv(block, sizeof block, MPI_BYTE, next, 4, back, sizeof back, MPI_BYTE, last, 4, world, MPI_STATUS_IGNORE));
    CHECK(number_of_long_ones(session) == (unsigned long) (size > 1));
    for (int at = 0; at < 2; at++) OK(MPI_T_pvar_stop(session, long_ones[at]));
    OK(MPI_Sendrecv(block, sizeof block, MPI_BYTE, next, 4, back, sizeof back, MPI_BYTE, last, 4, world, MPI_STATUS_IGNORE));
    CHECK(number_of_long_ones(session) == (unsigned long) (size > 1));
    OK(MPI_T_pvar_readreset(session, all, to));
    CHECK(to[next] == 2 * sizeof block + sizeof out);
    OK(MPI_T_pvar_read(session, all, to));
    CHECK(to[next] == 0);
    OK(MPI_T_pvar_write(session, long_ones[0], &seven));
    CHECK(number(session, long_ones[0]) == 7);
    CHECK(MPI_T_pvar_write(session, early, &seven) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_start(session, early) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, early, &seven) == MPI_T_ERR_INVALID_SESSION);
    OK(MPI_T_pvar_handle_free(session, &early));
    CHECK(MPI_T_pvar_read(session, early, &seven) == MPI_T_ERR_INVALID_HANDLE);
    OK(MPI_T_pvar_session_free(&session));
}

/* Changing a limit changes the protocol of messages. */
static void limits(void) {
    unsigned long none = 0, eager = limit("eager_max"), both = limit("both_sides_min");
    MPI_T_pvar_session session;
    int next = (rank + 1) % size, last = (rank + size - 1) % size, out = rank, in = -1;
    unsigned long most = limit("ring_bytes");
    if (most < limit("slot_bytes")) most = limit("slot_bytes");
    if (most < limit("parts_max")) most = limit("parts_max");
    CHECK(eager > 0 && eager <= most && both >= 65536);
    OK(MPI_T_pvar_session_create(&session));
    count_long_ones(session);
    for (int at = 0; at < 2; at++) OK(MPI_T_pvar_start(session, long_ones[at]));
    OK(set("eager_max", &none));
    OK(MPI_Sendrecv(&out, 1, MPI_INT, next, 5, &in, 1, MPI_INT, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in == last && number_of_long_ones(session) == (unsigned long) (size > 1));
    OK(set("eager_max", &eager));
    OK(MPI_Sendrecv(&out, 1, MPI_INT, next, 5, &in, 1, MPI_INT, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(number_of_long_ones(session) == (unsigned long) (size > 1));
    eager = most + 1;
    CHECK(set("eager_max", &eager) == MPI_T_ERR_INVALID && set("both_sides_min", &none) == MPI_T_ERR_INVALID);
    CHECK(set("slots", &none) == MPI_T_ERR_CVAR_SET_NEVER);
    OK(MPI_T_pvar_session_free(&session));
}

static void categories(void) {
    int count, cvars, pvars, below, indices[64], seen = 0, all;
    OK(MPI_T_category_get_num(&count));
    for (int at = 0; at < count; at++) {
        OK(MPI_T_category_get_info(at, NULL, NULL, NULL, NULL, &cvars, &pvars, &below));
        OK(MPI_T_category_get_cvars(at, 64, indices));
        seen += cvars;
        CHECK(below == 0 && (cvars == 0 || indices[cvars - 1] < 64));
    }
    OK(MPI_T_cvar_get_num(&all));
    CHECK(seen == all && MPI_T_category_get_cvars(count, 0, indices) == MPI_T_ERR_INVALID_INDEX);
    OK(MPI_T_event_get_num(&all));
    for (int at = seen = 0; at < count; at++) {
        OK(MPI_T_category_get_num_events(at, &cvars));
        OK(MPI_T_category_get_events(at, 64, indices));
        seen += cvars;
        CHECK(cvars == 0 || indices[cvars - 1] < all);
    }
    CHECK(all == 4 && seen == 3);
}

/* The last reported event, and the number of reports. */
static struct heard {
    int times, process, tag, class;
    unsigned long long bytes;
    MPI_Count at;
} heard;

static void hear_message(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data) {
    struct { int process, tag; unsigned long long bytes; } all;
    int source = -1, flag = 0, tag = -1;
    OK(MPI_T_event_read(instance, 1, &tag));
    if (tag != 77) return;
    OK(MPI_T_event_copy(instance, &all));
    OK(MPI_T_event_get_source(instance, &source));
    OK(MPI_T_event_get_timestamp(instance, &heard.at));
    CHECK(source == 0 && data == &heard && registration != NULL && safety == MPI_T_CB_REQUIRE_NONE && all.tag == tag);
    CHECK(MPI_T_event_read(instance, 3, &tag) == MPI_T_ERR_INVALID_INDEX);
    /* MPI calls are allowed here. */
    OK(MPI_Iprobe(0, 77, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    CHECK(flag);
    heard.times++, heard.process = all.process, heard.tag = all.tag, heard.bytes = all.bytes;
}

static void hear_error(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data) {
    (void) registration, (void) safety, (void) data;
    OK(MPI_T_event_read(instance, 0, &heard.class));
}

static void gone(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data) {
    (void) registration, (void) safety;
    ++*(int *) data;
}

/* Unexpected messages and errors are reported at the end of the call that noticed them; freed handles receive no more events. */
static void events(void) {
    int index = -1, elements = 3, x = 5, freed = 0, name_len = 64, bind = -1;
    char name[64];
    MPI_Datatype types[3];
    MPI_Aint places[3];
    MPI_Count now, ticks;
    MPI_T_event_registration messages, errors;
    OK(MPI_T_source_get_num(&x));
    OK(MPI_T_source_get_info(0, NULL, NULL, NULL, NULL, NULL, &ticks, NULL, NULL));
    CHECK(x == 1 && ticks == 1000000000 && MPI_T_source_get_timestamp(1, &now) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_event_get_index("nothing", &index) == MPI_T_ERR_INVALID_NAME);
    OK(MPI_T_event_get_index("message_unexpected", &index));
    OK(MPI_T_event_get_info(index, name, &name_len, NULL, types, places, &elements, NULL, NULL, NULL, NULL, &bind));
    CHECK(strcmp(name, "message_unexpected") == 0 && elements == 3 && bind == MPI_T_BIND_NO_OBJECT);
    CHECK(types[0] == MPI_INT && types[2] == MPI_UINT64_T && places[0] == 0 && places[1] == 4 && places[2] == 8);
    OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &messages));
    OK(MPI_T_event_register_callback(messages, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &heard, hear_message));
    OK(MPI_T_event_get_index("error", &index));
    OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &errors));
    OK(MPI_T_event_register_callback(errors, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, hear_error));
    OK(MPI_Send(&x, 1, MPI_INT, 0, 77, MPI_COMM_SELF));
    OK(MPI_T_source_get_timestamp(0, &now));
    CHECK(heard.times == 1 && heard.process == rank && heard.tag == 77 && heard.bytes == 4 && heard.at <= now);
    OK(MPI_Recv(&x, 1, MPI_INT, 0, 77, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(MPI_Send(&x, 1, MPI_INT, 7, 0, MPI_COMM_SELF) != MPI_SUCCESS);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
    CHECK(heard.class == MPI_ERR_RANK && MPI_T_event_read(NULL, 0, &x) == MPI_T_ERR_INVALID_HANDLE);
    OK(MPI_T_event_handle_free(messages, &freed, gone));
    OK(MPI_T_event_handle_free(errors, &freed, gone));
    CHECK(freed == 2 && MPI_T_event_handle_free(errors, &freed, gone) == MPI_T_ERR_INVALID_HANDLE);
    OK(MPI_Sendrecv(&x, 1, MPI_INT, 0, 77, &x, 1, MPI_INT, 0, 77, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(heard.times == 1);
}

int main(void) {
    int provided, binomial = 0, value = 0;
    MPI_T_cvar_handle handle;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    controls(&binomial);
    OK(set("algorithm_bcast", &binomial));
    OK(MPI_T_cvar_handle_alloc(cvar("eager_max"), NULL, &handle, &value));
    CHECK(MPI_T_cvar_read(handle, &value) == MPI_T_ERR_NOT_ACCESSIBLE);
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_T_cvar_handle_alloc(cvar("algorithm_bcast"), NULL, &handle, &value));
    OK(MPI_T_cvar_read(handle, &value));
    CHECK(value == binomial && set("algorithm_bcast", &binomial) == MPI_T_ERR_CVAR_SET_NOT_NOW);
    counts();
    limits();
    categories();
    events();
    OK(MPI_Finalize());
    OK(MPI_T_finalize());
    CHECK(MPI_T_cvar_get_num(&value) == MPI_T_ERR_NOT_INITIALIZED);
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
