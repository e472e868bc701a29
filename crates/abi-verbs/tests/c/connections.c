/* Connections with both ends in one process: private data, rejections, queue pairs that the program creates itself, identifiers without a
   channel, ends that are destroyed, and threads that are cancelled while they wait. */
#include <unistd.h>

#include "cm.h"

/* Takes the next event, which must be of this kind; its contents are stored in these variables. */
static char data[256];
static int data_len, status;
static struct rdma_cm_id *listened;

static struct rdma_cm_id *taken(struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;

	data_len = event->param.conn.private_data_len;
	if (data_len)
		memcpy(data, event->param.conn.private_data, data_len);
	status = event->status;
	listened = event->listen_id;
	CHECK(!rdma_ack_cm_event(event));
	return id;
}

static struct rdma_cm_id *next_on(struct rdma_event_channel *where, enum rdma_cm_event_type kind)
{
	return taken(take(where, kind));
}

static struct rdma_cm_id *next(enum rdma_cm_event_type kind)
{
	return next_on(channel, kind);
}

static struct rdma_cm_id *listener(uint16_t port)
{
	struct sockaddr_in addr = here(port);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, &channel, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&addr));
	/* Programs announce where they are going to listen. */
	uint16_t bound = rdma_get_src_port(id);
	CHECK(bound && (!port || bound == port));
	CHECK(!rdma_listen(id, 0));
	CHECK(rdma_get_src_port(id) == bound);
	return id;
}

/* Creates a queue pair for an identifier, by librdmacm or by hand. */
static struct ibv_qp *add_qp(struct rdma_cm_id *id, int by_hand)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1 };

	if (!by_hand) {
		CHECK(!rdma_create_qp(id, NULL, &init));
		CHECK(id->qp && id->send_cq && id->recv_cq_channel && id->pd && init.send_cq == id->send_cq);
		return id->qp;
	}
	init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	struct ibv_qp *qp = ibv_create_qp(id->pd, &init);
	CHECK(qp);
	return qp;
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attr, &mask));
	CHECK(!ibv_modify_qp(qp, &attr, mask));
	CHECK(qp->state == state);
}

/* Works before a queue pair is created, and afterwards. */
static void set_timeout(struct rdma_cm_id *id, uint8_t timeout)
{
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout));
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, NULL, 0) == -1);
}

static int timeout_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_TIMEOUT, &init));
	return attr.timeout;
}

