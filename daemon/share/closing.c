#include "share/closing.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- One close, interrupted by a signal ---- */

#define SIGNAL_CLOSE SIGUSR2
#define PATIENCE_NS  1000000

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Sends the signal to this thread. */
static _Thread_local timer_t timer;
static _Thread_local bool has_timer;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The signal only interrupts a call. */
static void on_signal(int number)
{
	(void)number;
}

static void take_signal(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGNAL_CLOSE, &action, NULL);
}

/* The parent of kopsd may have blocked the signal, which would then interrupt nothing. */
static void make_timer(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL_CLOSE};
	sigset_t signals;

	pthread_once(&once, take_signal);
	sigemptyset(&signals);
	sigaddset(&signals, SIGNAL_CLOSE);
	pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
	event.sigev_notify_thread_id = gettid();
	has_timer = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
}

/* Repeats the signal, because the first may come before the wait. 0: stops. */
static void interrupt_after(long ns)
{
	struct itimerspec when = {.it_value.tv_nsec = ns, .it_interval.tv_nsec = ns};

	if (has_timer)
		timer_settime(timer, 0, &when, NULL);
}

static void close_soon(int fd)
{
	if (!has_timer)
		make_timer(); /* without a timer it waits */
	interrupt_after(PATIENCE_NS);
	close(fd);
	interrupt_after(0);
}

/* ---- Many, by threads ---- */

#define CLOSING_FDS 64u

struct closing {
	struct task task;
	struct list_link link; /* in account.closings, until it is handed over */
	struct accounts *all;
	struct account *account;
	unsigned n, at;
	int fds[CLOSING_FDS];
};

static struct closing *of_task(struct task *task)
{
	return container_of(task, struct closing, task);
}

static bool close_step(struct task *task)
{
	struct closing *c = of_task(task);

	close_soon(c->fds[c->at++]);
	return c->at == c->n;
}

static void set_held(struct turns *turns, struct turns_user *user, bool held)
{
	if (held)
		turns_hold(user, TURNS_CLOSING);
	else
		turns_release(turns, user, TURNS_CLOSING);
}

/* Adds n to the descriptors yet to be closed; n may be negative. */
static void count_closings(struct accounts *all, struct account *a, int n)
{
	a->n_closing += (unsigned)n;
	all->closing += (unsigned)n;
	set_held(all->turns, &a->turns, a->n_closing > 0 && a->n_closing + all->closing > all->closing_max);
	if (all->door)
		set_held(all->turns, all->door, all->closing >= all->closing_max);
}

/* Hands over the batch that was gathered first. While another of this user is in flight, that is done only if
 * the batch is full, and for at most closers_each at once. */
static void hand_over_gathered(struct account *a)
{
	struct closing *c = list_first(&a->closings, struct closing, link);

	if (!c || (a->closings_out && (c->n < CLOSING_FDS || a->closings_out >= c->all->closers_each)))
		return;
	list_remove(&c->link);
	a->closings_out++;
	workers_submit(c->all->closers, &a->closing_flow, &c->task);
}

static void closed(struct task *task)
{
	struct closing *c = of_task(task);
	struct account *a = c->account;

	count_closings(c->all, a, -(int)c->n);
	a->closings_out--;
	hand_over_gathered(a);
	account_unref(c->all, a);
	free(c);
}

static struct closing *closing_new(struct accounts *all, struct account *a)
{
	struct closing *c = all->closers ? calloc(1, sizeof *c) : NULL;

	if (!c)
		return NULL;
	c->task.step = close_step;
	c->task.done = closed;
	c->all = all;
	c->account = a;
	account_ref(a);
	return c;
}

/* The batch to add to; earlier ones are full. */
static struct closing *last_closing(struct accounts *all, struct account *a)
{
	struct closing *c = list_last(&a->closings, struct closing, link);

	if (c && c->n < CLOSING_FDS)
		return c;
	c = closing_new(all, a);
	if (c)
		list_push_last(&a->closings, &c->link);
	return c;
}

/* While a batch is in flight, the next is gathered, so that threads are not woken for each descriptor. */
void closing_add(struct accounts *all, struct account *a, int fd)
{
	struct closing *c = a ? last_closing(all, a) : NULL;

	if (!c) {
		close_soon(fd);
		return;
	}
	c->fds[c->n++] = fd;
	count_closings(all, a, 1);
	hand_over_gathered(a);
}
