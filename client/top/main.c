/* kops-top: what `kops-client top` executes. Its options are that verb's. */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"
#include "screen.h"
#include "standard_fds.h"
#include "top.h"

static void wait_ms(uint32_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l}, NULL);
}

static void print(const struct frame *frame, bool is_first)
{
	if (!is_first)
		putchar('\n');
	for (size_t i = 0; i < frame->n; i++)
		puts(frame->lines[i].text);
}

/* Frames one after the other, each of an interval. */
static int print_frames(struct cli *cli, struct snapshot *before, struct snapshot *now, struct frame *frame)
{
	uint64_t n = cli->flags.count.set ? cli->flags.count.value : 1;
	int status = snapshot_take(cli->handle, before), rc = CLI_OK;

	for (uint64_t i = 0; status == 0 && rc == CLI_OK && i < n; i++) {
		wait_ms(cli->flags.interval_ms);
		status = snapshot_take(cli->handle, now);
		if (status < 0)
			break;
		status = frame_make(frame, before, now, cli->flags.sort);
		print(frame, i == 0);
		rc = cli_flush(cli);
		snapshot_free(before);
		*before = *now;
		*now = (struct snapshot){.info = NULL};
	}
	return status < 0 ? cli_fail_kops(cli, status, kops_error(cli->handle)) : rc;
}

static int batch(struct cli *cli)
{
	struct snapshot before = {.info = NULL}, now = {.info = NULL};
	struct frame frame = {.lines = NULL};
	int rc = print_frames(cli, &before, &now, &frame);

	snapshot_free(&before);
	snapshot_free(&now);
	frame_free(&frame);
	return rc;
}

static int run(struct cli *cli, int argc, char **argv)
{
	struct flags *flags = &cli->flags;
	char **args;
	int n_args;

	if (options_parse(command_top.options, argc, argv, flags, &n_args, &args, cli->why) < 0)
		return CLI_USAGE;
	if (!flags->batch && !isatty(STDOUT_FILENO))
		return cli_fail(cli, CLI_USAGE, "standard output is no terminal; --batch prints plain text");
	flags->interval_ms = flags->interval_ms ? flags->interval_ms : TOP_INTERVAL_MS;
	flags->timeout_ms = flags->timeout_ms ? flags->timeout_ms : TOP_TIMEOUT_MS;
	int rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	return flags->batch ? batch(cli) : screen_run(cli);
}

int main(int argc, char **argv)
{
	struct cli cli = {.program = "kops-top", .command = &command_top};
	int rc;

	standard_fds_open();
	signal(SIGPIPE, SIG_IGN);
	rc = run(&cli, argc, argv);
	if (rc != CLI_OK && !cli.silent)
		fprintf(stderr, "kops-client top: %s\n", cli.why);
	kops_close(cli.handle);
	return rc;
}
