/* Functions that programs get by dlsym(3) and dlvsym(3), without the inline functions of verbs.h: each fills the whole structure that
   belongs to its version node, and writes nothing after it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

/* The structure of ibv_query_port@IBVERBS_1.1 ends before this field (rdma-core, libibverbs/verbs.c). */
enum { PORT_1_1 = offsetof(struct ibv_port_attr, port_cap_flags2), ROOM = 1024, FILL = 0xa5 };

static unsigned char room[ROOM], other[ROOM];

static void *symbol(const char *name, const char *node)
{
	void *latest = dlsym(RTLD_DEFAULT, name), *versioned = dlvsym(RTLD_DEFAULT, name, node);

	CHECK(latest && latest == versioned);
	memset(room, FILL, sizeof room);
	memset(other, FILL, sizeof other);
	return latest;
}

/* The structure is as expected, and nothing after it was written. */
static void is_filled(const void *expected, size_t size)
{
	CHECK(!memcmp(room, expected, size));
	for (size_t at = size; at < ROOM; at++)
		CHECK(room[at] == FILL);
}

/* Nothing after a structure was written. */
static void is_kept_behind(const unsigned char *place, size_t size)
{
	for (size_t at = size; at < ROOM; at++)
		CHECK(place[at] == FILL);
}

