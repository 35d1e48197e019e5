/* top.h: the options of `kops-client top`, which passes them to kops-top. */
#ifndef KOPS_TOP_TOP_H
#define KOPS_TOP_TOP_H

#include "cli.h"

enum top_sort { TOP_DEVICE, TOP_JOBS, TOP_QUEUED, TOP_P99, TOP_SORTS };

/* Words of --sort; ends with NULL. */
extern const char *const top_sorts[TOP_SORTS + 1];

#define TOP_INTERVAL_MS 1000
#define TOP_TIMEOUT_MS  2000 /* a screen should not freeze for longer */

extern const struct command command_top;

#endif
