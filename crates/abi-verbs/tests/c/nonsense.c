/* Invalid objects: addresses that are none, destroyed objects, and objects of another type. Each call must report the error and return. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <netdb.h>
#include <poll.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IS(call, wanted) do { \
	errno = 0; \
	long long found_ = (long long)(intptr_t)(call), wanted_ = (long long)(intptr_t)(wanted); \
	if (found_ != wanted_) { \
		printf("line %d: %s is %lld and not %lld (errno %d)\n", __LINE__, #call, found_, wanted_, errno); \
		exit(1); \
	} \
} while (0)

/* A call that returns NULL or -1, and sets errno to this number. */
#define LEAVES(call, nothing, number) do { \
	errno = 0; \
	intptr_t answer_ = (intptr_t)(call); \
	int left_ = errno; \
	IS(answer_, nothing); \
	IS(left_, number); \
} while (0)

struct all {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
};

static char memory[4096];

/* With any invalid handles, all of these calls fail. */
static void refused(struct all h)
{
	struct ibv_device_attr device;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = { .send_cq = h.cq, .recv_cq = h.cq, .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr = { 0 };
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;
	union ibv_gid gid;
	uint16_t pkey;

	IS(ibv_query_device(h.context, &device), EINVAL);
	LEAVES(ibv_query_gid(h.context, 1, 0, &gid), -1, EINVAL);
	LEAVES(ibv_query_pkey(h.context, 1, 0, &pkey), -1, EINVAL);
	LEAVES(ibv_alloc_pd(h.context), 0, EINVAL);
	LEAVES((ibv_reg_mr)(h.pd, memory, sizeof memory, 0), 0, EINVAL);
	LEAVES(ibv_create_comp_channel(h.context), 0, EINVAL);
	LEAVES(ibv_create_cq(h.context, 1, NULL, NULL, 0), 0, EINVAL);
	LEAVES(ibv_create_srq(h.pd, &srq_init), 0, EINVAL);
	LEAVES(ibv_create_qp(h.pd, &init), 0, EINVAL);
	IS(ibv_modify_qp(h.qp, &attr, IBV_QP_STATE), EINVAL);
	IS(ibv_query_qp(h.qp, &attr, 0, &init), EINVAL);
	IS(ibv_modify_srq(h.srq, &srq_attr, IBV_SRQ_LIMIT), EINVAL);
	IS(ibv_query_srq(h.srq, &srq_attr), EINVAL);
	IS(ibv_resize_cq(h.cq, 1), EINVAL);
	LEAVES(ibv_get_cq_event(h.channel, &cq, &context), -1, EINVAL);
	LEAVES(ibv_get_async_event(h.context, &event), -1, EINVAL);
	LEAVES(ibv_qp_to_qp_ex(h.qp), 0, EINVAL);
	ibv_ack_cq_events(h.cq, 1);
	IS(ibv_destroy_qp(h.qp), EINVAL);
	IS(ibv_destroy_srq(h.srq), EINVAL);
	IS(ibv_destroy_cq(h.cq), EINVAL);
	IS(ibv_destroy_comp_channel(h.channel), EINVAL);
	IS(ibv_dereg_mr(h.mr), EINVAL);
	IS(ibv_dealloc_pd(h.pd), EINVAL);
	IS(ibv_close_device(h.context), EINVAL);
}

/* Calls through the tables of a context, which programs read without a call to the library. */
static void refused_inline(struct ibv_context *context, struct all h)
{
	struct ibv_wc wc;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr recv = { 0 }, *bad_recv;
	struct ibv_port_attr port;

	IS(context->ops.poll_cq(h.cq, 1, &wc), -EINVAL);
	IS(context->ops.req_notify_cq(h.cq, 0), EINVAL);
	IS(context->ops.post_send(h.qp, &send, &bad_send), EINVAL);
	IS(bad_send, &send);
	IS(context->ops.post_recv(h.qp, &recv, &bad_recv), EINVAL);
	IS(bad_recv, &recv);
	IS(context->ops.post_srq_recv(h.srq, &recv, &bad_recv), EINVAL);
	IS(verbs_get_ctx(context)->query_port(h.context, 1, &port, sizeof port), EINVAL);
}

static struct all make(struct ibv_context *context)
{
	struct all h = { .context = context };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

	IS((h.pd = ibv_alloc_pd(context)) != NULL, 1);
	IS((h.mr = (ibv_reg_mr)(h.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)) != NULL, 1);
	IS((h.channel = ibv_create_comp_channel(context)) != NULL, 1);
	IS((h.cq = ibv_create_cq(context, 4, &h, h.channel, 0)) != NULL, 1);
	IS((h.srq = ibv_create_srq(h.pd, &srq_init)) != NULL, 1);
	init.send_cq = init.recv_cq = h.cq;
	IS((h.qp = ibv_create_qp(h.pd, &init)) != NULL, 1);
	return h;
}

/* Objects in use cannot be destroyed; then destroys them in the right order. */
static void unmake(struct all h)
{
	IS(ibv_dealloc_pd(h.pd), EBUSY);
	IS(ibv_destroy_cq(h.cq), EBUSY);
	IS(ibv_destroy_comp_channel(h.channel), EBUSY);
	IS(ibv_destroy_qp(h.qp), 0);
	IS(ibv_destroy_srq(h.srq), 0);
	IS(ibv_destroy_cq(h.cq), 0);
	IS(ibv_destroy_comp_channel(h.channel), 0);
	IS(ibv_dereg_mr(h.mr), 0);
	IS(ibv_dealloc_pd(h.pd), 0);
}

/* Invalid arguments, with valid objects. */
static void wrong_arguments(struct all h)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_qp_init_attr init = { .send_cq = h.cq, .recv_cq = h.cq, .qp_type = IBV_QPT_UC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_cq *cq;
	void *context;

	IS(ibv_modify_qp(h.qp, &attr, IBV_QP_STATE), EINVAL);
	IS(ibv_modify_qp(h.qp, NULL, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 2;
	IS(ibv_modify_qp(h.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), EINVAL);
	IS(ibv_post_send(h.qp, &send, &bad), EINVAL);
	IS(bad, &send);
	/* A GID of another vendor's device. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	IS(ibv_modify_qp(h.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .ah_attr = { .is_global = 1, .grh.dgid.raw = { 0x20, 1 }, .port_num = 1 } };
	IS(ibv_modify_qp(h.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), EINVAL);
	IS(h.qp->state, IBV_QPS_INIT);
	LEAVES(ibv_create_qp(h.pd, &init), 0, EOPNOTSUPP);
	LEAVES(ibv_create_qp(h.pd, NULL), 0, EINVAL);
	LEAVES((ibv_reg_mr)(h.pd, NULL, 1, 0), 0, EINVAL);
	LEAVES((ibv_reg_mr)(h.pd, memory, 1, IBV_ACCESS_REMOTE_WRITE), 0, EINVAL);
	LEAVES(ibv_create_cq(h.context, 0, NULL, NULL, 0), 0, EINVAL);
	LEAVES(ibv_create_cq(h.context, -1, NULL, NULL, 0), 0, EINVAL);
	LEAVES(ibv_create_cq(h.context, 1, NULL, NULL, 1), 0, EINVAL);
	IS(fcntl(h.channel->fd, F_SETFL, O_NONBLOCK), 0);
	LEAVES(ibv_get_cq_event(h.channel, &cq, &context), -1, EAGAIN);
	int copy = dup(h.context->cmd_fd);
	IS(copy >= 0, 1);
	LEAVES(ibv_import_device(copy), 0, EOPNOTSUPP);
	close(copy);
}

/* Invalid identifiers and channels of librdmacm. */
static void refused_connections(void *handle)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = 0;

	/* Without a channel it has its own. */
	if (handle)
		LEAVES(rdma_create_id(handle, &id, NULL, RDMA_PS_TCP), -1, EINVAL);
	LEAVES(rdma_get_cm_event(handle, &event), -1, EINVAL);
	LEAVES(rdma_ack_cm_event(handle), -1, EINVAL);
	LEAVES(rdma_bind_addr(handle, (struct sockaddr *)&addr), -1, EINVAL);
	LEAVES(rdma_resolve_addr(handle, NULL, (struct sockaddr *)&addr, 1), -1, EINVAL);
	LEAVES(rdma_resolve_route(handle, 1), -1, EINVAL);
	LEAVES(rdma_listen(handle, 1), -1, EINVAL);
	LEAVES(rdma_connect(handle, NULL), -1, EINVAL);
	LEAVES(rdma_accept(handle, NULL), -1, EINVAL);
	LEAVES(rdma_reject(handle, NULL, 0), -1, EINVAL);
	LEAVES(rdma_disconnect(handle), -1, EINVAL);
	LEAVES(rdma_destroy_id(handle), -1, EINVAL);
	LEAVES(rdma_create_qp(handle, NULL, &init), -1, EINVAL);
	LEAVES(rdma_create_srq(handle, NULL, &srq), -1, EINVAL);
	LEAVES(rdma_init_qp_attr(handle, &attr, &mask), -1, EINVAL);
	LEAVES(rdma_migrate_id(handle, NULL), -1, EINVAL);
	LEAVES(rdma_get_request(handle, &id), -1, EINVAL);
	LEAVES(rdma_create_ep(&id, NULL, NULL, NULL), -1, EINVAL);
	LEAVES(rdma_set_option(handle, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, sizeof mask), -1, EINVAL);
	LEAVES(rdma_establish(handle), -1, EINVAL);
	LEAVES(rdma_notify(handle, IBV_EVENT_COMM_EST), -1, EINVAL);
	IS(rdma_get_src_port(handle), 0);
	rdma_destroy_ep(handle);
	rdma_destroy_srq(handle);
	rdma_freeaddrinfo(handle);
	rdma_free_devices(handle);
	rdma_destroy_event_channel(handle);
	rdma_destroy_qp((struct rdma_cm_id *)memory);
}

/* Identifiers that reach nobody: their errors and events. */
static void lost_connections(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = 1, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct rdma_cm_event *event;
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;

	IS(rdma_create_id(channel, &id, &addr, RDMA_PS_TCP), 0);
	LEAVES(rdma_resolve_route(id, 1), -1, EINVAL);
	LEAVES(rdma_connect(id, NULL), -1, EINVAL);
	LEAVES(rdma_accept(id, NULL), -1, EINVAL);
	LEAVES(rdma_disconnect(id), -1, EINVAL);
	LEAVES(rdma_create_qp(id, NULL, &init), -1, EINVAL);
	LEAVES(rdma_create_qp(id, NULL, NULL), -1, EINVAL);
	LEAVES(rdma_get_request(id, &id), -1, EINVAL);
	LEAVES(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP), -1, EINVAL);
	LEAVES(rdma_getaddrinfo(NULL, NULL, NULL, &info), -1, EINVAL);
	IS(rdma_getaddrinfo("no such host", NULL, NULL, &info), EAI_NONAME);
	IS(rdma_getaddrinfo("127.0.0.1", "no such service", NULL, &info), EAI_SERVICE);
	LEAVES(rdma_resolve_addr(id, NULL, NULL, 1), -1, EINVAL);
	addr.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 is no address of this host */
	LEAVES(rdma_bind_addr(id, (struct sockaddr *)&addr), -1, EADDRNOTAVAIL);
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1), 0);
	IS(rdma_get_cm_event(channel, &event), 0);
	IS(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	IS(event->id, id);
	IS(id->verbs != NULL && id->context == &addr && rdma_get_dst_port(id) == 1, 1);
	IS(rdma_ack_cm_event(event), 0);
	LEAVES(rdma_ack_cm_event(event), -1, EINVAL);
	IS(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	LEAVES(rdma_get_cm_event(channel, &event), -1, EAGAIN);
	IS(rdma_destroy_id(id), 0);
	refused_connections(id);
	rdma_destroy_event_channel(channel);
	refused_connections(channel);
}

int main(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct all null = { 0 }, foreign, stale;

	IS(count, 1);
	IS(list[1], 0);
	LEAVES(ibv_open_device(NULL), 0, EINVAL);
	LEAVES(ibv_open_device((struct ibv_device *)memory), 0, EINVAL);
	struct ibv_context *context = ibv_open_device(list[0]);
	IS(context != NULL, 1);
	ibv_free_device_list(list);
	ibv_free_device_list(list);
	ibv_free_device_list(NULL);

	memset(&foreign, 0, sizeof foreign);
	foreign = (struct all){ (void *)memory, (void *)memory, (void *)memory, (void *)memory, (void *)memory, (void *)memory, (void *)memory };
	refused(null);
	refused(foreign);
	refused_inline(context, null);
	refused_inline(context, foreign);

	struct all alive = make(context);
	wrong_arguments(alive);
	/* Each object in the place of another. */
	refused((struct all){ (void *)alive.pd, (void *)alive.mr, (void *)alive.channel, (void *)alive.cq, (void *)alive.srq, (void *)alive.qp, (void *)alive.context });
	/* Addresses in the middle of an object. */
	refused((struct all){ (void *)((char *)alive.context + 8), (void *)((char *)alive.pd + 8), (void *)((char *)alive.mr + 8),
		(void *)((char *)alive.channel + 8), (void *)((char *)alive.cq + 8), (void *)((char *)alive.srq + 8), (void *)((char *)alive.qp + 8) });
	refused_connections(NULL);
	refused_connections(memory);
	refused_connections(alive.qp);
	lost_connections();
	unmake(alive);
	stale = alive;
	IS(ibv_close_device(context), 0);
	refused(stale);
	printf("all refused\n");
	return 0;
}
