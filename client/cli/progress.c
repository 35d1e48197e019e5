#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "cli.h"

#define LARGE_BYTES (256ull << 20)
#define STEP_BYTES  (32ull << 20)   /* with progress shown */
#define CALL_BYTES  (1024ull << 20) /* without; read() stops below 2 GiB anyway */
#define INTERVAL_US 100e3

void progress_start(struct progress *progress, const char *verb, const char *path, uint64_t total_bytes)
{
	*progress = (struct progress){.verb = verb, .path = path, .total = total_bytes};
	progress->shown = total_bytes > LARGE_BYTES && isatty(STDERR_FILENO);
}

size_t progress_step(const struct progress *progress, uint64_t left_bytes)
{
	uint64_t most = progress->shown ? STEP_BYTES : CALL_BYTES;

	return left_bytes < most ? (size_t)left_bytes : (size_t)most;
}

void progress_show(struct progress *progress, uint64_t done_bytes)
{
	double now = progress->shown ? cli_now_us() : 0;

	if (!progress->shown || now - progress->last_us < INTERVAL_US)
		return;
	progress->last_us = now;
	fprintf(stderr, "\r%s %s: %3.0f %% of %.1f GiB\033[K", progress->verb, progress->path,
	        100.0 * (double)done_bytes / (double)progress->total,
	        (double)progress->total / (double)(1ull << 30));
}

void progress_end(struct progress *progress)
{
	if (progress->shown)
		fputs("\r\033[K", stderr);
}
