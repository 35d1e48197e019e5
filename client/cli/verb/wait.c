#include "verb/wait.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"
#include "show.h"

#define PATIENCE_MS    30000
#define LOOK_MS        500  /* between two looks at a job that a terminal shows */
#define LOOK_UNSEEN_MS 5000 /* between two checks that kopsd answers, if no terminal shows the job */
#define ANSWER_MS      1000
#define RETRY_US_MIN   200
#define RETRY_US_MAX   200000
#define SURE_SHARE     0.05 /* from this share on, a job's own parts predict its time better than its plan */

struct waiting {
	struct cli *cli;
	kops_job *job;
	struct wait_how how;
	bool shows;
	double began_us, until_us; /* --timeout */
	double answered_us;        /* when kopsd answered last */
	/* A session of its own for questions: the job's session waits for the job. Made by the first look. */
	kops *watcher;
};

/* ---- What kopsd says ---- */

static double waited_us(const struct waiting *w)
{
	return cli_now_us() - w->began_us;
}

static void tell(const struct waiting *w, const char *what)
{
	char line[256];

	snprintf(line, sizeof(line), "%s, %s", what, show_us(waited_us(w)).text);
	progress_show(line);
}

/* Returns 0 to 1: by parts if there are several, else by the plan, which a running job may exceed. */
static double share_done(const kops_running_job *job)
{
	double planned = job->estimate_us > 0 ? job->running_us / job->estimate_us : 0;

	if (job->parts > 1)
		return (double)job->parts_done / job->parts;
	return planned < 0.99 ? planned : 0.99;
}

static double expected_us(const kops_running_job *job, double share)
{
	return job->parts > 1 && share >= SURE_SHARE ? job->running_us / share : job->estimate_us;
}

static void tell_running(const struct waiting *w, const kops_running_job *job)
{
	struct wait_share share = {.done = share_done(job), .running_us = job->running_us};
	char line[256], left[80] = "";

	share.expected_us = expected_us(job, share.done);
	if (w->how.tell) {
		w->how.tell(w->how.user, &share);
		return;
	}
	if (share.expected_us > job->running_us)
		snprintf(left, sizeof(left), "%.16s left, ", show_us(share.expected_us - job->running_us).text);
	snprintf(line, sizeof(line), "%s%.120s on %.16s", left, show_op(job->op, &job->shape).text,
	         job->device);
	progress_show_share(share.done, line);
}

/*
 * Counts the other jobs that the device has or that wait for it. If there are several devices to choose from,
 * counts the jobs of all.
 */
static uint64_t count_others(const kops_info *info, const char *device)
{
	uint64_t n = 0;

	for (size_t i = 0; i < info->n_devices; i++) {
		const kops_device_info *d = kops_info_device(info, i);
		if (!device || strcmp(device, d->name) == 0)
			n += d->queued + d->running;
	}
	return n > 0 ? n - 1 : 0;
}

static int tell_queued(const struct waiting *w)
{
	kops_info *info = NULL;
	char line[128];
	int status = kops_query(w->watcher, &info);

	if (status < 0)
		return status;
	uint64_t others = count_others(info, w->how.device);
	bool chooses = !w->how.device && info->n_devices > 1;
	if (others == 0)
		snprintf(line, sizeof(line), "waiting to start");
	else
		snprintf(line, sizeof(line), "waiting%s %" PRIu64 " job%s%s",
		         chooses ? ": kopsd has" : " behind", others, others == 1 ? "" : "s",
		         chooses ? " on all devices" : "");
	tell(w, line);
	kops_info_free(info);
	return 0;
}

/*
 * Returns the session of the job: another session of this process, as kopsd sees it, that has a job. NULL if
 * unknown.
 */
static const kops_session_info *find_session(const kops_list *sessions)
{
	const kops_session_info *own = NULL, *s;

	for (size_t i = 0; (s = kops_list_session(sessions, i)) && !own; i++)
		own = s->own ? s : NULL;
	for (size_t i = 0; own && own->pid && (s = kops_list_session(sessions, i)); i++)
		if (s != own && s->uid == own->uid && s->pid == own->pid && s->queued + s->running > 0)
			return s;
	return NULL;
}

static int tell_job(const struct waiting *w)
{
	kops_list *sessions = NULL;
	int status = kops_list_sessions(w->watcher, &sessions);

	if (status < 0)
		return status;
	const kops_session_info *s = find_session(sessions);
	if (s && s->oldest)
		tell_running(w, s->oldest);
	else if (s)
		status = tell_queued(w);
	else
		tell(w, "waiting for kopsd");
	kops_list_free(sessions);
	return status;
}

/* ---- Looking ---- */

static int open_watcher(struct waiting *w)
{
	kops_options options = {.size = sizeof(options),
	                        .socket = w->cli->flags.socket,
	                        .name = w->cli->program,
	                        .timeout_ms = ANSWER_MS};

	return w->watcher ? 0 : kops_open(&w->watcher, &options, NULL, 0);
}

