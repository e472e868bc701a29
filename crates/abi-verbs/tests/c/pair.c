/* A pair of queue pairs in one process, connected by their numbers, and one connected to itself: NIC memory, requests built by calls,
   completions one by one, a chain with an invalid request, a child, and a peer that is destroyed. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct end {
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[4096];
};

static union ibv_gid gid;

static void make(struct ibv_context *context, struct ibv_pd *pd, struct end *end)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	CHECK((end->cq = ibv_create_cq_ex(context, &cq)));
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(end->cq), .recv_cq = ibv_cq_ex_to_cq(end->cq), .qp_type = IBV_QPT_RC,
		.cap = { 16, 16, 4, 4, 256 }, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	CHECK((end->qp = ibv_create_qp_ex(context, &init)));
	CHECK((end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, rights)));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void join(struct end *end, struct end *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 1 }, .port_num = 1 },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Takes the next completion, which is checked before the next one is taken. */
static void next(struct end *end, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_poll_cq_attr attr = { 0 };

	while ((errno = ibv_start_poll(end->cq, &attr)) == ENOENT)
		;
	CHECK(!errno && end->cq->wr_id == wr_id && end->cq->status == status && ibv_wc_read_qp_num(end->cq) == end->qp->qp_num);
	ibv_end_poll(end->cq);
}

static void receive(struct end *end, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + 1024, 1024, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(end->qp, &wr, &bad));
}

/* Requests posted before the peer has connected wait for it. */
static void early(struct end *a, struct end *b)
{
	struct ibv_sge sge = { (uintptr_t)"early", 5, 0 };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;

	receive(b, 2);
	join(a, b);
	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	join(b, a);
	next(a, 1, IBV_WC_SUCCESS);
	next(b, 2, IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_byte_len(b->cq) == 5 && ibv_wc_read_opcode(b->cq) == IBV_WC_RECV && !memcmp(b->memory + 1024, "early", 5));
}

static void by_calls(struct end *a, struct end *b)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a->qp);
	struct ibv_data_buf pieces[] = { { "one ", 4 }, { "two ", 4 }, { "three", 5 } };
	struct ibv_sge sges[] = { { (uintptr_t)a->memory, 2, a->mr->lkey }, { (uintptr_t)a->memory + 2, 3, a->mr->lkey } };

	memcpy(a->memory, "write", 5);
	receive(b, 3);
	CHECK(qp);
	ibv_wr_start(qp);
	qp->wr_id = 4;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, b->mr->rkey, (uintptr_t)b->memory);
	ibv_wr_set_sge_list(qp, 2, sges);
	qp->wr_id = 5;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(7));
	ibv_wr_set_inline_data_list(qp, 3, pieces);
	CHECK(!ibv_wr_complete(qp));
	next(b, 3, IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_wc_flags(b->cq) == IBV_WC_WITH_IMM && ibv_wc_read_imm_data(b->cq) == htonl(7));
	CHECK(!memcmp(b->memory, "write", 5) && !memcmp(b->memory + 1024, "one two three", 13));
	next(a, 5, IBV_WC_SUCCESS);
	/* An abandoned request is not posted; data without a request are an error. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	ibv_wr_set_sge(qp, a->mr->lkey, (uintptr_t)a->memory, 1);
	CHECK(ibv_wr_complete(qp) == EINVAL);
}

/* In a chain, the requests before an invalid one are posted. */
static void chain(struct end *a, struct end *b)
{
	struct ibv_sge sge = { (uintptr_t)a->memory, 5, a->mr->lkey };
	struct ibv_send_wr wrs[40], *bad;

	for (int i = 0; i < 40; i++)
		wrs[i] = (struct ibv_send_wr){ .wr_id = i, .next = i < 39 ? &wrs[i + 1] : NULL, .sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)b->memory + i, b->mr->rkey } };
	wrs[15].send_flags = IBV_SEND_SIGNALED;
	wrs[30].opcode = IBV_WR_TSO;
	int code = ibv_post_send(a->qp, wrs, &bad);
	CHECK(code == EOPNOTSUPP || code == ENOMEM);
	CHECK(bad == (code == ENOMEM ? bad : &wrs[30]) && bad >= &wrs[16]);
	next(a, 15, IBV_WC_SUCCESS);
}

