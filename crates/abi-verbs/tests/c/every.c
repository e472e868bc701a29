/* Functions that no other program here needs: descriptions of devices, numbers and names, regions by another address, shared receive
   queues with their limit, an acknowledged asynchronous event, and librdmacm's objects besides connections. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "cm.h"

/* Not declared in the public headers, but called by ibv_devinfo and others. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *kind);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

static char memory[8192];

static void describe(struct ibv_device **list, struct ibv_context *context)
{
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_port_attr port, old;
	struct ibv_gid_entry entry, entries[4];
	union ibv_gid gid;
	char file[16];
	int kind;
	__be16 pkey;

	CHECK(!strcmp(ibv_get_device_name(list[0]), "nicety0") && !ibv_get_device_index(list[0]) && ibv_get_device_guid(list[0]));
	CHECK(*ibv_get_sysfs_path() == '/');
	CHECK(ibv_read_sysfs_file(list[0]->ibdev_path, "node_type", file, sizeof file) > 0 && *file == '1');
	CHECK(ibv_read_sysfs_file(list[0]->ibdev_path, "none", file, sizeof file) == -1);
	CHECK(!ibv_query_device(context, &attr) && attr.max_qp > 0 && attr.phys_port_cnt == 1);
	/* Unsupported features are not advertised. */
	CHECK(attr.max_mw > 0 && (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) && (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	CHECK(!attr.max_mcast_grp && !(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A));
	CHECK(!ibv_query_device_ex(context, NULL, &ex) && ex.orig_attr.max_qp == attr.max_qp && !ex.xrc_odp_caps);
	CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE && ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(!(ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)&old) && old.state == port.state);
	CHECK(!ibv_query_gid(context, 1, 0, &gid) && !ibv_query_gid_ex(context, 1, 0, &entry, 0));
	CHECK(!memcmp(&gid, &entry.gid, sizeof gid) && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
	/* As in the kernel's files: 1 is RoCE v2. */
	CHECK(!ibv_query_gid_type(context, 1, 0, &kind) && kind == 1);
	CHECK(ibv_query_gid_table(context, entries, 4, 0) == port.gid_tbl_len && !memcmp(&gid, &entries[0].gid, sizeof gid));
	CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && !ibv_get_pkey_index(context, 1, pkey) && ibv_get_pkey_index(context, 1, 3) == -1);
}

static void name(void)
{
	CHECK(strstr(ibv_wc_status_str(IBV_WC_SUCCESS), "success") && strcmp(ibv_wc_status_str(99), ibv_wc_status_str(0)));
	CHECK(strstr(ibv_node_type_str(IBV_NODE_CA), "InfiniBand") && strstr(ibv_port_state_str(IBV_PORT_ACTIVE), "ACTIVE"));
	CHECK(strstr(ibv_event_type_str(IBV_EVENT_SRQ_LIMIT_REACHED), "SRQ"));
	CHECK(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
	CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125 && mbps_to_ibv_rate(103125) == IBV_RATE_100_GBPS);
}

