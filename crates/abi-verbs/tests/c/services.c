/* Datagram services, both ends in one process: found by librdmacm, rejected, missing, of the other kind; queue pairs that the program
   creates itself, and identifiers without a channel. */
#include "cm.h"

enum { ROOM = 256, GRH = 40 };

/* Takes the next event, which must be of this kind; the caller acknowledges it. */
static struct rdma_cm_event *next(enum rdma_cm_event_type kind, struct rdma_cm_id *of)
{
	struct rdma_cm_event *event = take(channel, kind);

	CHECK(!of || event->id == of);
	return event;
}

static void past(enum rdma_cm_event_type kind, struct rdma_cm_id *of, int status)
{
	struct rdma_cm_event *event = next(kind, of);

	CHECK(event->status == status);
	CHECK(!rdma_ack_cm_event(event));
}

static struct rdma_cm_id *listener(enum rdma_port_space space, uint16_t port)
{
	struct sockaddr_in addr = here(port);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, space));
	CHECK(id->qp_type == (space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&addr));
	CHECK(!rdma_listen(id, 0));
	return id;
}

static struct ibv_qp_init_attr datagrams(void)
{
	return (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1 };
}

/* A queue pair that can send immediately, created by librdmacm or by hand. */
static struct ibv_qp *add_qp(struct rdma_cm_id *id, int by_hand)
{
	struct ibv_qp_init_attr init = datagrams();
	struct ibv_qp_attr attr = { 0 };
	int mask;

	if (!by_hand) {
		CHECK(!rdma_create_qp(id, NULL, &init));
		CHECK(id->qp->state == IBV_QPS_RTS);
		CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_QKEY, &init) && attr.qkey == RDMA_UDP_QKEY);
		return id->qp;
	}
	init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	struct ibv_qp *qp = ibv_create_qp(id->pd, &init);
	CHECK(qp);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		attr.qp_state = state;
		CHECK(!rdma_init_qp_attr(id, &attr, &mask));
		CHECK(!ibv_modify_qp(qp, &attr, mask));
	}
	return qp;
}

static struct ibv_wc await(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void send_text(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t number, uint32_t key, const char *text)
{
	struct ibv_sge sge = { (uintptr_t)text, strlen(text) + 1, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_INLINE,
		.imm_data = htonl(qp->qp_num), .wr.ud = { ah, number, key } }, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
	await(qp->send_cq);
	CHECK(!ibv_destroy_ah(ah));
}

/* A query with private data, its answer, and a datagram in each direction. */
static void found(int by_hand)
{
	static char rooms[2][ROOM];
	struct rdma_cm_id *at = listener(RDMA_PS_UDP, 0), *to = resolved(RDMA_PS_UDP, rdma_get_src_port(at));
	struct ibv_qp *qps[2] = { add_qp(to, by_hand) };
	struct rdma_conn_param asks = { .private_data = "who?", .private_data_len = 4 };
	struct rdma_conn_param says = { .private_data = "me", .private_data_len = 2 };

	CHECK(!rdma_connect(to, &asks));
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *from = event->id;
	CHECK(event->listen_id == at && from->ps == RDMA_PS_UDP && from->qp_type == IBV_QPT_UD && from->verbs);
	CHECK(event->param.ud.private_data_len == 4 && !memcmp(event->param.ud.private_data, "who?", 4));
	CHECK(!rdma_ack_cm_event(event));
	qps[1] = add_qp(from, by_hand);
	errno = 0;
	CHECK(rdma_accept(from, NULL) == (by_hand ? -1 : 0));
	if (by_hand) {
		says.qp_num = qps[1]->qp_num;
		CHECK(errno == EINVAL && !rdma_accept(from, &says));
	}

	event = next(RDMA_CM_EVENT_ESTABLISHED, to);
	CHECK(event->param.ud.qp_num == qps[1]->qp_num && event->param.ud.qkey == RDMA_UDP_QKEY);
	CHECK(event->param.ud.private_data_len == (by_hand ? 2 : 0));
	struct ibv_ah *ah = ibv_create_ah(qps[0]->pd, &event->param.ud.ah_attr);
	CHECK(ah && !rdma_ack_cm_event(event));

	struct ibv_mr *mrs[2];
	struct ibv_recv_wr *bad;
	for (int end = 0; end < 2; end++) {
		CHECK((mrs[end] = ibv_reg_mr(qps[end]->pd, rooms[end], ROOM, IBV_ACCESS_LOCAL_WRITE)));
		struct ibv_sge sge = { (uintptr_t)rooms[end], ROOM, mrs[end]->lkey };
		CHECK(!ibv_post_recv(qps[end], &(struct ibv_recv_wr){ .sg_list = &sge, .num_sge = 1 }, &bad));
	}
	send_text(qps[0], ah, qps[1]->qp_num, RDMA_UDP_QKEY, "there");
	struct ibv_wc wc = await(qps[1]->recv_cq);
	CHECK(wc.src_qp == qps[0]->qp_num && ntohl(wc.imm_data) == wc.src_qp && !strcmp(rooms[1] + GRH, "there"));
	ah = ibv_create_ah_from_wc(qps[1]->pd, &wc, (struct ibv_grh *)rooms[1], from->port_num);
	CHECK(ah);
	send_text(qps[1], ah, wc.src_qp, RDMA_UDP_QKEY, "and back");
	await(qps[0]->recv_cq);
	CHECK(!strcmp(rooms[0] + GRH, "and back"));

	for (int end = 0; end < 2; end++)
		CHECK(!ibv_dereg_mr(mrs[end]));
	if (by_hand) {
		CHECK(!ibv_destroy_qp(qps[0]) && !ibv_destroy_qp(qps[1]));
	} else {
		rdma_destroy_qp(to);
		rdma_destroy_qp(from);
	}
	CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(from) && !rdma_destroy_id(at));
}

