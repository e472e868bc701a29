/* Messages that find no receive: they are retried as often as ibv_modify_qp(3) or rdma_connect(3) specify, with the receiver's RNR
   pauses. Also values of ibv_modify_qp that cards reject. */
#include <unistd.h>

#include "cm.h"

static struct ibv_context *device;
static struct ibv_pd *pd;
static union ibv_gid gid;

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct end end(void)
{
	struct end end = { .cq = ibv_create_cq(device, 32, NULL, NULL, 0) };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 }, .sq_sig_all = 1, .send_cq = end.cq, .recv_cq = end.cq };

	CHECK(end.cq && (end.qp = ibv_create_qp(pd, &init)));
	return end;
}

static int to_init(struct end end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	return ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

enum {
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

static struct ibv_qp_attr rtr(struct end peer, int timer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = timer, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } } };

	return attr;
}

static struct ibv_qp_attr rts(int retries)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 3, .rnr_retry = retries, .max_rd_atomic = 1 };

	return attr;
}

/* Connects two ends, each with its retry count and its timer. */
static void join(struct end *a, struct end *b, int retries_a, int retries_b, int timer_a, int timer_b)
{
	*a = end();
	*b = end();
	struct ibv_qp_attr ready_a = rtr(*b, timer_a), ready_b = rtr(*a, timer_b), sends_a = rts(retries_a), sends_b = rts(retries_b);

	CHECK(!to_init(*a) && !to_init(*b));
	CHECK(!ibv_modify_qp(a->qp, &ready_a, RTR) && !ibv_modify_qp(b->qp, &ready_b, RTR));
	CHECK(!ibv_modify_qp(a->qp, &sends_a, RTS) && !ibv_modify_qp(b->qp, &sends_b, RTS));
}

static void leave(struct end end)
{
	CHECK(!ibv_destroy_qp(end.qp) && !ibv_destroy_cq(end.cq));
}

static void post(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* Takes the next completion; the other queue is polled too, as two programs would. */
static struct ibv_wc next(struct ibv_cq *cq, struct ibv_cq *other)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		CHECK(!ibv_poll_cq(other, 0, NULL));
	return wc;
}

static void nothing_for(struct ibv_cq *cq, int milliseconds)
{
	struct ibv_wc wc;

	for (int i = 0; i < milliseconds; i++) {
		CHECK(!ibv_poll_cq(cq, 1, &wc));
		usleep(1000);
	}
}

static void pairs(void)
{
	struct end a, b;
	struct ibv_wc wc;

	/* None: the first one fails, the requests after it are flushed, and the state is the error state. */
	join(&a, &b, 0, 7, 12, 12);
	post(a.qp, 1);
	post(a.qp, 2);
	wc = next(a.cq, b.cq);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_RNR_RETRY_EXC_ERR && wc.qp_num == a.qp->qp_num);
	wc = next(a.cq, b.cq);
	CHECK(wc.wr_id == 2 && wc.status == IBV_WC_WR_FLUSH_ERR);
	leave(a);
	leave(b);

	/* Some: also soon. */
	join(&a, &b, 3, 7, 12, 1);
	post(a.qp, 1);
	wc = next(a.cq, b.cq);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_RNR_RETRY_EXC_ERR);
	leave(a);
	leave(b);

	/* Unlimited, though the other end has a limit of none for itself. */
	join(&a, &b, 7, 0, 1, 1);
	post(a.qp, 1);
	nothing_for(a.cq, 50);
	receive(b.qp, 2);
	CHECK(next(b.cq, a.cq).status == IBV_WC_SUCCESS && next(a.cq, b.cq).status == IBV_WC_SUCCESS);
	/* That limit is none, and no retry is needed. */
	receive(a.qp, 3);
	post(b.qp, 4);
	CHECK(next(a.cq, b.cq).status == IBV_WC_SUCCESS && next(b.cq, a.cq).status == IBV_WC_SUCCESS);
	post(b.qp, 5);
	CHECK(next(b.cq, a.cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
	leave(a);
	leave(b);

	/* The receiver's pause is the longest, so that six retries take four seconds; then 10 us. */
	join(&a, &b, 6, 7, 1, 0);
	post(a.qp, 1);
	nothing_for(a.cq, 50);
	receive(b.qp, 2);
	CHECK(next(b.cq, a.cq).status == IBV_WC_SUCCESS && next(a.cq, b.cq).status == IBV_WC_SUCCESS);
	struct ibv_qp_attr shorter = { .min_rnr_timer = 1 };
	CHECK(!ibv_modify_qp(b.qp, &shorter, IBV_QP_MIN_RNR_TIMER));
	post(a.qp, 3);
	CHECK(next(a.cq, b.cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
	leave(a);
	leave(b);
}

/* Each side of librdmacm sets how often the peer retries. */
static void connections(void)
{
	struct sockaddr_in addr = here(0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 }, .sq_sig_all = 1 }, other = init;
	struct rdma_conn_param forever = { .rnr_retry_count = 7 }, none = { .rnr_retry_count = 0 };
	struct rdma_cm_id *at, *to, *from;

	CHECK(!rdma_create_id(channel, &at, NULL, RDMA_PS_TCP) && !rdma_bind_addr(at, (struct sockaddr *)&addr) && !rdma_listen(at, 1));
	to = resolved(RDMA_PS_TCP, rdma_get_src_port(at));
	CHECK(!rdma_create_qp(to, NULL, &init) && !rdma_connect(to, &forever));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	from = event->id;
	CHECK(event->param.conn.rnr_retry_count == 7 && !rdma_ack_cm_event(event));
	CHECK(!rdma_create_qp(from, NULL, &other) && !rdma_accept(from, &none));
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ESTABLISHED)));
	post(from->qp, 1);
	nothing_for(from->send_cq, 50);
	receive(to->qp, 2);
	CHECK(next(to->recv_cq, from->send_cq).status == IBV_WC_SUCCESS && next(from->send_cq, to->recv_cq).status == IBV_WC_SUCCESS);
	post(to->qp, 3);
	CHECK(next(to->send_cq, from->recv_cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(!rdma_disconnect(to));
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_DISCONNECTED)));
	rdma_destroy_qp(to);
	rdma_destroy_qp(from);
	CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(from) && !rdma_destroy_id(at));
}

