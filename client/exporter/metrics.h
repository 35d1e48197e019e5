/* metrics.h: what kopsd says of itself, in Prometheus' text format, version 0.0.4. */
#ifndef KOPS_EXPORTER_METRICS_H
#define KOPS_EXPORTER_METRICS_H

#include "cli.h"

/*
 * All metrics; without answer->info kops_up is 0, and little else is there. *ret_text is the caller's, to
 * free(). KOPS_E_NOMEM.
 */
int metrics_text(const struct answer *answer, char **ret_text, size_t *ret_bytes);

#endif
