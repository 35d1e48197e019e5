/* source.h: asks kopsd again and again, whether it is there or not. */
#ifndef KOPS_EXPORTER_SOURCE_H
#define KOPS_EXPORTER_SOURCE_H

#include "cli.h"

/* For each answer of kopsd. A question takes at most twice as long: see source_ask(). */
#define SOURCE_TIMEOUT_MS 2000

struct source {
	const char *socket; /* NULL: libkops' default */
	kops *handle;       /* NULL: not connected */
	bool is_down;       /* it did not answer the last time, which was logged */
};

/*
 * Asks kopsd; there is no info if it does not answer. Free the answer with source_free_answer(). One thread at
 * a time. Takes at most 4 s. A scrape during a question also waits for the next one; Prometheus gives up after
 * 10 s.
 */
struct answer source_ask(struct source *s);
void source_free_answer(struct answer *answer);

void source_close(struct source *s);

#endif
