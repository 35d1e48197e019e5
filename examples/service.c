/*
 * service.c: a service that lives in a libuv loop and has its products computed by kopsd, several at a time.
 *
 *     cc service.c $(pkg-config --cflags --libs kops libuv) -lm -o service
 *
 * Requests arrive by a timer. Each takes a free slot: three shared buffers and a job that is made once and
 * submitted again and again. Nothing here waits for the daemon, from the first connection on: libkops is driven
 * by what it asks for: kops_fd(), kops_events() and kops_timeout() go into a uv_poll_t and a uv_timer_t;
 * whichever fires, kops_process() runs the callbacks of the jobs that have ended. A restart of the daemon in
 * between is not noticed here. Every result is checked against plain loops.
 *
 * Usage: service [REQUESTS]. Exit status 0 when every request was answered rightly.
 */
#include <kops.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

enum { SIZE = 64, SLOTS = 4, BUFFERS = 3, ARRIVAL_MS = 1 };

struct service;

struct slot {
	struct service *service;
	kops_buffer *a, *b, *c;
	kops_job *job;
	uv_timer_t retry;
	unsigned request, ready; /* ready: how many buffers are */
	int busy;
};

struct service {
	uv_loop_t loop;
	uv_timer_t arrival;
	struct slot slots[SLOTS];
	unsigned requests, accepted, answered, at_once_max;
	int failed;

	kops *k;
	uv_poll_t *poll; /* of kops_fd(); a new one for each connection */
	int fd;
	uv_timer_t timer;
};

static void attend(struct service *s);

/* ---- libkops in the loop ---- */

