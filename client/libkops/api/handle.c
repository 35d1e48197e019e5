/* handle.c: opening and closing a handle. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpus.h"
#include "libkops/base/base.h"
#include "libkops/base/fd.h"
#include "libkops/job/buffer.h"
#include "libkops/job/job.h"
#include "libkops/session/await.h"
#include "libkops/session/session.h"
#include "libkops/wire/link.h"
#include "libkops/wire/ring.h"
#include "libkops/wire/wire.h"
#include "status.h"

#define SOCKET_DEFAULT     "/run/kopsd/kopsd.sock"
#define SOCKET_OWN         "kopsd.sock" /* in $XDG_RUNTIME_DIR */
#define TIMEOUT_DEFAULT_MS 30000
#define LOOK_CPUS          4 /* with fewer, a thread that polls keeps a CPU from kopsd */

/*
 * Names the session for people: unprintable and non-ASCII characters become '?', and long names are cut. kopsd
 * cannot always read the program's name in /proc.
 */
static void set_name(kops *k, const char *name)
{
	if (!name)
		name = program_invocation_short_name;
	for (size_t i = 0; name && name[i] && i < CLIENT_NAME_BYTES; i++)
		k->session.name[i] = name[i] >= 0x20 && name[i] <= 0x7e ? name[i] : '?';
}

/* Returns the socket of a daemon of the user's own, which comes before the host's; NULL: there is none. */
static const char *own_socket(char path[sizeof(struct sockaddr_un)])
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	/* sudo -E hands on a folder of another user. */
	if (!folder || folder[0] != '/' || stat(folder, &st) < 0 || st.st_uid != geteuid())
		return NULL;
	snprintf(path, sizeof(struct sockaddr_un), "%s/" SOCKET_OWN, folder);
	return access(path, F_OK) == 0 ? path : NULL;
}

/* Makes the path absolute, since the program may change its current folder later. */
static int make_absolute(kops *k, const char *path, char ret[2 * PATH_MAX])
{
	char folder[PATH_MAX];
	if (!getcwd(folder, sizeof folder))
		return client_fail(k, KOPS_E_CONNECT,
		                   "cannot reach kopsd: the socket's path is relative to a directory that "
		                   "cannot be found (%s): %s; give an absolute path",
		                   strerror(errno), path);
	snprintf(ret, 2 * PATH_MAX, "%s/%s", folder, path);
	return 0;
}

static int set_address(kops *k, const char *path)
{
	char own[sizeof(struct sockaddr_un)];
	char absolute[2 * PATH_MAX];
	if (!path || !path[0])
		path = getenv("KOPS_SOCKET");
	if (!path || !path[0])
		path = own_socket(own);
	if (!path)
		path = SOCKET_DEFAULT;
	if (path[0] != '/') {
		int status = make_absolute(k, path, absolute);
		if (status < 0)
			return status;
		path = absolute;
	}
	if (strlen(path) >= sizeof k->link.address.sun_path)
		return client_fail(k, KOPS_E_CONNECT,
		                   "cannot reach kopsd: the socket's path has %zu bytes, the limit is %zu: %s",
		                   strlen(path), sizeof k->link.address.sun_path - 1, path);
	k->link.address.sun_family = AF_UNIX;
	strcpy(k->link.address.sun_path, path);
	return 0;
}

/* Copies the members that the caller's version of the struct has. */
static kops_options read_options(const kops_options *given)
{
	kops_options options = {0};
	if (given)
		memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
	return options;
}

/* Returns NULL if the kernel has no MADV_WIPEONFORK. */
static const bool *new_fork_mark(void)
{
	bool *mark = mmap(NULL, sizeof *mark, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mark == MAP_FAILED)
		return NULL;
	if (madvise(mark, sizeof *mark, MADV_WIPEONFORK) < 0) {
		munmap(mark, sizeof *mark);
		return NULL;
	}
	*mark = true;
	return mark;
}

static kops *handle_new(void)
{
	kops *k = calloc(1, sizeof *k);
	if (!k)
		return NULL;
	k->owner = getpid();
	k->own = new_fork_mark();
	k->link.sock.number = k->link.watched = -1;
	k->link.give_up_us = CLIENT_NEVER;
	k->jobs.ops_max = MESSAGE_OPS_MAX;
	k->jobs.instances = true;
	k->wire.outbox_end = &k->wire.outbox;
	links_init(&k->buffers.list);
	links_init(&k->jobs.all);
	links_init(&k->jobs.out);
	return k;
}

/* Fails at once if there is no daemon; one that is too busy to accept is retried later. */
static int connect_first(kops *k, bool waits)
{
	client_link_want(k);
	int status = client_session_connect(k, waits ? k->link.give_up_us : 0);
	if (status == 0 || status == KOPS_E_BUSY)
		return 0;
	return client_fail(k, status, "cannot reach kopsd at %s: %s", k->link.address.sun_path, k->link.why);
}

/* Gives a daemon that stops while it greets, or is too busy to accept, the whole timeout. */
static int await_welcome(kops *k)
{
	struct waiter waiter = {0};
	k->session.greeting = &waiter;
	int status = client_await(k, &waiter, CLIENT_NEVER);
	k->session.greeting = NULL;
	return status;
}

static int open_handle(kops **ret_handle, const kops_options *given, char *why, size_t why_size, bool waits)
{
	kops_options options = read_options(given);
	kops *k = handle_new();
	int status = KOPS_E_NOMEM;
	if (!k)
		goto fail;
	k->timeout_ms = options.timeout_ms ? options.timeout_ms : TIMEOUT_DEFAULT_MS;
	k->spin_us = options.spin_us;
	k->looks.may_look = cpus_count() >= LOOK_CPUS;
	set_name(k, options.name);
	status = set_address(k, options.socket);
	if (status == 0)
		status = connect_first(k, waits);
	if (status == 0 && waits)
		status = await_welcome(k);
	if (status < 0)
		goto fail;
	*ret_handle = k;
	return 0;
fail:
	if (why && why_size > 0)
		snprintf(why, why_size, "%s", k ? k->error : status_text(status));
	kops_close(k);
	return status;
}

int kops_open(kops **ret_handle, const kops_options *given, char *why, size_t why_size)
{
	return open_handle(ret_handle, given, why, why_size, true);
}

int kops_open_start(kops **ret_handle, const kops_options *given, char *why, size_t why_size)
{
	return open_handle(ret_handle, given, why, why_size, false);
}

/*
 * Gives memory back as far as the socket takes it at once. The end of the session frees the buffers too, but
 * only returned memory stays warm for this user's next session.
 */
static void give_back(kops *k)
{
	for (struct links *node = k->buffers.list.next, *next; node != &k->buffers.list; node = next) {
		next = node->next;
		kops_free(LINKS_ENTRY(node, kops_buffer, node));
	}
}

/*
 * In a child of fork() kops_free() does nothing, and the rest changes only this process's memory and
 * descriptors.
 */
void kops_close(kops *k)
{
	if (!k || k->in_callback)
		return;
	client_job_unprepare(k); /* the end of the session forgets all prepared jobs */
	while (!links_is_empty(&k->jobs.all))
		client_job_destroy(LINKS_ENTRY(k->jobs.all.next, kops_job, node));
	give_back(k);
	while (!links_is_empty(&k->buffers.list))
		client_buffer_destroy(LINKS_ENTRY(k->buffers.list.next, kops_buffer, node));
	client_outbox_clear(k);
	client_ring_close(k);
	client_link_hang_up(k);
	if (k->own)
		munmap((void *)k->own, sizeof *k->own);
	free(k);
}
