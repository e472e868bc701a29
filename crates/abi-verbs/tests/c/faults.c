/* A program that knows nothing of faults, except in the scenario "run-time": it prints what it sees. */
#include <infiniband/verbs.h>

#include "../../include/nicety_fault.h"
#include "cm.h"

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[4096];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void make(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK((end->cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .cap = { 16, 16, 4, 4, 64 }, .sq_sig_all = 1,
	};
	CHECK((end->qp = ibv_create_qp(pd, &init)));
	CHECK((end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void join(struct end *end, struct end *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 1 }, .port_num = 1 },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC));
}

static void write_to(struct end *from, struct end *to, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)from->memory, 8, from->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)to->memory, to->mr->rkey } }, *bad;

	CHECK(!ibv_post_send(from->qp, &wr, &bad));
}

static void print_next(struct end *end)
{
	struct ibv_wc wc;
	int found;

	while (!(found = ibv_poll_cq(end->cq, 1, &wc)))
		;
	CHECK(found == 1);
	printf("request %lu: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
}

static void writes(void)
{
	static struct end a, b;

	make(&a);
	make(&b);
	join(&a, &b);
	join(&b, &a);
	for (int i = 1; i <= 4; i++)
		write_to(&a, &b, i);
	for (int i = 1; i <= 4; i++)
		print_next(&a);
}

static void registers(void)
{
	static char memory[64];
	struct ibv_mr *mrs[8];

	for (int i = 0; i < 8; i++) {
		mrs[i] = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		printf("region %d: %s\n", i + 1, mrs[i] ? "ok" : strerror(errno));
	}
}

static void port(void)
{
	struct ibv_async_event event;
	struct ibv_port_attr attr;

	CHECK(!ibv_get_async_event(context, &event) && !ibv_query_port(context, 1, &attr));
	printf("event: %s, of port %d, %s\n", ibv_event_type_str(event.event_type), event.element.port_num, ibv_port_state_str(attr.state));
	ibv_ack_async_event(&event);
}

static void connects(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 4, 4, 64 } };
	struct rdma_conn_param param = { .retry_count = 7 };

	CHECK((channel = rdma_create_event_channel()));
	struct rdma_cm_id *id = resolved(RDMA_PS_TCP, htons(7));
	CHECK(!rdma_create_qp(id, NULL, &init) && !rdma_connect(id, &param));
	struct rdma_cm_event *event = any_event(channel);
	printf("connecting: %s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(!rdma_ack_cm_event(event));
}

/* Writes until one fails. */
static void until_failure(void)
{
	static struct end a, b;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int found;

	make(&a);
	make(&b);
	join(&a, &b);
	join(&b, &a);
	while (wc.status == IBV_WC_SUCCESS) {
		write_to(&a, &b, 1);
		while (!(found = ibv_poll_cq(a.cq, 1, &wc)))
			;
		CHECK(found == 1);
	}
	printf("failed: %s\n", ibv_wc_status_str(wc.status));
}

static void at_run_time(void)
{
	char why[512];

	CHECK(nicety_fault_answer(getpid(), "on=write status=BAD", why, sizeof why) == EINVAL);
	printf("refused: %s", why);
	CHECK(!nicety_fault(getpid(), "on=write nth=2 status=IBV_WC_REM_ACCESS_ERR"));
	writes();
	CHECK(!nicety_fault_answer(getpid(), "list", why, sizeof why));
	printf("list: %s", why);
}

int main(int count, char **words)
{
	CHECK(count == 2 && (context = ibv_open_device(ibv_get_device_list(NULL)[0])));
	CHECK((pd = ibv_alloc_pd(context)) && !ibv_query_gid(context, 1, 0, &gid));
	if (!strcmp(words[1], "writes"))
		writes();
	else if (!strcmp(words[1], "registers"))
		registers();
	else if (!strcmp(words[1], "port"))
		port();
	else if (!strcmp(words[1], "connects"))
		connects();
	else if (!strcmp(words[1], "until-failure"))
		until_failure();
	else if (!strcmp(words[1], "run-time"))
		at_run_time();
	return 0;
}
