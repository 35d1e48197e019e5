/*
 * pipeline.h: runs a job file: loads, sends one job, waits, checks, writes and reports. `run` reads the job
 * file from a text; the verb of an op makes one of one line (op.c).
 */
#ifndef KOPS_CLI_VERB_PIPELINE_H
#define KOPS_CLI_VERB_PIPELINE_H

#include "cli.h"
#include "files/jobfile.h"
#include "files/sink.h"
#include "files/source.h"

/* The state of a line "name = …". */
struct value {
	struct source source; /* for load: open and with a shape before pipeline_run(); else closed */
	bool wanted;          /* needed here: saved, printed or checked */
	kops_view view;
	struct step step;    /* for an op */
	struct elements old; /* for checking an op that adds to c= */
	struct check check;
};

struct pipeline {
	struct cli *cli;
	const struct jobfile *file;
	struct value values[JOBFILE_VALUES_MAX];
	const struct jobfile_save *saves; /* the file's, or `piped` */
	size_t n_saves;
	struct jobfile_save piped; /* the last value, if nothing else is saved */
	struct sink *sinks[JOBFILE_SAVES_MAX];
	unsigned uses_stdout; /* number of sinks that use stdout */
	struct step steps[2 * JOBFILE_VALUES_MAX];
	size_t n_steps;
	kops_info *info;    /* tells `device`, unless the user gave one */
	const char *device; /* for RESIDENT values; NULL while there are none */
	kops_job *job;
	double read_us, job_us, write_us;
};

/* Returns NULL if out of memory. The file must outlive the pipeline. */
struct pipeline *pipeline_new(struct cli *cli, const struct jobfile *file);
void pipeline_free(struct pipeline *pipeline); /* NULL is allowed */

/* Puts the line, if the job file has lines, before the sentence in cli->why. Returns code. */
int pipeline_fail_at(const struct pipeline *pipeline, unsigned line, enum cli_exit code);

/*
 * Does all of the above. describe: writes members of the JSON document between "ok" and "checks". Returns an
 * exit code.
 */
int pipeline_run(struct pipeline *pipeline,
                 void (*describe)(const struct pipeline *pipeline, struct json *json));

/*
 * Runs steps as one job under cli->flags (priority, timeout) until its end: see wait.h. Free *ret_job, which
 * has the receipt, with kops_job_free(). Returns an exit code.
 */
int pipeline_send(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job);

/* Allocates a buffer that is freed with the handle, if not before. Returns an exit code. */
int pipeline_alloc(struct cli *cli, uint64_t bytes, unsigned flags, const char *device,
                   kops_buffer **ret_buffer);

#endif
