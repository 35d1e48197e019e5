/* source.h: kopsd, asked again and again, whether it is there or not. */
#ifndef KOPS_EXPORTER_SOURCE_H
#define KOPS_EXPORTER_SOURCE_H

#include "cli.h"

/* For each answer of kopsd. A question takes twice that at most: see source_ask(). */
#define SOURCE_TIMEOUT_MS 2000

struct source {
	const char *socket; /* NULL: libkops' default */
	kops *handle;       /* NULL: not connected */
	bool is_down;       /* it did not answer the last time, and the log says so */
};

/*
 * What kopsd says; no info where it does not answer. Free it with source_free_answer(). By one thread at a
 * time. Takes at most 4 s. A scrape that comes during a question waits for the next one too. Prometheus gives
 * up on it after 10 s.
 */
struct answer source_ask(struct source *s);
void source_free_answer(struct answer *answer);

void source_close(struct source *s);

#endif