static void of_a_port(struct ibv_context *context)
{
	struct ibv_port_attr inlined;
	int (*query)(struct ibv_context *, uint8_t, void *) = symbol("ibv_query_port", "IBVERBS_1.1");

	CHECK(!ibv_query_port(context, 1, &inlined) && inlined.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(!query(context, 1, room));
	is_filled(&inlined, PORT_1_1);
	CHECK(((struct ibv_port_attr *)room)->link_layer == IBV_LINK_LAYER_ETHERNET);
	/* A longer structure, of a later header, gets zeros in its unknown fields. */
	memset(room, FILL, sizeof room);
	struct verbs_context *table = verbs_get_ctx(context);
	CHECK(!table->query_port(context, 1, (struct ibv_port_attr *)room, sizeof inlined + 8));
	unsigned char longer[sizeof inlined + 8] = { 0 };
	memcpy(longer, &inlined, offsetof(struct ibv_port_attr, port_cap_flags2) + 2);
	is_filled(longer, sizeof longer);
}

static void of_a_device(struct ibv_context *context)
{
	struct ibv_device_attr_ex inlined;
	int (*query)(struct ibv_context *, void *) = symbol("ibv_query_device", "IBVERBS_1.1");

	CHECK(!ibv_query_device_ex(context, NULL, &inlined));
	CHECK(!query(context, room));
	/* It ends with a byte, followed by padding. */
	CHECK(!memcmp(room, &inlined.orig_attr, offsetof(struct ibv_device_attr, phys_port_cnt) + 1));
	is_kept_behind(room, sizeof inlined.orig_attr);
}

static void of_gids(struct ibv_context *context)
{
	union ibv_gid gid;
	struct ibv_gid_entry entry;
	int (*query)(struct ibv_context *, uint8_t, int, void *) = symbol("ibv_query_gid", "IBVERBS_1.1");

	CHECK(!ibv_query_gid(context, 1, 0, &gid) && !ibv_query_gid_ex(context, 1, 0, &entry, 0));
	CHECK(!query(context, 1, 0, room));
	is_filled(&gid, sizeof gid);

	int (*query_ex)(struct ibv_context *, uint32_t, uint32_t, void *, uint32_t, size_t) =
		symbol("_ibv_query_gid_ex", "IBVERBS_1.11");
	CHECK(!query_ex(context, 1, 0, room, 0, sizeof entry));
	is_filled(&entry, sizeof entry);
	/* An entry of another header version: filled as far as it has room, and zeros. */
	memset(room, FILL, sizeof room);
	unsigned char longer[sizeof entry + 8] = { 0 };
	memcpy(longer, &entry, sizeof entry);
	CHECK(!query_ex(context, 1, 0, room, 0, sizeof longer));
	is_filled(longer, sizeof longer);
	memset(room, FILL, sizeof room);
	CHECK(!query_ex(context, 1, 0, room, 0, 16));
	is_filled(&entry, 16);

	ssize_t (*table)(struct ibv_context *, void *, size_t, uint32_t, size_t) = symbol("_ibv_query_gid_table", "IBVERBS_1.11");
	ssize_t count = table(context, room, 8, 0, sizeof longer);
	CHECK(count > 0 && !memcmp(room, longer, sizeof longer));
	for (ssize_t at = 0; at < count; at++) {
		CHECK(!ibv_query_gid_ex(context, 1, at, &entry, 0));
		CHECK(!memcmp(room + at * sizeof longer, &entry, sizeof entry));
	}
	is_kept_behind(room, count * sizeof longer);
	CHECK(table(context, room, count - 1, 0, sizeof entry) == -EINVAL && table(context, room, 8, 0, 0) == -EINVAL);

	uint16_t key = 0xffff;
	int (*pkey)(struct ibv_context *, uint8_t, int, void *) = symbol("ibv_query_pkey", "IBVERBS_1.1");
	CHECK(!pkey(context, 1, 0, room));
	is_filled(&key, sizeof key);
}

static void of_queue_pairs(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_srq_init_attr srq_init = { .attr = { 4, 1, 0 } };

	CHECK(pd && cq);
	struct ibv_qp *(*create)(struct ibv_pd *, void *) = symbol("ibv_create_qp", "IBVERBS_1.1");
	memcpy(room, &init, sizeof init);
	struct ibv_qp *qp = create(pd, room);
	CHECK(qp);
	is_kept_behind(room, sizeof init);
	int (*query)(struct ibv_qp *, void *, int, void *) = symbol("ibv_query_qp", "IBVERBS_1.1");
	CHECK(!query(qp, room, IBV_QP_STATE, other));
	CHECK(((struct ibv_qp_attr *)room)->qp_state == IBV_QPS_RESET && ((struct ibv_qp_init_attr *)other)->send_cq == cq);
	is_kept_behind(room, sizeof(struct ibv_qp_attr));
	is_kept_behind(other, sizeof init);
	int (*ece)(struct ibv_qp *, void *) = symbol("ibv_query_ece", "IBVERBS_1.10");
	CHECK(!ece(qp, room));
	is_kept_behind(room, sizeof(struct ibv_ece));

	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	CHECK(srq);
	int (*query_srq)(struct ibv_srq *, void *) = symbol("ibv_query_srq", "IBVERBS_1.1");
	CHECK(!query_srq(srq, room));
	is_kept_behind(room, sizeof(struct ibv_srq_attr));

	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_grh grh = { .hop_limit = 1 };
	int (*address)(struct ibv_context *, uint8_t, void *, void *, void *) = symbol("ibv_init_ah_from_wc", "IBVERBS_1.1");
	CHECK(!address(context, 1, &wc, &grh, room));
	is_kept_behind(room, sizeof(struct ibv_ah_attr));
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

static void of_librdmacm(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int (*create)(void *, struct rdma_cm_id **, void *, int) = symbol("rdma_create_id", "RDMACM_1.0");

	CHECK(channel && !create(channel, &id, NULL, RDMA_PS_TCP));
	int (*bind)(struct rdma_cm_id *, void *) = symbol("rdma_bind_addr", "RDMACM_1.0");
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(!bind(id, &here) && id->verbs);
	int (*attributes)(struct rdma_cm_id *, void *, int *) = symbol("rdma_init_qp_attr", "RDMACM_1.2");
	int mask;
	((struct ibv_qp_attr *)room)->qp_state = IBV_QPS_INIT;
	CHECK(!attributes(id, room, &mask));
	is_kept_behind(room, sizeof(struct ibv_qp_attr));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);

	CHECK(context);
	of_a_port(context);
	of_a_device(context);
	of_gids(context);
	of_queue_pairs(context);
	of_librdmacm();
	CHECK(!ibv_close_device(context));
	printf("all filled\n");
	return 0;
}
