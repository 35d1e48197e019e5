/* kops-top: what `kops-client top` executes. It takes that verb's options. */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "document.h"
#include "frame.h"
#include "program.h"
#include "screen.h"
#include "standard_fds.h"
#include "terminal.h"
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

/* Shows what happened between two snapshots. */
static int show(struct cli *cli, const struct snapshot *before, const struct snapshot *now, struct frame *frame,
                bool is_first)
{
	if (cli->flags.json) {
		cli->printed = true;
		return document_print(before, now, cli->flags.sort);
	}
	int status = frame_make(frame, before, now, cli->flags.sort);
	print(frame, is_first);
	return status;
}

/* Prints frames one after the other, each for an interval. */
static int print_frames(struct cli *cli, struct snapshot *before, struct snapshot *now, struct frame *frame)
{
	uint64_t n = cli->flags.count.set ? cli->flags.count.value : 1;
	int status = snapshot_take(cli->handle, before), rc = CLI_OK;

	for (uint64_t i = 0; status == 0 && rc == CLI_OK && i < n; i++) {
		wait_ms(cli->flags.interval_ms);
		status = snapshot_take(cli->handle, now);
		if (status < 0)
			break;
		status = show(cli, before, now, frame, i == 0);
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
	bool prints = flags->batch || flags->json;
	if (!prints && !isatty(STDOUT_FILENO))
		return cli_fail(cli, CLI_USAGE, "standard output is not a terminal; --batch prints plain text");
	flags->interval_ms = flags->interval_ms ? flags->interval_ms : TOP_INTERVAL_MS;
	flags->timeout_ms = flags->timeout_ms ? flags->timeout_ms : TOP_TIMEOUT_MS;
	int rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	return prints || !terminal_moves_cursor() ? batch(cli) : screen_run(cli);
}

int main(int argc, char **argv)
{
	struct cli cli = {.program = "kops-top", .command = &command_top};
	int rc;

	standard_fds_open();
	program_set_characters();
	signal(SIGPIPE, SIG_IGN);
	rc = run(&cli, argc, argv);
	cli.program = "kops-client"; /* messages name the command that the user gave */
	if (rc != CLI_OK)
		program_report_failure(&cli, command_top.name, rc);
	kops_close(cli.handle);
	return rc;
}
