/* Events after the end of a connection: the last receive of a queue pair with a shared receive queue, and the end of time-wait. Also
   limits of shared receive queues, which are reported once. */
#include <fcntl.h>
#include <poll.h>

#include "cm.h"

enum { RECEIVES = 8 };

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;

/* A connection whose server takes its receives from the shared queue. */
struct both {
	struct rdma_cm_id *at, *to, *from;
};

static void add_qp(struct rdma_cm_id *id, struct ibv_srq *shared)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, shared ? 0 : 8, 1, 1, 0 }, .sq_sig_all = 1, .send_cq = cq,
		.recv_cq = cq, .srq = shared };

	CHECK(!rdma_create_qp(id, pd, &init));
}

static struct both connected(void)
{
	struct sockaddr_in addr = here(0);
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct both both;

	CHECK(!rdma_create_id(channel, &both.at, NULL, RDMA_PS_TCP) && !rdma_bind_addr(both.at, (struct sockaddr *)&addr));
	CHECK(!rdma_listen(both.at, 4));
	both.to = resolved(RDMA_PS_TCP, rdma_get_src_port(both.at));
	add_qp(both.to, NULL);
	CHECK(!rdma_connect(both.to, &param));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	both.from = event->id;
	CHECK(!rdma_ack_cm_event(event));
	add_qp(both.from, srq);
	CHECK(!rdma_accept(both.from, &param));
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ESTABLISHED)));
	return both;
}

static void part(struct both both)
{
	CHECK(!rdma_disconnect(both.to));
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_DISCONNECTED)));
}

static void destroy(struct both both)
{
	rdma_destroy_qp(both.to);
	rdma_destroy_qp(both.from);
	CHECK(!rdma_destroy_id(both.to) && !rdma_destroy_id(both.from) && !rdma_destroy_id(both.at));
}

static int has_come(int fd, int milliseconds)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, milliseconds);
}

static void post_receives(int count)
{
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;

	for (int i = 0; i < count; i++)
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
}

/* Sends, and waits until the messages are received: `count` completions on each side. */
static void exchange(struct both both, int count)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;

	for (int i = 0; i < count; i++)
		CHECK(!ibv_post_send(both.to->qp, &wr, &bad));
	for (int done = 0; done < 2 * count;)
		if (ibv_poll_cq(cq, 1, &wc)) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			done++;
		}
}

static struct ibv_async_event next_async(enum ibv_event_type kind)
{
	struct ibv_async_event event;

	CHECK(!ibv_get_async_event(pd->context, &event));
	if (event.event_type != kind) {
		printf("%s and not %s\n", ibv_event_type_str(event.event_type), ibv_event_type_str(kind));
		exit(1);
	}
	ibv_ack_async_event(&event);
	return event;
}

static unsigned limit(void)
{
	struct ibv_srq_attr attr;

	CHECK(!ibv_query_srq(srq, &attr));
	return attr.srq_limit;
}

/* A limit is reported once, and reads 0 from then on (ibv_modify_srq(3)); the program sets it again. */
static void limits(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 4 };
	struct both both = connected();

	for (int round = 0; round < 3; round++) {
		post_receives(round ? 4 : 6);
		CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) && limit() == 4);
		exchange(both, 2);
		CHECK(!has_come(pd->context->async_fd, 0) && limit() == 4);
		exchange(both, 1);
		CHECK(next_async(IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq && !limit());
		exchange(both, 1);
		CHECK(!has_come(pd->context->async_fd, 20));
	}
	part(both);
	CHECK(next_async(IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == both.from->qp);
	exchange((struct both){ 0 }, 0);
	destroy(both);
}

/* A queue pair with a shared receive queue reports once that it takes no more receives: it has ended, and the receives it had taken have
   completed (ibv_get_async_event(3)). Other queue pairs do not report this. */
static void last_receives(void)
{
	for (int by_hand = 0; by_hand < 2; by_hand++) {
		struct both both = connected();
		struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

		post_receives(2);
		exchange(both, 2);
		CHECK(!has_come(pd->context->async_fd, 20));
		if (by_hand)
			CHECK(!ibv_modify_qp(both.from->qp, &error, IBV_QP_STATE));
		else
			part(both);
		struct ibv_async_event event = next_async(IBV_EVENT_QP_LAST_WQE_REACHED);
		CHECK(event.element.qp == both.from->qp && event.element.qp->qp_context == both.from->qp->qp_context);
		CHECK(!ibv_modify_qp(both.from->qp, &error, IBV_QP_STATE));
		CHECK(!has_come(pd->context->async_fd, 50));
		if (by_hand)
			for (int i = 0; i < 2; i++)
				CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_DISCONNECTED)));
		destroy(both);
	}
}

/* Both sides are notified, a while after the connection has ended, that their queue pairs can be reused. Identifiers destroyed before
   that get no event. */
static void time_waits(void)
{
	struct both both = connected();
	struct rdma_cm_event *event;
	int seen = 0;

	part(both);
	while (seen != 3) {
		CHECK(has_come(channel->fd, 10000) && !rdma_get_cm_event(channel, &event));
		CHECK(event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT && !event->status && !event->param.conn.private_data_len);
		CHECK(!(seen & (event->id == both.to ? 1 : 2)));
		seen |= event->id == both.to ? 1 : 2;
		CHECK(!rdma_ack_cm_event(event));
	}
	CHECK(next_async(IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == both.from->qp);
	destroy(both);

	both = connected();
	part(both);
	next_async(IBV_EVENT_QP_LAST_WQE_REACHED);
	destroy(both);
	CHECK(!has_come(channel->fd, 1500));
}

int main(void)
{
	CHECK((channel = rdma_create_event_channel()));
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct ibv_srq_init_attr init = { .attr = { RECEIVES, 1, 0 } };

	CHECK((pd = ibv_alloc_pd(devices[0])) && (cq = ibv_create_cq(devices[0], 64, NULL, NULL, 0)) && (srq = ibv_create_srq(pd, &init)));
	limits();
	last_receives();
	time_waits();
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	rdma_free_devices(devices);
	rdma_destroy_event_channel(channel);
	printf("all ended\n");
	return 0;
}
