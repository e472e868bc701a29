/* Addresses and ports of identifiers: which are taken, which are chosen, and what the peer sees of them. */
#include <sys/wait.h>
#include <unistd.h>

#include "cm.h"

static struct rdma_cm_id *identifier(void)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	return id;
}

static int bind_to(struct rdma_cm_id *id, uint32_t ip, uint16_t port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(ip) };

	errno = 0;
	return rdma_bind_addr(id, (struct sockaddr *)&addr) ? errno : 0;
}

static struct rdma_cm_id *bound(uint32_t ip)
{
	struct rdma_cm_id *id = identifier();

	CHECK(!bind_to(id, ip, 0) && rdma_get_src_port(id));
	return id;
}

static void set(struct rdma_cm_id *id, int option)
{
	int yes = 1;

	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, option, &yes, sizeof yes));
}

/* Tries to bind a new identifier there; returns 0 or an error. */
static int try_to_bind(uint32_t ip, uint16_t port)
{
	struct rdma_cm_id *id = identifier();
	int why = bind_to(id, ip, port);

	CHECK(!rdma_destroy_id(id));
	return why;
}

/* How often a test of a freed port is repeated: another process may take the port meanwhile. */
enum { TRIES = 8 };

/* A port is taken from binding until its identifier is destroyed, in each form of its address. Returns whether the freed ports could be bound. */
static int taken_ports(void)
{
	struct rdma_cm_id *one = bound(INADDR_LOOPBACK), *all = bound(INADDR_ANY);
	uint16_t port = rdma_get_src_port(one), wide = rdma_get_src_port(all);

	for (int listens = 0; listens < 2; listens++) {
		CHECK(try_to_bind(INADDR_LOOPBACK, port) == EADDRINUSE && try_to_bind(INADDR_ANY, port) == EADDRINUSE);
		CHECK(try_to_bind(INADDR_LOOPBACK, wide) == EADDRINUSE && try_to_bind(INADDR_ANY, wide) == EADDRINUSE);
		CHECK(!rdma_listen(listens ? all : one, 1));
	}
	CHECK(bind_to(one, INADDR_LOOPBACK, 0) == EINVAL);
	CHECK(!rdma_destroy_id(one) && !rdma_destroy_id(all));
	return !try_to_bind(INADDR_ANY, port) && !try_to_bind(INADDR_LOOPBACK, port) && !try_to_bind(INADDR_LOOPBACK, wide);
}

/* Another process cannot have the port either. */
static void other_process(const char *program)
{
	struct rdma_cm_id *one = bound(INADDR_LOOPBACK);
	char port[8];
	int status;

	snprintf(port, sizeof port, "%d", rdma_get_src_port(one));
	pid_t child = fork();
	if (!child) {
		execl(program, program, "bind", port, NULL);
		_exit(127);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == EADDRINUSE);
	CHECK(!rdma_destroy_id(one));
}

/* Identifiers with RDMA_OPTION_ID_REUSEADDR share a port as long as none of them is listening. */
static void shared_ports(void)
{
	struct rdma_cm_id *ids[3] = { identifier(), identifier(), identifier() };

	set(ids[0], RDMA_OPTION_ID_REUSEADDR);
	CHECK(!bind_to(ids[0], INADDR_LOOPBACK, 0));
	uint16_t port = rdma_get_src_port(ids[0]);
	CHECK(try_to_bind(INADDR_LOOPBACK, port) == EADDRINUSE);
	set(ids[1], RDMA_OPTION_ID_REUSEADDR);
	CHECK(!bind_to(ids[1], INADDR_LOOPBACK, port) && rdma_get_src_port(ids[1]) == port);
	CHECK(!rdma_destroy_id(ids[1]) && !rdma_listen(ids[0], 1));
	set(ids[2], RDMA_OPTION_ID_REUSEADDR);
	CHECK(bind_to(ids[2], INADDR_LOOPBACK, port) == EADDRINUSE);
	CHECK(!rdma_destroy_id(ids[0]) && !rdma_destroy_id(ids[2]));
}

static void resolve(struct rdma_cm_id *id, struct sockaddr_in *from, uint16_t port)
{
	struct sockaddr_in to = here(port);

	CHECK(!rdma_resolve_addr(id, (struct sockaddr *)from, (struct sockaddr *)&to, 1000));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == id && !rdma_ack_cm_event(event));
}

/* Connects and is rejected: the peer's identifier reports this identifier's port. */
static void connect_from(struct rdma_cm_id *id, struct rdma_cm_id *at)
{
	struct rdma_conn_param param = { .qp_num = 1 };
	uint16_t port = rdma_get_src_port(id);

	CHECK(port && !rdma_resolve_route(id, 1000));
	CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED)));
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	CHECK(!rdma_create_qp(id, NULL, &init) && !rdma_connect(id, &param));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *seen = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK(rdma_get_dst_port(seen) == port && rdma_get_src_port(seen) == rdma_get_src_port(at));
	CHECK(((struct sockaddr_in *)rdma_get_peer_addr(seen))->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(rdma_get_src_port(id) == port && rdma_get_dst_port(id) == rdma_get_src_port(at));
	CHECK(!rdma_reject(seen, NULL, 0));
	event = take(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == id && !rdma_ack_cm_event(event));
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(seen));
}

