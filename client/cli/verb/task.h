/*
 * task.h: from steps to an answer: send them as one job, wait, check, write, report. Shared by the verbs.
 */
#ifndef KOPS_CLI_VERB_TASK_H
#define KOPS_CLI_VERB_TASK_H

#include "cli.h"
#include "files/sink.h"
#include "files/source.h"
#include "op/operation.h"

/* Where this side's time went; microseconds. */
struct task_times {
	double read_us, job_us, write_us;
};

/*
 * Runs the steps as one job under cli->flags (device, priority, timeout). A busy daemon is asked again
 * when it says until the timeout. *ret_job has the receipt; free it with kops_job_free(). An exit code.
 */
int task_run(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job,
             double *ret_us);

/* Checks a step that ran: fills *ret_check. CLI_OK even when wrong; the caller looks at check_passed(). */
int task_check(struct cli *cli, const struct step *step, struct check *ret_check);

/* The result on stdout where there is neither -o nor --json: for a terminal, or raw. */
int task_print(struct cli *cli, const char *name, const struct elements *e);

/* The members that all JSON of jobs ends with: "client" times and "receipt". */
void task_json_end(const struct cli *cli, struct json *json, const kops_job *job,
                   const struct task_times *times);

/*
 * One op on files: the whole of a verb for an op, with cli->flags.op as its settings. inputs: shaped sources,
 * left open or closed as they are. transposed[i]: input i is used transposed. old: NULL, or the source whose
 * elements the result is added to.
 */
struct task {
	const struct operation *op;
	struct source *inputs[STEP_INPUTS_MAX];
	bool transposed[STEP_INPUTS_MAX];
	struct source *old;
};
int task_one_op(struct cli *cli, const struct task *task);

#endif
