/*
 * progress.h: one line on stderr while a large file is read or written; nothing for small ones, or when
 * stderr is no terminal.
 */
#ifndef KOPS_CLI_PROGRESS_H
#define KOPS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	bool shown;
	const char *verb, *path;
	uint64_t total;
	double last_us;
};

void progress_start(struct progress *progress, const char *verb, const char *path, uint64_t total_bytes);
/* How many of the remaining bytes to move in one call. */
size_t progress_step(const struct progress *progress, uint64_t left_bytes);
void progress_show(struct progress *progress, uint64_t done_bytes);
void progress_end(struct progress *progress);

#endif
