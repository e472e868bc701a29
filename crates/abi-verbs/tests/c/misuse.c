/* Mistakes of many kinds, each announced by a line on standard error: the log of failed calls says after it what was wrong. tests/why.rs
   has the lines that it expects. Exits with repeated failures of a kind, which the log counts. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <unistd.h>

#include "cm.h"

#define MISTAKE(name, ...) do { \
	fprintf(stderr, "== %s\n", name); \
	__VA_ARGS__; \
} while (0)

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[4096];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static char memory[4096];

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | \
	IBV_QP_MIN_RNR_TIMER)
#define TO_RTS (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static void make(struct end *end)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 2, 2, 64 } };

	CHECK((end->cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = end->cq;
	CHECK((end->qp = ibv_create_qp(pd, &init)));
	CHECK((end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, ALL)));
}

static struct ibv_qp_attr rtr(uint32_t peer)
{
	return (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1, .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 1 }, .port_num = 1 } };
}

static void to_init(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(end->qp, &attr, TO_INIT));
}

static void join(struct end *end, struct end *other)
{
	struct ibv_qp_attr attr = rtr(other->qp->qp_num);

	CHECK(!ibv_modify_qp(end->qp, &attr, TO_RTR));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 1, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, TO_RTS));
}

static void make_pair(struct end ends[2])
{
	for (int i = 0; i < 2; i++) {
		make(&ends[i]);
		to_init(&ends[i]);
	}
	join(&ends[0], &ends[1]);
	join(&ends[1], &ends[0]);
}

static void end_pair(struct end ends[2])
{
	for (int i = 0; i < 2; i++) {
		if (ends[i].qp)
			CHECK(!ibv_destroy_qp(ends[i].qp));
		CHECK(!ibv_dereg_mr(ends[i].mr) && !ibv_destroy_cq(ends[i].cq));
	}
}

/* Waits for the next completion, which must have failed. */
static void fails(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;

	do
		CHECK((found = ibv_poll_cq(cq, 1, &wc)) >= 0);
	while (!found);
	CHECK(wc.status != IBV_WC_SUCCESS);
}

static void post(struct end *end, struct ibv_send_wr wr, struct ibv_sge sge)
{
	struct ibv_send_wr *bad;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
}

static void receive(struct end *end, uint32_t lkey, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, length, lkey };
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(end->qp, &wr, &bad));
}

