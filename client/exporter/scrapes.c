#include "scrapes.h"

#include <pthread.h>
#include <stdlib.h>

#include "metrics.h"

/*
 * So many requests wait for a fresh answer. Fewer than PLACES, so that requests alone cannot fill all places.
 */
#define MAX_WAITING (PLACES / 2)

/*
 * The first request waits so long unsuspended, far longer than a working kopsd needs. libmicrohttpd (0.9.75)
 * drops a suspended connection whose client has shut down its sending half, as socat does.
 */
#define PROMPT_NS 100000000

struct scrapes {
	pthread_t thread;
	pthread_mutex_t lock; /* for all members below */
	pthread_cond_t changed;
	struct place *waiting,
	    *asking;        /* requests for the next question and for the current one, linked by next_waiting */
	unsigned n_waiting; /* in both lists */
	bool is_wanted, is_out; /* the next question; the current one */
	unsigned n_answers;
	struct MHD_Response *latest; /* NULL: no answer yet, or no memory for it */
	bool is_stopping;
	struct source *source; /* used by the thread only */
};

/* Asks kopsd. Returns NULL if out of memory. */
static struct MHD_Response *ask(struct source *source)
{
	struct answer answer = source_ask(source);
	char *text;
	size_t bytes;
	int status = metrics_text(&answer, &text, &bytes);

	source_free_answer(&answer);
	if (status < 0)
		return NULL;
	struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
	} else if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
	                                   "text/plain; version=0.0.4; charset=utf-8") != MHD_YES) {
		MHD_destroy_response(response);
		response = NULL;
	}
	return response;
}

/* Replaces the latest answer. Needs the lock. */
static void set_latest(struct scrapes *s, struct MHD_Response *response)
{
	if (s->latest)
		MHD_destroy_response(s->latest);
	s->latest = response;
}

/*
 * Resumes the connections of a list, and empties it. Needs the lock. A resumed connection belongs to
 * libmicrohttpd at once.
 */
static void resume(struct scrapes *s, struct place **list)
{
	for (struct place *p = *list, *next; p; p = next) {
		next = p->next_waiting;
		s->n_waiting--;
		MHD_resume_connection(p->waits);
	}
	*list = NULL;
}

/* Asks for the waiting requests. Needs the lock, and releases it meanwhile. */
static void ask_for_those(struct scrapes *s)
{
	s->asking = s->waiting;
	s->waiting = NULL;
	s->is_wanted = false;
	s->is_out = true;
	pthread_mutex_unlock(&s->lock);
	struct MHD_Response *response = ask(s->source);
	pthread_mutex_lock(&s->lock);
	s->is_out = false;
	s->n_answers++;
	set_latest(s, response);
	resume(s, &s->asking);
	pthread_cond_broadcast(&s->changed);
}

static void *serve(void *scrapes)
{
	struct scrapes *s = scrapes;

	pthread_mutex_lock(&s->lock);
	while (!s->is_stopping)
		if (s->is_wanted)
			ask_for_those(s);
		else
			pthread_cond_wait(&s->changed, &s->lock);
	resume(s, &s->waiting);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

struct scrapes *scrapes_start(struct source *source)
{
	struct scrapes *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->source = source;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	if (pthread_create(&s->thread, NULL, serve, s) == 0)
		return s;
	scrapes_free(s);
	return NULL;
}

/* Has kopsd asked, and returns true if it answered at once. Needs the lock, and releases it meanwhile. */
static bool is_prompt(struct scrapes *s)
{
	unsigned before = s->n_answers;
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += PROMPT_NS;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	s->is_wanted = true;
	pthread_cond_broadcast(&s->changed);
	while (s->n_answers == before && !s->is_stopping)
		if (pthread_cond_timedwait(&s->changed, &s->lock, &end) != 0)
			break;
	return s->n_answers != before;
}

/* Suspends the connection and adds it to the list. Needs the lock. */
static bool wait_suspended(struct scrapes *s, struct place **list, struct place *p,
                           struct MHD_Connection *connection)
{
	if (s->is_stopping)
		return false;
	p->waits = connection;
	p->next_waiting = *list;
	*list = p;
	s->n_waiting++;
	MHD_suspend_connection(connection);
	return true;
}

bool scrapes_wait(struct scrapes *s, struct place *p, struct MHD_Connection *connection)
{
	bool waits = false;

	pthread_mutex_lock(&s->lock);
	if (!s->is_out) {
		waits = !is_prompt(s) && wait_suspended(s, s->is_out ? &s->asking : &s->waiting, p, connection);
	} else if (s->n_waiting < MAX_WAITING || !s->latest) {
		waits = wait_suspended(s, &s->waiting, p, connection);
		s->is_wanted = true;
	}
	pthread_mutex_unlock(&s->lock);
	return waits;
}

enum MHD_Result scrapes_reply(struct scrapes *s, struct MHD_Connection *connection)
{
	enum MHD_Result queued = MHD_NO; /* closes the connection */

	pthread_mutex_lock(&s->lock);
	if (s->latest)
		queued = MHD_queue_response(connection, MHD_HTTP_OK, s->latest);
	pthread_mutex_unlock(&s->lock);
	return queued;
}

void scrapes_stop(struct scrapes *s)
{
	pthread_mutex_lock(&s->lock);
	s->is_stopping = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
}

void scrapes_free(struct scrapes *s)
{
	set_latest(s, NULL);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
