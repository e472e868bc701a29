/* Faults at run time: sends a rule to a process that runs on a device of faults (nicety run --faults). The process may be the caller.

   int wrong = nicety_fault(getpid(), "on=write nth=3 status=REM_ACCESS_ERR");

   docs/guides/faults.md has the rules. Nothing has to be linked: all of it is in this file.
   SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FAULT_OF_NICETY_H
#define FAULT_OF_NICETY_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

/* As nicety_fault, and stores the beginning of the answer, or of the reason of a refusal, as text of at most size - 1 bytes. */
static inline int nicety_fault_answer(pid_t pid, const char *rule, char *answer, size_t size)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	/* The first byte of an abstract name is zero. */
	int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "nicety/%lu/%ld", (unsigned long)geteuid(), (long)pid);
	socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
	int at = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), wrong = 0;
	size_t sent = 0, got = 0, rule_bytes = strlen(rule);
	char first[4096];

	if (size)
		answer[0] = 0;
	if (at < 0)
		return errno;
	if (connect(at, (struct sockaddr *)&name, bytes))
		wrong = errno;
	while (!wrong && sent <= rule_bytes) {
		ssize_t now = sent < rule_bytes ? send(at, rule + sent, rule_bytes - sent, MSG_NOSIGNAL) : send(at, "\n", 1, MSG_NOSIGNAL);
		if (now > 0)
			sent += (size_t)now;
		else if (errno != EINTR)
			wrong = errno;
	}
	while (!wrong && got < sizeof first - 1) {
		ssize_t now = recv(at, first + got, sizeof first - 1 - got, 0);
		if (now > 0)
			got += (size_t)now;
		else if (now == 0)
			break;
		else if (errno != EINTR)
			wrong = errno;
	}
	close(at);
	if (wrong)
		return wrong;
	first[got] = 0;
	char *text = strchr(first, '\n');
	if (!text)
		return EPROTO;
	*text++ = 0;
	if (size) {
		size_t kept = strlen(text) < size ? strlen(text) : size - 1;
		memcpy(answer, text, kept);
		answer[kept] = 0;
	}
	return strcmp(first, "ok") ? EINVAL : 0;
}

/* Adds a rule to the devices of faults of a process, or "clear"s all. Returns 0, EINVAL for a wrong rule, or ECONNREFUSED if the
   process has no such device. */
static inline int nicety_fault(pid_t pid, const char *rule)
{
	return nicety_fault_answer(pid, rule, NULL, 0);
}

#endif
