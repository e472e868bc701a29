/* Two processes exchange their addresses, and then put, get and count; prints "both are done". */
#include <portals4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
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

enum { LONG = 300000 };

static int rank, wire;

static void meet(void)
{
    char byte = 1;
    CHECK(write(wire, &byte, 1) == 1 && read(wire, &byte, 1) == 1);
}

static ptl_handle_ni_t open_interface(ptl_ni_limits_t *limits)
{
    ptl_handle_ni_t ni;
    ptl_process_t ids[2];
    OK(PtlInit());
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, NULL, limits, &ni));
    OK(PtlGetPhysId(ni, &ids[rank]));
    CHECK(write(wire, &ids[rank], sizeof ids[0]) == sizeof ids[0]);
    CHECK(read(wire, &ids[1 - rank], sizeof ids[0]) == sizeof ids[0]);
    OK(PtlSetMap(ni, 2, ids));
    CHECK(PtlSetMap(ni, 2, ids) == PTL_IGNORED);
    return ni;
}

static void run(void)
{
    static char here[LONG], there[LONG];
    ptl_ni_limits_t limits;
    ptl_handle_ni_t ni = open_interface(&limits), same;
    ptl_handle_eq_t eq;
    ptl_handle_ct_t ct;
    ptl_pt_index_t index;
    ptl_event_t event;
    ptl_ct_event_t count;
    unsigned which;
    CHECK(limits.max_pt_index >= 63 && limits.max_atomic_size >= 32);
    OK(PtlEQAlloc(ni, 16, &eq));
    OK(PtlCTAlloc(ni, &ct));
    OK(PtlNIHandle(eq, &same));
    CHECK(PtlHandleIsEqual(ni, same) && !PtlHandleIsEqual(ni, eq));
    OK(PtlPTAlloc(ni, 0, eq, 3, &index));
    CHECK(index == 3 && PtlPTAlloc(ni, 0, eq, 3, &index) == PTL_PT_IN_USE);

    /* The peer's data are stored in two pieces, the second at a lower address than the first. */
    ptl_iovec_t pieces[2] = {{there + 1000, 100}, {there, 1000}};
    ptl_me_t me = {.start = pieces, .length = 2, .ct_handle = PTL_CT_NONE, .uid = PTL_UID_ANY,
                   .options = PTL_IOVEC | PTL_ME_OP_PUT | PTL_ME_USE_ONCE | PTL_ME_EVENT_UNLINK_DISABLE,
                   .match_id.rank = 1 - rank, .match_bits = 7};
    ptl_handle_me_t entry, open;
    OK(PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, &me, &entry));
    OK(PtlEQWait(eq, &event));
    CHECK(event.type == PTL_EVENT_LINK && event.user_ptr == &me && event.pt_index == 3);
    ptl_me_t all = {.start = here, .length = LONG, .ct_handle = PTL_CT_NONE, .uid = PTL_UID_ANY,
                    .options = PTL_ME_OP_GET | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE,
                    .match_id.rank = PTL_RANK_ANY, .ignore_bits = ~0ull};
    OK(PtlMEAppend(ni, index, &all, PTL_PRIORITY_LIST, NULL, &open));
    for (int at = 0; at < LONG; at++) here[at] = (char)(at * 3 + rank);
    meet();

    ptl_md_t md = {here, LONG, PTL_MD_EVENT_CT_ACK, eq, ct};
    ptl_handle_md_t bound;
    ptl_process_t other = {.rank = 1 - rank};
    OK(PtlMDBind(ni, &md, &bound));
    OK(PtlPut(bound, 5, 1100, PTL_ACK_REQ, other, index, 7, 0, &md, 99));
    for (int seen = 0; seen != 7;) {
        int code = PtlEQPoll(&eq, 1, 30000, &event, &which);
        CHECK(code == PTL_OK && which == 0 && event.ni_fail_type == PTL_NI_OK);
        if (event.type == PTL_EVENT_PUT) {
            CHECK(event.initiator.rank == 1u - rank && event.mlength == 1100 && event.hdr_data == 99);
            CHECK(event.start == there + 1000 && event.match_bits == 7 && event.user_ptr == &me);
            seen |= 1;
        } else {
            CHECK(event.user_ptr == &md);
            seen |= event.type == PTL_EVENT_SEND ? 2 : event.type == PTL_EVENT_ACK ? 4 : 8;
        }
    }
    for (int at = 0; at < 1100; at++) {
        char want = (char)((at + 5) * 3 + 1 - rank);
        CHECK(there[at < 100 ? 1000 + at : at - 100] == want);
    }
    CHECK(PtlMEUnlink(entry) == PTL_ARG_INVALID);
    OK(PtlCTWait(ct, 1, &count));
    CHECK(count.success == 1 && count.failure == 0);

    /* A counter triggers a get of all of it. */
    ptl_handle_ct_t go;
    ptl_handle_md_t into;
    ptl_md_t target = {there, LONG, PTL_MD_EVENT_CT_REPLY | PTL_MD_EVENT_CT_BYTES, PTL_EQ_NONE, ct};
    OK(PtlMDBind(ni, &target, &into));
    OK(PtlCTAlloc(ni, &go));
    OK(PtlTriggeredGet(into, 0, LONG, other, index, 1, 0, NULL, go, 2));
    CHECK(PtlMDRelease(into) == PTL_IN_USE);
    OK(PtlCTInc(go, (ptl_ct_event_t){1, 0}));
    ptl_size_t more = 1 + LONG;
    CHECK(PtlCTPoll(&ct, &more, 1, 0, &count, &which) == PTL_CT_NONE_REACHED);
    OK(PtlCTInc(go, (ptl_ct_event_t){1, 0}));
    OK(PtlCTWait(ct, more, &count));
    for (int at = 0; at < LONG; at++) CHECK(there[at] == (char)(at * 3 + 1 - rank));
    CHECK(PtlEQGet(eq, &event) == PTL_EQ_EMPTY);

    meet();
    OK(PtlMDRelease(into));
    OK(PtlMDRelease(bound));
    CHECK(PtlPTFree(ni, index) == PTL_PT_IN_USE);
    OK(PtlMEUnlink(open));
    OK(PtlPTFree(ni, index));
    OK(PtlCTFree(go));
    OK(PtlCTFree(ct));
    OK(PtlEQFree(eq));
    CHECK(PtlEQGet(eq, &event) == PTL_ARG_INVALID);
    OK(PtlNIFini(ni));
    CHECK(PtlNIFini(ni) == PTL_ARG_INVALID);
    PtlFini();
    CHECK(PtlNIFini(ni) == PTL_NO_INIT);
}

int main(void)
{
    int ends[2], status;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 2;
    pid_t child = fork();
    rank = child == 0;
    wire = ends[rank];
    close(ends[1 - rank]);
    run();
    if (child == 0) return 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 3;
    puts("both are done");
    return 0;
}
