/*
 * pipeline.h: from a job file to its results: load, send as one job, wait, check, write, report. run reads the
 * job file from a text; the verb of an op is one of one line (op.c).
 */
#ifndef KOPS_CLI_VERB_PIPELINE_H
#define KOPS_CLI_VERB_PIPELINE_H

#include "cli.h"
#include "files/jobfile.h"
#include "files/sink.h"
#include "files/source.h"

/* What became of one line "name = …". */
struct value {
	struct source source; /* of load, open and with a shape before pipeline_run(); else closed */
	bool wanted;          /* on this side: saved, printed or checked */
	kops_view view;
	struct step step;    /* of an op */
	struct elements old; /* for the check of what adds to c= */
	struct check check;
};

struct pipeline {
	struct cli *cli;
	const struct jobfile *file;
	struct value values[JOBFILE_VALUES_MAX];
	const struct jobfile_save *saves; /* the file's, or the one below */
	size_t n_saves;
	struct jobfile_save piped; /* of the last value, where nothing else is saved */
	struct sink *sinks[JOBFILE_SAVES_MAX];
	unsigned uses_stdout; /* sinks that do */
	struct step steps[2 * JOBFILE_VALUES_MAX];
	size_t n_steps;
	kops_info *info;    /* where device comes from, unless given */
	const char *device; /* for RESIDENT values; NULL while there are none */
	kops_job *job;
	double read_us, job_us, write_us;
};

/* NULL: no memory. The file must outlive it. */
struct pipeline *pipeline_new(struct cli *cli, const struct jobfile *file);
void pipeline_free(struct pipeline *pipeline); /* NULL is allowed */

/* An error of a line, if the job file has lines, with the sentence that is in cli->why already. */
int pipeline_fail_at(const struct pipeline *pipeline, unsigned line, enum cli_exit code);

/* All of the above. describe: members of the JSON document, between "ok" and "checks". An exit code. */
int pipeline_run(struct pipeline *pipeline,
                 void (*describe)(const struct pipeline *pipeline, struct json *json));

/*
 * Runs steps as one job under cli->flags (priority, timeout), until its end: wait.h. *ret_job has the receipt;
 * free it with kops_job_free(). An exit code.
 */
int pipeline_send(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job);

/* A buffer that is freed with the handle, if not before. An exit code. */
int pipeline_alloc(struct cli *cli, uint64_t bytes, unsigned flags, const char *device,
                   kops_buffer **ret_buffer);

#endif