#define REFUSED(attr, mask) CHECK(ibv_modify_qp(a.qp, &(attr), mask) == EINVAL)

/* Attributes that do not belong to the state, and values that are too large. */
static void values(void)
{
	struct end a = end(), b = end();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	REFUSED(attr, init);
	attr.port_num = 1;
	attr.pkey_index = 1;
	REFUSED(attr, init);
	attr.pkey_index = 0;
	REFUSED(attr, init | IBV_QP_TIMEOUT);
	REFUSED(attr, init | IBV_QP_QKEY);
	CHECK(!ibv_modify_qp(a.qp, &attr, init) && !ibv_modify_qp(b.qp, &attr, init));

#define TRY(call, mask, field, bad) do { attr = call; attr.field = bad; REFUSED(attr, mask); } while (0)
	TRY(rtr(b, 12), RTR, min_rnr_timer, 32);
	TRY(rtr(b, 12), RTR, path_mtu, 0);
	TRY(rtr(b, 12), RTR, path_mtu, 6);
	TRY(rtr(b, 12), RTR, dest_qp_num, 1 << 24);
	TRY(rtr(b, 12), RTR | IBV_QP_PORT, port_num, 1);
	TRY(rtr(b, 12), RTR & ~IBV_QP_MIN_RNR_TIMER, port_num, 1);
	attr = rtr(b, 12);
	CHECK(ibv_modify_qp(a.qp, &attr, RTR | IBV_QP_ALT_PATH) == EOPNOTSUPP);
	CHECK(!ibv_modify_qp(a.qp, &attr, RTR | IBV_QP_ACCESS_FLAGS));
	attr = rtr(a, 12);
	CHECK(!ibv_modify_qp(b.qp, &attr, RTR));

	TRY(rts(7), RTS, rnr_retry, 8);
	TRY(rts(7), RTS, retry_cnt, 8);
	TRY(rts(7), RTS, timeout, 32);
	TRY(rts(7), RTS | IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_INIT);
	TRY(rts(7), RTS & ~IBV_QP_RNR_RETRY, rnr_retry, 7);
	TRY(rts(7), RTS | IBV_QP_PATH_MTU, path_mtu, 1);
	TRY(rts(7), IBV_QP_STATE, qp_state, 99);
	attr = rts(7);
	CHECK(!ibv_modify_qp(a.qp, &attr, RTS | IBV_QP_MIN_RNR_TIMER) && !ibv_modify_qp(b.qp, &attr, RTS));
	REFUSED(attr, IBV_QP_PORT);
	REFUSED(attr, IBV_QP_AV);
	attr.qp_state = IBV_QPS_ERR;
	REFUSED(attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_SQD;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == EOPNOTSUPP);
	leave(a);
	leave(b);
}

int main(void)
{
	CHECK((channel = rdma_create_event_channel()));
	struct ibv_context **devices = rdma_get_devices(NULL);
	CHECK((device = devices[0]) && (pd = ibv_alloc_pd(device)) && !ibv_query_gid(device, 1, 0, &gid));
	values();
	pairs();
	connections();
	CHECK(!ibv_dealloc_pd(pd));
	rdma_free_devices(devices);
	rdma_destroy_event_channel(channel);
	printf("all tried\n");
	return 0;
}