static void objects(void)
{
	struct ibv_port_attr port;
	union ibv_gid found;
	uint16_t pkey;
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 1, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_init_attr_ex qp_ex = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr = { .max_wr = 9 };
	struct ibv_alloc_dm_attr dm_attr = { .length = 0 };
	struct ibv_ah_attr ah_attr = { .port_num = 1 };
	struct ibv_wc wc = { 0 };
	struct ibv_grh grh = { 0 };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *which;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, ALL);
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	void *user;

	CHECK(channel && cq && mr && srq);
	MISTAKE("open nothing", CHECK(!ibv_open_device(NULL)));
	MISTAKE("query into nothing", CHECK(ibv_query_device(context, NULL)));
	MISTAKE("port 2", CHECK(ibv_query_port(context, 2, &port)));
	MISTAKE("GID 99", CHECK(ibv_query_gid(context, 1, 99, &found)));
	MISTAKE("GID -1", CHECK(ibv_query_gid(context, 1, -1, &found)));
	MISTAKE("P_Key 1", CHECK(ibv_query_pkey(context, 1, 1, &pkey)));
	MISTAKE("register nothing", CHECK(!ibv_reg_mr(pd, NULL, 1, 0)));
	MISTAKE("register with an unknown flag", CHECK(!(ibv_reg_mr)(pd, memory, 1, 1 << 10)));
	MISTAKE("register all memory at an address", CHECK(!(ibv_reg_mr)(pd, memory, SIZE_MAX, IBV_ACCESS_ON_DEMAND)));
	MISTAKE("register without local write", CHECK(!(ibv_reg_mr)(pd, memory, 1, IBV_ACCESS_REMOTE_WRITE)));
	MISTAKE("register at another address", CHECK(!(ibv_reg_mr_iova)(pd, memory, 16, UINT64_MAX - 3, 0)));
	MISTAKE("deregister nothing", CHECK(ibv_dereg_mr(NULL)));
	MISTAKE("deregister something else", CHECK(ibv_dereg_mr((struct ibv_mr *)pd)));
	CHECK(!ibv_dereg_mr(mr));
	MISTAKE("deregister twice", CHECK(ibv_dereg_mr(mr)));
	MISTAKE("completion queue without entries", CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0)));
	MISTAKE("completion queue of negative size", CHECK(!ibv_create_cq(context, -1, NULL, NULL, 0)));
	MISTAKE("completion queue too large", CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0)));
	MISTAKE("completion vector 3", CHECK(!ibv_create_cq(context, 1, NULL, NULL, 3)));
	MISTAKE("completion timestamps", CHECK(!ibv_create_cq_ex(context, &cq_ex)));
	MISTAKE("resize to nothing", CHECK(ibv_resize_cq(cq, 0)));
	MISTAKE("free a domain in use", CHECK(ibv_dealloc_pd(pd)));
	MISTAKE("destroy a channel in use", CHECK(ibv_destroy_comp_channel(channel)));
	MISTAKE("wait for no channel", CHECK(ibv_get_cq_event(NULL, &which, &user)));
	MISTAKE("queue pair without completion queues", CHECK(!ibv_create_qp(pd, &init)));
	init.send_cq = init.recv_cq = cq;
	init.qp_type = IBV_QPT_UC;
	MISTAKE("queue pair of type UC", CHECK(!ibv_create_qp(pd, &init)));
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = 1 << 30;
	MISTAKE("too many requests", CHECK(!ibv_create_qp(pd, &init)));
	init.cap = (struct ibv_qp_cap){ 1, 1, 1000, 1, 0 };
	MISTAKE("too many elements of a send", CHECK(!ibv_create_qp(pd, &init)));
	init.cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 1 << 20 };
	MISTAKE("too much inline data", CHECK(!ibv_create_qp(pd, &init)));
	MISTAKE("extended queue pair without a domain", CHECK(!ibv_create_qp_ex(context, &qp_ex)));
	MISTAKE("resize a shared receive queue", CHECK(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR)));
	MISTAKE("modify nothing of a shared receive queue", CHECK(ibv_modify_srq(srq, &srq_attr, 0)));
	MISTAKE("address handle without a GID", CHECK(!ibv_create_ah(pd, &ah_attr)));
	MISTAKE("address of no datagram", CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &ah_attr)));
	MISTAKE("memory window", CHECK(!ibv_alloc_mw(pd, 3)));
	MISTAKE("multicast", CHECK(ibv_attach_mcast(NULL, &gid, 0)));
	MISTAKE("no device memory", CHECK(!ibv_alloc_dm(context, &dm_attr)));
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
}

