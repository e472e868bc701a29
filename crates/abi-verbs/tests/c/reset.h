/* Queue pairs connected by their numbers, moved to RESET (ibv_modify_qp(3)) and connected again. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 64, DEPTH = 8, LIMIT_S = 20 };

enum {
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

/* The identity of an end, as the peer gets it. */
struct name {
	union ibv_gid gid;
	uint32_t qp_num;
};

struct end {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[DEPTH * SIZE * 2];
};

static struct ibv_context *device;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0] && (device = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(device)));
	CHECK(!ibv_query_gid(device, 1, 0, &gid));
	ibv_free_device_list(list);
}

static void make(struct end *end, int is_shared)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4 * DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 0 }, .sq_sig_all = 1 };

	memset(end, 0, sizeof *end);
	CHECK(end->cq = init.send_cq = init.recv_cq = ibv_create_cq(device, 4 * DEPTH, NULL, NULL, 0));
	if (is_shared)
		CHECK(end->srq = init.srq = ibv_create_srq(pd, &shared));
	CHECK(end->qp = ibv_create_qp(pd, &init));
	CHECK(end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, ACCESS));
}

static void destroy(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && (!end->srq || !ibv_destroy_srq(end->srq)) && !ibv_destroy_cq(end->cq) && !ibv_dereg_mr(end->mr));
}

static struct name name_of(struct end *end)
{
	return (struct name){ gid, end->qp->qp_num };
}

static int move(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

static enum ibv_qp_state state_of(struct end *end)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK(!ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == end->qp->state);
	return attr.qp_state;
}

static void to_init(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };

	CHECK(!ibv_modify_qp(end->qp, &attr, INIT));
}

static void to_rtr(struct end *end, struct name peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 1 } } };

	CHECK(!ibv_modify_qp(end->qp, &attr, RTR));
}

static void to_rts(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	CHECK(!ibv_modify_qp(end->qp, &attr, RTS));
}

static void connects_to(struct end *end, struct name peer)
{
	to_init(end);
	to_rtr(end, peer);
	to_rts(end);
}

/* Nothing of the former life remains: no state, no attributes, no completion. The number stays. */
static void reset(struct end *end)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	uint32_t number = end->qp->qp_num;

	CHECK(!move(end, IBV_QPS_RESET) && state_of(end) == IBV_QPS_RESET && end->qp->qp_num == number);
	CHECK(!ibv_query_qp(end->qp, &attr, IBV_QP_DEST_QPN | IBV_QP_TIMEOUT, &init) && !attr.dest_qp_num && !attr.timeout);
	CHECK(!ibv_poll_cq(end->cq, 1, &wc));
}

/* Requests and their payload are marked with the round; receives also with their slot. */
static int receive(struct end *end, uint32_t round, int slot)
{
	struct ibv_sge place = { (uintptr_t)end->memory + (DEPTH + slot) * SIZE, SIZE, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)round << 8 | slot, .sg_list = &place, .num_sge = 1 }, *bad;

	if (!end->srq)
		return ibv_post_recv(end->qp, &wr, &bad);
	/* The queue may be full of receives that no message of earlier rounds has taken. */
	int error = ibv_post_srq_recv(end->srq, &wr, &bad);

	return error == ENOMEM ? 0 : error;
}

static int post(struct end *end, uint32_t round, int slot)
{
	struct ibv_sge place = { (uintptr_t)end->memory + slot * SIZE, SIZE, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)round << 8, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = round, .sg_list = &place,
		.num_sge = 1 }, *bad;

	memset(end->memory + slot * SIZE, round & 0xff, SIZE);
	return ibv_post_send(end->qp, &wr, &bad);
}

/* Takes the next completion, which must be a success of this queue pair and this round. Shared receives may be left from an earlier
   round. */
static struct ibv_wc next(struct end *end, uint32_t round)
{
	struct ibv_wc wc;
	time_t limit = time(NULL) + LIMIT_S;

	while (!ibv_poll_cq(end->cq, 1, &wc))
		CHECK(time(NULL) < limit);
	int is_of_round = wc.wr_id >> 8 == round || (end->srq && wc.opcode == IBV_WC_RECV);

	if (wc.status || !is_of_round)
		printf("round %u: %s of %llx\n", round, ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id);
	CHECK(!wc.status && is_of_round && wc.qp_num == end->qp->qp_num);
	return wc;
}

/* Receives a message of this round and no other. */
static void takes(struct end *end, uint32_t round)
{
	struct ibv_wc wc = next(end, round);
	char *place = end->memory + (DEPTH + (wc.wr_id & 0xff)) * SIZE;

	CHECK(wc.opcode == IBV_WC_RECV && wc.imm_data == round && wc.byte_len == SIZE);
	for (int i = 0; i < SIZE; i++)
		CHECK(place[i] == (char)round);
}

static void sends(struct end *end, uint32_t round)
{
	CHECK(next(end, round).opcode == IBV_WC_SEND);
}

/* One message in each direction. */
static void talk(struct end *a, struct end *b, uint32_t round)
{
	CHECK(!receive(a, round, 0) && !receive(b, round, 0));
	CHECK(!post(a, round, 0));
	takes(b, round);
	sends(a, round);
	CHECK(!post(b, round, 0));
	takes(a, round);
	sends(b, round);
}

/* The two processes signal their progress over a socket. */
static void word(int socket, char expected)
{
	char said = expected;

	CHECK(write(socket, &said, 1) == 1 && read(socket, &said, 1) == 1 && said == expected);
}

static void in_two_processes(void (*half)(int socket, int side))
{
	int sockets[2], status;
	pid_t child;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) && (child = fork()) != -1);
	if (!child) {
		close(sockets[0]);
		half(sockets[1], 1);
		exit(0);
	}
	close(sockets[1]);
	half(sockets[0], 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(!close(sockets[0]));
}
