/* The files of a port, read by the C library and by libibverbs, agree with the functions, especially in the GID table. */
#include <arpa/inet.h>
#include <dirent.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static struct ibv_context *context;

/* The line of a file, which both ways of reading return. */
static const char *line(const char *format, int at)
{
	static char text[128], other[128];
	char name[64], path[400];

	snprintf(name, sizeof name, format, at);
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/%s", ibv_get_device_name(context->device), name);
	FILE *file = fopen(path, "r");
	CHECK(file && fgets(text, sizeof text, file) && strchr(text, '\n'));
	fclose(file);
	*strchr(text, '\n') = 0;
	CHECK(ibv_read_sysfs_file(context->device->ibdev_path, name, other, sizeof other) == (int)strlen(text) && !strcmp(text, other));
	return text;
}

/* Counts the entries of a folder that are numbers, by scandir(3) as libibumad does. */
static int is_number(const struct dirent *entry)
{
	return !entry->d_name[strspn(entry->d_name, "0123456789")];
}

static int numbered(const char *folder)
{
	struct dirent **list;
	char path[400];

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/%s", ibv_get_device_name(context->device), folder);
	int count = scandir(path, &list, is_number, alphasort);
	CHECK(count >= 0);
	for (int at = 0; at < count; at++) {
		CHECK(atoi(list[at]->d_name) == at);
		free(list[at]);
	}
	free(list);
	return count;
}

static void describe(int rnic)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	struct in6_addr gid;
	char name[IF_NAMESIZE];

	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(port.gid_tbl_len == (rnic ? 1 : 2) && numbered("gids") == port.gid_tbl_len && numbered("pkeys") == port.pkey_tbl_len);
	for (int at = 0; at < port.gid_tbl_len; at++) {
		CHECK(!ibv_query_gid_ex(context, 1, at, &entry, 0) && inet_pton(AF_INET6, line("ports/1/gids/%d", at), &gid) == 1);
		CHECK(!memcmp(&gid, &entry.gid, 16));
		CHECK(entry.gid_type == (rnic ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2));
		CHECK(!strcmp(line("ports/1/gid_attrs/types/%d", at), rnic ? "IB/RoCE v1" : "RoCE v2"));
		CHECK(if_indextoname(entry.ndev_ifindex, name) && !strcmp(line("ports/1/gid_attrs/ndevs/%d", at), name));
	}
	CHECK((uint32_t)strtoul(line("ports/1/lid", 0), NULL, 0) == port.lid && !strtoul(line("ports/1/sm_lid", 0), NULL, 0));
	CHECK((uint32_t)strtoul(line("ports/1/cap_mask", 0), NULL, 0) == port.port_cap_flags);
	CHECK(atoi(line("ports/1/state", 0)) == (int)port.state && atoi(line("ports/1/phys_state", 0)) == port.phys_state);
	CHECK(atoi(line("node_type", 0)) == context->device->node_type && !atoi(line("ports/1/lid_mask_count", 0)));
	CHECK(strtoul(line("ports/1/pkeys/%d", 0), NULL, 0) == 0xffff && !atoi(line("ports/1/sm_sl", 0)));
}

/* Datagram counters exist as soon as datagrams are used. */
static void count(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp;

	CHECK(pd && cq && (qp = ibv_create_qp(pd, &init)));
	CHECK(!strcmp(line("ports/1/hw_counters/ud_dropped_stranger", 0), "0"));
	CHECK(!strcmp(line("ports/1/counters/link_downed", 0), "0"));
	CHECK(!ibv_destroy_qp(qp));
}

int main(int number, char **arguments)
{
	/* Before the device is opened, its link-local GID identifies no process. */
	char path[] = "/sys/class/infiniband/nicety0/ports/1/gids/0", text[64] = "";
	FILE *file = fopen(path, "r");
	CHECK(file && fgets(text, sizeof text, file) && strstr(text, ":0000:0000\n"));
	fclose(file);
	CHECK((context = ibv_open_device(ibv_get_device_list(NULL)[0])));
	describe(number > 1 && !strcmp(arguments[1], "rnic"));
	count();
	printf("all agree\n");
	return 0;
}
