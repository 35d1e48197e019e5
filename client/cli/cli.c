#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "printable.h"
#include "progress.h"

int cli_fail(struct cli *cli, enum cli_exit code, const char *format, ...)
{
	char text[CLI_WHY_BYTES]; /* an argument may be cli->why itself */
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	make_printable(text); /* it may quote a file */
	strcpy(cli->why, text);
	return (int)code;
}

static enum cli_exit exit_for(int status)
{
	if (status == KOPS_E_CONNECT || status == KOPS_E_VERSION)
		return CLI_NO_DAEMON;
	return status == KOPS_E_TIMEOUT || status == KOPS_E_DEADLINE ? CLI_TIMED_OUT : CLI_FAILED;
}

int cli_fail_kops(struct cli *cli, int status, const char *sentence)
{
	if (sentence == NULL || sentence[0] == '\0')
		sentence = kops_strerror(status);
	return cli_fail(cli, exit_for(status), "%s", sentence);
}

bool cli_shows_progress(const struct cli *cli)
{
	return !cli->flags.quiet && progress_is_possible();
}

void cli_announce(const struct cli *cli, const char *text)
{
	if (cli_shows_progress(cli))
		progress_announce(text);
}

int cli_open(struct cli *cli)
{
	kops_options options = {.size = sizeof(options),
	                        .socket = cli->flags.socket,
	                        .name = cli->program,
	                        .timeout_ms = cli->flags.timeout_ms,
	                        .spin_us = (uint32_t)cli->flags.spin.value};
	char why[CLI_WHY_BYTES] = "";
	double start = cli_now_us();

	if (cli->flags.quiet)
		progress_forbid();
	cli_announce(cli, "waiting for kopsd to answer");
	int rc = kops_open(&cli->handle, &options, why, sizeof(why));
	progress_erase();
	if (rc < 0)
		return cli_fail_kops(cli, rc, why);
	cli->connect_us = cli_now_us() - start;
	return CLI_OK;
}

int cli_flush(struct cli *cli)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_OK;
	cli->silent = errno == EPIPE;
	return cli_fail(cli, CLI_FAILED, "cannot write to standard output: %s", strerror(errno));
}

double cli_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}
