/* Another user floods a UD queue pair with datagrams, and takes the names that sockets of this user would have. Nothing is delivered, a
   datagram that is too long for its receive does no harm, and later processes are served. Only root can become another user, in a child
   that was forked before a device was opened, and has a separate network namespace, whose names belong to no other program. Arguments:
   the device, and how many datagrams and names. At the end it prints how long the slowest of the later processes took, and by how much
   this process's memory has grown. */
#define _GNU_SOURCE
#include <grp.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { KEY = 0x11111111, GRH = 40, NOBODY = 65534, LONG = 2048 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char memory[8192];
static union ibv_gid gid;

/* What the honest side gives to the other user: more than an attacker would find out. */
struct victim {
	union ibv_gid gid;
	uint32_t number;
	int count;
};

static void open_device(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };

	CHECK((context = ibv_open_device(ibv_get_device_list(NULL)[0])) && !ibv_query_gid(context, 1, 0, &gid));
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
	init.send_cq = init.recv_cq = cq;
	CHECK((qp = ibv_create_qp(pd, &init)));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void expect(uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)memory, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void send_to(const union ibv_gid *to, uint32_t number, uint32_t len)
{
	struct ibv_ah_attr attr = { .is_global = 1, .grh = { .dgid = *to }, .port_num = 1 };
	struct ibv_sge sge = { (uintptr_t)memory + 4096, len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	CHECK((wr.wr.ud.ah = ibv_create_ah(pd, &attr)));
	wr.wr.ud.remote_qpn = number;
	wr.wr.ud.remote_qkey = KEY;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
	CHECK(!ibv_destroy_ah(wr.wr.ud.ah));
}

static struct ibv_wc take(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV));
	return wc;
}

static void meet(int fd)
{
	char byte = 0;

	CHECK(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1);
}

/* The names of sockets that may be datagram sockets: all that any user sees. */
static int each_name(int fd, const char *bytes, size_t len, int count)
{
	FILE *table = fopen("/proc/net/unix", "r");
	char line[512], path[400];
	int arrived = 0;

	CHECK(table);
	while (fgets(line, sizeof line, table)) {
		struct sockaddr_un to = { .sun_family = AF_UNIX };
		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %399s", path) != 1 || !(strstr(path, "/ud-") || strstr(path, "nicety-ud")))
			continue;
		memcpy(to.sun_path, path, strlen(path));
		to.sun_path[0] = *path == '@' ? 0 : *path;
		socklen_t size = offsetof(struct sockaddr_un, sun_path) + strlen(path) + (*path != '@');
		for (int at = 0; at < count; at++)
			arrived += sendto(fd, bytes, len, MSG_DONTWAIT, (struct sockaddr *)&to, size) == (ssize_t)len;
	}
	fclose(table);
	return arrived;
}

/* Takes as many abstract names as possible: those that sockets of this type have or had. Every second SEQPACKET socket listens. */
static int take_names(int kind, const char *format, int count)
{
	int taken = 0;

	for (int at = 0; at < count; at++) {
		struct sockaddr_un name = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, kind, 0);
		int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, format, 65535 - at);
		if (fd < 0 || bind(fd, (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path) + 1 + len))
			continue;
		if (kind == SOCK_SEQPACKET && at % 2)
			listen(fd, 0);
		taken++;
	}
	return taken;
}

/* The other user, in several processes, because of the descriptor limit of each. */
static int attack(int fd)
{
	struct rlimit limit;
	struct victim victim;
	static char frame[GRH + LONG] = "NUD1";
	int kinds[] = { SOCK_DGRAM, SOCK_SEQPACKET };
	const char *formats[] = { "nicety-ud/%d", "nicety-shm/0/%d" };

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	CHECK(!setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY));
	CHECK(read(fd, &victim, sizeof victim) == sizeof victim);
	uint32_t words[] = { htobe32(victim.number), htobe32(victim.number + 1), htobe32(KEY), 0, 0 };
	memcpy(frame + 4, words, sizeof words);
	memcpy(frame + 24, &victim.gid, 16);
	int datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
	int arrived = each_name(datagrams, frame, sizeof frame, victim.count);
	arrived += each_name(datagrams, frame, GRH + 4, victim.count);
	int taken = 0, held[2];
	CHECK(!pipe(held));
	for (int way = 0; way < 2; way++) {
		int told[2], part;
		CHECK(!pipe(told));
		pid_t helper = fork();
		CHECK(helper >= 0);
		if (!helper) {
			close(fd);
			close(held[1]);
			part = take_names(kinds[way], formats[way], victim.count);
			CHECK(write(told[1], &part, sizeof part) == sizeof part);
			/* Until the other user ends. */
			CHECK(!read(held[0], &part, 1));
			_exit(0);
		}
		CHECK(read(told[0], &part, sizeof part) == sizeof part);
		taken += part;
	}
	printf("another user sent %d datagrams and has %d names\n", arrived, taken);
	fflush(stdout);
	meet(fd);
	return 0;
}

static long microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Resident anonymous memory, in KiB. */
static long resident(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long found = -1;

	CHECK(status);
	while (fgets(line, sizeof line, status))
		sscanf(line, "RssAnon: %ld", &found);
	fclose(status);
	CHECK(found >= 0);
	return found;
}

static long slowest;

/* A later process opens a device of its own, and is served. */
static void later(const struct victim *to)
{
	long start = microseconds();
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (!child) {
		open_device();
		send_to(&to->gid, to->number, 9);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	CHECK(take().byte_len == GRH + 9);
	long took = microseconds() - start;
	slowest = took > slowest ? took : slowest;
}

int main(int count, char **arguments)
{
	struct ibv_wc wc;
	int ends[2], status;

	if (count < 2 || strcmp(arguments[1], "shm") || geteuid() || unshare(CLONE_NEWNET)) {
		printf("SKIPPED: another user can be root's alone, on a device of this host\nall held\n");
		return 0;
	}
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid_t other = fork();
	CHECK(other >= 0);
	if (!other) {
		close(ends[0]);
		return attack(ends[1]);
	}
	close(ends[1]);
	open_device();
	expect(GRH + 64);
	long before = resident();
	struct victim victim = { gid, qp->qp_num, count > 2 ? atoi(arguments[2]) : 16384 };
	CHECK(write(ends[0], &victim, sizeof victim) == sizeof victim);
	char byte;
	CHECK(read(ends[0], &byte, 1) == 1);
	for (int at = 0; at < 1000; at++) {
		CHECK(!ibv_poll_cq(cq, 1, &wc));
		usleep(100);
	}
	/* Too long for the receive, which stays for the next datagram. */
	send_to(&gid, qp->qp_num, LONG);
	send_to(&gid, qp->qp_num, 7);
	CHECK(take().byte_len == GRH + 7);
	for (int at = 0; at < 4; at++) {
		expect(GRH + 64);
		later(&victim);
	}
	CHECK(write(ends[0], &byte, 1) == 1);
	CHECK(waitpid(other, &status, 0) == other && !status);
	close(ends[0]);
	expect(GRH + 64);
	later(&victim);
	printf("slowest %ld us, memory %ld KiB more\nall held\n", slowest, resident() - before);
	return 0;
}
