/* metrics.h: kopsd's figures in Prometheus' text format, version 0.0.4. */
#ifndef KOPS_EXPORTER_METRICS_H
#define KOPS_EXPORTER_METRICS_H

#include "cli.h"

/*
 * Writes all metrics. Without answer->info kops_up is 0 and most others are left out. The caller frees
 * *ret_text. KOPS_E_NOMEM.
 */
int metrics_text(const struct answer *answer, char **ret_text, size_t *ret_bytes);

#endif
