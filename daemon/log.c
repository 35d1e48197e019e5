#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "printable.h"

#define LOG_LINE_BYTES 1024 /* longer lines are cut; journald takes one write as one line */

static int max_level = LOG_LEVEL_INFO;
static bool to_journal;

/* systemd names the journal's stream by device and inode: stderr may have been turned elsewhere since. */
void log_open(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	to_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
	             fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_set_level(int level)
{
	__atomic_store_n(&max_level, level, __ATOMIC_RELAXED);
}

/* One write, so that lines of several threads do not mix. A log that cannot be written is no error. */
static void write_line(const char *line, size_t len)
{
	while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
		;
}

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
