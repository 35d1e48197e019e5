#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "kops_types.h"

#define FIRST_PASSED_FD 3 /* SD_LISTEN_FDS_START */

/* A path, or '@' and an abstract name. 0 or KOPS_E_SYSTEM with errno. */
static int manager_address(const char *name, struct sockaddr_un *ret_addr, socklen_t *ret_len)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || len < 2) {
		errno = EAFNOSUPPORT;
		return KOPS_E_SYSTEM;
	}
	if (len >= sizeof(addr.sun_path)) {
		errno = ENAMETOOLONG;
		return KOPS_E_SYSTEM;
	}
	memcpy(addr.sun_path, name, len);
	if (name[0] == '@')
		addr.sun_path[0] = '\0';
	*ret_addr = addr;
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	return 0;
}

int notify(const char *state)
{
	/* A manager that does not read must not block the event loop for long. */
	const struct timeval patience = {.tv_sec = 1};
	const char *name = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr;
	socklen_t addr_len;
	ssize_t sent;
	int sock, saved_errno;

	if (!name || !name[0])
		return 0;
	if (manager_address(name, &addr, &addr_len) < 0)
		return KOPS_E_SYSTEM;
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return KOPS_E_SYSTEM;
	(void)setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	do
		sent = sendto(sock, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr, addr_len);
	while (sent < 0 && errno == EINTR);

	saved_errno = errno;
	close(sock);
	errno = saved_errno;
	return sent < 0 ? KOPS_E_SYSTEM : 0;
}

int notify_reloading(void)
{
	char state[64];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
	         (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
	return notify(state);
}

/* Parses a decimal number without other characters. */
static bool parse_number(const char *text, uint64_t *ret)
{
	unsigned long long value;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end)
		return false;
	*ret = value;
	return true;
}

static bool is_own_pid(const char *text)
{
	uint64_t pid;

	return parse_number(text, &pid) && pid == (uint64_t)getpid();
}

uint64_t notify_watchdog_ms(void)
{
	const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t usec;

	if (!period || !parse_number(period, &usec) || usec == 0)
		return 0;
	if (pid && !is_own_pid(pid))
		return 0;
	return usec < 1000 ? 1 : usec / 1000;
}

static bool has_option(int fd, int option, int wanted)
{
	int value;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 && value == wanted;
}

static bool is_listening_seqpacket(int fd)
{
	return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, SOCK_SEQPACKET) &&
	       has_option(fd, SO_ACCEPTCONN, 1);
}

static int adopt(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (!is_listening_seqpacket(fd))
		return KOPS_E_INVALID;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return KOPS_E_INVALID;
	return fd;
}

/* Returns the number of passed sockets; 0: none are for this process. KOPS_E_INVALID: the variables are
 * malformed. */
static int count_passed(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	uint64_t n;

	if (!pid || !fds || !is_own_pid(pid))
		return 0;
	if (!parse_number(fds, &n) || n > 1)
		return KOPS_E_INVALID;
	return (int)n;
}

int notify_inherited_socket(void)
{
	int n = count_passed();

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	if (n < 0)
		return n;
	return n == 0 ? -1 : adopt(FIRST_PASSED_FD);
}
