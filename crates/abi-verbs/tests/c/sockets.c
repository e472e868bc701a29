/* Sockets of librdmacm in one process and with a child: as those of TCP, in every call of rsocket(7). The argument is the path of this
   program, or "peer PORT" for the child, which connects and waits to be killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BIG 1000003

static struct sockaddr_in address;

static int listener_at(int port)
{
	int one = 1, fd = rsocket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof address;

	address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && !rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	CHECK(!rbind(fd, (struct sockaddr *)&address, sizeof address) && !rlisten(fd, 8));
	CHECK(!rgetsockname(fd, (struct sockaddr *)&address, &len) && len == sizeof address && address.sin_port);
	return fd;
}

static int revents(int fd, int events, int timeout)
{
	struct pollfd poll = { fd, events, 0 };
	int count = rpoll(&poll, 1, timeout);

	CHECK(count == !!poll.revents);
	return poll.revents;
}

static void pair(int listener, int ends[2])
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;

	CHECK((ends[0] = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP)) >= 0);
	CHECK(!rconnect(ends[0], (struct sockaddr *)&address, sizeof address));
	CHECK((ends[1] = raccept(listener, (struct sockaddr *)&peer, &len)) >= 0 && ends[0] != ends[1]);
	CHECK(len == sizeof peer && peer.sin_family == AF_INET && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(!rgetpeername(ends[0], (struct sockaddr *)&peer, &len) && peer.sin_port == address.sin_port);
	/* The number is that of a descriptor of this process. */
	CHECK(fcntl(ends[0], F_GETFD) >= 0 && fcntl(ends[1], F_GETFD) >= 0);
}

static void refuses(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), error = -1;
	socklen_t len = sizeof error;
	char byte;

	CHECK(rsocket(AF_UNIX, SOCK_STREAM, 0) == -1 && errno == EAFNOSUPPORT);
	CHECK(rsocket(AF_INET, SOCK_DGRAM, 0) == -1 && errno == EOPNOTSUPP);
	CHECK(rread(fd, &byte, 1) == -1 && errno == ENOTCONN && rwrite(fd, &byte, 1) == -1 && errno == ENOTCONN);
	CHECK(rshutdown(fd, SHUT_RD) == -1 && errno == ENOTCONN && raccept(fd, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(rsetsockopt(fd, SOL_SOCKET, 12345, &error, len) == -1 && errno == EOPNOTSUPP);
	CHECK(rread(1, &byte, 1) == -1 && errno == EBADF && rclose(4000) == -1 && errno == EBADF);
	CHECK(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
	CHECK(!rclose(fd) && rclose(fd) == -1 && errno == EBADF);
}

static void options(int listener)
{
	int ends[2], value, size = 20000, one = 1;
	socklen_t len = sizeof value;
	struct linger linger = { 1, 3 }, got = { 0 };
	socklen_t linger_len = sizeof got;
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	CHECK(rfcntl(fd, F_GETFL) & O_NONBLOCK && rfcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(!rfcntl(fd, F_SETFL, 0) && !(rfcntl(fd, F_GETFL) & O_NONBLOCK) && !rfcntl(fd, F_SETFD, 0));
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) && !rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, &len) && value == 2 * size);
	CHECK(!rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) && !rgetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len) && value == 1);
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) && !rgetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len) && value == 1);
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) && !rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &linger_len));
	CHECK(got.l_onoff == 1 && got.l_linger == 3);
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) && value == SOCK_STREAM);
	CHECK(!rgetsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) && value == 1);
	CHECK(!rclose(fd));
	pair(listener, ends);
	CHECK(!rgetsockopt(ends[0], SOL_SOCKET, SO_RCVBUF, &value, &len) && value >= 4096);
	CHECK(!rclose(ends[0]) && !rclose(ends[1]));
}

