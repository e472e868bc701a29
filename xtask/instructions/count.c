/* Posts and polls under callgrind, which counts the instructions of each part: two queue pairs of this process, connected to each other
   on the device that is listed first. Prints the name of each part and the number of its calls or completions; callgrind writes the
   instructions of a part into dumps of this name. Each part is counted several times, as other threads of the library may run
   meanwhile: the dump with the fewest instructions counts. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

/* Requests of a part. Locks need a thousand uses until their thread owns them (BiasedLock), so the parts run twice before they count. */
enum { COUNT = 1024, SIZE = 8, MANY = 16, WARM_UPS = 2, ROUNDS = 3, LIMIT_S = 60 };

#define CHECK(what) do { \
	if (!(what)) { \
		printf("line %d: %s does not hold\n", __LINE__, #what); \
		exit(1); \
	} \
} while (0)

struct end {
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[2 * SIZE];
};

static struct end near, far;
static int is_counted;

static void begin(void)
{
	if (is_counted)
		CALLGRIND_ZERO_STATS;
}

/* Ends a part. A macro, because the name must be a literal. */
#define END(name, calls) do { \
	if (is_counted) { \
		CALLGRIND_DUMP_STATS_AT(name); \
		if (is_counted == ROUNDS) \
			printf("%s %d\n", name, calls); \
	} \
} while (0)

static void make(struct ibv_context *device, struct ibv_pd *pd, struct end *end)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	CHECK(end->send_cq = ibv_create_cq(device, COUNT, NULL, NULL, 0));
	CHECK(end->recv_cq = ibv_create_cq(device, COUNT, NULL, NULL, 0));
	struct ibv_qp_init_attr init = { .send_cq = end->send_cq, .recv_cq = end->recv_cq, .qp_type = IBV_QPT_RC,
		.cap = { COUNT, COUNT, 1, 1, SIZE }, .sq_sig_all = 0 };

	CHECK(end->qp = ibv_create_qp(pd, &init));
	CHECK(end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, access));
}

static void connect_to(struct end *end, const struct end *peer, union ibv_gid gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } } };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC));
}

static void post_receives(int count)
{
	struct ibv_sge place = { (uintptr_t)far.memory, SIZE, far.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &place, .num_sge = 1 }, *bad;

	for (int i = 0; i < count; i++)
		CHECK(!ibv_post_recv(far.qp, &wr, &bad));
}

static void post_sends(enum ibv_wr_opcode opcode, unsigned flags, int count)
{
	struct ibv_sge place = { (uintptr_t)near.memory, SIZE, near.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &place, .num_sge = 1, .opcode = opcode, .send_flags = flags,
		.wr.rdma = { (uintptr_t)far.memory + SIZE, far.mr->rkey } }, *bad;

	for (int i = 0; i < count; i++)
		CHECK(!ibv_post_send(near.qp, &wr, &bad));
}

/* Takes completions that are there, `most` in a call. */
static void poll(struct ibv_cq *cq, int count, int most)
{
	struct ibv_wc wcs[MANY];

	for (int taken = 0; taken < count; ) {
		int found = ibv_poll_cq(cq, most, wcs);

		CHECK(found > 0 && wcs[0].status == IBV_WC_SUCCESS);
		taken += found;
	}
}

static void poll_empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < COUNT; i++)
		CHECK(!ibv_poll_cq(cq, 1, &wc));
}

/* A request that ibv_modify_qp(3) lets a program post before the peer has confirmed the connection waits inside of the library, and
   another thread posts it. Only one, or that thread would own the locks. */
static void await_connection(void)
{
	time_t start = time(NULL);
	struct ibv_wc wc;

	post_receives(1);
	post_sends(IBV_WR_SEND, IBV_SEND_SIGNALED, 1);
	for (int taken = 0; taken < 1; ) {
		int found = ibv_poll_cq(far.recv_cq, 1, &wc);

		CHECK(found >= 0 && time(NULL) - start < LIMIT_S);
		taken += found;
		/* Valgrind runs one thread at a time: this lets the one that posts the request run. */
		usleep(1000);
	}
	poll(near.send_cq, 1, 1);
}

static void run_parts(void)
{
	begin();
	post_receives(COUNT);
	END("post_recv", COUNT);
	begin();
	post_sends(IBV_WR_SEND, IBV_SEND_SIGNALED, COUNT);
	END("post_send-send", COUNT);
	begin();
	poll(near.send_cq, COUNT, 1);
	END("poll_cq-send", COUNT);
	begin();
	poll(far.recv_cq, COUNT, 1);
	END("poll_cq-recv", COUNT);
	post_receives(COUNT);
	begin();
	post_sends(IBV_WR_SEND, IBV_SEND_INLINE | IBV_SEND_SIGNALED, COUNT);
	END("post_send-inline", COUNT);
	begin();
	poll(near.send_cq, COUNT, MANY);
	END("poll_cq-send-16", COUNT);
	begin();
	poll(far.recv_cq, COUNT, MANY);
	END("poll_cq-recv-16", COUNT);
	begin();
	post_sends(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, COUNT);
	END("post_send-write", COUNT);
	poll(near.send_cq, COUNT, MANY);
	begin();
	poll_empty(near.send_cq);
	END("poll_cq-empty", COUNT);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device;
	struct ibv_pd *pd;
	union ibv_gid gid;

	CHECK(list && list[0] && (device = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(device)));
	CHECK(!ibv_query_gid(device, 1, 0, &gid));
	make(device, pd, &near);
	make(device, pd, &far);
	connect_to(&near, &far, gid);
	connect_to(&far, &near, gid);
	await_connection();
	for (int round = 0; round < WARM_UPS; round++)
		run_parts();
	while (is_counted++ < ROUNDS)
		run_parts();
	return 0;
}
