/* Values that cards and librdmacm reject: too much private data, options of a wrong size, access flags that the device does not support,
   completion queues smaller than their pending completions. */
#include <fcntl.h>

#include "cm.h"

static struct ibv_qp *add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 }, .sq_sig_all = 1 };

	CHECK(!rdma_create_qp(id, NULL, &init));
	return id->qp;
}

#define REFUSED(call) do { errno = 0; CHECK((call) == -1 && errno == EINVAL); } while (0)

static struct rdma_cm_id *listener(enum rdma_port_space space)
{
	struct sockaddr_in addr = here(0);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, space) && !rdma_bind_addr(id, (struct sockaddr *)&addr) && !rdma_listen(id, 4));
	return id;
}

/* Maximum private data of each message (rdma_connect(3), rdma_accept(3), IBA 12.6). */
static void private_data(enum rdma_port_space space, int request, int reply, int rejection)
{
	static char bytes[256];
	struct rdma_conn_param param = { .private_data = bytes, .qp_num = 1 };
	struct rdma_cm_id *at = listener(space);

	memset(bytes, 7, sizeof bytes);
	for (int accepts = 0; accepts < 2; accepts++) {
		struct rdma_cm_id *to = resolved(space, rdma_get_src_port(at));
		add_qp(to);
		if (request < 255) {
			param.private_data_len = request + 1;
			REFUSED(rdma_connect(to, &param));
		}
		param.private_data_len = request;
		CHECK(!rdma_connect(to, &param));
		struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *from = event->id;
		CHECK(event->param.conn.private_data_len == request && !memcmp(event->param.conn.private_data, bytes, request));
		CHECK(!rdma_ack_cm_event(event));
		add_qp(from);
		if (reply < 255) {
			param.private_data_len = reply + 1;
			REFUSED(rdma_accept(from, &param));
			REFUSED(rdma_reject(from, bytes, rejection + 1));
		}
		param.private_data_len = reply;
		CHECK(!(accepts ? rdma_accept(from, &param) : rdma_reject(from, bytes, rejection)));
		int len = accepts ? reply : rejection;
		for (;;) {
			CHECK(!rdma_get_cm_event(channel, &event));
			if (event->id == to)
				break;
			CHECK(!rdma_ack_cm_event(event));
		}
		CHECK(event->param.conn.private_data_len == len && !memcmp(event->param.conn.private_data, bytes, len));
		CHECK(!rdma_ack_cm_event(event));
		rdma_destroy_qp(to);
		rdma_destroy_qp(from);
		CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(from));
	}
	CHECK(!rdma_destroy_id(at));
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	for (struct rdma_cm_event *event; !rdma_get_cm_event(channel, &event);)
		CHECK(!rdma_ack_cm_event(event));
	CHECK(!fcntl(channel->fd, F_SETFL, 0));
}

