/* Many processes put to a slow one with little room: no message is lost or duplicated, and each sender's messages stay in order.
 * flood SENDERS MESSAGES flowctrl|replay; prints whether the portal table entry was disabled at times.
 *
 * With PTL_PT_FLOWCTRL the program recovers: a refused sender stops; the receiver stops all senders, waits until none of their
 * messages is in flight, enables the entry again and resumes them, each from its first refused message. With replay no message
 * is refused. */
#include <portals4.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #holds); \
            exit(1); \
        } \
    } while (0)
#define OK(call) \
    do { \
        int code = (call); \
        if (code != PTL_OK) { \
            fprintf(stderr, "rank %d, line %d: %s is %d\n", rank, __LINE__, #call, code); \
            exit(1); \
        } \
    } while (0)

enum { DATA = 0, CONTROL = 1, ROOM = 16, WINDOW = 8, STOP = 1, GO, QUIET, OVER, PATIENCE_MS = 60000 };

static int rank, senders, messages, is_replay;
static ptl_handle_ni_t ni;
static ptl_handle_eq_t eq, control;
static ptl_handle_md_t nothing;

static void open_interface(ptl_process_t *me)
{
    ptl_pt_index_t index;
    ptl_handle_me_t entry;
    OK(PtlInit());
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &ni));
    OK(PtlGetPhysId(ni, me));
    OK(PtlEQAlloc(ni, rank == 0 ? 2 * ROOM : 4 * WINDOW, &eq));
    control = eq;
    if (rank == 0) OK(PtlEQAlloc(ni, 4 * senders, &control));
    OK(PtlPTAlloc(ni, 0, control, CONTROL, &index));
    ptl_me_t me_all = {.ct_handle = PTL_CT_NONE, .uid = PTL_UID_ANY, .options = PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE,
                       .match_id.phys = {PTL_NID_ANY, PTL_PID_ANY}, .ignore_bits = ~0ull};
    OK(PtlMEAppend(ni, CONTROL, &me_all, PTL_PRIORITY_LIST, NULL, &entry));
    ptl_md_t md = {NULL, 0, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE};
    OK(PtlMDBind(ni, &md, &nothing));
}

static void tell(ptl_process_t whom, int what)
{
    OK(PtlPut(nothing, 0, 0, PTL_NO_ACK_REQ, whom, CONTROL, 0, 0, NULL, (uint64_t)what));
}

static void work_us(long us)
{
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - began.tv_sec) * 1000000 + (now.tv_nsec - began.tv_nsec) / 1000 < us);
}

static void append(uint64_t *place)
{
    ptl_handle_me_t entry;
    ptl_me_t me = {.start = place, .length = 8, .ct_handle = PTL_CT_NONE, .uid = PTL_UID_ANY,
                   .options = PTL_ME_OP_PUT | PTL_ME_USE_ONCE | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_UNLINK_DISABLE,
                   .match_id.phys = {PTL_NID_ANY, PTL_PID_ANY}, .ignore_bits = ~0ull};
    OK(PtlMEAppend(ni, DATA, &me, PTL_PRIORITY_LIST, place, &entry));
}

/* Stops all senders, enables the portal table entry again, and resumes them. */
static void recover(const ptl_process_t *ids)
{
    ptl_event_t event;
    unsigned which;
    for (int n = 1; n <= senders; n++) tell(ids[n], STOP);
    for (int n = 1; n <= senders; n++) {
        OK(PtlEQPoll(&control, 1, PATIENCE_MS, &event, &which));
        CHECK(event.type == PTL_EVENT_PUT && event.hdr_data == QUIET);
    }
    OK(PtlPTEnable(ni, DATA));
    for (int n = 1; n <= senders; n++) tell(ids[n], GO);
}

