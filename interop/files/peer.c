/* The peer in the guest: carries out the orders of crates/nic-iwarp/examples/interop.rs over librdmacm and libibverbs,
 * and checks every byte. Orders and answers are messages of eight big-endian words; that file describes them.
 *
 * peer listen PORT [OPTION=N...] | peer connect ADDRESS PORT [OPTION=N...]
 *   count=N  serve N connections, one after the other (1)       pd=N    bytes of private data that we send (0)
 *   depth=N  reads outstanding each way (16)                    speak=1 say something before we are asked
 *   reject=1 refuse the connection
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELLO = 1, FILL, CHECK, PUT, GET, TAKE, GIVE, ANSWER = 0x80 };
enum { BUFFER = 8 << 20, WORDS = 8, PIECES_MAX = 64, CONNECTION_SECONDS = 100 };

struct words {
	uint32_t word[WORDS];
};

struct end {
	struct rdma_cm_id *id;
	uint8_t *buffer;
	struct ibv_mr *mr;
	struct words *in, *out;
	struct ibv_mr *in_mr, *out_mr;
};

static long count = 1, private_len, depth = 16, speak, refuse;

static void die(const char *what)
{
	printf("peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint8_t pattern(uint32_t seed, uint64_t at)
{
	uint32_t x = (uint32_t)at * 0x9e3779b1u ^ seed * 0x85ebca6bu ^ (uint32_t)(at >> 32);

	x ^= x >> 15;
	return x >> 8;
}

static void fill(uint8_t *to, uint32_t seed, uint64_t len)
{
	for (uint64_t at = 0; at < len; at++)
		to[at] = pattern(seed, at);
}

/* 0, or one more than the place of the first wrong byte. */
static uint64_t check(const uint8_t *from, uint32_t seed, uint64_t len)
{
	for (uint64_t at = 0; at < len; at++)
		if (from[at] != pattern(seed, at))
			return at + 1;
	return 0;
}

static void listen_for_order(struct end *end)
{
	if (rdma_post_recv(end->id, end->in, end->in, sizeof(*end->in), end->in_mr))
		die("posting a receive for orders");
}

/* Waits for a completion of one queue; it must be good. */
static struct ibv_wc wait_for(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0)
		die(what);
	if (wc.status != IBV_WC_SUCCESS) {
		printf("peer: %s: %s\n", what, ibv_wc_status_str(wc.status));
		exit(2);
	}
	return wc;
}

static void answer(struct end *end, uint32_t what, uint64_t value)
{
	struct words *out = end->out;

	memset(out, 0, sizeof(*out));
	out->word[0] = htonl(what | ANSWER);
	out->word[2] = htonl(value >> 32);
	out->word[3] = htonl((uint32_t)value);
	out->word[4] = htonl((uint64_t)(uintptr_t)end->buffer >> 32);
	out->word[5] = htonl((uint32_t)(uintptr_t)end->buffer);
	out->word[6] = htonl(end->mr->rkey);
	if (rdma_post_send(end->id, out, out, sizeof(*out), end->out_mr, IBV_SEND_SIGNALED))
		die("posting an answer");
	wait_for(end->id->send_cq, "sending an answer");
}

/* A write or a read of `len` bytes in `pieces`, all under way at once. */
static void transfer(struct end *end, int is_put, uint64_t len, uint64_t addr, uint32_t key, uint32_t pieces)
{
	uint64_t each, at = 0;
	uint32_t posted = 0;

	if (pieces < 1 || pieces > PIECES_MAX)
		pieces = 1;
	each = (len + pieces - 1) / pieces;
	do {
		uint64_t now = len - at < each ? len - at : each;
		int bad = is_put ? rdma_post_write(end->id, end, end->buffer + at, now, end->mr, IBV_SEND_SIGNALED, addr + at, key)
				 : rdma_post_read(end->id, end, end->buffer + at, now, end->mr, IBV_SEND_SIGNALED, addr + at, key);
		if (bad)
			die("posting a transfer");
		posted++;
		at += now;
	} while (at < len);
	while (posted--)
		wait_for(end->id->send_cq, is_put ? "a write of ours" : "a read of ours");
}

static void take(struct end *end, uint32_t seed, uint64_t len)
{
	struct ibv_wc wc;

	memset(end->buffer, 0, len);
	if (rdma_post_recv(end->id, end, end->buffer, len, end->mr))
		die("posting a receive");
	answer(end, TAKE, 0);
	wc = wait_for(end->id->recv_cq, "a message for us");
	listen_for_order(end);
	answer(end, TAKE, wc.byte_len != len ? len + 1 : check(end->buffer, seed, len));
}

static void give(struct end *end, uint32_t seed, uint64_t len)
{
	fill(end->buffer, seed, len);
	listen_for_order(end);
	answer(end, GIVE, 0);
	if (rdma_post_send(end->id, end, end->buffer, len, end->mr, IBV_SEND_SIGNALED))
		die("posting a message");
	wait_for(end->id->send_cq, "sending a message");
}

