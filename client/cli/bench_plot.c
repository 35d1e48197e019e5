#include "bench_plot.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"
#include "bench_csv.h"
#include "plot.h"

int bench_plot_open(struct cli *cli, FILE **ret_file)
{
	*ret_file = fopen(cli->flags.plot, "we");
	if (*ret_file == NULL)
		return cli_fail(cli, CLI_FAILED, "cannot write %s: %s", cli->flags.plot, strerror(errno));
	return CLI_OK;
}

/* Without a trace; a device such as /dev/stdout stays. */
static void discard(const char *path, FILE *file)
{
	struct stat stat;
	bool regular = fstat(fileno(file), &stat) == 0 && S_ISREG(stat.st_mode);

	fclose(file);
	if (regular)
		remove(path);
}

int bench_plot_close(struct cli *cli, FILE *file, const struct bench_table *table)
{
	if (table == NULL) {
		discard(cli->flags.plot, file);
		return CLI_OK;
	}
	plot_draw(file, table);
	bool failed = ferror(file) != 0;
	if (fclose(file) != 0 || failed)
		return cli_fail(cli, CLI_FAILED, "cannot write %s: %s", cli->flags.plot, strerror(errno));
	return CLI_OK;
}

static int read_table(struct cli *cli, const char *path, struct bench_table *ret_table)
{
	FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char why[CLI_WHY_BYTES];

	if (in == NULL)
		return cli_fail(cli, CLI_FAILED, "cannot read %s: %s", path, strerror(errno));
	int rc = bench_csv_read(in, ret_table, why);
	if (in != stdin)
		fclose(in);
	return rc < 0 ? cli_fail(cli, CLI_FAILED, "%s: %s", path, why) : CLI_OK;
}

int bench_plot(struct cli *cli, const char *path)
{
	struct bench_table table;
	FILE *out;

	if (cli->flags.plot == NULL)
		return cli_fail(cli, CLI_USAGE, "where to? `kops-client bench plot %s --plot out.svg`", path);
	int rc = read_table(cli, path, &table);
	if (rc != CLI_OK)
		return rc;
	rc = bench_plot_open(cli, &out);
	if (rc == CLI_OK)
		rc = bench_plot_close(cli, out, &table);
	bench_table_free(&table);
	return rc;
}
