/* A process of Portals that strangers attack, and honest processes that put to it. Lines of standard input are orders.
 * portals            prints its nid and pid; for each line, the number of puts to its mailbox, and that of other events and changed bytes
 * portals NID PID    prints its nid and pid; for each line, puts a word to NID PID, and prints the microseconds until the acknowledgement */
#include <portals4.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define OK(call) \
	do { \
		int code = (call); \
		if (code != PTL_OK) { \
			fprintf(stderr, "line %d: %s is %d\n", __LINE__, #call, code); \
			exit(1); \
		} \
	} while (0)

enum { MAILBOX = 0, SECRET = 1, LEN = 65536, CANARY = 0x5a, WORD = 0x17171717, PATIENCE_MS = 10000 };

static ptl_handle_ni_t ni;
static ptl_handle_eq_t eq;
static char mailbox[4], secret[LEN];

static long microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

/* Appends an entry that every process of the job may read and write. */
static void offer(ptl_pt_index_t index, void *start, size_t length)
{
	ptl_pt_index_t found;
	ptl_handle_le_t entry;
	ptl_le_t all = { .start = start, .length = length, .ct_handle = PTL_CT_NONE, .uid = PTL_UID_ANY,
			 .options = PTL_LE_OP_PUT | PTL_LE_OP_GET | PTL_LE_EVENT_LINK_DISABLE };

	OK(PtlPTAlloc(ni, 0, eq, index, &found));
	OK(PtlLEAppend(ni, index, &all, PTL_PRIORITY_LIST, NULL, &entry));
}

static void report_at_lines(void)
{
	char line[100];
	ptl_event_t event;
	unsigned long puts = 0, others = 0;

	memset(secret, CANARY, LEN);
	offer(MAILBOX, mailbox, sizeof mailbox);
	offer(SECRET, secret, LEN);
	while (fgets(line, sizeof line, stdin)) {
		while (PtlEQGet(eq, &event) == PTL_OK) {
			int is_put = event.type == PTL_EVENT_PUT && event.pt_index == MAILBOX && event.mlength == 4;
			is_put = is_put && event.hdr_data == WORD;
			puts += is_put;
			others += !is_put;
		}
		for (int at = 0; at < LEN; at++)
			others += secret[at] != CANARY;
		printf("%lu %lu\n", puts, others);
	}
}

static void put_at_lines(ptl_process_t to)
{
	char line[100];
	uint32_t word = WORD;
	ptl_handle_md_t md;
	ptl_md_t memory = { &word, sizeof word, PTL_MD_EVENT_SEND_DISABLE, eq, PTL_CT_NONE };
	ptl_event_t event;
	unsigned which;

	OK(PtlMDBind(ni, &memory, &md));
	while (fgets(line, sizeof line, stdin)) {
		long began = microseconds();
		OK(PtlPut(md, 0, sizeof word, PTL_ACK_REQ, to, MAILBOX, 0, 0, NULL, WORD));
		OK(PtlEQPoll(&eq, 1, PATIENCE_MS, &event, &which));
		if (event.type != PTL_EVENT_ACK || event.ni_fail_type != PTL_NI_OK) {
			fprintf(stderr, "a put ends with event %d, %d\n", event.type, event.ni_fail_type);
			exit(1);
		}
		printf("%ld\n", microseconds() - began);
	}
}

int main(int count, char **arguments)
{
	ptl_process_t me, to;

	/* It ends with the siege. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	OK(PtlInit());
	OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetPhysId(ni, &me));
	OK(PtlEQAlloc(ni, 64, &eq));
	printf("%u %u\n", (unsigned)me.phys.nid, (unsigned)me.phys.pid);
	if (count == 3) {
		to.phys.nid = strtoul(arguments[1], NULL, 10);
		to.phys.pid = strtoul(arguments[2], NULL, 10);
		put_at_lines(to);
	} else {
		report_at_lines();
	}
	OK(PtlNIFini(ni));
	PtlFini();
	return 0;
}
