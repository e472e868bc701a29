/* Calls each function with invalid handles and null pointers: it returns an error, without any effect. Prints the number of calls. */
#include <portals4.h>
#include <stdio.h>

static int made, wrong;

#define ANSWERS(want, call) \
    do { \
        int code = (call); \
        made++; \
        if (code != (want)) { \
            wrong++; \
            fprintf(stderr, "line %d: %s is %d, not %d\n", __LINE__, #call, code, (want)); \
        } \
    } while (0)

/* All calls with a handle: h in place of it, and valid pointers. */
static void call_all(ptl_handle_any_t h, int want)
{
    ptl_process_t id = {.rank = 0};
    ptl_ni_limits_t limits;
    ptl_handle_any_t out;
    ptl_pt_index_t index;
    ptl_event_t event;
    ptl_ct_event_t count = {1, 0};
    ptl_md_t md = {0, 0, 0, PTL_EQ_NONE, PTL_CT_NONE};
    ptl_le_t le = {0, 0, PTL_CT_NONE, PTL_UID_ANY, 0};
    ptl_me_t me = {.ct_handle = PTL_CT_NONE};
    ptl_size_t size = 1;
    int status;
    unsigned which;
    (void)limits;
    ANSWERS(want, PtlNIFini(h));
    ANSWERS(want, PtlNIStatus(h, PTL_SR_DROP_COUNT, &status));
    ANSWERS(want, PtlNIHandle(h, &out));
    ANSWERS(want, PtlSetMap(h, 1, &id));
    ANSWERS(want, PtlGetMap(h, 1, &id, &size));
    ANSWERS(want, PtlGetUid(h, &index));
    ANSWERS(want, PtlGetId(h, &id));
    ANSWERS(want, PtlGetPhysId(h, &id));
    ANSWERS(want, PtlStartBundle(h));
    ANSWERS(want, PtlEndBundle(h));
    ANSWERS(want, PtlPTAlloc(h, 0, PTL_EQ_NONE, PTL_PT_ANY, &index));
    ANSWERS(want, PtlPTFree(h, 0));
    ANSWERS(want, PtlPTEnable(h, 0));
    ANSWERS(want, PtlPTDisable(h, 0));
    ANSWERS(want, PtlMDBind(h, &md, &out));
    ANSWERS(want, PtlMDRelease(h));
    ANSWERS(want, PtlLEAppend(h, 0, &le, PTL_PRIORITY_LIST, 0, &out));
    ANSWERS(want, PtlLESearch(h, 0, &le, PTL_SEARCH_ONLY, 0));
    ANSWERS(want, PtlLEUnlink(h));
    ANSWERS(want, PtlMEAppend(h, 0, &me, PTL_PRIORITY_LIST, 0, &out));
    ANSWERS(want, PtlMESearch(h, 0, &me, PTL_SEARCH_DELETE, 0));
    ANSWERS(want, PtlMEUnlink(h));
    ANSWERS(want, PtlCTAlloc(h, &out));
    ANSWERS(want, PtlCTFree(h));
    ANSWERS(want, PtlCTCancelTriggered(h));
    ANSWERS(want, PtlCTGet(h, &count));
    ANSWERS(want, PtlCTWait(h, 0, &count));
    ANSWERS(want, PtlCTPoll(&h, &size, 1, 0, &count, &which));
    ANSWERS(want, PtlCTSet(h, count));
    ANSWERS(want, PtlCTInc(h, count));
    ANSWERS(want, PtlEQAlloc(h, 1, &out));
    ANSWERS(want, PtlEQFree(h));
    ANSWERS(want, PtlEQGet(h, &event));
    ANSWERS(want, PtlEQWait(h, &event));
    ANSWERS(want, PtlEQPoll(&h, 1, 0, &event, &which));
    ANSWERS(want, PtlPut(h, 0, 0, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0));
    ANSWERS(want, PtlGet(h, 0, 0, id, 0, 0, 0, 0));
    ANSWERS(want, PtlAtomic(h, 0, 0, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0, PTL_SUM, PTL_INT8_T));
    ANSWERS(want, PtlFetchAtomic(h, 0, h, 0, 0, id, 0, 0, 0, 0, 0, PTL_SUM, PTL_INT8_T));
    ANSWERS(want, PtlSwap(h, 0, h, 0, 0, id, 0, 0, 0, 0, 0, 0, PTL_SWAP, PTL_INT8_T));
    ANSWERS(want, PtlTriggeredPut(h, 0, 0, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0, h, 1));
    ANSWERS(want, PtlTriggeredGet(h, 0, 0, id, 0, 0, 0, 0, h, 1));
    ANSWERS(want, PtlTriggeredAtomic(h, 0, 0, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0, PTL_SUM, PTL_INT8_T, h, 1));
    ANSWERS(want, PtlTriggeredFetchAtomic(h, 0, h, 0, 0, id, 0, 0, 0, 0, 0, PTL_SUM, PTL_INT8_T, h, 1));
    ANSWERS(want, PtlTriggeredSwap(h, 0, h, 0, 0, id, 0, 0, 0, 0, 0, 0, PTL_SWAP, PTL_INT8_T, h, 1));
    ANSWERS(want, PtlTriggeredCTInc(h, count, h, 1));
    ANSWERS(want, PtlTriggeredCTSet(h, count, h, 1));
    ANSWERS(want, PtlTriggeredMEAppend(h, 0, &me, PTL_PRIORITY_LIST, 0, &out, h, 1));
    ANSWERS(want, PtlTriggeredMEUnlink(h, h, 1));
}

/* Calls on an open interface with other invalid arguments. */
static void call_open(ptl_handle_ni_t ni)
{
    const int bad = PTL_ARG_INVALID;
    ptl_handle_any_t eq, ct, md, me_handle, out;
    ptl_process_t id = {.phys = {1, 1}};
    ptl_size_t size = 0;
    unsigned which;
    ptl_pt_index_t index;
    ptl_event_t event;
    ptl_ct_event_t count;
    char memory[64];
    int status;
    ANSWERS(bad, PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING, PTL_PID_ANY, 0, 0, &out));
    ANSWERS(bad, PtlNIInit(PTL_IFACE_DEFAULT, 0xf, PTL_PID_ANY, 0, 0, &out));
    ANSWERS(bad, PtlNIInit(17, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, 0, 0, &out));
    ANSWERS(bad, PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, 0, 0, 0));
    ANSWERS(PTL_PID_IN_USE, PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, 1, 0, 0, &out));
    ANSWERS(bad, PtlNIStatus(ni, 3, &status));
    ANSWERS(bad, PtlNIStatus(ni, PTL_SR_DROP_COUNT, 0));
    ANSWERS(bad, PtlSetMap(ni, 1, &id));
    ANSWERS(bad, PtlGetId(ni, 0));
    ANSWERS(bad, PtlEQAlloc(ni, 4, 0));
    ANSWERS(PTL_NO_SPACE, PtlEQAlloc(ni, PTL_SIZE_MAX, &eq));
    ANSWERS(PTL_OK, PtlEQAlloc(ni, 4, &eq));
    ANSWERS(PTL_OK, PtlCTAlloc(ni, &ct));
    ANSWERS(bad, PtlEQGet(eq, 0));
    ANSWERS(bad, PtlEQPoll(0, 1, 0, &event, &which));
    ANSWERS(bad, PtlEQPoll(&eq, 0, 0, &event, &which));
    ANSWERS(bad, PtlEQPoll(&ct, 1, 0, &event, &which));
    ANSWERS(PTL_EQ_EMPTY, PtlEQPoll(&eq, 1, 0, &event, &which));
    ANSWERS(PTL_EQ_EMPTY, PtlEQPoll(&eq, 1, 20, &event, &which));
    ANSWERS(bad, PtlCTPoll(&ct, 0, 1, 0, &count, &which));
    ANSWERS(PTL_OK, PtlCTPoll(&ct, &size, 1, 0, &count, &which));
    ANSWERS(bad, PtlCTInc(ct, (ptl_ct_event_t){1, 1}));
    ANSWERS(bad, PtlPTAlloc(ni, 0x10, eq, PTL_PT_ANY, &index));
    ANSWERS(bad, PtlPTAlloc(ni, 0, ct, PTL_PT_ANY, &index));
    ANSWERS(bad, PtlPTAlloc(ni, 0, eq, 1u << 20, &index));
    ANSWERS(PTL_PT_EQ_NEEDED, PtlPTAlloc(ni, PTL_PT_FLOWCTRL, PTL_EQ_NONE, PTL_PT_ANY, &index));
    ANSWERS(PTL_OK, PtlPTAlloc(ni, 0, eq, PTL_PT_ANY, &index));

    ptl_md_t m = {memory, sizeof memory, 0, eq, ct};
    ANSWERS(bad, PtlMDBind(ni, 0, &md));
    m.options = 1 << 20;
    ANSWERS(bad, PtlMDBind(ni, &m, &md));
    m.options = PTL_IOVEC;
    m.length = PTL_SIZE_MAX;
    ANSWERS(bad, PtlMDBind(ni, &m, &md));
    m.start = 0;
    m.length = 1;
    ANSWERS(bad, PtlMDBind(ni, &m, &md));
    m = (ptl_md_t){memory, sizeof memory, 0, ct, ct};
    ANSWERS(bad, PtlMDBind(ni, &m, &md));
    m.eq_handle = eq;
    ANSWERS(PTL_OK, PtlMDBind(ni, &m, &md));
    ANSWERS(bad, PtlPut(md, 0, 65, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0));
    ANSWERS(bad, PtlPut(md, PTL_SIZE_MAX, 1, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0));
    ANSWERS(bad, PtlPut(md, 0, 1, 4, id, 0, 0, 0, 0, 0));
    ANSWERS(bad, PtlAtomic(md, 0, 1, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0, PTL_OP_LAST, PTL_INT8_T));
    ANSWERS(bad, PtlAtomic(md, 0, 1, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0, PTL_SUM, PTL_DATATYPE_LAST));
    ANSWERS(bad, PtlAtomic(md, 0, 1, PTL_NO_ACK_REQ, id, 0, 0, 0, 0, 0, PTL_SWAP, PTL_INT8_T));
    ANSWERS(bad, PtlSwap(md, 0, md, 8, 1, id, 0, 0, 0, 0, 0, 0, PTL_CSWAP, PTL_INT8_T));
    ANSWERS(bad, PtlSwap(md, 0, md, 8, 2, id, 0, 0, 0, 0, 0, memory, PTL_CSWAP, PTL_INT8_T));

    ptl_me_t me = {.start = memory, .length = 64, .ct_handle = ct, .uid = PTL_UID_ANY, .options = PTL_ME_OP_PUT};
    ptl_le_t le = {memory, 64, ct, PTL_UID_ANY, PTL_LE_OP_PUT};
    ANSWERS(bad, PtlLEAppend(ni, index, &le, PTL_PRIORITY_LIST, 0, &me_handle));
    ANSWERS(bad, PtlMEAppend(ni, index, &me, 2, 0, &me_handle));
    ANSWERS(bad, PtlMEAppend(ni, index + 1, &me, PTL_PRIORITY_LIST, 0, &me_handle));
    ANSWERS(bad, PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, 0, 0));
    ANSWERS(bad, PtlMESearch(ni, index, &me, 2, 0));
    me.options = 1 << 25;
    ANSWERS(bad, PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, 0, &me_handle));
    me.options = PTL_ME_OP_PUT;
    me.ct_handle = eq;
    ANSWERS(bad, PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, 0, &me_handle));
    me.ct_handle = ct;
    ANSWERS(PTL_OK, PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, 0, &me_handle));
    ANSWERS(bad, PtlMDRelease(me_handle));
    ANSWERS(bad, PtlTriggeredMEUnlink(me_handle, PTL_CT_NONE, 1));
    ANSWERS(PTL_OK, PtlMEUnlink(me_handle));
    ANSWERS(bad, PtlMEUnlink(me_handle));
}

