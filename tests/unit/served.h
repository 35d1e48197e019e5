/*
 * served.h: kopsd in the test's process, with the CPU as its device, and clients at the other ends of socket
 * pairs. Its loop runs only when the test says so. One file of a program includes it, after cmocka.h.
 */
#ifndef KOPS_TEST_SERVED_H
#define KOPS_TEST_SERVED_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/load.h"
#include "job/memory/buffer.h"
#include "job/prepared.h"
#include "server.h"
#include "session/ending.h"
#include "session/request.h"
#include "session/sessions.h"
#include "share/receiver.h"

enum { SERVED_PAGE = 4096 };

/* A test fails if it waits longer. */
enum { SERVED_PATIENCE_S = 30 };

static struct server *kopsd;
static char served_folder[] = "/tmp/kops-unit-XXXXXX";
static uv_timer_t served_watch;
static unsigned served_seconds;

static inline void served_on_second(uv_timer_t *timer)
{
	(void)timer;
	served_seconds++;
}

static inline int served_setup(void **state)
{
	static char path[64];
	static char *argv[] = {"kopsd", "--config",        "/dev/null", "--socket",    path, "--devices",
	                       "cpu",   "--cpu-threads",   "1",         "--log-level", "3",  "--autotune",
	                       "0",     "--hello-timeout", "10min",     NULL};
	char why[CONFIG_WHY_BYTES] = "";
	enum config_action action;
	int argc = (int)(sizeof argv / sizeof argv[0]) - 1, rc = -1;

	(void)state;
	kopsd = calloc(1, sizeof *kopsd);
	if (!kopsd || !mkdtemp(served_folder))
		return -1;
	snprintf(path, sizeof path, "%s/kopsd.sock", served_folder);
	if (config_load(argc, argv, &kopsd->config, &action, why) == 0) {
		log_set_level((int)kopsd->config.log_level);
		rc = server_start(kopsd, argc, argv, why);
	}
	if (rc < 0) {
		print_error("%s\n", why);
		return -1;
	}
	uv_signal_stop(&kopsd->sigterm); /* ends a test that hangs */
	uv_signal_stop(&kopsd->sigint);
	uv_timer_init(&kopsd->loop, &served_watch);
	uv_timer_start(&served_watch, served_on_second, 1000, 1000);
	while (kopsd->state == SERVER_STARTING)
		uv_run(&kopsd->loop, UV_RUN_ONCE);
	return kopsd->state == SERVER_SERVING ? 0 : -1;
}

static inline int served_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static inline int served_teardown(void **state)
{
	(void)state;
	server_close(kopsd);
	free(kopsd);
	return nftw(served_folder, served_remove, 4, FTW_DEPTH | FTW_PHYS);
}

/* main() of such a test: kopsd starts the program again as its spawner. */
#define SERVED_MAIN(...)                                                                                       \
	int main(int argc, char **argv)                                                                        \
	{                                                                                                      \
		const struct CMUnitTest tests[] = {__VA_ARGS__};                                               \
                                                                                                               \
		(void)argc;                                                                                    \
		if (spawner_is_wanted(argv))                                                                   \
			spawner_main();                                                                        \
		return cmocka_run_group_tests(tests, served_setup, served_teardown);                           \
	}

/* Runs the loop until there is nothing to do at once. Does not wait for other threads. */
static inline void served_turn(void)
{
	do
		uv_run(&kopsd->loop, UV_RUN_NOWAIT);
	while (turns_are_wanted(&kopsd->sessions.turns));
}

