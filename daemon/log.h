/*
 * log.h: events on stderr, one line each, with its level: as "<N>", which journald takes, where stderr is the
 * journal; in words ("warning: ") on a terminal, in a file or a pipe.
 *
 * Lines never hold matrix content or descriptors' paths. Any thread may log. Nobody waits for who reads stderr:
 * lines that it does not take are lost, and the next one that it takes is preceded by their number.
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

/* Looks where stderr goes. Before other threads log; without it, levels are in words and writes may wait. */
void log_open(void);
void log_set_level(int level);
/* Control characters in the text (client names) are written as '?'. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * For lines that a client can cause as often as it likes: true for the first LOG_BURST of each second. The
 * first after a gap tells how many were left out. Loop thread.
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