static void carry_out(struct end *end)
{
	uint32_t what = ntohl(end->in->word[0]), seed = ntohl(end->in->word[1]), len = ntohl(end->in->word[2]);
	uint64_t addr = (uint64_t)ntohl(end->in->word[3]) << 32 | ntohl(end->in->word[4]), value = 0;
	uint32_t key = ntohl(end->in->word[5]), pieces = ntohl(end->in->word[6]);

	if (len > BUFFER) {
		printf("peer: an order for %u bytes\n", len);
		exit(1);
	}
	if (what == TAKE)
		return take(end, seed, len);
	if (what == GIVE)
		return give(end, seed, len);
	if (what == HELLO)
		value = BUFFER;
	else if (what == FILL)
		fill(end->buffer, seed, len);
	else if (what == CHECK)
		value = check(end->buffer, seed, len);
	else if (what == PUT)
		fill(end->buffer, seed, len), transfer(end, 1, len, addr, key, pieces);
	else if (what == GET)
		memset(end->buffer, 0, len), transfer(end, 0, len, addr, key, pieces), value = check(end->buffer, seed, len);
	listen_for_order(end);
	answer(end, what, value);
}

static void prepare(struct end *end, struct rdma_cm_id *id)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	memset(end, 0, sizeof(*end));
	end->id = id;
	end->buffer = calloc(1, BUFFER);
	end->in = calloc(1, sizeof(*end->in));
	end->out = calloc(1, sizeof(*end->out));
	end->mr = ibv_reg_mr(id->pd, end->buffer, BUFFER, access);
	end->in_mr = rdma_reg_msgs(id, end->in, sizeof(*end->in));
	end->out_mr = rdma_reg_msgs(id, end->out, sizeof(*end->out));
	if (!end->mr || !end->in_mr || !end->out_mr)
		die("registering memory");
	listen_for_order(end);
}

static void release(struct end *end)
{
	ibv_dereg_mr(end->mr);
	rdma_dereg_mr(end->in_mr);
	rdma_dereg_mr(end->out_mr);
	free(end->buffer);
	free(end->in);
	free(end->out);
	rdma_destroy_ep(end->id);
}

/* Serves orders until the other side goes: a receive is flushed then. */
static void serve(struct end *end)
{
	long orders = 0;
	struct ibv_wc wc;

	if (speak)
		answer(end, HELLO, BUFFER);
	for (;;) {
		int n = ibv_poll_cq(end->id->recv_cq, 1, &wc);

		if (n < 0)
			die("polling");
		if (!n)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			break;
		carry_out(end);
		orders++;
	}
	printf("peer: %ld orders, then %s\n", orders, ibv_wc_status_str(wc.status));
	fflush(stdout);
	rdma_disconnect(end->id);
	release(end);
}

static void hear_private_data(const struct rdma_cm_event *event)
{
	int len = event->param.conn.private_data_len, wrong = 0;
	const uint8_t *data = event->param.conn.private_data;

	for (int at = 0; at < len; at++)
		wrong += data[at] != pattern(7, at);
	printf("peer: private data of %d bytes, %d wrong; depths %d and %d\n", len, wrong,
	       event->param.conn.responder_resources, event->param.conn.initiator_depth);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int listens = argc > 2 && !strcmp(argv[1], "listen"), options = listens ? 3 : 4;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = listens ? RAI_PASSIVE : 0 }, *info;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = PIECES_MAX + 2, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_conn_param param = { 0 };
	static uint8_t private_data[256];
	struct rdma_cm_id *listener, *id;
	struct end end;

	for (int i = options; i < argc; i++)
		if (sscanf(argv[i], "count=%ld", &count) + sscanf(argv[i], "pd=%ld", &private_len) +
			    sscanf(argv[i], "depth=%ld", &depth) + sscanf(argv[i], "speak=%ld", &speak) +
			    sscanf(argv[i], "reject=%ld", &refuse) != 1)
			return printf("peer: what is %s?\n", argv[i]), 1;
	fill(private_data, 7, sizeof(private_data));
	param.private_data = private_data;
	param.private_data_len = private_len;
	param.responder_resources = param.initiator_depth = depth;
	if (argc < options || rdma_getaddrinfo(listens ? NULL : argv[2], argv[options - 1], &hints, &info))
		return printf("peer: listen PORT, or connect ADDRESS PORT\n"), 1;
	alarm(CONNECTION_SECONDS);
	if (!listens) {
		if (rdma_create_ep(&id, info, NULL, &attr))
			die("making an end");
		prepare(&end, id);
		if (rdma_connect(id, &param))
			die("connecting");
		hear_private_data(id->event);
		serve(&end);
		return 0;
	}
	if (rdma_create_ep(&listener, info, NULL, NULL) || rdma_listen(listener, 16))
		die("listening");
	for (; count > 0; count--) {
		if (rdma_get_request(listener, &id))
			die("a request");
		alarm(CONNECTION_SECONDS);
		hear_private_data(id->event);
		if (refuse) {
			if (rdma_reject(id, private_data, private_len))
				die("rejecting");
			continue;
		}
		/* Set by the call before, and gone with its end. */
		attr.send_cq = attr.recv_cq = NULL;
		if (rdma_create_qp(id, NULL, &attr))
			die("making a queue pair");
		prepare(&end, id);
		if (rdma_accept(id, &param))
			die("accepting");
		serve(&end);
	}
	return 0;
}