static struct rdma_cm_id *client(uint16_t port, struct ibv_qp **qp, int by_hand, const char *says)
{
	struct sockaddr_in addr = here(port);
	struct rdma_conn_param param = { .private_data = says, .private_data_len = strlen(says), .initiator_depth = 3, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000));
	CHECK(next(RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	CHECK(!rdma_resolve_route(id, 1000));
	CHECK(next(RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
	CHECK(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(id->pd && id->pd->context == id->verbs);
	if (by_hand)
		set_timeout(id, 21);
	*qp = add_qp(id, by_hand);
	if (by_hand) {
		param.qp_num = (*qp)->qp_num;
		move(id, *qp, IBV_QPS_INIT);
	} else {
		set_timeout(id, 14);
	}
	CHECK(!rdma_connect(id, &param));
	return id;
}

static struct rdma_cm_id *accept_as(struct rdma_cm_id *id, struct rdma_cm_id *of, struct ibv_qp **qp, int by_hand)
{
	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 5, .rnr_retry_count = 7 };

	CHECK(listened == of && id->context == &channel && id->verbs);
	*qp = add_qp(id, by_hand);
	if (by_hand) {
		param.qp_num = (*qp)->qp_num;
		move(id, *qp, IBV_QPS_INIT);
		move(id, *qp, IBV_QPS_RTR);
		move(id, *qp, IBV_QPS_RTS);
	}
	CHECK(!rdma_accept(id, &param));
	return id;
}

static struct rdma_cm_id *server(struct rdma_cm_id *of, struct ibv_qp **qp, int by_hand)
{
	return accept_as(next(RDMA_CM_EVENT_CONNECT_REQUEST), of, qp, by_hand);
}

/* Sends one message from one queue pair to the other. */
static void message(struct ibv_qp *from, struct ibv_qp *to)
{
	static char bytes[16];
	struct ibv_mr *mr = ibv_reg_mr(to->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge in = { (uintptr_t)bytes, sizeof bytes, mr->lkey }, out = { (uintptr_t)"message", 8, 0 };
	struct ibv_recv_wr recv = { .sg_list = &in, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE }, *bad;
	struct ibv_wc wc;

	memset(bytes, 0, sizeof bytes);
	CHECK(!ibv_post_recv(to, &recv, &bad_recv));
	CHECK(!ibv_post_send(from, &send, &bad));
	while (!ibv_poll_cq(to->recv_cq, 1, &wc))
		ibv_poll_cq(from->send_cq, 0, NULL);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 8 && !strcmp(bytes, "message"));
	while (!ibv_poll_cq(from->send_cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(mr));
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

/* Takes two events that may arrive in either order. */
static void both(enum rdma_cm_event_type first, enum rdma_cm_event_type second, struct rdma_cm_id *a, struct rdma_cm_id *b)
{
	struct rdma_cm_event *event;
	int found = 0;

	for (int count = 0; count < 2; count++) {
		event = any_event(channel);
		if (event->id == a && event->event == first)
			found |= 1;
		if (event->id == b && event->event == second) {
			found |= 2;
			data_len = event->param.conn.private_data_len;
			if (data_len)
				memcpy(data, event->param.conn.private_data, data_len);
		}
		CHECK(!rdma_ack_cm_event(event));
	}
	CHECK(found == 3);
}

static void connect_and_part(int by_hand)
{
	struct rdma_cm_id *at = listener(0);
	struct ibv_qp *qps[2];
	struct rdma_cm_id *to = client(rdma_get_src_port(at), &qps[0], by_hand, "who is there?");
	struct rdma_cm_id *from = server(at, &qps[1], by_hand);

	CHECK(data_len >= 13 && !memcmp(data, "who is there?", 13));
	both(RDMA_CM_EVENT_ESTABLISHED, by_hand ? RDMA_CM_EVENT_CONNECT_RESPONSE : RDMA_CM_EVENT_ESTABLISHED, from, to);
	CHECK(data_len >= 5 && !memcmp(data, "hello", 5));
	if (by_hand) {
		move(to, qps[0], IBV_QPS_RTR);
		move(to, qps[0], IBV_QPS_RTS);
		CHECK(!rdma_establish(to));
	}
	CHECK(qps[0]->state == IBV_QPS_RTS && qps[1]->state == IBV_QPS_RTS);
	CHECK(timeout_of(qps[0]) == (by_hand ? 21 : 14) && !timeout_of(qps[1]));
	message(qps[0], qps[1]);
	message(qps[1], qps[0]);
	errno = 0;
	CHECK(rdma_connect(to, NULL) == -1 && errno == EINVAL);
	CHECK(!rdma_disconnect(to));
	both(RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DISCONNECTED, from, to);
	CHECK(qps[0]->state == IBV_QPS_ERR && qps[1]->state == IBV_QPS_ERR);
	CHECK(!rdma_disconnect(from));
	end(to);
	end(from);
	end(at);
}

/* The peer has sent, and disconnected: the event is reported when the message has been polled. Destroying the queue pair discards what is
   left. */
static void last_words(void)
{
	struct rdma_cm_id *at = listener(0);
	struct ibv_qp *qps[2];
	struct rdma_cm_id *to = client(rdma_get_src_port(at), &qps[0], 0, ""), *from = server(at, &qps[1], 1);
	struct ibv_cq *cq = qps[1]->recv_cq;
	struct ibv_recv_wr recv[2] = { { .wr_id = 7, .next = &recv[1] }, { .wr_id = 8 } }, *bad_recv;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;

	both(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED, from, to);
	CHECK(!ibv_post_recv(qps[1], recv, &bad_recv));
	CHECK(!ibv_post_send(qps[0], &send, &bad));
	while (!ibv_poll_cq(qps[0]->send_cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_disconnect(to));
	CHECK(next(RDMA_CM_EVENT_DISCONNECTED) == to);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	CHECK(next(RDMA_CM_EVENT_DISCONNECTED) == from);
	CHECK(!ibv_destroy_qp(qps[1]));
	CHECK(!ibv_poll_cq(cq, 1, &wc));
	CHECK(!ibv_destroy_cq(cq));
	end(to);
	end(from);
	end(at);
}

/* A port in both address families, as servers use it that listen in each separately. */
static void both_families(void)
{
	struct rdma_cm_id *four, *six;
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct sockaddr_in6 other = { .sin6_family = AF_INET6 };
	int yes = 1;

	CHECK(!rdma_create_id(channel, &four, NULL, RDMA_PS_TCP) && !rdma_bind_addr(four, (struct sockaddr *)&any));
	CHECK(!rdma_listen(four, 0));
	other.sin6_port = rdma_get_src_port(four);
	CHECK(!rdma_create_id(channel, &six, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes));
	CHECK(!rdma_bind_addr(six, (struct sockaddr *)&other) && !rdma_listen(six, 0));
	end(six);
	end(four);
}

/* Rejections: by the program, because nobody listens, and because the listener is destroyed before it answers. */
static void refusals(void)
{
	struct rdma_cm_id *at = listener(0), *to;
	uint16_t port = rdma_get_src_port(at);
	struct ibv_qp *qp;

	to = client(port, &qp, 0, "please");
	struct rdma_cm_id *from = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject(from, "no", 2));
	CHECK(next(RDMA_CM_EVENT_REJECTED) == to && status == 28 && data_len >= 2 && !memcmp(data, "no", 2));
	CHECK(qp->state == IBV_QPS_ERR);
	end(from);
	end(to);

	to = client(port, &qp, 0, "");
	usleep(100000);
	end(at);
	CHECK(next(RDMA_CM_EVENT_REJECTED) == to);
	end(to);

	to = client(port, &qp, 0, "");
	CHECK(next(RDMA_CM_EVENT_REJECTED) == to && status == 8);
	end(to);

	/* The listener starts a little later. On a busy machine that may be too late, several times. */
	struct rdma_cm_event *event;
	struct ibv_qp *other;
	for (int tries = 0;; tries++) {
		to = client(port, &qp, 0, "");
		usleep(50000);
		at = listener(port);
		event = any_event(channel);
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			break;
		CHECK(event->event == RDMA_CM_EVENT_REJECTED && tries < 20);
		end(taken(event));
		end(at);
	}
	from = accept_as(taken(event), at, &other, 0);
	both(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED, from, to);

	/* A program that destroys a connected queue pair gets the disconnect event, and so does the peer. */
	rdma_destroy_qp(to);
	both(RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DISCONNECTED, from, to);
	end(to);
	end(from);
	end(at);
}

/* Connect requests for a port that is bound but not listening yet are kept. */
static void before_listening(void)
{
	struct sockaddr_in any = here(0);
	struct rdma_cm_id *at, *to, *from;
	struct ibv_qp *qps[2];

	CHECK(!rdma_create_id(channel, &at, &channel, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(at, (struct sockaddr *)&any));
	to = client(rdma_get_src_port(at), &qps[0], 0, "early");
	usleep(50000);
	CHECK(!rdma_listen(at, 0));
	from = server(at, &qps[1], 0);
	CHECK(data_len >= 5 && !memcmp(data, "early", 5));
	both(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED, from, to);
	end(to);
	end(from);
	end(at);
}

/* No more connect requests wait than the program's backlog, whether it was set before they arrived or after. */
static void backlog(void)
{
	struct sockaddr_in any = here(0);
	struct rdma_cm_id *at, *to[4], *from;
	struct ibv_qp *qp;

	CHECK(!rdma_create_id(channel, &at, &channel, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(at, (struct sockaddr *)&any));
	for (int i = 0; i < 2; i++) {
		to[i] = client(rdma_get_src_port(at), &qp, 0, "");
		usleep(100000);
	}
	CHECK(!rdma_listen(at, 1));
	from = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(next(RDMA_CM_EVENT_REJECTED) == to[1]);
	to[2] = client(rdma_get_src_port(at), &qp, 0, "");
	CHECK(next(RDMA_CM_EVENT_REJECTED) == to[2]);
	CHECK(!rdma_reject(from, NULL, 0) && next(RDMA_CM_EVENT_REJECTED) == to[0]);
	end(from);
	to[3] = client(rdma_get_src_port(at), &qp, 0, "");
	from = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject(from, NULL, 0) && next(RDMA_CM_EVENT_REJECTED) == to[3]);
	end(from);
	for (int i = 0; i < 4; i++)
		end(to[i]);
	end(at);
}

/* Events that an identifier has not delivered migrate with it. */
static void migration(void)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *at = listener(0);
	struct ibv_qp *qps[2];
	struct rdma_cm_id *to = client(rdma_get_src_port(at), &qps[0], 0, ""), *from = server(at, &qps[1], 0);

	CHECK(!rdma_migrate_id(from, other) && from->channel == other);
	CHECK(next(RDMA_CM_EVENT_ESTABLISHED) == to);
	CHECK(next_on(other, RDMA_CM_EVENT_ESTABLISHED) == from);
	CHECK(!rdma_disconnect(from));
	CHECK(next(RDMA_CM_EVENT_DISCONNECTED) == to);
	CHECK(!rdma_migrate_id(from, channel));
	CHECK(next(RDMA_CM_EVENT_DISCONNECTED) == from);
	end(from);
	end(to);
	end(at);
	rdma_destroy_event_channel(other);
}

static struct rdma_addrinfo *info(const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;

	CHECK(!rdma_getaddrinfo("127.0.0.1", port, &hints, &found));
	CHECK(found->ai_family == AF_INET && found->ai_qp_type == IBV_QPT_RC);
	return found;
}

static void *serve(void *arg)
{
	struct rdma_cm_id *at = arg, *id;
	static char bytes[16];
	struct ibv_wc wc;

	CHECK(!rdma_get_request(at, &id));
	CHECK(id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	struct ibv_mr *mr = rdma_reg_msgs(id, bytes, sizeof bytes);
	CHECK(!rdma_post_recv(id, NULL, bytes, sizeof bytes, mr));
	CHECK(!rdma_accept(id, NULL));
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(bytes, "in step"));
	CHECK(!rdma_disconnect(id));
	CHECK(!rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	CHECK(!rdma_get_request(at, &id));
	CHECK(!rdma_reject(id, NULL, 0));
	rdma_destroy_ep(id);
	return NULL;
}

static void in_step(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 2, 2, 1, 1, 16 }, .sq_sig_all = 1 }, copy = init;
	struct rdma_addrinfo *passive = info("0", RAI_PASSIVE), *active;
	struct rdma_cm_id *at, *id;
	struct ibv_wc wc;
	pthread_t thread;
	char port[8];

	CHECK(!rdma_create_ep(&at, passive, NULL, &init));
	CHECK(rdma_get_request(at, &id) == -1 && errno == EINVAL);
	CHECK(!rdma_listen(at, 0));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(at)));
	CHECK(!pthread_create(&thread, NULL, serve, at));
	active = info(port, 0);
	CHECK(!rdma_create_ep(&id, active, NULL, &copy));
	CHECK(!rdma_connect(id, NULL));
	CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_post_send(id, NULL, "in step", 8, NULL, IBV_SEND_INLINE));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!rdma_disconnect(id));
	CHECK(!rdma_disconnect(id));
	rdma_destroy_ep(id);
	refuse_and_end(active, init, thread, at);
	rdma_freeaddrinfo(passive);
}