static void options(void)
{
	struct rdma_cm_id *id;
	uint8_t byte = 1;
	int number = 1;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
#define OPTION(option, value, size) rdma_set_option(id, RDMA_OPTION_ID, option, value, size)
	REFUSED(OPTION(RDMA_OPTION_ID_TOS, &number, sizeof number));
	REFUSED(OPTION(RDMA_OPTION_ID_REUSEADDR, &byte, sizeof byte));
	REFUSED(OPTION(RDMA_OPTION_ID_AFONLY, &byte, sizeof byte));
	REFUSED(OPTION(RDMA_OPTION_ID_ACK_TIMEOUT, &number, sizeof number));
	CHECK(!OPTION(RDMA_OPTION_ID_TOS, &byte, 1) && !OPTION(RDMA_OPTION_ID_REUSEADDR, &number, sizeof number));
	CHECK(!OPTION(RDMA_OPTION_ID_AFONLY, &number, sizeof number) && !OPTION(RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
	CHECK(!rdma_destroy_id(id));
}

static struct ibv_context *device;
static struct ibv_pd *pd;

/* Access flags that the device does not support, and undefined ones; optional ones are accepted. */
static void rights(void)
{
	static char bytes[64];
	struct ibv_mr *mr;

#define REG(access) (errno = 0, mr = ibv_reg_mr(pd, bytes, sizeof bytes, access))
	CHECK(!REG(1 << 12) && errno == EINVAL);
	CHECK(!REG(IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(REG(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING) && !ibv_dereg_mr(mr));
	CHECK(REG(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_OPTIONAL_FIRST << 5) && !ibv_dereg_mr(mr));
	CHECK(!REG(IBV_ACCESS_LOCAL_WRITE | 1 << 30) && errno == EINVAL);
	/* An unknown flag with a separate start address (iova) as well. */
	errno = 0;
	CHECK(!ibv_reg_mr_iova(pd, bytes, sizeof bytes, 64, 1 << 12) && errno == EINVAL);
	CHECK(REG(IBV_ACCESS_LOCAL_WRITE));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 12));
	CHECK(!ibv_dereg_mr(mr));
}

/* Makes a queue as small as possible, which is the number of its pending completions; then there are no others. */
static void shrink(struct ibv_cq *cq, int waiting)
{
	int old = cq->cqe, size;
	struct ibv_wc wc;

	for (size = 1; size < waiting; size++)
		CHECK(ibv_resize_cq(cq, size) == EINVAL && cq->cqe == old);
	CHECK(!ibv_resize_cq(cq, size) && cq->cqe >= size);
	for (int i = 0; i < waiting; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && (int)wc.wr_id == i);
	CHECK(!ibv_poll_cq(cq, 1, &wc));
}

/* A completion queue cannot become smaller than its pending completions, and keeps them: sends, receives, and flushed requests. */
static void sizes(void)
{
	struct rdma_cm_id *at = listener(RDMA_PS_TCP), *to = resolved(RDMA_PS_TCP, rdma_get_src_port(at)), *from;
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr recv = { 0 }, *bad_recv;
	struct ibv_wc wc;

	add_qp(to);
	CHECK(!rdma_connect(to, &param));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	from = event->id;
	CHECK(!rdma_ack_cm_event(event));
	add_qp(from);
	for (recv.wr_id = 0; recv.wr_id < 8; recv.wr_id++)
		CHECK(!ibv_post_recv(from->qp, &recv, &bad_recv));
	for (recv.wr_id = 0; recv.wr_id < 3; recv.wr_id++)
		CHECK(!ibv_post_recv(to->qp, &recv, &bad_recv));
	CHECK(!rdma_accept(from, &param));
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ESTABLISHED)));
	for (wr.wr_id = 0; wr.wr_id < 6; wr.wr_id++)
		CHECK(!ibv_post_send(to->qp, &wr, &bad));
	/* All have been received when the last is reported. */
	for (int done = 0; done < 6; done += ibv_poll_cq(to->send_cq, 1, &wc))
		;
	for (wr.opcode = IBV_WR_RDMA_WRITE, wr.wr_id = 0; wr.wr_id < 6; wr.wr_id++)
		CHECK(!ibv_post_send(to->qp, &wr, &bad));
	CHECK(!rdma_disconnect(to));
	for (int i = 0; i < 2; i++)
		CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_DISCONNECTED)));
	shrink(to->send_cq, 6);
	shrink(to->recv_cq, 3);
	shrink(from->recv_cq, 8);
	rdma_destroy_qp(to);
	rdma_destroy_qp(from);
	CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(from) && !rdma_destroy_id(at));
}

int main(int argc, char **argv)
{
	CHECK((channel = rdma_create_event_channel()));
	struct ibv_context **devices = rdma_get_devices(NULL);
	CHECK((device = devices[0]) && (pd = ibv_alloc_pd(device)));
	if (argc > 1 && !strcmp(argv[1], "rnic")) {
		private_data(RDMA_PS_TCP, 255, 255, 255);
	} else {
		private_data(RDMA_PS_TCP, 56, 196, 148);
		private_data(RDMA_PS_UDP, 180, 136, 136);
	}
	options();
	rights();
	sizes();
	CHECK(!ibv_dealloc_pd(pd));
	rdma_free_devices(devices);
	rdma_destroy_event_channel(channel);
	printf("all refused\n");
	return 0;
}
