#include "files/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "files/foreign.h"
#include "files/npy.h"
#include "files/transfer.h"

struct sink {
	const char *path;              /* as the user wrote it */
	char target[PATH_MAX];         /* the file to write, with symbolic links resolved */
	char temporary[PATH_MAX + 32]; /* the name beside it until it is complete; "": none */
	int fd;
	bool npy;
	struct sink *next; /* next sink with a temporary name */
};

/* Sinks whose temporary names a signal handler must remove. Changed only with those signals blocked. */
static struct sink *volatile doomed;

/* What the handler calls first; async-signal-safe. */
static void (*before_the_end)(void);

static void remove_doomed(int signal_number)
{
	before_the_end();
	for (struct sink *sink = doomed; sink; sink = sink->next)
		unlink(sink->temporary);
	raise(signal_number); /* SA_RESETHAND: the default action, once this returns */
}

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof(ending_signals) / sizeof(ending_signals[0]))

void sink_catch_signals(void (*first)(void))
{
	struct sigaction action = {.sa_handler = remove_doomed, .sa_flags = (int)SA_RESETHAND}, old;

	before_the_end = first;
	for (size_t i = 0; i < N_SIGNALS; i++) {
		sigaction(ending_signals[i], NULL, &old);
		if (old.sa_handler != SIG_IGN) /* nohup stays in force */
			sigaction(ending_signals[i], &action, NULL);
	}
}

static void hold_signals(sigset_t *ret_old)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < N_SIGNALS; i++)
		sigaddset(&set, ending_signals[i]);
	sigprocmask(SIG_BLOCK, &set, ret_old);
}

/* Opens a file beside the target. Returns 0, or -1 with errno. */
static int open_temporary(struct sink *sink)
{
	const char *slash = strrchr(sink->target, '/');
	int dir = slash ? (int)(slash - sink->target + 1) : 0;
	mode_t mask = umask(0);
	sigset_t old;

	umask(mask);
	snprintf(sink->temporary, sizeof(sink->temporary), "%.*s.kops-%ld.XXXXXX", dir, sink->target,
	         (long)getpid());
	hold_signals(&old);
	sink->fd = mkostemp(sink->temporary, O_CLOEXEC);
	if (sink->fd >= 0) {
		sink->next = doomed;
		doomed = sink;
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	return sink->fd < 0 ? -1 : fchmod(sink->fd, 0666 & ~mask);
}

/* Ends the temporary name by rename() to the target, or removes it. Returns 0, or -1 with errno. */
static int end_temporary(struct sink *sink, bool keep)
{
	struct sink *volatile *at = &doomed;
	sigset_t old;

	while (*at && *at != sink)
		at = (struct sink *volatile *)&(*at)->next;
	if (*at == NULL)
		return 0;
	hold_signals(&old);
	int rc = keep ? rename(sink->temporary, sink->target) : unlink(sink->temporary), saved = errno;
	if (rc == 0 || !keep)
		*at = sink->next;
	sigprocmask(SIG_SETMASK, &old, NULL);
	errno = saved;
	return rc;
}

/* Returns 0, or -1 with errno. */
static int open_beside(struct sink *sink)
{
	struct stat st;
	bool exists = stat(sink->path, &st) == 0;

	errno = exists && S_ISDIR(st.st_mode) ? EISDIR : strlen(sink->path) >= PATH_MAX ? ENAMETOOLONG : 0;
	if (errno)
		return -1;
	if (exists && !S_ISREG(st.st_mode)) {
		sink->fd = open(sink->path, O_WRONLY | O_CLOEXEC);
		return sink->fd < 0 ? -1 : 0;
	}
	strcpy(sink->target, sink->path);
	if (exists && (access(sink->path, W_OK) < 0 || realpath(sink->path, sink->target) == NULL))
		return -1;
	if (open_temporary(sink) < 0)
		return -1;
	if (exists)
		fchmod(sink->fd, st.st_mode & 0777); /* no set-user-ID, as the new file is this user's */
	return 0;
}

struct sink *sink_open(const char *path, bool npy, char *why)
{
	bool standard = strcmp(path, "-") == 0;
	struct sink *sink = NULL;

	path = standard ? "standard output" : path;
	npy = standard ? npy : npy_is_name(path);
	if (foreign_output(path, why) == 0 && (sink = calloc(1, sizeof(*sink))) == NULL)
		why_invalid(why, "out of memory");
	if (sink == NULL)
		return NULL;
	*sink = (struct sink){.path = path, .npy = npy, .fd = standard ? dup(STDOUT_FILENO) : -1};
	if (sink->fd >= 0 || (!standard && open_beside(sink) == 0))
		return sink;
	why_invalid(why, "cannot write %s: %s", path, strerror(errno));
	sink_close(sink);
	return NULL;
}

void sink_close(struct sink *sink)
{
	if (sink == NULL)
		return;
	end_temporary(sink, false);
	if (sink->fd >= 0)
		close(sink->fd);
	free(sink);
}

static bool is_dense(const struct elements *e)
{
	struct elements dense = elements_dense(e->data, e);

	for (uint32_t d = 0; d < e->rank; d++)
		if (e->shape[d] > 1 && e->strides[d] != dense.strides[d])
			return false;
	return true;
}

/* Writes row by row through a buffer, for elements in another order. */
static int write_strided(int fd, const char *path, const struct elements *e)
{
	unsigned char bytes[1u << 15];
	size_t size = kops_dtype_size(e->dtype), block = sizeof(bytes) / size;
	uint64_t rows = elements_rows(e), cols = elements_columns(e);

	for (uint64_t r = 0; r < rows; r++) {
		for (uint64_t c = 0; c < cols; c += block) {
			uint64_t n = cols - c < block ? cols - c : block;
			elements_gather(e, r, c, n, bytes);
			if (transfer_write(fd, path, bytes, n * size) < 0)
				return -1;
		}
	}
	return 0;
}

static int write_elements(int fd, const char *path, const struct elements *e)
{
	if (!is_dense(e))
		return write_strided(fd, path, e);
	return transfer_write(fd, path, e->data, elements_count(e) * kops_dtype_size(e->dtype));
}

/* rc: 0, or -1 with errno. */
static int said(const struct sink *sink, int rc, char *why)
{
	if (rc == 0)
		return 0;
	why_invalid(why, "cannot write %s: %s", sink->path, strerror(errno));
	return KOPS_E_SYSTEM;
}

int sink_write_header(struct sink *sink, const struct elements *e, char *why)
{
	char header[256];
	size_t n = sink->npy ? npy_format(e->dtype, e->rank, e->shape, header) : 0;

	return said(sink, transfer_write(sink->fd, NULL, header, n), why);
}

int sink_write_piece(struct sink *sink, const void *data, uint64_t bytes, char *why)
{
	return said(sink, transfer_write(sink->fd, NULL, data, bytes), why);
}

int sink_finish(struct sink *sink, char *why)
{
	return said(sink, end_temporary(sink, true), why);
}

bool sink_is_hidden(const struct sink *sink)
{
	return sink->temporary[0] != 0;
}

int sink_write(struct sink *sink, const struct elements *e, char *why)
{
	int rc = sink_write_header(sink, e, why);

	if (rc == 0)
		rc = said(sink, write_elements(sink->fd, sink->path, e), why);
	return rc == 0 ? sink_finish(sink, why) : rc;
}
