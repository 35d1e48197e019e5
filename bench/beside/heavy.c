#include "beside/heavy.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define JOBS_MIN     3    /* that a rate is measured over */
#define MORE_JOBS_US 20e3 /* between two looks at whether enough jobs were done */

static int fail(char *why, int status, const char *what)
{
	why_invalid(why, "%s: %s", what, strerror(errno));
	return status;
}

/* ---- The process ---- */

/* Takes the groups of that user too, since one of them may open the socket. */
static int take_groups(uid_t uid)
{
	const struct passwd *user = getpwuid(uid);
	gid_t gid = user ? user->pw_gid : uid;
	int rc = user ? initgroups(user->pw_name, gid) : setgroups(0, NULL);

	return rc < 0 ? rc : setresgid(gid, gid, gid);
}

static int become(uid_t uid, char *why)
{
	if (uid == geteuid())
		return 0;
	if (take_groups(uid) < 0 || setresuid(uid, uid, uid) < 0)
		return fail(why, KOPS_E_SYSTEM, "cannot become that user; without --uid both can be one");
	return 0;
}

/* Runs in the child. */
static _Noreturn void serve(int sock, const struct cli *cli, uid_t uid, unsigned out)
{
	struct reply reply = {.why = ""};

	reply.status = become(uid, reply.why);
	if (reply.status == 0)
		worker_serve(sock, cli, out);
	_exit(send(sock, &reply, sizeof(reply), MSG_NOSIGNAL) < 0);
}

static int hear(struct heavy *h, struct reply *ret, char *why)
{
	ssize_t n;

	do
		n = recv(h->sock, ret, sizeof(*ret), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*ret)) {
		why_invalid(why, "the process of the heavy user (uid %u) ended; is the host short of memory?",
		            (unsigned)h->uid);
		return KOPS_E_SYSTEM;
	}
	if (ret->status < 0)
		strcpy(why, ret->why);
	return ret->status;
}

int heavy_start(struct heavy *ret, const struct cli *cli, uid_t uid, unsigned out, char *why)
{
	struct reply hello;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail(why, KOPS_E_SYSTEM, "cannot make a socket for the heavy user's process");
	struct heavy heavy = {.sock = pair[0], .child = fork(), .uid = uid};
	if (heavy.child == 0) {
		close(pair[0]);
		serve(pair[1], cli, uid, out);
	}
	close(pair[1]);
	int rc = heavy.child < 0 ? fail(why, KOPS_E_SYSTEM, "cannot start the heavy user's process")
	                         : hear(&heavy, &hello, why);
	if (rc < 0)
		heavy_stop(&heavy);
	else
		*ret = heavy;
	return rc;
}

/* A job of it may last long, and its handle needs no farewell. */
void heavy_stop(struct heavy *h)
{
	if (h->sock < 0)
		return;
	close(h->sock);
	if (h->child > 0) {
		kill(h->child, SIGKILL);
		waitpid(h->child, NULL, 0);
	}
	h->sock = -1;
}

/* ---- Orders ---- */

static int ask(struct heavy *h, const struct order *order, struct reply *ret, char *why)
{
	if (send(h->sock, order, sizeof(*order), MSG_NOSIGNAL) < 0)
		return fail(why, KOPS_E_SYSTEM, "cannot reach the heavy user's process");
	return hear(h, ret, why);
}

int heavy_run(struct heavy *h, const struct load *load, char *why)
{
	struct order order = {.kind = ORDER_RUN, .load = *load};
	struct reply reply;

	return ask(h, &order, &reply, why);
}

int heavy_count(struct heavy *h, struct reply *ret, char *why)
{
	return ask(h, &(struct order){.kind = ORDER_COUNT}, ret, why);
}

int heavy_rest(struct heavy *h, char *why)
{
	struct reply reply;

	return ask(h, &(struct order){.kind = ORDER_REST}, &reply, why);
}

/* ---- Rates ---- */

struct rate done_between(const struct done *first, const struct done *last)
{
	double us = last->at_us - first->at_us;

	if (us <= 0)
		return (struct rate){0};
	return (struct rate){.per_second = (double)(last->jobs - first->jobs) / us * 1e6,
	                     .device_share = (last->device_us - first->device_us) / us};
}

int heavies_rates(struct heavy *heavies, size_t n, double us, struct rate *ret, char *why)
{
	struct reply first[HEAVIES_MAX], last[HEAVIES_MAX];
	bool enough = false;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = heavy_count(&heavies[i], &first[i], why);
	for (; rc == 0 && !enough; us = MORE_JOBS_US) {
		bench_sleep_us((uint64_t)us);
		enough = true;
		for (size_t i = 0; i < n && rc == 0; i++) {
			rc = heavy_count(&heavies[i], &last[i], why);
			enough = enough && last[i].done.jobs - first[i].done.jobs >= JOBS_MIN;
		}
	}
	for (size_t i = 0; i < n && rc == 0; i++)
		ret[i] = done_between(&first[i].done, &last[i].done);
	return rc;
}
