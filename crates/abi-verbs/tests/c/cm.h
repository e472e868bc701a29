/* librdmacm helpers for tests with both ends in one process: addresses, expected events, and destroying identifiers without a channel. */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

static struct rdma_event_channel *channel;

static struct sockaddr_in here(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* Takes the next event of a channel; the caller acknowledges it. Skips time-wait events, which arrive a while after a connection has
   ended. */
static struct rdma_cm_event *any_event(struct rdma_event_channel *where)
{
	struct rdma_cm_event *event;

	for (;;) {
		CHECK(!rdma_get_cm_event(where, &event));
		if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			return event;
		CHECK(!rdma_ack_cm_event(event));
	}
}

/* Takes the next event of a channel, which must be of this kind; the caller acknowledges it. */
static struct rdma_cm_event *take(struct rdma_event_channel *where, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event = any_event(where);

	if (event->event != kind) {
		printf("%s and not %s, status %d\n", rdma_event_str(event->event), rdma_event_str(kind), event->status);
		exit(1);
	}
	return event;
}

/* Creates an identifier with a resolved route to a port of this host. */
__attribute__((unused)) static struct rdma_cm_id *resolved(enum rdma_port_space space, uint16_t port)
{
	struct sockaddr_in addr = here(port);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, space));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000));
	struct rdma_cm_event *event = take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == id && !rdma_ack_cm_event(event) && !rdma_resolve_route(id, 1000));
	event = take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(event->id == id && !rdma_ack_cm_event(event));
	return id;
}

/* Rejects one more connection, then joins the thread that rejected it and destroys the listener. */
__attribute__((unused)) static void refuse_and_end(struct rdma_addrinfo *active, struct ibv_qp_init_attr init, pthread_t thread, struct rdma_cm_id *at)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_ep(&id, active, NULL, &init));
	errno = 0;
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	rdma_destroy_ep(id);
	CHECK(!pthread_join(thread, NULL));
	rdma_destroy_ep(at);
	rdma_freeaddrinfo(active);
}
