/* Registered memory that the program unmaps, protects or truncates: no process is killed, and each side gets an error for its own part.
   Every case is one process with both ends, or two with one each. The lost memory belongs to the end that the case names. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LEN = 192 << 10, LONG = 64 << 20, TOO_FAST = 16, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

enum loss { UNMAPPED, CLOSED, READ_ONLY, CUT, LOSSES };
static const char *const losses[] = { "unmapped", "closed", "read-only", "cut" };

enum op { WRITE, WRITE_IMM, READ, SWAP, ADD, SEND };
static const char *const ops[] = { "write", "write with immediate", "read", "compare and swap", "fetch and add", "send" };
static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND };

struct test {
	enum op op;
	enum loss loss;
	uint32_t len;
	int of_target, shared, two_processes, midway, blocked;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int is_iwarp;

/* One end: its queue pair, and memory of which a part may be lost. */
struct end {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
	size_t len;
	int file;
};

/* The data that the ends exchange. */
struct said {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t number, rkey;
	uint16_t lid;
};

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && *list && (context = ibv_open_device(*list)));
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid));
	CHECK(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
}

static void make(struct end *end, int shared, size_t len)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };

	CHECK((end->cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	end->srq = NULL;
	if (shared)
		CHECK((end->srq = ibv_create_srq(pd, &srq)));
	struct ibv_qp_init_attr init = { .send_cq = end->cq, .recv_cq = end->cq, .srq = end->srq, .qp_type = IBV_QPT_RC,
		.sq_sig_all = 1, .cap = { 4, 4, 1, 1, 0 } };
	CHECK((end->qp = ibv_create_qp(pd, &init)));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	end->len = len;
	CHECK((end->file = memfd_create("lost", MFD_CLOEXEC)) >= 0 && !ftruncate(end->file, len));
	/* Far from where the kernel maps memory: unmapped addresses must not be reused. */
	static uintptr_t next = 1ul << 44;
	end->memory = mmap((void *)next, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, end->file, 0);
	next += 1ul << 30;
	CHECK(end->memory != MAP_FAILED && (end->mr = ibv_reg_mr(pd, end->memory, len, ALL)));
}

static struct said say(struct end *end)
{
	return (struct said){ gid, (uintptr_t)end->memory, end->qp->qp_num, end->mr->rkey, port.lid };
}

static void join(struct end *end, const struct said *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->number,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .dlid = other->lid, .grh = { .dgid = other->gid, .hop_limit = 1 }, .port_num = 1 },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC));
}

static void lose(struct end *end, enum loss loss)
{
	char *at = end->memory;
	size_t len = end->len;

	switch (loss) {
	case UNMAPPED: CHECK(!munmap(at, len)); break;
	case CLOSED: CHECK(!mprotect(at, len, PROT_NONE)); break;
	case READ_ONLY: CHECK(!mprotect(at, len, PROT_READ)); break;
	default: CHECK(!ftruncate(end->file, 0)); break;
	}
}

static void receive(struct end *end, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, len, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!(end->srq ? ibv_post_srq_recv(end->srq, &wr, &bad) : ibv_post_recv(end->qp, &wr, &bad)));
}

static void request(struct end *end, const struct said *to, enum op op, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, len, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcodes[op] }, *bad;

	if (op == SWAP || op == ADD) {
		wr.wr.atomic.remote_addr = to->addr;
		wr.wr.atomic.rkey = to->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = to->addr;
		wr.wr.rdma.rkey = to->rkey;
	}
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
}

/* The status of the next completion, which must be of this request or receive. */
static int status(struct end *end, uint64_t wr_id)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(end->cq, 1, &wc)))
		;
	CHECK(n == 1);
	if (wc.wr_id != wr_id)
		printf("a completion of %d, not of %d: %s\n", (int)wc.wr_id, (int)wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.wr_id == wr_id);
	return wc.status;
}

/* The transfer was faster than the loss of its memory: the case is repeated. */
static int was_fast;

static void complain(const struct test *test, const char *side, const char *got, const char *want)
{
	printf("%s %s of %u bytes, the %s's memory %s, %s%s%s: the %s has \"%s\", not \"%s\"\n", is_iwarp ? "iwarp:" : "shm:", ops[test->op], test->len,
		test->of_target ? "target" : "initiator", losses[test->loss], test->two_processes ? "two processes" : "one process",
		test->shared ? ", shared receives" : "", test->midway ? ", midway" : "", side, got, want);
	exit(1);
}

static void must(const struct test *test, const char *side, int got, int want, int or)
{
	was_fast |= got != want && got == or && test->midway;
	if (got != want && got != or)
		complain(test, side, ibv_wc_status_str(got), ibv_wc_status_str(want));
}