static int ask(struct waiting *w)
{
	kops_info *info = NULL;
	int status = open_watcher(w);

	if (status < 0)
		return status;
	if (w->shows && (status = tell_job(w)) != KOPS_E_UNSUPPORTED)
		return status;
	status = kops_query(w->watcher, &info);
	kops_info_free(info);
	if (status == 0 && w->shows)
		tell(w, "waiting for kopsd");
	return status;
}

/* Returns true for any answer, including a refusal. What this process itself lacks is no answer. */
static bool is_answer(int status)
{
	return status != KOPS_E_TIMEOUT && status != KOPS_E_CONNECT && status != KOPS_E_SYSTEM &&
	       status != KOPS_E_NOMEM;
}

/* Checks whether kopsd still answers, and shows how far the job is. */
static void look(struct waiting *w)
{
	int status = ask(w);
	char line[128];

	if (is_answer(status)) {
		w->answered_us = cli_now_us();
		return;
	}
	snprintf(line, sizeof(line), "kopsd has not answered for %s",
	         show_us(cli_now_us() - w->answered_us).text);
	if (w->shows)
		progress_show(line);
}

/* ---- Waiting ---- */

static double patience_us(const struct waiting *w)
{
	return (w->cli->patience_ms ? w->cli->patience_ms : PATIENCE_MS) * 1e3;
}

/* Returns the time until the next look, at most until the end of --timeout. */
static int step_ms(const struct waiting *w)
{
	double left_ms = ceil((w->until_us - cli_now_us()) / 1e3);
	double step = w->shows ? LOOK_MS : LOOK_UNSEEN_MS;

	step = step < patience_us(w) / 1e3 ? step : patience_us(w) / 1e3;
	step = step < left_ms ? step : left_ms;
	return step > 0 ? (int)step : 0;
}

static bool is_over(const struct waiting *w)
{
	return cli_now_us() >= w->until_us;
}

static bool is_silent(const struct waiting *w)
{
	return isinf(w->until_us) && cli_now_us() - w->answered_us >= patience_us(w);
}

/* Returns KOPS_E_TIMEOUT if --timeout is over, or kopsd is silent. */
static int run_once(struct waiting *w)
{
	int status = w->how.is_sent ? kops_wait(w->job, step_ms(w)) : kops_submit_and_wait(w->job, step_ms(w));

	w->how.is_sent = false; /* another call is another try */
	while (status == KOPS_E_TIMEOUT && kops_job_is_out(w->job) && !is_over(w)) {
		look(w); /* look first: this program may have been stopped for longer than its patience */
		if (is_silent(w))
			break;
		status = kops_wait(w->job, step_ms(w));
	}
	return status;
}

static void pause_before_retry(struct waiting *w)
{
	uint64_t us = kops_job_retry_after_us(w->job);

	w->answered_us = cli_now_us();
	if (w->shows && waited_us(w) > LOOK_MS * 1e3)
		tell(w, "kopsd's queue is full: trying again");
	usleep(us < RETRY_US_MIN ? RETRY_US_MIN : us > RETRY_US_MAX ? RETRY_US_MAX : (useconds_t)us);
}

static int fail(struct waiting *w, int status)
{
	struct cli *cli = w->cli;
	const char *sentence = kops_job_error(w->job);

	if (status == KOPS_E_TIMEOUT && kops_job_is_out(w->job))
		kops_cancel(w->job);
	if (status == KOPS_E_TIMEOUT && isinf(w->until_us))
		return cli_fail(
		    cli, CLI_TIMED_OUT,
		    "kopsd has not answered for %s, and the job is not done; kopsd may be stopped or hang: see "
		    "`systemctl status kopsd` and its log (journalctl -u kopsd), and restart it",
		    show_us(cli_now_us() - w->answered_us).text);
	if (status == KOPS_E_TIMEOUT)
		return cli_fail(cli, CLI_TIMED_OUT,
		                "the job was not done after %s and was cancelled; allow a longer --timeout, or "
		                "give none to wait while kopsd answers",
		                show_us(cli->flags.timeout_ms * 1e3).text);
	return cli_fail_kops(cli, status, sentence[0] ? sentence : kops_error(cli->handle));
}

int wait_for_job(struct cli *cli, kops_job *job, const struct wait_how *how)
{
	double now = cli_now_us(),
	       until = how && how->until_us > 0 ? how->until_us : now + cli->flags.timeout_ms * 1e3;
	struct waiting w = {.cli = cli,
	                    .job = job,
	                    .how = how ? *how : (struct wait_how){.device = NULL},
	                    .shows = cli_shows_progress(cli),
	                    .began_us = now,
	                    .until_us = cli->flags.timeout_ms ? until : (double)INFINITY,
	                    .answered_us = now};
	int status;

	while ((status = run_once(&w)) == KOPS_E_BUSY && !is_over(&w))
		pause_before_retry(&w);
	kops_close(w.watcher);
	if (!w.how.tell)
		progress_erase();
	return status < 0 ? fail(&w, status) : CLI_OK;
}