static void *await_cm(void *arg)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(arg, &event);
	return NULL;
}

static void *await_cq(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	ibv_get_cq_event(arg, &cq, &context);
	return NULL;
}

static void *await_async(void *arg)
{
	struct ibv_async_event event;

	ibv_get_async_event(arg, &event);
	return NULL;
}

static void *await_request(void *arg)
{
	struct rdma_cm_id *id;

	rdma_get_request(arg, &id);
	return NULL;
}

/* Calls that do not wait; the thread can be cancelled between two calls. */
static void *make_queues(void *arg)
{
	for (;;) {
		struct ibv_comp_channel *completions = ibv_create_comp_channel(arg);
		CHECK(completions);
		struct ibv_cq *cq = ibv_create_cq(arg, 4, NULL, completions, 0);
		CHECK(cq && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(completions));
		pthread_testcancel();
	}
}

/* Cancels a thread inside a call, after a delay. */
static void cancelled(void *(*wait)(void *), void *on, useconds_t after)
{
	pthread_t thread;
	void *result;

	CHECK(!pthread_create(&thread, NULL, wait, on));
	usleep(after);
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
}

static void cancellation(void)
{
	struct rdma_addrinfo *passive = info("0", RAI_PASSIVE);
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct ibv_comp_channel *completions = ibv_create_comp_channel(devices[0]);
	struct rdma_cm_id *at;

	CHECK(!devices[1]);
	CHECK(!rdma_create_ep(&at, passive, NULL, NULL));
	CHECK(!rdma_listen(at, 0));
	for (int round = 0; round < 200; round++) {
		useconds_t after = round ? rand() % 300 : 20000;
		cancelled(await_cm, channel, after);
		cancelled(await_cq, completions, after);
		cancelled(await_async, devices[0], after);
		cancelled(await_request, at, after);
		cancelled(make_queues, devices[0], after);
	}
	rdma_destroy_ep(at);
	CHECK(!ibv_destroy_comp_channel(completions));
	rdma_free_devices(devices);
	rdma_freeaddrinfo(passive);
}

int main(void)
{
	channel = rdma_create_event_channel();
	connect_and_part(0);
	connect_and_part(1);
	for (int round = 0; round < 10; round++)
		last_words();
	both_families();
	refusals();
	before_listening();
	backlog();
	migration();
	in_step();
	cancellation();
	rdma_destroy_event_channel(channel);
	printf("all connected\n");
	return 0;
}