/* Checks the initiator's status. */
static void check_initiator(const struct test *test, struct end *end)
{
	int got = status(end, 1);

	if (!test->of_target)
		must(test, "initiator", got, IBV_WC_LOC_PROT_ERR, test->midway ? IBV_WC_SUCCESS : -1);
	else if (test->op != SEND)
		must(test, "initiator", got, IBV_WC_REM_ACCESS_ERR, test->midway ? IBV_WC_SUCCESS : -1);
	else
		/* On shm a short message travels in its completion: its sender has finished before the receiver accesses the memory. */
		must(test, "initiator", got, IBV_WC_REM_OP_ERR, test->midway || (!is_iwarp && test->len <= 96) ? IBV_WC_SUCCESS : -1);
}

/* Checks the target's status: by the completion of its receive, or by an event. */
static void check_target(const struct test *test, struct end *end)
{
	struct ibv_async_event event;
	int got;

	/* A receive without a message stays posted, as on cards. */
	if (test->op == SEND && test->of_target) {
		got = status(end, 2);
		must(test, "target", got, IBV_WC_LOC_PROT_ERR, test->midway ? IBV_WC_SUCCESS : -1);
	} else if (test->of_target && !test->midway) {
		struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
		/* In one process the initiator's event arrives at the same context. */
		do {
			CHECK(poll(&fd, 1, 10000) == 1 && !ibv_get_async_event(context, &event));
			ibv_ack_async_event(&event);
		} while (event.element.qp != end->qp);
		if (event.event_type != IBV_EVENT_QP_ACCESS_ERR)
			complain(test, "target", ibv_event_type_str(event.event_type), ibv_event_type_str(IBV_EVENT_QP_ACCESS_ERR));
	}
}

/* The program goes on: memory can be deregistered, and everything destroyed. */
static void destroy(struct end *end)
{
	CHECK(!ibv_dereg_mr(end->mr) && !ibv_destroy_qp(end->qp));
	CHECK(!end->srq || !ibv_destroy_srq(end->srq));
	CHECK(!ibv_destroy_cq(end->cq));
}

/* Waits until half of a long transfer has arrived, from either end, and then loses its memory. */
struct midway {
	const struct test *test;
	/* One of them may be NULL: another process watches or loses memory. Both share the flag, which ends a case that has failed too
	   early. */
	struct end *watched, *lost;
	volatile int *flag;
};

static void *lose_midway(void *at)
{
	struct midway *midway = at;

	while (!*midway->flag && !(midway->watched && ((volatile char *)midway->watched->memory)[LONG / 2]))
		;
	if (!midway->lost)
		*midway->flag = 1;
	else
		lose(midway->lost, midway->test->loss);
	return NULL;
}

static size_t room(const struct test *test)
{
	return test->midway ? LONG : LEN;
}

static void one_process(const struct test *test)
{
	struct end initiator, target;
	pthread_t thread;

	make(&initiator, 0, room(test));
	make(&target, test->shared, room(test));
	struct said near = say(&initiator), far = say(&target);
	join(&initiator, &far);
	join(&target, &near);
	if (test->op == SEND || test->op == WRITE_IMM)
		receive(&target, room(test));
	struct end *lost = test->of_target ? &target : &initiator;
	struct end *fed = test->op == READ ? &initiator : &target, *source = fed == &target ? &initiator : &target;
	if (test->midway)
		memset(source->memory, 1, LONG);
	volatile int flag = 0;
	struct midway midway = { test, fed, lost, &flag };
	if (test->midway)
		CHECK(!pthread_create(&thread, NULL, lose_midway, &midway));
	else
		lose(lost, test->loss);
	request(&initiator, &far, test->op, test->len);
	check_initiator(test, &initiator);
	check_target(test, &target);
	flag = 1;
	if (test->midway)
		CHECK(!pthread_join(thread, NULL));
	destroy(&initiator);
	destroy(&target);
}

static void swap(int s, const void *mine, void *theirs, size_t len)
{
	CHECK(write(s, mine, len) == (ssize_t)len && read(s, theirs, len) == (ssize_t)len);
}

/* One of two processes. */
static void side(const struct test *test, int is_target, int s, volatile int *flag)
{
	struct end end;
	struct said mine, theirs;
	pthread_t thread;
	char go = 0;

	/* Threads of the device inherit the signal mask of the thread that opens it, and must survive with it. */
	sigset_t all;
	sigfillset(&all);
	if (test->blocked && is_target)
		CHECK(!sigprocmask(SIG_BLOCK, &all, NULL));
	open_device();
	make(&end, is_target && test->shared, room(test));
	mine = say(&end);
	swap(s, &mine, &theirs, sizeof mine);
	join(&end, &theirs);
	if (is_target && (test->op == SEND || test->op == WRITE_IMM))
		receive(&end, room(test));
	int is_fed = is_target == (test->op != READ), is_loser = is_target == test->of_target;
	if (test->midway && !is_fed)
		memset(end.memory, 1, LONG);
	struct midway midway = { test, is_fed ? &end : NULL, is_loser ? &end : NULL, flag };
	if (test->midway && (is_fed || is_loser))
		CHECK(!pthread_create(&thread, NULL, lose_midway, &midway));
	else if (!test->midway && is_loser)
		lose(&end, test->loss);
	swap(s, &go, &go, 1);
	if (!is_target) {
		request(&end, &theirs, test->op, test->len);
		check_initiator(test, &end);
	} else {
		check_target(test, &end);
	}
	/* Neither exits before the other has its result. */
	swap(s, &go, &go, 1);
	*flag = 1;
	if (test->midway && (is_fed || is_loser))
		CHECK(!pthread_join(thread, NULL));
	destroy(&end);
}

