#include "verb/job.h"

#include "progress.h"
#include "verb/wait.h"

struct step job_step(const struct pipeline *p, const struct jobfile_value *line)
{
	struct step step = step_of(line->op);

	for (unsigned i = 0; i < line->op->n_inputs; i++) {
		if (!line->operands[i].is_given)
			continue;
		step.in[i] = p->values[line->operands[i].value].view;
		if (line->operands[i].transposed)
			step.in[i] = kops_transposed(step.in[i]);
	}
	step.set = line->flags.op;
	step.accumulates = line->has_old;
	return step;
}

bool job_overwrites(const struct pipeline *p, const struct jobfile_value *line)
{
	return line->over_old && !p->values[line->old].source.fortran && !p->cli->flags.check;
}

int job_fail_at(const struct pipeline *p, unsigned line, enum cli_exit code)
{
	if (p->file->path == NULL || line == 0)
		return (int)code;
	return cli_fail(p->cli, code, "%s:%u: %s", p->file->path, line, p->cli->why);
}

int job_make(struct cli *cli, const struct step *steps, size_t n, const kops_job_options *options,
             kops_job **ret_job)
{
	kops_job *job = NULL;

	int rc = kops_job_new(cli->handle, options, &job);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = step_enqueue(job, &steps[i]);
	if (rc == 0) {
		*ret_job = job;
		return CLI_OK;
	}
	rc = cli_fail_kops(cli, rc, kops_error(cli->handle));
	kops_job_free(job);
	return rc;
}

int job_send(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job)
{
	kops_job_options options = {.size = sizeof(options), .priority = cli->flags.priority, .device = device};
	kops_job *job;

	int rc = job_make(cli, steps, n, &options, &job);
	if (rc != CLI_OK)
		return rc;
	rc = wait_for_job(cli, job, &(struct wait_how){.device = device});
	if (rc == CLI_OK)
		*ret_job = job;
	else
		kops_job_free(job);
	return rc;
}

int job_alloc(struct cli *cli, uint64_t bytes, unsigned flags, const char *device, kops_buffer **ret_buffer)
{
	cli_announce(cli, "waiting for memory from kopsd");
	int rc = kops_alloc(cli->handle, bytes ? bytes : 8, flags, device, ret_buffer);

	progress_erase();
	return rc < 0 ? cli_fail_kops(cli, rc, kops_error(cli->handle)) : CLI_OK;
}
