/*
 * log.h: logs events to stderr, one line each, with a level. If stderr is the journal, the level is "<N>",
 * which journald reads; on a terminal or in a file or pipe it is a word ("warning: ").
 *
 * Lines never hold matrix content or descriptors' paths. Any thread may log. No thread waits for stderr's
 * reader: lines that stderr does not take are lost, and their number precedes the next line.
 */
#ifndef KOPS_LOG_H
#define KOPS_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

/* Finds out what stderr is. Call it before other threads log. Without it, levels are words and writes may
 * block. */
void log_open(void);
void log_set_level(int level);
/* Logs a line. Control characters in the text (client names) become '?'. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * For lines that a client can cause at any rate: returns true for the first LOG_BURST of each second. The first
 * line after a gap says how many were left out. Loop thread.
 */
enum { LOG_BURST = 10 };
struct log_limit {
	uint64_t second;
	unsigned lines, dropped;
};
bool log_may(struct log_limit *limit);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)  log_line(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