static void states(void)
{
	struct end end, *e = &end;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .port_num = 1 };

	make(e);
	MISTAKE("RESET to RTS", CHECK(ibv_modify_qp(e->qp, &attr, TO_RTS)));
	MISTAKE("attributes of nothing", CHECK(ibv_modify_qp(e->qp, NULL, TO_INIT)));
	attr.qp_state = IBV_QPS_SQD;
	MISTAKE("state SQD", CHECK(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE)));
	attr.qp_state = IBV_QPS_INIT;
	MISTAKE("INIT without a port", CHECK(ibv_modify_qp(e->qp, &attr, TO_INIT & ~IBV_QP_PORT)));
	MISTAKE("INIT with an address", CHECK(ibv_modify_qp(e->qp, &attr, TO_INIT | IBV_QP_AV)));
	attr.port_num = 2;
	MISTAKE("INIT at port 2", CHECK(ibv_modify_qp(e->qp, &attr, TO_INIT)));
	attr.port_num = attr.pkey_index = 1;
	MISTAKE("INIT with P_Key 1", CHECK(ibv_modify_qp(e->qp, &attr, TO_INIT)));
	to_init(e);
	attr = rtr(1);
	attr.path_mtu = 9;
	MISTAKE("RTR with MTU 9", CHECK(ibv_modify_qp(e->qp, &attr, TO_RTR)));
	attr = rtr(1);
	attr.ah_attr = (struct ibv_ah_attr){ .port_num = 1 };
	MISTAKE("RTR without GID and LID", CHECK(ibv_modify_qp(e->qp, &attr, TO_RTR)));
	attr = rtr(1);
	attr.ah_attr.grh.sgid_index = 77;
	MISTAKE("RTR from GID 77", CHECK(ibv_modify_qp(e->qp, &attr, TO_RTR)));
	attr = rtr(1);
	memset(&attr.ah_attr.grh.dgid, 0, sizeof gid);
	MISTAKE("RTR to an empty GID", CHECK(ibv_modify_qp(e->qp, &attr, TO_RTR)));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MISTAKE("ERR to RTS", CHECK(ibv_modify_qp(e->qp, &attr, TO_RTS)));
	MISTAKE("destroy a queue in use", CHECK(ibv_destroy_cq(e->cq)));
	CHECK(!ibv_destroy_qp(e->qp));
	attr.qp_state = IBV_QPS_ERR;
	MISTAKE("use a destroyed queue pair", CHECK(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE)));
	CHECK(!ibv_dereg_mr(e->mr) && !ibv_destroy_cq(e->cq));
}