static void process(struct service *s)
{
	if (kops_process(s->k) < 0)
		fprintf(stderr, "service: %s\n", kops_error(s->k)); /* on_buffer() or on_done() saw it too */
	attend(s);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	(void)status; /* kops_process() finds out itself */
	(void)events;
	process(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
	process(timer->data);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

static void watch(struct service *s, int fd)
{
	if (s->poll)
		uv_close((uv_handle_t *)s->poll, on_closed);
	s->poll = NULL;
	s->fd = fd;
	if (fd < 0)
		return;
	s->poll = calloc(1, sizeof *s->poll);
	if (!s->poll || uv_poll_init(&s->loop, s->poll, fd) < 0)
		abort();
	s->poll->data = s;
}

/* To be called after every call into libkops: asks what it waits for now. */
static void attend(struct service *s)
{
	int fd = kops_fd(s->k), timeout = kops_timeout(s->k);
	short events = kops_events(s->k);
	if (fd != s->fd)
		watch(s, fd);
	if (s->poll)
		uv_poll_start(s->poll,
		              (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0),
		              on_poll);
	if (timeout >= 0)
		uv_timer_start(&s->timer, on_timer, (uint64_t)timeout, 0);
	else
		uv_timer_stop(&s->timer);
}

/* ---- The service ---- */

static float element(unsigned request, unsigned matrix, unsigned i)
{
	return (float)((request * 7 + matrix * 3 + i * 5) % 13) - 6;
}

static int is_right(const struct slot *slot)
{
	const float *a = kops_data(slot->a), *b = kops_data(slot->b), *c = kops_data(slot->c);
	for (unsigned i = 0; i < SIZE; i++) {
		for (unsigned j = 0; j < SIZE; j++) {
			double sum = 0;
			for (unsigned k = 0; k < SIZE; k++)
				sum += (double)a[i * SIZE + k] * b[k * SIZE + j];
			if (fabs(sum - c[i * SIZE + j]) > 1e-3)
				return 0;
		}
	}
	return 1;
}

static void finish(struct service *s)
{
	uv_timer_stop(&s->arrival);
	uv_stop(&s->loop);
}

static void fail(struct service *s, const struct slot *slot, const char *why)
{
	fprintf(stderr, "service: request %u: %s\n", slot->request, why);
	s->failed = 1;
	finish(s);
}

static void submit(struct slot *slot);

static void on_retry(uv_timer_t *timer)
{
	struct slot *slot = timer->data;
	submit(slot);
	attend(slot->service);
}

static void on_done(kops_job *job, int status, void *user)
{
	struct slot *slot = user;
	struct service *s = slot->service;
	if (status == KOPS_E_BUSY) {
		uv_timer_start(&slot->retry, on_retry, kops_job_retry_after_us(job) / 1000 + 1, 0);
		return;
	}
	if (status < 0) {
		fail(s, slot, kops_job_error(job));
		return;
	}
	if (!is_right(slot)) {
		fail(s, slot, "wrong result");
		return;
	}
	slot->busy = 0;
	if (++s->answered == s->requests)
		finish(s);
}

static void submit(struct slot *slot)
{
	if (kops_submit(slot->job, on_done, slot) < 0)
		fail(slot->service, slot, kops_error(slot->service->k));
}

static void on_buffer(kops_buffer *buffer, int status, void *user)
{
	struct slot *slot = user;
	if (status < 0)
		fail(slot->service, slot, kops_buffer_error(buffer));
	slot->ready++;
}

static void take(struct slot *slot, unsigned request)
{
	float *a = kops_data(slot->a), *b = kops_data(slot->b);
	slot->request = request;
	slot->busy = 1;
	for (unsigned i = 0; i < SIZE * SIZE; i++) {
		a[i] = element(request, 0, i);
		b[i] = element(request, 1, i);
	}
	submit(slot);
}

/* Fills the free slots: this is where requests of the service's own clients would come in. */
static void on_arrival(uv_timer_t *timer)
{
	struct service *s = timer->data;
	unsigned at_once = 0;
	for (unsigned i = 0; i < SLOTS; i++) {
		if (s->slots[i].ready == BUFFERS && !s->slots[i].busy && s->accepted < s->requests)
			take(&s->slots[i], s->accepted++);
		at_once += s->slots[i].busy != 0;
	}
	if (at_once > s->at_once_max)
		s->at_once_max = at_once;
	attend(s);
}

static int set_up_slot(struct service *s, struct slot *slot, unsigned number)
{
	const uint64_t bytes = SIZE * SIZE * sizeof(float);
	const kops_job_options options = {.size = sizeof options, .queue = number};
	slot->service = s;
	slot->retry.data = slot;
	uv_timer_init(&s->loop, &slot->retry);
	if (kops_alloc_start(s->k, bytes, KOPS_SHARED, NULL, on_buffer, slot, &slot->a) < 0 ||
	    kops_alloc_start(s->k, bytes, KOPS_SHARED, NULL, on_buffer, slot, &slot->b) < 0 ||
	    kops_alloc_start(s->k, bytes, KOPS_SHARED, NULL, on_buffer, slot, &slot->c) < 0 ||
	    kops_job_new(s->k, &options, &slot->job) < 0)
		return -1;
	return kops_job_gemm(slot->job, 1, kops_matrix(slot->a, 0, KOPS_F32, SIZE, SIZE, 0),
	                     kops_matrix(slot->b, 0, KOPS_F32, SIZE, SIZE, 0), 0,
	                     kops_matrix(slot->c, 0, KOPS_F32, SIZE, SIZE, 0), KOPS_PRECISION_F32, NULL);
}

static int run(struct service *s)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		if (set_up_slot(s, &s->slots[i], i) < 0) {
			fprintf(stderr, "service: %s\n", kops_error(s->k));
			return 1;
		}
	}
	s->timer.data = s->arrival.data = s;
	uv_timer_init(&s->loop, &s->timer);
	uv_timer_init(&s->loop, &s->arrival);
	uv_timer_start(&s->arrival, on_arrival, 0, ARRIVAL_MS);
	attend(s);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	printf("%u requests answered, up to %u at once\n", s->answered, s->at_once_max);
	return s->failed || s->answered != s->requests;
}

static void close_handle(uv_handle_t *handle, void *data)
{
	struct service *s = data;
	if (!uv_is_closing(handle))
		uv_close(handle, handle == (uv_handle_t *)s->poll ? on_closed : NULL);
}

int main(int argc, char **argv)
{
	static struct service s = {.fd = -1};
	char why[256];

	s.requests = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200;
	if (kops_open_start(&s.k, NULL, why, sizeof why) < 0) {
		fprintf(stderr, "service: %s\n", why);
		return 1;
	}
	uv_loop_init(&s.loop);
	int status = run(&s);
	uv_walk(&s.loop, close_handle, &s);
	uv_run(&s.loop, UV_RUN_DEFAULT);
	uv_loop_close(&s.loop);
	kops_close(s.k);
	return status;
}