/* Services that reject, do not exist, or accept connections; and a connect request to a service. */
static void not_found(void)
{
	struct rdma_cm_id *at = listener(RDMA_PS_UDP, 0);
	uint16_t port = rdma_get_src_port(at);
	struct rdma_cm_id *to = resolved(RDMA_PS_UDP, port);
	struct ibv_qp_init_attr init = datagrams();

	init.qp_type = IBV_QPT_RC;
	errno = 0;
	CHECK(rdma_create_qp(to, NULL, &init) == -1 && errno == EOPNOTSUPP);
	CHECK(!rdma_connect(to, NULL));
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	struct rdma_cm_id *from = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_reject(from, "no", 2));
	event = next(RDMA_CM_EVENT_UNREACHABLE, to);
	CHECK(event->status == 2 && event->param.ud.private_data_len == 2 && !memcmp(event->param.ud.private_data, "no", 2));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(from));

	to = resolved(RDMA_PS_TCP, port);
	CHECK(!rdma_connect(to, &(struct rdma_conn_param){ .qp_num = 1 }));
	event = next(RDMA_CM_EVENT_REJECTED, to);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(at));

	at = listener(RDMA_PS_TCP, port);
	to = resolved(RDMA_PS_UDP, port);
	CHECK(!rdma_connect(to, NULL));
	event = next(RDMA_CM_EVENT_UNREACHABLE, to);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_destroy_id(to) && !rdma_destroy_id(at));

	to = resolved(RDMA_PS_UDP, port);
	CHECK(!rdma_connect(to, NULL));
	past(RDMA_CM_EVENT_UNREACHABLE, to, 1);
	CHECK(!rdma_destroy_id(to));
}

static void *serve(void *arg)
{
	struct rdma_cm_id *at = arg, *id;

	CHECK(!rdma_get_request(at, &id));
	CHECK(id->qp && id->qp->qp_type == IBV_QPT_UD && !rdma_accept(id, NULL));
	rdma_destroy_ep(id);
	CHECK(!rdma_get_request(at, &id));
	CHECK(!rdma_reject(id, NULL, 0));
	rdma_destroy_ep(id);
	return NULL;
}

/* Each call waits for its answer. */
static void in_step(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP }, *passive, *active;
	struct ibv_qp_init_attr init = datagrams(), copy = init;
	struct rdma_cm_id *at, *id;
	pthread_t thread;
	char port[8];

	CHECK(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &passive) && passive->ai_qp_type == IBV_QPT_UD);
	CHECK(!rdma_create_ep(&at, passive, NULL, &init) && !rdma_listen(at, 0));
	CHECK(!pthread_create(&thread, NULL, serve, at));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(at)));
	hints = (struct rdma_addrinfo){ .ai_qp_type = IBV_QPT_UD };
	CHECK(!rdma_getaddrinfo("127.0.0.1", port, &hints, &active) && active->ai_port_space == RDMA_PS_UDP);
	CHECK(!rdma_create_ep(&id, active, NULL, &copy) && !rdma_connect(id, NULL));
	CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED && id->event->param.ud.qkey == RDMA_UDP_QKEY);
	rdma_destroy_ep(id);
	refuse_and_end(active, init, thread, at);
	rdma_freeaddrinfo(passive);
}

int main(void)
{
	CHECK((channel = rdma_create_event_channel()));
	found(0);
	found(1);
	not_found();
	in_step();
	rdma_destroy_event_channel(channel);
	printf("all found\n");
	return 0;
}