/* Runs the loop until the condition holds, which must happen. */
#define served_until(condition)                                                                                \
	do {                                                                                                   \
		served_seconds = 0;                                                                            \
		while (!(condition)) {                                                                         \
			if (served_seconds > SERVED_PATIENCE_S)                                                \
				fail_msg("never: " #condition);                                                \
			uv_run(&kopsd->loop, UV_RUN_ONCE);                                                     \
		}                                                                                              \
	} while (0)

/* ---- Clients ---- */

struct client {
	int fd;
	struct session *session; /* NULL: it was refused. Freed when it ends */
	uint64_t last_id;
	uint8_t data[MESSAGE_BYTES_MAX];
	struct message_arena arena;
};

/* Connects. */
static inline struct client *client_arrive(void)
{
	struct client *c = calloc(1, sizeof *c);
	int fds[2];

	assert_non_null(c);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	c->fd = fds[0];
	if (session_arrive(&kopsd->sessions, fds[1]))
		c->session = list_first(&kopsd->sessions.list, struct session, link);
	return c;
}

static inline void client_free(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

static inline void client_send(struct client *c, const Kops__V1__Request *request, int fd)
{
	uint8_t out[MESSAGE_BYTES_MAX];
	size_t len;

	assert_int_equal(message_pack(&request->base, out, &len), 0);
	assert_int_equal(message_send(c->fd, out, len, &fd, fd >= 0), 0);
}

/*
 * Returns the next reply that has arrived, or NULL if there is none or the connection ended. Closes a
 * descriptor that came with it, unless ret_fd takes it.
 */
static inline Kops__V1__Reply *client_look(struct client *c, int *ret_fd)
{
	const char *why = "";
	int fds[MESSAGE_FDS_ROOM];
	unsigned n_fds = 0;
	size_t len;
	Kops__V1__Reply *reply;

	if (message_recv(c->fd, c->data, &len, fds, &n_fds) < 0)
		return NULL;
	for (unsigned i = ret_fd ? 1 : 0; i < n_fds; i++)
		close(fds[i]);
	if (ret_fd)
		*ret_fd = n_fds ? fds[0] : -1;
	reply = (Kops__V1__Reply *)message_unpack(&kops__v1__reply__descriptor, c->data, len,
	                                          MESSAGE_UNKNOWN_REFUSED, &c->arena, &why);
	if (!reply)
		fail_msg("a reply that is none: %s", why);
	return reply;
}

static inline Kops__V1__Reply *client_await(struct client *c)
{
	Kops__V1__Reply *reply;

	served_until(message_waits(c->fd));
	reply = client_look(c, NULL);
	if (!reply)
		fail_msg("the session ended");
	return reply;
}

static inline bool client_has_ended(const struct client *c)
{
	uint8_t byte;

	return recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* Declares a request of this verb with a new id, and its body to be filled in. */
#define CLIENT_REQUEST(c, name, VERB, member, NAME)                                                            \
	Kops__V1__##VERB name##_body = KOPS__V1__##NAME##__INIT;                                               \
	Kops__V1__Request name = KOPS__V1__REQUEST__INIT;                                                      \
	name.id = ++(c)->last_id;                                                                              \
	name.body_case = KOPS__V1__REQUEST__BODY_##NAME;                                                       \
	name.member = &name##_body

static inline void client_hello(struct client *c)
{
	CLIENT_REQUEST(c, r, Hello, hello, HELLO);
	r_body.version_min = r_body.version_max = 1;
	client_send(c, &r, -1);
}

/* Connects a client and greets. */
static inline struct client *client_open(void)
{
	struct client *c = client_arrive();

	assert_non_null(c->session);
	client_hello(c);
	assert_int_equal(client_await(c)->status, 0);
	return c;
}

/*
 * Closes the client's connection. If it was the user's last session, all of the user's resources are gone on
 * return.
 */
static inline void client_leave(struct client *c)
{
	struct account *account = c->session->account;
	unsigned left = account->sessions - 1;

	account_ref(account);
	close(c->fd);
	c->fd = -1;
	served_until(account->sessions <= left && list_is_empty(&account->errands.waiting));
	served_until(left > 0 || (account->jobs == 0 && account->buffers == 0));
	account_unref(&kopsd->engine.accounts, account);
	client_free(c);
}

#endif
