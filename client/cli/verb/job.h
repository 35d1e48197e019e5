/*
 * job.h: what a job file has become while it runs, and what running it at once (pipeline.h) and block by block
 * (stream.h) have in common.
 */
#ifndef KOPS_CLI_VERB_JOB_H
#define KOPS_CLI_VERB_JOB_H

#include "cli.h"
#include "files/jobfile.h"
#include "files/sink.h"
#include "files/source.h"
#include "verb/receipt.h"

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
	struct jobfile_save saves[JOBFILE_SAVES_MAX + 1]; /* the file's, and that of what is piped */
	size_t n_saves;
	bool shows;    /* the last value, which has no save of its own */
	bool is_piped; /* it goes to standard output, by the last save */
	struct sink *sinks[JOBFILE_SAVES_MAX + 1];
	unsigned uses_stdout; /* number of sinks that use stdout */
	struct step steps[2 * JOBFILE_VALUES_MAX];
	size_t n_steps;
	kops_info *info;    /* tells `device`, unless the user gave one */
	const char *device; /* for RESIDENT values; NULL while there are none */
	kops_job *job;      /* the first, if there are several */
	struct receipt receipt;
	double read_us, job_us, write_us;
};

/* Returns the op of a line on the values' views, which have the result's shape but no result yet. */
struct step job_step(const struct pipeline *pipeline, const struct jobfile_value *line);

/* Returns true if the line's result overwrites the old matrix that it is added to. */
bool job_overwrites(const struct pipeline *pipeline, const struct jobfile_value *line);

/* Puts the line, if the job file has lines, before the sentence in cli->why. Returns code. */
int job_fail_at(const struct pipeline *pipeline, unsigned line, enum cli_exit code);

/* Makes a job of the steps, which is not sent. Free it with kops_job_free(). Returns an exit code. */
int job_make(struct cli *cli, const struct step *steps, size_t n, const kops_job_options *options,
             kops_job **ret_job);

/*
 * Runs steps as one job under cli->flags (priority, timeout) until its end: see wait.h. Free *ret_job, which
 * has the receipt, with kops_job_free(). Returns an exit code.
 */
int job_send(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job);

/* Allocates a buffer that is freed with the handle, if not before. Returns an exit code. */
int job_alloc(struct cli *cli, uint64_t bytes, unsigned flags, const char *device, kops_buffer **ret_buffer);

#endif