static void requests(void)
{
	struct end ends[2], *a = &ends[0], *b = &ends[1], lone;
	struct ibv_sge sges[3] = { { (uintptr_t)a->memory, 8, 0 } };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr recv = { .wr_id = 2 }, *bad_recv;
	struct ibv_wc wc;
	int full;

	make(&lone);
	MISTAKE("send in RESET", CHECK(ibv_post_send(lone.qp, &wr, &bad)));
	MISTAKE("receive in RESET", CHECK(ibv_post_recv(lone.qp, &recv, &bad_recv)));
	to_init(&lone);
	MISTAKE("send in INIT", CHECK(ibv_post_send(lone.qp, &wr, &bad)));
	MISTAKE("receive queue full", do full = ibv_post_recv(lone.qp, &recv, &bad_recv); while (!full); CHECK(full == ENOMEM));
	CHECK(!ibv_destroy_qp(lone.qp) && !ibv_dereg_mr(lone.mr) && !ibv_destroy_cq(lone.cq));
	make_pair(ends);
	sges[0].lkey = a->mr->lkey;
	/* When a write has completed, the two are connected. */
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)b->memory;
	wr.wr.rdma.rkey = b->mr->rkey;
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	while (!ibv_poll_cq(a->cq, 1, &wc))
		;
	wr.send_flags = 0;
	wr.opcode = IBV_WR_TSO;
	MISTAKE("unknown operation", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	wr.opcode = IBV_WR_SEND;
	wr.num_sge = -1;
	MISTAKE("negative number of elements", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	wr.num_sge = 1;
	wr.sg_list = NULL;
	MISTAKE("no list of elements", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	wr.sg_list = sges;
	wr.num_sge = 3;
	MISTAKE("too many elements", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	sges[0].length = 1000;
	MISTAKE("inline data too long", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	wr.opcode = IBV_WR_RDMA_READ;
	sges[0].length = 8;
	MISTAKE("inline read", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	wr.opcode = IBV_WR_SEND;
	sges[0].addr = 0;
	MISTAKE("inline data at NULL", CHECK(ibv_post_send(a->qp, &wr, &bad)));
	MISTAKE("poll for -1", CHECK(ibv_poll_cq(a->cq, -1, &wc) < 0));
	sges[0].addr = (uintptr_t)a->memory;
	wr.send_flags = 0;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)b->memory;
	wr.wr.rdma.rkey = b->mr->rkey;
	wr.send_flags = IBV_SEND_SIGNALED;
	/* Nothing is polled. */
	MISTAKE("send queue full", do full = ibv_post_send(a->qp, &wr, &bad); while (!full); CHECK(full == ENOMEM));
	for (int i = 0; i < 2; i++)
		CHECK(ibv_post_send(a->qp, &wr, &bad) == ENOMEM);
	end_pair(ends);
}

static void completions(void)
{
	struct end ends[2], *a = &ends[0], *b = &ends[1];
	struct ibv_pd *other;
	struct ibv_mr *mr;
	const struct ibv_send_wr write = { .wr_id = 7, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)b->memory, 0 } };
	struct ibv_send_wr wr;
	struct ibv_sge own;

#define PAIR() (make_pair(ends), wr = write, wr.wr.rdma.rkey = b->mr->rkey, \
	own = (struct ibv_sge){ (uintptr_t)a->memory, 64, a->mr->lkey })
	PAIR();
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, ALL)));
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_dereg_mr(mr));
	MISTAKE("write to a deregistered region", post(a, wr, own); fails(a->cq));
	end_pair(ends);
	PAIR();
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)));
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	MISTAKE("write without the right", post(a, wr, own); fails(a->cq));
	CHECK(!ibv_dereg_mr(mr));
	end_pair(ends);
	PAIR();
	wr.wr.rdma.remote_addr += 4040;
	MISTAKE("write beyond the region", post(a, wr, own); fails(a->cq));
	end_pair(ends);
	PAIR();
	CHECK((other = ibv_alloc_pd(context)) && (mr = ibv_reg_mr(other, memory, sizeof memory, ALL)));
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	MISTAKE("write to another domain", post(a, wr, own); fails(a->cq));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(other));
	end_pair(ends);
	PAIR();
	own.lkey = 0x1234;
	MISTAKE("unknown lkey", post(a, wr, own); fails(a->cq));
	end_pair(ends);
	PAIR();
	receive(b, b->mr->lkey, 16);
	wr.opcode = IBV_WR_SEND;
	MISTAKE("message longer than its receive", post(a, wr, own); fails(a->cq));
	MISTAKE("receive shorter than its message", fails(b->cq));
	end_pair(ends);
	PAIR();
	wr.opcode = IBV_WR_SEND;
	MISTAKE("no receive posted", post(a, wr, own); fails(a->cq));
	end_pair(ends);
	PAIR();
	receive(b, 0x1234, 64);
	wr.opcode = IBV_WR_SEND;
	MISTAKE("receive with an unknown lkey", post(a, wr, own); fails(a->cq));
	end_pair(ends);
	PAIR();
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)b->memory + 1;
	wr.wr.atomic.rkey = b->mr->rkey;
	own.length = 8;
	MISTAKE("atomic at an odd address", post(a, wr, own); fails(a->cq));
	end_pair(ends);
	PAIR();
	/* When a write has completed, the two are connected. */
	struct ibv_wc wc;
	post(a, wr, own);
	while (!ibv_poll_cq(a->cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && !ibv_destroy_qp(b->qp));
	b->qp = NULL;
	MISTAKE("peer gone", post(a, wr, own); fails(a->cq));
	end_pair(ends);
}