/* Connecting without waiting: success, and a port that nobody listens at. */
static void connects_later(int listener)
{
	struct sockaddr_in nobody = address;
	int error = -1, fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), taken;
	socklen_t len = sizeof error;
	char bytes[8];

	CHECK(raccept(fd, NULL, NULL) == -1);
	int result = rconnect(fd, (struct sockaddr *)&address, sizeof address);
	CHECK(result == 0 || errno == EINPROGRESS);
	CHECK(revents(fd, POLLOUT, 10000) == POLLOUT);
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) && error == 0);
	CHECK(revents(listener, POLLIN, 10000) == POLLIN && (taken = raccept(listener, NULL, NULL)) >= 0);
	CHECK(rrecv(fd, bytes, sizeof bytes, 0) == -1 && errno == EAGAIN && revents(fd, POLLIN, 0) == 0);
	CHECK(rsend(taken, "now", 3, 0) == 3 && revents(fd, POLLIN | POLLOUT, 10000) & POLLIN);
	CHECK(rrecv(fd, bytes, sizeof bytes, 0) == 3);
	CHECK(!rclose(fd) && !rclose(taken));

	/* Port 1 has no listener on any device. */
	nobody.sin_port = htons(1);
	CHECK((fd = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
	CHECK(rconnect(fd, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED && !rclose(fd));
	CHECK((fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
	result = rconnect(fd, (struct sockaddr *)&nobody, sizeof nobody);
	CHECK(result == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
	int is_known = errno == ECONNREFUSED;
	CHECK(revents(fd, POLLIN | POLLOUT, 10000) & POLLERR);
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) && error == (is_known ? 0 : ECONNREFUSED));
	CHECK(!rclose(fd));
}

static void messages(int ends[2])
{
	char bytes[32] = "", more[32] = "";
	struct iovec parts[3] = { { (char *)"he", 2 }, { NULL, 0 }, { (char *)"llo", 3 } };
	struct iovec room[2] = { { bytes, 1 }, { more, sizeof more } };
	struct msghdr out = { .msg_iov = parts, .msg_iovlen = 3 }, in = { .msg_iov = room, .msg_iovlen = 2, .msg_flags = -1 };
	struct sockaddr_in from;
	socklen_t len = sizeof from;

	CHECK(rwritev(ends[0], parts, 3) == 5 && rrecv(ends[1], bytes, 5, MSG_WAITALL) == 5 && !memcmp(bytes, "hello", 5));
	CHECK(rsendmsg(ends[0], &out, 0) == 5 && revents(ends[1], POLLIN, 10000) == POLLIN);
	/* The parts may arrive one by one. */
	room[1].iov_len = 4;
	CHECK(rrecvmsg(ends[1], &in, MSG_WAITALL) == 5 && bytes[0] == 'h' && !memcmp(more, "ello", 4) && in.msg_flags == 0);
	CHECK(rsendto(ends[0], "abc", 3, 0, NULL, 0) == 3 && rrecv(ends[1], bytes, 3, MSG_PEEK) > 0);
	CHECK(rrecvfrom(ends[1], bytes, 3, MSG_WAITALL, (struct sockaddr *)&from, &len) == 3 && from.sin_family == AF_INET);
	CHECK(rsendto(ends[0], "abc", 3, 0, (struct sockaddr *)&address, sizeof address) == -1 && errno == EISCONN);
	CHECK(rwrite(ends[0], "xyz", 3) == 3 && rread(ends[1], bytes, 3) > 0);
	CHECK(rrecv(ends[1], bytes, 3, MSG_DONTWAIT) != 0);
	CHECK(rwrite(ends[0], "12", 2) == 2);
	room[0].iov_len = sizeof bytes;
	room[1].iov_len = sizeof more;
	CHECK(revents(ends[1], POLLIN, 10000) == POLLIN && rreadv(ends[1], room, 2) >= 2);
	CHECK(rsend(ends[0], "abc", 3, MSG_OOB) == -1 && errno == EOPNOTSUPP);
	CHECK(rsend(ends[0], NULL, 3, 0) == -1 && errno == EFAULT && rsend(ends[0], NULL, 0, 0) == 0);
}

/* rpoll and rselect with a descriptor of the system among the sockets. */
static void mixed(int ends[2])
{
	int tube[2];
	struct pollfd fds[3] = { { ends[1], POLLIN, 0 }, { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };
	fd_set reads, writes;
	struct timeval soon = { 0, 20000 };
	char byte;

	CHECK(!pipe(tube));
	fds[1].fd = tube[0];
	CHECK(rpoll(fds, 3, 20) == 0);
	CHECK(write(tube[1], "x", 1) == 1 && rpoll(fds, 3, 10000) == 1 && fds[1].revents == POLLIN && !fds[0].revents);
	CHECK(rsend(ends[0], "y", 1, 0) == 1 && revents(ends[1], POLLIN, 10000) == POLLIN && rpoll(fds, 3, -1) == 2);
	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_SET(ends[1], &reads);
	FD_SET(tube[0], &reads);
	FD_SET(ends[0], &writes);
	CHECK(rselect(FD_SETSIZE, &reads, &writes, NULL, NULL) == 3);
	CHECK(FD_ISSET(ends[1], &reads) && FD_ISSET(tube[0], &reads) && FD_ISSET(ends[0], &writes));
	CHECK(read(tube[0], &byte, 1) == 1 && rread(ends[1], &byte, 1) == 1 && byte == 'y');
	CHECK(rselect(FD_SETSIZE, &reads, NULL, NULL, &soon) == 0 && !FD_ISSET(ends[1], &reads));
	close(tube[0]), close(tube[1]);
}

static void *echo(void *place)
{
	int fd = *(int *)place;
	static char bytes[70001];
	ssize_t len;

	while ((len = rrecv(fd, bytes, sizeof bytes, 0)) > 0)
		CHECK(rsend(fd, bytes, len, 0) == len);
	CHECK(len == 0 && !rshutdown(fd, SHUT_WR));
	return NULL;
}

static void *write_all(void *place)
{
	int fd = *(int *)place;
	char *bytes = malloc(BIG);

	for (int at = 0; at < BIG; at++)
		bytes[at] = at * 7 + at / 251;
	CHECK(rsend(fd, bytes, BIG, 0) == BIG && !rshutdown(fd, SHUT_WR));
	CHECK(rsend(fd, bytes, 1, 0) == -1 && errno == EPIPE);
	free(bytes);
	return NULL;
}

/* More bytes than all buffers hold, to a thread that sends them back. */
static void big(int ends[2])
{
	pthread_t echoes, writes;
	static char bytes[BIG + 1];

	CHECK(!pthread_create(&echoes, NULL, echo, &ends[1]) && !pthread_create(&writes, NULL, write_all, &ends[0]));
	CHECK(rrecv(ends[0], bytes, BIG, MSG_WAITALL) == BIG);
	for (int at = 0; at < BIG; at++)
		CHECK(bytes[at] == (char)(at * 7 + at / 251));
	CHECK(rrecv(ends[0], bytes, 1, 0) == 0 && !pthread_join(echoes, NULL) && !pthread_join(writes, NULL));
	CHECK(revents(ends[0], POLLIN, 10000) & POLLHUP);
}

/* A mapping of one end that the other writes. */
static void maps(int listener)
{
	int entries = 4, ends[2], len = sizeof entries;
	static char target[300000], source[300000];
	char byte;

	CHECK((ends[0] = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
	CHECK(!rsetsockopt(ends[0], SOL_RDMA, RDMA_IOMAPSIZE, &entries, len));
	CHECK(!rconnect(ends[0], (struct sockaddr *)&address, sizeof address) && (ends[1] = raccept(listener, NULL, NULL)) >= 0);
	for (int at = 0; at < (int)sizeof source; at++)
		source[at] = at * 13;
	/* The end that was accepted maps memory, which the other has room for. */
	CHECK(riomap(ends[1], target, sizeof target, PROT_WRITE, 0, 5000) == 5000);
	CHECK(riomap(ends[0], target, sizeof target, PROT_WRITE, 0, -1) == -1 && errno == ENOMEM);
	CHECK(rsend(ends[1], "m", 1, 0) == 1 && rread(ends[0], &byte, 1) == 1);
	CHECK((ssize_t)riowrite(ends[0], source, 10, 1, 0) == -1 && errno == EFAULT);
	CHECK(riowrite(ends[0], source, sizeof source, 5000, 0) == sizeof source);
	CHECK(rsend(ends[0], "w", 1, 0) == 1 && rread(ends[1], &byte, 1) == 1 && !memcmp(source, target, sizeof source));
	CHECK(!riounmap(ends[1], target, sizeof target) && riounmap(ends[1], target, sizeof target) == -1 && errno == EINVAL);
	CHECK(!rclose(ends[0]) && !rclose(ends[1]));
}

/* A peer that is killed, and one that exits without closing. */
static void deaths(const char *program, int listener)
{
	char port[8], bytes[8];
	int status, error = 0;
	socklen_t len = sizeof error;

	snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
	for (int is_killed = 0; is_killed < 2; is_killed++) {
		pid_t child = fork();
		if (!child) {
			execl(program, program, "peer", port, is_killed ? "wait" : "exit", NULL);
			_exit(9);
		}
		int fd = raccept(listener, NULL, NULL);
		CHECK(fd >= 0 && rrecv(fd, bytes, 5, MSG_WAITALL) == 5 && !memcmp(bytes, "peer!", 5));
		if (is_killed)
			CHECK(!kill(child, SIGKILL));
		ssize_t got = rrecv(fd, bytes, sizeof bytes, 0);
		if (is_killed) {
			CHECK(got == -1 && errno == ECONNRESET && revents(fd, POLLIN, 0) & POLLERR);
			CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) && error == ECONNRESET);
			CHECK(rsend(fd, bytes, 1, 0) == -1 && errno == ECONNRESET);
		} else {
			CHECK(got == 0);
		}
		CHECK(waitpid(child, &status, 0) == child && (is_killed || status == 0) && !rclose(fd));
	}
}

static int peer(const char *port, int waits)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!rconnect(fd, (struct sockaddr *)&to, sizeof to) && rsend(fd, "peer!", 5, 0) == 5);
	while (waits)
		pause();
	exit(0);
}

static void nothing(int signal)
{
	(void)signal;
}

static void *interrupt(void *thread)
{
	for (int count = 0; count < 50; count++) {
		usleep(20000);
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	}
	return NULL;
}

/* A signal ends a call that waits. */
static void signals(int ends[2])
{
	struct sigaction action = { .sa_handler = nothing };
	pthread_t self = pthread_self(), other;
	char byte;

	CHECK(!sigaction(SIGUSR1, &action, NULL) && !pthread_create(&other, NULL, interrupt, &self));
	CHECK(rread(ends[0], &byte, 1) == -1 && errno == EINTR);
	CHECK(!pthread_join(other, NULL));
}

int main(int argc, char **argv)
{
	int ends[2];

	if (argc == 4)
		return peer(argv[2], !strcmp(argv[3], "wait"));
	refuses();
	int listener = listener_at(0);
	options(listener);
	connects_later(listener);
	pair(listener, ends);
	messages(ends);
	mixed(ends);
	signals(ends);
	big(ends);
	CHECK(!rclose(ends[0]) && !rclose(ends[1]));
	maps(listener);
	deaths(argv[0], listener);
	CHECK(!rclose(listener));
	puts("all sockets work");
	return 0;
}