/* Resolves with a source address whose port was just freed; returns the identifier, or NULL if another process took the port. */
static struct rdma_cm_id *resolved_from_freed(struct sockaddr_in *given, uint16_t to)
{
	struct rdma_cm_id *freed = bound(INADDR_LOOPBACK), *id = identifier();
	struct sockaddr_in dst = here(to);

	*given = here(rdma_get_src_port(freed));
	CHECK(!rdma_destroy_id(freed));
	errno = 0;
	if (rdma_resolve_addr(id, (struct sockaddr *)given, (struct sockaddr *)&dst, 1000)) {
		CHECK(errno == EADDRINUSE && !rdma_destroy_id(id));
		return NULL;
	}
	CHECK(!rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED)));
	return id;
}

/* An identifier has a port when its address is resolved: a chosen one, that of the source address, or the one it was bound to, whatever
   the source address. */
static void source_ports(void)
{
	struct rdma_cm_id *at = bound(INADDR_LOOPBACK), *id;
	struct sockaddr_in any = here(0);

	CHECK(!rdma_listen(at, 8));
	uint16_t to = rdma_get_src_port(at);

	id = identifier();
	resolve(id, NULL, to);
	CHECK(try_to_bind(INADDR_LOOPBACK, rdma_get_src_port(id)) == EADDRINUSE);
	connect_from(id, at);

	id = identifier();
	resolve(id, &any, to);
	connect_from(id, at);

	struct sockaddr_in given;
	int tries = 0;
	while (!(id = resolved_from_freed(&given, to)))
		CHECK(++tries < TRIES);
	CHECK(rdma_get_src_port(id) == given.sin_port);
	connect_from(id, at);

	for (int wide = 0; wide < 2; wide++) {
		for (int source = 0; source < 3; source++) {
			id = bound(wide ? INADDR_ANY : INADDR_LOOPBACK);
			uint16_t own = rdma_get_src_port(id);
			resolve(id, source == 0 ? NULL : source == 1 ? &any : &given, to);
			CHECK(rdma_get_src_port(id) == own);
			CHECK(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
			CHECK(try_to_bind(INADDR_LOOPBACK, own) == EADDRINUSE);
			connect_from(id, at);
		}
	}

	/* An address that another identifier has. */
	id = identifier();
	struct sockaddr_in used = here(to), dst = here(to);
	errno = 0;
	CHECK(rdma_resolve_addr(id, (struct sockaddr *)&used, (struct sockaddr *)&dst, 1000) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(at));
}

/* The path record of a resolved identifier. */
static void path_records(void)
{
	struct rdma_cm_id *at = bound(INADDR_LOOPBACK), *id = identifier();
	/* The address, mapped into IPv6. */
	uint8_t gid[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_port_attr port;

	CHECK(!rdma_listen(at, 8));
	resolve(id, NULL, rdma_get_src_port(at));
	struct rdma_ib_addr *addr = &id->route.addr.addr.ibaddr;
	CHECK(!ibv_query_port(id->verbs, id->port_num, &port));
	CHECK(!memcmp(&addr->sgid, gid, sizeof gid) && !memcmp(&addr->dgid, gid, sizeof gid) && addr->pkey == htons(0xffff));
	CHECK(!id->route.num_paths && !id->route.path_rec);
	CHECK(!rdma_resolve_route(id, 1000) && !rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED)));
	struct ibv_sa_path_rec *path = id->route.path_rec;
	CHECK(id->route.num_paths == 1 && path);
	CHECK(!memcmp(&path->sgid, gid, sizeof gid) && !memcmp(&path->dgid, gid, sizeof gid) && path->pkey == htons(0xffff));
	CHECK(path->mtu == port.active_mtu && path->rate && path->packet_life_time && path->numb_path == 1 && path->reversible == 1);
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(at));
}

/* Calls in an order that librdmacm does not allow. */
static void orders(void)
{
	struct rdma_cm_id *at = bound(INADDR_LOOPBACK), *id = identifier();
	struct sockaddr_in to = here(rdma_get_src_port(at));
	struct rdma_conn_param param = { .qp_num = 1 };

#define REFUSED(call) do { errno = 0; CHECK((call) == -1 && errno == EINVAL); } while (0)
	REFUSED(rdma_resolve_route(id, 1000));
	REFUSED(rdma_connect(id, &param));
	resolve(id, NULL, rdma_get_src_port(at));
	REFUSED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	REFUSED(rdma_bind_addr(id, (struct sockaddr *)&to));
	REFUSED(rdma_listen(id, 1));
	REFUSED(rdma_connect(id, &param));
	CHECK(!rdma_resolve_route(id, 1000) && !rdma_ack_cm_event(take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED)));
	REFUSED(rdma_resolve_route(id, 1000));
	REFUSED(rdma_connect(id, NULL));
	REFUSED(rdma_accept(id, &param));
	REFUSED(rdma_disconnect(id));
	CHECK(!rdma_listen(at, 1));
	REFUSED(rdma_resolve_addr(at, NULL, (struct sockaddr *)&to, 1000));
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(at));
}

int main(int argc, char **argv)
{
	channel = rdma_create_event_channel();
	if (argc > 2 && !strcmp(argv[1], "bind"))
		return try_to_bind(INADDR_LOOPBACK, atoi(argv[2]));
	for (int tries = 0; !taken_ports(); tries++)
		CHECK(tries < TRIES);
	other_process(argv[0]);
	shared_ports();
	source_ports();
	path_records();
	orders();
	rdma_destroy_event_channel(channel);
	printf("all bound\n");
	return 0;
}