static void connections(void)
{
	struct sockaddr_in addr = here(0), wrong = { .sin_family = AF_UNIX }, foreign = here(0);
	struct sockaddr *any = (struct sockaddr *)&addr;
	struct rdma_cm_id *id, *bound, *made;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct rdma_conn_param param = { .private_data = memory, .private_data_len = 255 };
	struct rdma_addrinfo *found;
	struct rdma_cm_event *event;
	int on = 1;

	foreign.sin_addr.s_addr = inet_addr("192.0.2.1");
	CHECK((channel = rdma_create_event_channel()));
	MISTAKE("unknown port space", CHECK(rdma_create_id(channel, &id, NULL, 0x77)));
	MISTAKE("identifier into nothing", CHECK(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP)));
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(channel, &bound, NULL, RDMA_PS_TCP));
	MISTAKE("bind to nothing", CHECK(rdma_bind_addr(id, NULL)));
	MISTAKE("bind to a Unix address", CHECK(rdma_bind_addr(id, (struct sockaddr *)&wrong)));
	MISTAKE("bind to another host", CHECK(rdma_bind_addr(id, (struct sockaddr *)&foreign)));
	CHECK(!rdma_bind_addr(bound, any));
	MISTAKE("bind twice", CHECK(rdma_bind_addr(bound, any)));
	addr.sin_port = rdma_get_src_port(bound);
	MISTAKE("bind to a port in use", CHECK(rdma_bind_addr(id, any)));
	CHECK(!rdma_listen(bound, 1));
	MISTAKE("listen twice", CHECK(rdma_listen(bound, 1)));
	MISTAKE("route without an address", CHECK(rdma_resolve_route(id, 100)));
	MISTAKE("connect without a route", CHECK(rdma_connect(id, &param)));
	MISTAKE("accept nothing", CHECK(rdma_accept(bound, NULL)));
	MISTAKE("reject nothing", CHECK(rdma_reject(bound, NULL, 0)));
	MISTAKE("disconnect nothing", CHECK(rdma_disconnect(id)));
	MISTAKE("queue pair without a device", CHECK(rdma_create_qp(id, NULL, &init)));
	MISTAKE("resolve nothing", CHECK(rdma_resolve_addr(id, NULL, NULL, 100)));
	MISTAKE("option of another level", CHECK(rdma_set_option(id, 5, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on)));
	MISTAKE("option of another size", CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 1)));
	MISTAKE("request of a listener with a channel", CHECK(rdma_get_request(bound, &made)));
	CHECK(!rdma_destroy_id(bound));
	MISTAKE("use a destroyed identifier", CHECK(rdma_listen(bound, 1)));
	MISTAKE("name of a service", CHECK(rdma_getaddrinfo("127.0.0.1", "http", NULL, &found)));
	MISTAKE("name of no host", CHECK(rdma_getaddrinfo("no.such.host.invalid", "7", NULL, &found)));
	MISTAKE("endpoint of nothing", CHECK(rdma_create_ep(&made, NULL, NULL, NULL)));
	MISTAKE("event of no channel", CHECK(rdma_get_cm_event(NULL, &event)));
	CHECK(!rdma_destroy_id(id));
	id = resolved(RDMA_PS_TCP, htons(1));
	init.qp_type = IBV_QPT_UD;
	MISTAKE("queue pair of type UD for a connection", CHECK(rdma_create_qp(id, NULL, &init)));
	init.qp_type = IBV_QPT_RC;
	CHECK(!rdma_create_qp(id, NULL, &init));
	MISTAKE("second queue pair", CHECK(rdma_create_qp(id, NULL, &init)));
	MISTAKE("too much private data", CHECK(rdma_connect(id, &param)));
	param.private_data_len = 0;
	MISTAKE("no listener", CHECK(!rdma_connect(id, &param)); event = any_event(channel));
	CHECK(event->event == RDMA_CM_EVENT_REJECTED && !rdma_ack_cm_event(event));
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && *list && (context = ibv_open_device(*list)) && (pd = ibv_alloc_pd(context)));
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	objects();
	states();
	requests();
	completions();
	connections();
	ibv_free_device_list(list);
	fprintf(stderr, "== end\n");
	return 0;
}
