#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "printable.h"

#define LOG_LINE_BYTES 1024 /* longer lines are cut; journald takes one write as one line */

static int max_level = LOG_LEVEL_INFO;
static bool to_journal;

/* ---- Writing, which never waits for a reader ---- */

/*
 * A reader that stalls must not stall kopsd. O_NONBLOCK cannot be set on stderr, because kopsd's parent shares
 * its open file description. So a pipe or terminal is opened again, with a description of our own. If that is
 * not allowed (another user's pipe), poll() tells whether there is room: a pipe that polls as writable takes
 * PIPE_BUF bytes at once, and lines are shorter.
 */
enum how {
	PLAINLY,    /* a file: always takes what is written */
	AS_SOCKET,  /* send() can be told not to wait */
	UNBLOCKED,  /* a description of our own */
	AFTER_POLL, /* only when there is room */
};

static struct {
	pthread_mutex_t lock; /* for all below */
	enum how how;
	int own_fd;    /* if UNBLOCKED; else -1 */
	unsigned lost; /* lines since the last one that was written */
	bool is_cut;   /* the last line was written only in part */
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .own_fd = -1};

static enum how how_to_write(const struct stat *st)
{
	if (S_ISSOCK(st->st_mode))
		return AS_SOCKET;
	if (!S_ISFIFO(st->st_mode) && !isatty(STDERR_FILENO))
		return PLAINLY;
	out.own_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return out.own_fd >= 0 ? UNBLOCKED : AFTER_POLL;
}

static bool has_room(void)
{
	struct pollfd stderr_fd = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&stderr_fd, 1, 0) > 0;
}

static ssize_t try_to_write(const char *text, size_t len)
{
	switch (out.how) {
	case AS_SOCKET:
		return send(STDERR_FILENO, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	case UNBLOCKED:
		return write(out.own_fd, text, len);
	case AFTER_POLL:
		if (!has_room()) {
			errno = EAGAIN;
			return -1;
		}
		/* fall through */
	default:
		return write(STDERR_FILENO, text, len);
	}
}

/* Writes a line in one call, so that lines of several processes do not mix. Returns false if some of it was
 * lost. */
static bool put_line(const char *line, size_t len)
{
	ssize_t n;

	if (out.is_cut && try_to_write("\n", 1) != 1)
		return false;
	out.is_cut = false;
	do
		n = try_to_write(line, len);
	while (n < 0 && errno == EINTR);
	out.is_cut = n > 0 && (size_t)n < len;
	return n == (ssize_t)len;
}

static int put_level(char *line, enum log_level level);

static bool tell_what_was_lost(void)
{
	char line[LOG_LINE_BYTES];
	int n = put_level(line, LOG_LEVEL_WARNING);

	n += snprintf(line + n, sizeof line - (size_t)n,
	              "%u lines lost: the reader of this log was too slow, or writing failed\n", out.lost);
	return put_line(line, (size_t)n);
}

/* A failed write is not an error: lost lines are counted, and the count is written when possible. */
static void write_line(const char *line, size_t len)
{
	pthread_mutex_lock(&out.lock);
	if (out.lost && tell_what_was_lost())
		out.lost = 0;
	if (out.lost || !put_line(line, len))
		out.lost++;
	pthread_mutex_unlock(&out.lock);
}

/* systemd names the journal's stream by device and inode, because stderr may have been redirected since. */
void log_open(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	if (out.own_fd >= 0)
		close(out.own_fd);
	out.own_fd = -1;
	out.how = PLAINLY;
	to_journal = false;
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	out.how = how_to_write(&st);
	to_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && st.st_dev == device &&
	             st.st_ino == inode;
}

void log_set_level(int level)
{
	__atomic_store_n(&max_level, level, __ATOMIC_RELAXED);
}

/* ---- Lines ---- */

static int put_level(char *line, enum log_level level)
{
	static const char *const words[] = {[LOG_LEVEL_ERROR] = "error",
	                                    [LOG_LEVEL_WARNING] = "warning",
	                                    [LOG_LEVEL_NOTICE] = "notice",
	                                    [LOG_LEVEL_INFO] = "info",
	                                    [LOG_LEVEL_DEBUG] = "debug"};

	if (to_journal)
		return snprintf(line, LOG_LINE_BYTES, "<%d>", (int)level);
	return snprintf(line, LOG_LINE_BYTES, "%s: ", words[level]);
}

void log_line(enum log_level level, const char *format, ...)
{
	static const char cut[] = " ...";
	char line[LOG_LINE_BYTES]; /* the newline replaces the terminator */
	int prefix, text, saved_errno = errno;
	size_t len;
	va_list ap;

	if ((int)level > __atomic_load_n(&max_level, __ATOMIC_RELAXED))
		return;

	prefix = put_level(line, level);
	va_start(ap, format);
	text = vsnprintf(line + prefix, (size_t)(LOG_LINE_BYTES - prefix), format, ap);
	va_end(ap);
	if (text < 0)
		line[prefix] = '\0';
	else if (text >= LOG_LINE_BYTES - prefix)
		memcpy(line + LOG_LINE_BYTES - sizeof(cut), cut, sizeof(cut));

	make_printable(line + prefix); /* it may quote a client */
	len = strlen(line);
	line[len] = '\n';
	write_line(line, len + 1);
	errno = saved_errno;
}

bool log_may(struct log_limit *limit)
{
	uint64_t second = clock_ns() / 1000000000u;

	if (second != limit->second) {
		if (limit->dropped)
			log_notice("%u lines like the next were left out", limit->dropped);
		*limit = (struct log_limit){.second = second};
	}
	if (limit->lines < LOG_BURST) {
		limit->lines++;
		return true;
	}
	limit->dropped++;
	return false;
}
