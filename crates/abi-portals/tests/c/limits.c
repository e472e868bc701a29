/* Limits of an interface: a desired limit of 0 becomes the default, with which operations of each kind work; small and huge
 * ones are bounded. Prints "limits are granted". */
#include <portals4.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #holds); \
            exit(1); \
        } \
    } while (0)
#define OK(call) CHECK((call) == PTL_OK)

static ptl_ni_limits_t all(int count, ptl_size_t size)
{
    return (ptl_ni_limits_t){
        .max_entries = count, .max_unexpected_headers = count, .max_mds = count, .max_cts = count, .max_eqs = count,
        .max_pt_index = count, .max_iovecs = count, .max_list_size = count, .max_triggered_ops = count,
        .max_msg_size = size, .max_atomic_size = size, .max_fetch_atomic_size = size, .max_waw_ordered_size = size,
        .max_war_ordered_size = size, .max_volatile_size = size};
}

static ptl_ni_limits_t granted(const ptl_ni_limits_t *desired)
{
    ptl_handle_ni_t ni;
    ptl_ni_limits_t actual;
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, desired, &actual, &ni));
    OK(PtlNIFini(ni));
    return actual;
}

/* memcmp would compare the padding, too. */
static int is_same(const ptl_ni_limits_t *one, const ptl_ni_limits_t *other)
{
    return one->max_entries == other->max_entries && one->max_unexpected_headers == other->max_unexpected_headers &&
           one->max_mds == other->max_mds && one->max_cts == other->max_cts && one->max_eqs == other->max_eqs &&
           one->max_pt_index == other->max_pt_index && one->max_iovecs == other->max_iovecs &&
           one->max_list_size == other->max_list_size && one->max_triggered_ops == other->max_triggered_ops &&
           one->max_msg_size == other->max_msg_size && one->max_atomic_size == other->max_atomic_size &&
           one->max_fetch_atomic_size == other->max_fetch_atomic_size &&
           one->max_waw_ordered_size == other->max_waw_ordered_size &&
           one->max_war_ordered_size == other->max_war_ordered_size &&
           one->max_volatile_size == other->max_volatile_size && one->features == other->features;
}

/* Adds to and swaps one integer of this process, from volatile memory. */
static void use(const ptl_ni_limits_t *desired)
{
    ptl_handle_ni_t ni;
    ptl_handle_ct_t ct;
    ptl_handle_md_t md;
    ptl_handle_le_t entry;
    ptl_pt_index_t index;
    ptl_process_t self;
    ptl_ct_event_t count;
    int64_t here[3] = {5, 0, 0}, there = 37;
    OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, desired, NULL, &ni));
    OK(PtlGetPhysId(ni, &self));
    OK(PtlCTAlloc(ni, &ct));
    OK(PtlPTAlloc(ni, 0, PTL_EQ_NONE, 0, &index));
    ptl_le_t le = {.start = &there, .length = sizeof there, .ct_handle = PTL_CT_NONE, .uid = PTL_UID_ANY,
                   .options = PTL_LE_OP_PUT | PTL_LE_OP_GET};
    OK(PtlLEAppend(ni, index, &le, PTL_PRIORITY_LIST, NULL, &entry));
    ptl_md_t memory = {.start = here, .length = sizeof here, .eq_handle = PTL_EQ_NONE, .ct_handle = ct,
                       .options = PTL_MD_EVENT_CT_REPLY | PTL_MD_VOLATILE};
    OK(PtlMDBind(ni, &memory, &md));
    OK(PtlFetchAtomic(md, 8, md, 0, 8, self, index, 0, 0, NULL, 0, PTL_SUM, PTL_INT64_T));
    OK(PtlCTWait(ct, 1, &count));
    CHECK(here[1] == 37 && there == 42);
    OK(PtlSwap(md, 16, md, 0, 8, self, index, 0, 0, NULL, 0, NULL, PTL_SWAP, PTL_INT64_T));
    OK(PtlCTWait(ct, 2, &count));
    CHECK(here[2] == 42 && there == 5);
    OK(PtlNIFini(ni));
}

int main(void)
{
    OK(PtlInit());
    ptl_ni_limits_t none = all(0, 0), one = all(1, 1), huge = all(INT_MAX, UINT64_MAX), negative = all(-1, 0), some;
    ptl_ni_limits_t unset = granted(NULL), zero = granted(&none), less = granted(&negative);
    CHECK(is_same(&unset, &zero) && is_same(&unset, &less));
    CHECK(unset.max_fetch_atomic_size >= 32 && unset.max_volatile_size >= 32 && unset.max_triggered_ops >= 1024);
    ptl_ni_limits_t least = granted(&one), most = granted(&huge), again = granted(&most);
    CHECK(least.max_entries == 1 && least.max_triggered_ops == 1 && least.max_pt_index == 63);
    CHECK(least.max_atomic_size == 1 && least.max_fetch_atomic_size == 8 && least.max_volatile_size == 1);
    CHECK(least.max_waw_ordered_size == 64 && least.max_war_ordered_size == 8);
    CHECK(is_same(&most, &again) && most.max_entries > unset.max_entries);
    /* A program compiled before some fields were added. */
    some = none;
    some.max_entries = 16, some.max_msg_size = 4096, some.max_atomic_size = 64;
    CHECK(granted(&some).max_entries == 16 && granted(&some).max_atomic_size == 64);
    use(&none);
    use(&some);
    PtlFini();
    printf("limits are granted\n");
    return 0;
}