static int receive(const ptl_process_t *ids)
{
    uint64_t *next = calloc(senders + 1, sizeof *next);
    long got = 0, all = (long)senders * messages;
    int disabled = 0, waits = 0, code;
    ptl_event_t event;
    unsigned which;
    while (got < all) {
        /* Before it recovers, it processes all messages that have arrived. */
        code = PtlEQPoll(&eq, 1, waits ? 0 : PATIENCE_MS, &event, &which);
        if (code == PTL_EQ_EMPTY && waits) {
            recover(ids);
            waits = 0;
            continue;
        }
        CHECK(code == PTL_OK);
        if (event.type == PTL_EVENT_PT_DISABLED) {
            CHECK(!is_replay);
            waits = 1;
            disabled++;
            continue;
        }
        uint64_t *place = event.user_ptr, from = event.hdr_data >> 32, n = event.hdr_data & 0xffffffff;
        CHECK(event.type == PTL_EVENT_PUT && event.ni_fail_type == PTL_NI_OK && event.mlength == 8);
        CHECK(from >= 1 && from <= (uint64_t)senders && n == next[from] && *place == event.hdr_data);
        next[from]++;
        got++;
        work_us(20);
        append(place);
    }
    for (int n = 1; n <= senders; n++) {
        CHECK(next[n] == (uint64_t)messages);
        tell(ids[n], OVER);
    }
    CHECK(PtlEQGet(eq, &event) != PTL_OK);
    free(next);
    return disabled;
}

static void send_all(ptl_process_t target)
{
    uint64_t *data = malloc(messages * sizeof *data);
    long next = 0, refused = messages, done = 0;
    int under_way = 0, stopping = 0, is_still = 0, is_over = 0;
    ptl_event_t event;
    ptl_handle_md_t md;
    unsigned which;
    for (long n = 0; n < messages; n++) data[n] = (uint64_t)rank << 32 | n;
    ptl_md_t all = {data, messages * sizeof *data, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE};
    OK(PtlMDBind(ni, &all, &md));
    while (!is_over) {
        while (!is_still && !stopping && refused == messages && next < messages && under_way < WINDOW) {
            OK(PtlPut(md, 8 * next, 8, PTL_ACK_REQ, target, DATA, 0, 0, (void *)next, data[next]));
            next++;
            under_way++;
        }
        if (stopping && under_way == 0) {
            tell(target, QUIET);
            stopping = 0;
            is_still = 1;
        }
        OK(PtlEQPoll(&eq, 1, PATIENCE_MS, &event, &which));
        if (event.type == PTL_EVENT_ACK) {
            long n = (long)event.user_ptr;
            under_way--;
            if (event.ni_fail_type == PTL_NI_OK) {
                done++;
            } else {
                CHECK(event.ni_fail_type == PTL_NI_PT_DISABLED && !is_replay);
                refused = n < refused ? n : refused;
            }
            continue;
        }
        CHECK(event.type == PTL_EVENT_PUT && event.pt_index == CONTROL);
        switch (event.hdr_data) {
        case STOP: stopping = 1; break;
        case GO:
            is_still = 0;
            next = refused < next ? refused : next;
            refused = messages;
            break;
        case OVER: is_over = 1; break;
        default: CHECK(0);
        }
    }
    CHECK(done == messages && under_way == 0);
    OK(PtlMDRelease(md));
    free(data);
}

int main(int count, char **words)
{
    if (count != 4) return 2;
    senders = atoi(words[1]);
    messages = atoi(words[2]);
    is_replay = !strcmp(words[3], "replay");
    ptl_process_t *ids = calloc(senders + 1, sizeof *ids);
    int *wires = calloc(senders + 1, sizeof *wires), ends[2], status, disabled;
    for (int n = 1; n <= senders && rank == 0; n++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 2;
        wires[n] = ends[0];
        if (fork() == 0) {
            rank = n;
            wires[0] = ends[1];
        } else {
            close(ends[1]);
        }
    }
    open_interface(&ids[rank]);
    if (rank > 0) {
        CHECK(write(wires[0], &ids[rank], sizeof *ids) == sizeof *ids && read(wires[0], ids, sizeof *ids) == sizeof *ids);
        send_all(ids[0]);
        OK(PtlNIFini(ni));
        return 0;
    }
    static uint64_t places[ROOM];
    ptl_pt_index_t index;
    OK(PtlPTAlloc(ni, is_replay ? 0 : PTL_PT_FLOWCTRL, eq, DATA, &index));
    for (int n = 0; n < ROOM; n++) append(&places[n]);
    for (int n = 1; n <= senders; n++) CHECK(read(wires[n], &ids[n], sizeof *ids) == sizeof *ids);
    for (int n = 1; n <= senders; n++) CHECK(write(wires[n], ids, sizeof *ids) == sizeof *ids);
    disabled = receive(ids);
    for (int n = 1; n <= senders; n++) CHECK(wait(&status) > 0 && status == 0);
    OK(PtlNIFini(ni));
    printf("%d senders of %d messages each: disabled %s\n", senders, messages, disabled > 0 ? "at times" : "never");
    return 0;
}