static void fork_rules(void)
{
	CHECK(!ibv_fork_init() && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	CHECK(!ibv_dontfork_range(memory, 4096) && !ibv_dofork_range(memory, 4096));
}

static void regions(struct ibv_pd *pd)
{
	uint64_t at = (uintptr_t)memory;
	struct ibv_mr *mr = (ibv_reg_mr_iova)(pd, memory, sizeof memory, at, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr && mr->addr == memory && mr->length == sizeof memory && !ibv_dereg_mr(mr));
	/* Optional access flags are accepted. */
	CHECK((mr = ibv_reg_mr_iova2(pd, memory, 100, at, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING)) && !ibv_dereg_mr(mr));
}

static void of_a_queue_pair(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_ece ece = { .vendor_id = 1 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_ah_attr attr;
	struct ibv_grh grh;
	struct ibv_qp *qp;

	CHECK((init.send_cq = init.recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
	CHECK((qp = ibv_create_qp(pd, &init)));
	CHECK(!ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0));
	CHECK(ibv_set_ece(qp, &ece) == EOPNOTSUPP && !ibv_query_ece(qp, &ece) && !ece.vendor_id && !ibv_set_ece(qp, &ece));
	memset(&grh, 0, sizeof grh);
	CHECK(!ibv_query_gid(context, 1, 0, &grh.sgid) && !ibv_query_gid(context, 1, 0, &grh.dgid));
	CHECK(!ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) && attr.is_global && !memcmp(&attr.grh.dgid, &grh.sgid, 16));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(init.send_cq));
}

/* A connection in one process, whose server takes receives from a shared queue that has a limit. */
static void shared_receives(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD };
	struct ibv_srq_init_attr_ex srq_ex = { .attr = { 8, 1, 0 }, .srq_type = IBV_SRQT_BASIC,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE };
	struct ibv_recv_wr recv[2] = { { .next = &recv[1] }, { .next = NULL } }, *bad_recv;
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SOLICITED }, *bad;
	struct sockaddr_in addr = here(0);
	struct rdma_cm_event *event;
	struct rdma_cm_id *at, *to, *from;
	struct ibv_ece ece = { 0 };
	struct ibv_async_event news;
	struct ibv_cq *cq;
	void *user;
	struct ibv_wc wc;
	uint32_t number;

	CHECK(!rdma_create_id(channel, &at, NULL, RDMA_PS_TCP) && !rdma_bind_addr(at, (struct sockaddr *)&addr) && !rdma_listen(at, 4));
	to = resolved(RDMA_PS_TCP, rdma_get_src_port(at));
	init.pd = to->pd;
	CHECK(!rdma_set_local_ece(to, &ece) && !rdma_create_qp_ex(to, &init) && to->qp);
	/* The first attempt is rejected. */
	for (int try = 0; try < 2; try++) {
		CHECK(!rdma_connect(to, NULL));
		event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		from = event->id;
		CHECK(!rdma_ack_cm_event(event) && !rdma_get_remote_ece(from, &ece) && !ece.vendor_id);
		if (try)
			break;
		CHECK(!rdma_reject_ece(from, "no", 2));
		rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_REJECTED));
		rdma_destroy_qp(to);
		CHECK(!rdma_destroy_id(from) && !rdma_destroy_id(to));
		to = resolved(RDMA_PS_TCP, rdma_get_src_port(at));
		init.pd = to->pd;
		init.send_cq = init.recv_cq = NULL;
		CHECK(!rdma_create_qp_ex(to, &init));
	}
	CHECK(!rdma_create_srq_ex(from, &srq_ex) && from->srq && !ibv_get_srq_num(from->srq, &number));
	rdma_destroy_srq(from);
	struct ibv_srq_init_attr srq = { .attr = { 8, 1, 0 } };
	CHECK(!from->srq && !rdma_create_srq(from, NULL, &srq) && from->srq);
	init.pd = from->pd;
	init.send_cq = init.recv_cq = NULL;
	init.srq = NULL;
	CHECK(!rdma_create_qp_ex(from, &init) && from->qp->srq == from->srq);
	CHECK(!ibv_post_srq_recv(from->srq, recv, &bad_recv));
	CHECK(!ibv_modify_srq(from->srq, &limit, IBV_SRQ_LIMIT) && !ibv_query_srq(from->srq, &limit) && limit.srq_limit == 2);
	CHECK(!ibv_req_notify_cq(from->recv_cq, 1));
	CHECK(!rdma_accept(from, NULL));
	for (int count = 0; count < 2; count++) {
		event = take(channel, RDMA_CM_EVENT_ESTABLISHED);
		rdma_ack_cm_event(event);
	}
	CHECK(!rdma_notify(from, IBV_EVENT_COMM_EST) && !ibv_post_send(to->qp, &send, &bad));
	CHECK(!ibv_get_cq_event(from->recv_cq_channel, &cq, &user) && cq == from->recv_cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	/* One of two is left, which is below the limit. */
	CHECK(!ibv_get_async_event(from->verbs, &news));
	CHECK(news.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && news.element.srq == from->srq);
	ibv_ack_async_event(&news);
	CHECK(!rdma_disconnect(to));
	for (int count = 0; count < 2; count++)
		rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(from);
	rdma_destroy_srq(from);
	rdma_destroy_qp(to);
	CHECK(!rdma_destroy_id(from) && !rdma_destroy_id(to) && !rdma_destroy_id(at));
}

/* Shared receive queues without librdmacm. */
static void bare_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } };
	struct ibv_srq_attr attr;
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	CHECK(srq && !ibv_query_srq(srq, &attr) && attr.max_wr >= 4 && !ibv_destroy_srq(srq));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);

	CHECK(pd && (channel = rdma_create_event_channel()));
	describe(list, context);
	ibv_free_device_list(list);
	name();
	fork_rules();
	regions(pd);
	of_a_queue_pair(context, pd);
	bare_srq(pd);
	shared_receives();
	rdma_destroy_event_channel(channel);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	printf("all gone through\n");
	return 0;
}
