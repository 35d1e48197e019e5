#include "source.h"

#include <stdio.h>

static int connect_to(struct source *s, char why[CLI_WHY_BYTES])
{
	kops_options options = {.size = sizeof(options),
	                        .socket = s->socket,
	                        .name = "kops-exporter",
	                        .timeout_ms = SOURCE_TIMEOUT_MS};

	return s->handle ? 0 : kops_open(&s->handle, &options, why, CLI_WHY_BYTES);
}

/*
 * Returns true if no further step may begin. Each step may take the timeout, and begins only within the first
 * one.
 */
static bool is_late(double start_us)
{
	return cli_now_us() - start_us > SOURCE_TIMEOUT_MS * 1e3;
}

static int ask(struct source *s, struct answer *ret, char why[CLI_WHY_BYTES])
{
	double start_us = cli_now_us();
	int status = connect_to(s, why);

	if (status < 0)
		return status;
	status = is_late(start_us) ? KOPS_E_TIMEOUT : kops_query(s->handle, &ret->info);
	if (status == 0)
		status = is_late(start_us) ? KOPS_E_TIMEOUT : kops_list_users(s->handle, &ret->list);
	if (status == KOPS_E_UNSUPPORTED) /* an older kopsd without lists */
		status = 0;
	if (status < 0) {
		const char *error = kops_error(s->handle);
		snprintf(why, CLI_WHY_BYTES, "%s", *error ? error : "the time limit is exceeded");
	}
	return status;
}

/* Logs a change, not every scrape. */
static void note(struct source *s, bool is_down, const char *why)
{
	if (is_down && !s->is_down)
		fprintf(stderr, "kops-exporter: kopsd does not answer: %s\n", why);
	else if (!is_down && s->is_down)
		fprintf(stderr, "kops-exporter: kopsd answers again\n");
	s->is_down = is_down;
}

struct answer source_ask(struct source *s)
{
	struct answer answer = {.info = NULL};
	char why[CLI_WHY_BYTES] = "";
	int status = ask(s, &answer, why);

	note(s, status < 0, why);
	if (status < 0) {
		/*
		 * Reconnects at the next question: a new connection fails at once while kopsd is away; this one
		 * would wait.
		 */
		source_close(s);
		source_free_answer(&answer);
	}
	return answer;
}

void source_free_answer(struct answer *answer)
{
	kops_info_free(answer->info);
	kops_list_free(answer->list);
	*answer = (struct answer){.info = NULL};
}

void source_close(struct source *s)
{
	kops_close(s->handle);
	s->handle = NULL;
}
