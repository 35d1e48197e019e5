/*
 * top: the verb of kops-client, which executes kops-top as git does its commands. So kops-client needs no
 * ncurses.
 */
#include "top.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verb/commands.h"

#define PROGRAM "kops-top"

const char *const top_sorts[TOP_SORTS + 1] = {"device", "jobs", "queued", "p99", NULL};
static const struct option_type options_sort = {.takes = "device, jobs, queued or p99", .words = top_sorts};

/* Finds the folder of this program, with a slash at the end. Returns false if it is unknown. */
static bool own_folder(char folder[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);

	if (n <= 0)
		return false;
	folder[n] = '\0';
	strrchr(folder, '/')[1] = '\0';
	return true;
}

/* Returns only if kops-top cannot be executed. In a build tree it lies beside kops-client. */
static void execute(char *const args[])
{
	static const char *const places[] = {"", KOPS_TOP_FOLDER "/"};
	char folder[PATH_MAX], path[2 * PATH_MAX];

	for (size_t i = 0; own_folder(folder) && i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s%s" PROGRAM, folder, places[i]);
		execv(path, args);
		if (errno != ENOENT)
			return;
	}
}

static int run(struct cli *cli, char **argv)
{
	const struct flags *f = &cli->flags;
	char interval[24], timeout[24], count[24];
	char *args[16] = {PROGRAM};
	size_t n = 1;

	(void)argv;
	snprintf(interval, sizeof(interval), "%" PRIu32 "ms",
	         f->interval_ms ? f->interval_ms : TOP_INTERVAL_MS);
	snprintf(timeout, sizeof(timeout), "%" PRIu32 "ms", f->timeout_ms ? f->timeout_ms : TOP_TIMEOUT_MS);
	snprintf(count, sizeof(count), "%" PRIu64, f->count.value);
	args[n++] = "--interval", args[n++] = interval;
	args[n++] = "--timeout", args[n++] = timeout;
	args[n++] = "--sort", args[n++] = (char *)top_sorts[f->sort];
	if (f->count.set)
		args[n++] = "--count", args[n++] = count;
	if (f->socket)
		args[n++] = "--socket", args[n++] = (char *)f->socket;
	if (f->batch)
		args[n++] = "--batch";
	if (f->json)
		args[n++] = "--json";
	execute(args);
	return cli_fail(cli, CLI_FAILED, "cannot execute " PROGRAM ": %s; it is built only with ncurses",
	                strerror(errno));
}

static const struct option_row options[] = {
    OPTION("interval", 'd', "TIME", time, interval_ms,
           "between two looks: 2 (seconds), 500ms, 1min; default 1s"),
    OPTION("sort", 0, "KEY", sort, sort,
           "users and sessions by device (time, default), jobs (a second), queued or p99"),
    OPTION("batch", 'b', NULL, switch, batch, "print frames as plain text, for scripts"),
    OPTION("json", 0, NULL, switch, json, "print frames as JSON documents (\"schema\": 1), each in one line"),
    OPTION("count", 'n', "N", count, count,
           "end after so many frames; default: with --batch and --json 1, else never"),
    OPTION("timeout", 0, "TIME", time, timeout_ms, "wait so long for an answer of kopsd; default 2s"),
    OPTIONS_END};

const struct command command_top = {
    .name = "top",
    .summary = "watch devices, users and sessions",
    .usage = "[options]",
    .help =
        "For each device: how busy kopsd keeps it (BUSY), the share of time that it works for any program\n"
        "(UTIL), jobs per second, waiting and running jobs, memory in use of all there is, temperature and\n"
        "power. For users and sessions: waiting and running jobs, jobs per second, their share of device "
        "time,\n"
        "memory, and the latency within which half of their latest jobs ended (P50), and 99 % of them (P99).\n"
        "For a long job: its progress, and the estimate of its time.\n"
        "Keys: q quits, h or ? shows all keys, space refreshes; d j w p sort by device time, jobs, waiting\n"
        "jobs and P99; + and - change the interval; arrows and page keys scroll; ^L redraws. NO_COLOR in the\n"
        "environment turns colours off. A terminal that cannot move its cursor (TERM=dumb) gets one frame.\n"
        "\n"
        "Examples:\n"
        "  kops-client top\n"
        "  kops-client top --sort queued --interval 5\n"
        "  kops-client top -b -n 60 >minute.txt\n"
        "  kops-client top --json | jq '.devices[0].memory_free_bytes'\n",
    .options = options,
    .run = run,
};