int main(void)
{
    static const ptl_handle_any_t nobody[] = {0, 1, 0x20000000, 0x40000007, 0x60000000, 0x88000001, 0xa8000000,
                                              PTL_EQ_NONE, PTL_CT_NONE, PTL_INVALID_HANDLE};
    ptl_handle_ni_t ni, again;
    ANSWERS(PTL_NO_INIT, PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, 0, 0, &ni));
    ANSWERS(PTL_NO_INIT, PtlAtomicSync());
    call_all(0xa0000000, PTL_NO_INIT);
    PtlFini();
    ANSWERS(PTL_OK, PtlInit());
    ANSWERS(PTL_OK, PtlAtomicSync());
    for (unsigned n = 0; n < sizeof nobody / sizeof *nobody; n++) call_all(nobody[n], PTL_ARG_INVALID);
    ANSWERS(PTL_OK, PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, 0, 0, &ni));
    ANSWERS(PTL_OK, PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, 0, 0, &again));
    if (ni != again) wrong++;
    call_open(ni);
    ANSWERS(PTL_OK, PtlNIFini(ni));
    ANSWERS(PTL_OK, PtlStartBundle(ni));
    ANSWERS(PTL_OK, PtlNIFini(again));
    ANSWERS(PTL_ARG_INVALID, PtlStartBundle(ni));
    PtlFini();
    ANSWERS(PTL_NO_INIT, PtlAtomicSync());
    printf("%s %d\n", wrong == 0 && made > 500 ? "all answered" : "wrong", made);
    return wrong != 0;
}