static void nic_memory(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_alloc_dm_attr attr = { .length = 100 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	char back[8];

	if (!dm) {
		CHECK(errno == EOPNOTSUPP);
		return;
	}
	CHECK(!ibv_memcpy_to_dm(dm, 92, "8 bytes!", 8) && !ibv_memcpy_from_dm(back, dm, 92, 8) && !memcmp(back, "8 bytes!", 8));
	CHECK(ibv_memcpy_to_dm(dm, 96, "8 bytes!", 8) == EINVAL && ibv_memcpy_from_dm(NULL, dm, 0, 4) == EINVAL);
	/* Cards copy multiples of 4 bytes. */
	CHECK(ibv_memcpy_to_dm(dm, 1, back, 4) == EINVAL && ibv_memcpy_from_dm(back, dm, 0, 3) == EINVAL);
	CHECK(!ibv_reg_dm_mr(pd, dm, 0, 100, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 10, 90, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->length == 90 && !ibv_dereg_mr(mr) && !ibv_free_dm(dm) && ibv_free_dm(dm) == EINVAL);
}

/* A queue keeps its pending completions when it is resized. */
static void resize(struct end *a, struct end *b)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(b->cq);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	CHECK(!ibv_resize_cq(cq, 200) && cq->cqe == 200);
	CHECK(ibv_resize_cq(cq, 0) == EINVAL && ibv_resize_cq(cq, -1) == EINVAL && ibv_resize_cq(cq, 1 << 30) == EINVAL && cq->cqe == 200);
	for (wr.wr_id = 40; wr.wr_id < 43; wr.wr_id++) {
		receive(b, wr.wr_id);
		CHECK(!ibv_post_send(a->qp, &wr, &bad));
	}
	/* They have arrived when the sender's completion is reported. */
	for (int i = 40; i < 43; i++)
		next(a, i, IBV_WC_SUCCESS);
	CHECK(!ibv_resize_cq(cq, 64) && cq->cqe == 64);
	for (int i = 40; i < 43; i++)
		next(b, i, IBV_WC_SUCCESS);
	CHECK(!ibv_resize_cq(cq, 1) && !ibv_resize_cq(cq, 64));
}

/* A child of fork(2) cannot use its parent's objects, and may open a device itself; the parent's connection goes on. */
static void child(struct end *a, struct end *b, struct ibv_pd *pd)
{
	struct ibv_sge sge = { (uintptr_t)a->memory, 5, a->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 20, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr recv = { .wr_id = 21 }, *bad_recv;
	struct ibv_wc wc;
	int status;

	receive(b, 22);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		CHECK(ibv_post_send(a->qp, &wr, &bad) && bad == &wr);
		CHECK(ibv_post_recv(a->qp, &recv, &bad_recv) && bad_recv == &recv);
		CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(a->cq), 1, &wc) < 0);
		CHECK(!ibv_reg_mr(pd, a->memory, 1, 0));
		struct ibv_context *own = ibv_open_device(ibv_get_device_list(NULL)[0]);
		CHECK(own && (pd = ibv_alloc_pd(own)) && ibv_reg_mr(pd, a->memory, 1, 0));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	next(a, 20, IBV_WC_SUCCESS);
	next(b, 22, IBV_WC_SUCCESS);
}

/* The peer is destroyed without a disconnect: receives stay posted, and the next request is not acknowledged. */
static void gone(struct end *a, struct end *b)
{
	struct ibv_sge sge = { (uintptr_t)a->memory, 5, a->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	receive(a, 9);
	CHECK(!ibv_destroy_qp(b->qp));
	for (int i = 0; i < 100000; i++) {
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(a->cq), 1, &wc) == 0);
	}
	CHECK(!ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	next(a, 8, IBV_WC_RETRY_EXC_ERR);
	next(a, 9, IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
}

/* A queue pair connected to itself: it receives what it sends, and it looks like one queue pair from outside. */
static void alone(struct ibv_context *context, struct ibv_pd *pd, struct end *end)
{
	struct ibv_send_wr wr = { .wr_id = 2, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED }, *bad;

	make(context, pd, end);
	struct ibv_sge sge = { (uintptr_t)end->memory, 5, end->mr->lkey };
	memcpy(end->memory + 100, "alone", 5);
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = (uintptr_t)end->memory + 100;
	wr.wr.rdma.rkey = end->mr->rkey;
	receive(end, 1);
	join(end, end);
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
	next(end, 2, IBV_WC_SUCCESS);
	CHECK(!memcmp(end->memory, "alone", 5));
	for (int i = 0; i < 1000; i++) {
		struct ibv_send_wr send = { .wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		CHECK(!ibv_post_send(end->qp, &send, &bad));
		next(end, 1, IBV_WC_SUCCESS);
		CHECK(ibv_wc_read_byte_len(end->cq) == 5 && !memcmp(end->memory + 1024, "alone", 5));
		receive(end, 1);
		if (i % 8 == 7) {
			CHECK(!ibv_post_send(end->qp, &wr, &bad));
			next(end, 2, IBV_WC_SUCCESS);
		}
	}
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	next(end, 1, IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
	next(end, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_destroy_qp(end->qp));
}

int main(void)
{
	static struct end ends[2];
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && !ibv_query_gid(context, 1, 0, &gid));
	nic_memory(context, pd);
	/* Either of the two may be the one that connects. */
	for (int first = 0; first < 2; first++) {
		struct end *a = &ends[first], *b = &ends[!first];
		make(context, pd, &ends[0]);
		make(context, pd, &ends[1]);
		early(a, b);
		by_calls(a, b);
		chain(a, b);
		resize(a, b);
		child(a, b, pd);
		gone(a, b);
		CHECK(!ibv_destroy_qp(a->qp));
	}
	for (int i = 0; i < 3; i++)
		alone(context, pd, &ends[0]);
	printf("all done\n");
	return 0;
}
