/*
 * perfetto.h: writes jobs as Chrome's trace events, which ui.perfetto.dev and chrome://tracing show. Each
 * device and each session has a track, with the phases of each job as slices.
 */
#ifndef KOPS_TOP_PERFETTO_H
#define KOPS_TOP_PERFETTO_H

#include <stdio.h>

#include "kops.h"

/*
 * Writes one JSON document with times of CLOCK_MONOTONIC. If jobs of a device or session overlap, as on a GPU
 * or in several queues, it gets more tracks, so that slices of one track are disjoint or nested. n may be 0.
 * sessions: for their names. KOPS_E_NOMEM.
 */
int perfetto_write(FILE *out, const kops_traced_job *const *jobs, size_t n, const kops_list *sessions);

#endif
