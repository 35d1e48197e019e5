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
	const char *path;      /* as the user wrote it */
	char target[PATH_MAX]; /* where it is put: symbolic links are resolved, or it replaces one */
	char temporary[PATH_MAX + 32];
	int fd;
	bool npy;
	bool in_place; /* no regular file: no temporary, no rename */
	bool named;    /* `temporary` exists */
};

/* What a signal handler must remove; set and cleared with those signals blocked. */
static char *volatile doomed;

static void remove_doomed(int signal_number)
{
	char *path = doomed;

	if (path)
		unlink(path);
	raise(signal_number); /* SA_RESETHAND: the default action, once this returns */
}

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof(ending_signals) / sizeof(ending_signals[0]))

void sink_catch_signals(void)
{
	struct sigaction action = {.sa_handler = remove_doomed, .sa_flags = (int)SA_RESETHAND}, old;

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

static void release_signals(const sigset_t *old)
{
	sigprocmask(SIG_SETMASK, old, NULL);
}

/* "dir/" of the target, "" for the working directory; its length. */
static int directory_length(const char *target)
{
	const char *slash = strrchr(target, '/');

	return slash ? (int)(slash - target + 1) : 0;
}

static void choose_temporary(struct sink *sink)
{
	int dir = directory_length(sink->target);

	snprintf(sink->temporary, sizeof(sink->temporary), "%.*s.kops-%ld.XXXXXX", dir, sink->target,
	         (long)getpid());
}

static int open_nameless(struct sink *sink)
{
	char dir[PATH_MAX];
	int length = directory_length(sink->target);

	snprintf(dir, sizeof(dir), "%.*s", length ? length : 1, length ? sink->target : ".");
	sink->fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
	return sink->fd < 0 ? -1 : 0;
}

static int open_named(struct sink *sink)
{
	mode_t mask = umask(0);
	sigset_t old;

	umask(mask);
	choose_temporary(sink);
	hold_signals(&old);
	sink->fd = mkostemp(sink->temporary, O_CLOEXEC);
	if (sink->fd >= 0) {
		sink->named = true;
		doomed = sink->temporary;
		fchmod(sink->fd, 0666 & ~mask);
	}
	release_signals(&old);
	return sink->fd < 0 ? -1 : 0;
}

/* 0 or -1 with errno. */
static int open_beside(struct sink *sink)
{
	struct stat st;
	bool exists = stat(sink->path, &st) == 0;

	errno = exists && S_ISDIR(st.st_mode) ? EISDIR : strlen(sink->path) >= PATH_MAX ? ENAMETOOLONG : 0;
	if (errno)
		return -1;
	if (exists && !S_ISREG(st.st_mode)) {
		sink->in_place = true;
		sink->fd = open(sink->path, O_WRONLY | O_CLOEXEC);
		return sink->fd < 0 ? -1 : 0;
	}
	strcpy(sink->target, sink->path);
	if (exists && (access(sink->path, W_OK) < 0 || realpath(sink->path, sink->target) == NULL))
		return -1;
	/* Overlay and network file systems refuse O_TMPFILE in several ways; a wrong directory fails twice. */
	if (open_nameless(sink) < 0 && open_named(sink) < 0)
		return -1;
	if (exists)
		fchmod(sink->fd, st.st_mode & 0777); /* the new file is this user's: no set-user-ID */
	return 0;
}

/* Names that ask for what is not written. */
static int check_name(const char *path, kops_dtype dtype, bool npy, char *why)
{
	if (strcmp(path, "-") == 0)
		return why_invalid(
		    why, "cannot write -: without a file's name the result goes to standard output, as raw "
		         "elements into a pipe; for a file named -, write ./-");
	if (npy && dtype == KOPS_BF16)
		return why_invalid(
		    why, "cannot write %s: .npy has no bf16; give -o a name such as c.bin for the raw elements",
		    path);
	return foreign_output(path, why);
}

struct sink *sink_open(const char *path, kops_dtype dtype, char *why)
{
	bool npy = npy_is_name(path);

	if (check_name(path, dtype, npy, why) < 0)
		return NULL;
	struct sink *sink = calloc(1, sizeof(*sink));
	if (sink == NULL) {
		why_invalid(why, "out of memory");
		return NULL;
	}
	*sink = (struct sink){.path = path, .npy = npy, .fd = -1};
	if (open_beside(sink) == 0)
		return sink;
	why_invalid(why, "cannot write %s: %s", path, strerror(errno));
	sink_close(sink);
	return NULL;
}

void sink_close(struct sink *sink)
{
	sigset_t old;

	if (sink == NULL)
		return;
	if (sink->fd >= 0)
		close(sink->fd);
	hold_signals(&old);
	if (sink->named)
		unlink(sink->temporary);
	if (doomed == sink->temporary)
		doomed = NULL;
	release_signals(&old);
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

/* Row by row through a buffer, for what lies in another order. */
static int write_strided(int fd, const char *path, const struct elements *e)
{
	enum { BLOCK = 4096 };
	double values[BLOCK];
	unsigned char bytes[BLOCK * 8];
	size_t size = kops_dtype_size(e->dtype);
	uint64_t rows = elements_rows(e), cols = elements_columns(e);

	for (uint64_t r = 0; r < rows; r++) {
		for (uint64_t c = 0; c < cols; c += BLOCK) {
			uint64_t n = cols - c < BLOCK ? cols - c : BLOCK;
			elements_row(e, r, c, n, values);
			for (uint64_t i = 0; i < n; i++)
				element_put(e->dtype, bytes + i * size, values[i]);
			if (transfer_write(fd, path, bytes, n * size) < 0)
				return -1;
		}
	}
	return 0;
}

int sink_write_raw(int fd, const char *path, const struct elements *e)
{
	if (!is_dense(e))
		return write_strided(fd, path, e);
	return transfer_write(fd, path, e->data, elements_count(e) * kops_dtype_size(e->dtype));
}

static int give_temporary_name(struct sink *sink)
{
	char from[64];

	snprintf(from, sizeof(from), "/proc/self/fd/%d", sink->fd);
	if (linkat(AT_FDCWD, from, AT_FDCWD, sink->target, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (errno != EEXIST)
		return -1;
	/* link() does not replace: link under a name of our own, then rename over the old file. */
	choose_temporary(sink);
	char *unique = sink->temporary + strlen(sink->temporary) - 6;
	for (unsigned i = 0; i < 1000 && !sink->named; i++) {
		snprintf(unique, 7, "%06u", i);
		sink->named = linkat(AT_FDCWD, from, AT_FDCWD, sink->temporary, AT_SYMLINK_FOLLOW) == 0;
		if (!sink->named && errno != EEXIST)
			break;
	}
	return sink->named ? 0 : -1;
}

/* With the ending signals held, so that no temporary name outlives one. */
static int put_in_place(struct sink *sink)
{
	sigset_t old;

	hold_signals(&old);
	int rc = sink->named ? 0 : give_temporary_name(sink);
	if (rc == 0 && sink->named) {
		rc = rename(sink->temporary, sink->target);
		sink->named = rc < 0;
		doomed = rc < 0 ? doomed : NULL;
	}
	int saved = errno;
	release_signals(&old);
	errno = saved;
	return rc;
}

int sink_write(struct sink *sink, const struct elements *e, char *why)
{
	char header[256];
	size_t n = sink->npy ? npy_format(e->dtype, e->rank, e->shape, header) : 0;
	int rc = transfer_write(sink->fd, sink->path, header, n);

	if (rc == 0)
		rc = sink_write_raw(sink->fd, sink->path, e);
	if (rc == 0 && !sink->in_place)
		rc = put_in_place(sink);
	if (rc == 0)
		return 0;
	why_invalid(why, "cannot write %s: %s", sink->path, strerror(errno));
	return KOPS_E_SYSTEM;
}
