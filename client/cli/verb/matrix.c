#include "verb/matrix.h"

#include "files/dims.h"

/* --dtype, -m and -n, if given, must agree with what a .npy says. */
static int compare_flags(struct cli *cli, const struct source *s)
{
	const struct opt_count given[2] = {cli->flags.m, cli->flags.n};
	uint64_t found[2] = {s->rank > 1 ? s->shape[s->rank - 2] : 1, s->shape[s->rank - 1]};

	if (cli->flags.dtype && cli->flags.dtype != s->dtype)
		return cli_fail(cli, CLI_FAILED, "--dtype %s is not what %s holds: %s",
		                element_type_name(cli->flags.dtype), s->path, element_type_name(s->dtype));
	for (int i = 0; i < 2; i++)
		if (given[i].set && given[i].value != found[i])
			return cli_fail(cli, CLI_FAILED, "-%c %llu is not what %s says: %llu", i ? 'n' : 'm',
			                (unsigned long long)given[i].value, s->path,
			                (unsigned long long)found[i]);
	return CLI_OK;
}

kops_dtype verb_matrix_dtype(const struct cli *cli)
{
	return cli->flags.dtype ? cli->flags.dtype : KOPS_F32;
}

int verb_matrix_open(struct cli *cli, const char *path, kops_dtype raw, struct source *ret)
{
	uint64_t rows, cols;

	if (source_open(path, ret, cli->why) < 0)
		return CLI_FAILED;
	if (ret->npy)
		return compare_flags(cli, ret);
	ret->dtype = raw;
	if (dims_matrix(path, ret->bytes, kops_dtype_size(raw), cli->flags.m, cli->flags.n, &rows, &cols,
	                cli->why) < 0)
		return CLI_FAILED;
	source_set_matrix(ret, rows, cols);
	return CLI_OK;
}

int verb_matrix(struct cli *cli, int argc, char **argv)
{
	struct source source = {.fd = -1};
	struct task task = {.op = operation_by_name(cli->command->name), .inputs = {&source}};

	(void)argc;
	int rc = verb_matrix_open(cli, argv[0], verb_matrix_dtype(cli), &source);
	if (rc == CLI_OK)
		rc = task_one_op(cli, &task);
	source_close(&source);
	return rc;
}
