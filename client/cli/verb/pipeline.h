/*
 * pipeline.h: runs a job file: loads, sends one job, waits, checks, writes and reports. `run` reads the job
 * file from a text; the verb of an op makes one of one line (op.c). An op on large files runs block by block
 * (stream.h).
 */
#ifndef KOPS_CLI_VERB_PIPELINE_H
#define KOPS_CLI_VERB_PIPELINE_H

#include "verb/job.h"

/* Returns NULL if out of memory. The file must outlive the pipeline. */
struct pipeline *pipeline_new(struct cli *cli, const struct jobfile *file);
void pipeline_free(struct pipeline *pipeline); /* NULL is allowed */

/*
 * Does all that is said above. describe: writes members of the JSON document between "ok" and "checks". Returns
 * an exit code.
 */
int pipeline_run(struct pipeline *pipeline,
                 void (*describe)(const struct pipeline *pipeline, struct json *json));

#endif