static int ended(pid_t pid, const struct test *test, const char *what)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status)) {
		printf("%s, %s's memory %s, %u bytes: the %s ends by signal %d\n", ops[test->op], test->of_target ? "the target" : "the initiator",
			losses[test->loss], test->len, what, WTERMSIG(status));
		return 1;
	}
	return WEXITSTATUS(status);
}

static int run(const struct test *test)
{
	int bad, s[2];

	fflush(stdout);
	if (!test->two_processes) {
		pid_t both = fork();
		if (!both) {
			alarm(60);
			open_device();
			one_process(test);
			exit(was_fast ? TOO_FAST : 0);
		}
		return ended(both, test, "process");
	}
	volatile int *flag = mmap(NULL, sizeof *flag, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(flag != MAP_FAILED && !socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	pid_t sides[2];
	for (int i = 0; i < 2; i++)
		if (!(sides[i] = fork())) {
			alarm(60);
			close(s[!i]);
			side(test, i, s[i], flag);
			exit(was_fast ? TOO_FAST : 0);
		}
	close(s[0]);
	close(s[1]);
	bad = ended(sides[0], test, "initiator") | ended(sides[1], test, "target");
	munmap((void *)flag, sizeof *flag);
	return bad;
}

/* Whether the transfer writes to the end that loses memory. */
static int is_written(const struct test *test)
{
	int fetches = test->op == READ || test->op == SWAP || test->op == ADD;

	if (test->op == SWAP || test->op == ADD)
		return 1;
	return test->of_target ? test->op != READ : fetches;
}

/* Registering unmapped or read-only memory. */
static void refuse(void)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && !mprotect(p, 4096, PROT_READ));
	struct ibv_mr *mr = ibv_reg_mr(pd, p, 8192, IBV_ACCESS_REMOTE_READ);
	CHECK(mr && !ibv_dereg_mr(mr));
	errno = 0;
	CHECK(!ibv_reg_mr(pd, p, 8192, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!mprotect(p, 4096, PROT_NONE) && !ibv_reg_mr(pd, p, 8192, 0) && errno == EFAULT);
	errno = 0;
	CHECK(!munmap(p, 4096) && !ibv_reg_mr(pd, p, 8192, 0) && errno == EFAULT);
	char *large = mmap(NULL, 5ull << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(large != MAP_FAILED && (mr = ibv_reg_mr(pd, large, 5ull << 30, ALL)) && !ibv_dereg_mr(mr));
	errno = 0;
	CHECK(!munmap(large + (1 << 30), 4096) && !ibv_reg_mr(pd, large, 5ull << 30, 0) && errno == EFAULT);
}

int main(int argc, char **argv)
{
	static const uint32_t lens[] = { 8, 97, 5000, 40000, 150000 };
	int bad = 0, count = 0;

	is_iwarp = argc > 1 && !strcmp(argv[1], "iwarp");
	fflush(stdout);
	pid_t first = fork();
	if (!first) {
		open_device();
		refuse();
		exit(0);
	}
	int st;
	CHECK(waitpid(first, &st, 0) == first && !st);
	struct test test;
	for (int two = 0; two < 2; two++)
		for (enum op op = WRITE; op <= SEND; op++)
			for (int of_target = 0; of_target < 2; of_target++)
				for (enum loss loss = UNMAPPED; loss < LOSSES; loss++)
					for (unsigned l = 0; l < sizeof lens / sizeof *lens; l++)
						for (int shared = 0; shared <= (op == SEND && of_target); shared++) {
							test = (struct test){ op, loss, lens[l], of_target, shared, .two_processes = two };
							if ((loss == READ_ONLY && !is_written(&test)) || ((op == SWAP || op == ADD) && lens[l] != 8))
								continue;
							bad |= run(&test);
							count++;
						}
	for (enum op op = WRITE; op <= READ; op++)
		for (unsigned l = 0; l < sizeof lens / sizeof *lens; l++) {
			test = (struct test){ op, CLOSED, lens[l], .of_target = 1, .two_processes = 1, .blocked = 1 };
			bad |= run(&test);
			count++;
		}
	static const enum op longs[] = { WRITE, READ, SEND };
	for (int two = 0; two < 2; two++)
		for (int o = 0; o < 3; o++)
			for (int of_target = 0; of_target < 2; of_target++)
				for (enum loss loss = UNMAPPED; loss < LOSSES; loss += CUT) {
					int tries = 0, result;
					test = (struct test){ longs[o], loss, LONG, of_target, 0, two, .midway = 1 };
					while ((result = run(&test)) == TOO_FAST)
						if (++tries == 100)
							complain(&test, "test", "never in time", "a failure");
					bad |= result;
					count++;
				}
	printf("%d cases%s\n", count, bad ? "" : ", nobody dies");
	return bad;
}
