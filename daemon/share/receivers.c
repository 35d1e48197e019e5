#include "share/receivers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/timers.h"
#include "message.h"
#include "share/closing.h"
#include "share/receiver.h"
#include "share/watch.h"

#define AT_WORK_MAX 8u /* each takes some 20 µs */
#define IDLE_MAX    1u
/* Counts checks rather than time: after a pause of the whole machine, the first check may come before their
 * reports. */
#define LOOK_MS       100
#define LOOKS_CLOSING 10u
#define LOOKS_AT_WORK 100u

enum receiver_state { IDLE, AT_WORK, CLOSING };

struct receiver {
	struct list_link link; /* in receivers.all */
	struct receivers *all;
	enum receiver_state state;
	struct account *account;     /* its user, with a reference; NULL: IDLE */
	struct receiving *receiving; /* NULL: nobody waits for its report */
	unsigned looks;              /* checks in this state */
	bool is_hung;
	int fd;
	uv_poll_t poll;
};

/* ---- The list of receivers ---- */

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

/* Closes the channel; the process ends, if it can. */
static void receiver_end(struct receiver *r)
{
	list_remove(&r->link);
	uv_close((uv_handle_t *)&r->poll, on_closed);
	close(r->fd);
}

static void on_channel(uv_poll_t *poll, int status, int events);

static struct receiver *add_receiver(struct receivers *all, int fd)
{
	struct receiver *r = calloc(1, sizeof *r);

	if (!r || uv_poll_init(all->loop, &r->poll, fd) < 0) {
		free(r);
		return NULL;
	}
	r->poll.data = r;
	if (watch_start(&r->poll, UV_READABLE, on_channel) < 0) {
		uv_close((uv_handle_t *)&r->poll, on_closed);
		return NULL;
	}
	r->all = all;
	r->fd = fd;
	list_push_first(&all->all, &r->link);
	all->n_idle++;
	return r;
}

/* Starts the spawner, which was never started or has ended. */
static int start_spawner(struct receivers *all)
{
	if (all->spawner >= 0) {
		log_error("the process that starts receivers of descriptors exited; restarting it");
		close(all->spawner);
		waitpid(all->spawner_pid, NULL, WNOHANG);
	}
	all->spawner = -1;
	return spawner_start(&all->spawner, &all->spawner_pid);
}

/* 0, or KOPS_E_CONNECT if the spawner has ended. */
static int order_receiver(struct receivers *all, int fd)
{
	return all->spawner < 0 ? KOPS_E_CONNECT : message_send(all->spawner, (const uint8_t *)"", 1, &fd, 1);
}

/* Returns true if the spawner has the socket. */
static bool have_spawned(struct receivers *all, int fd)
{
	int rc = order_receiver(all, fd);

	if (rc == KOPS_E_CONNECT && start_spawner(all) == 0)
		rc = order_receiver(all, fd);
	return rc == 0;
}

/* Makes a receiver. It can be sent orders while its process starts. NULL: it cannot be made. */
static struct receiver *receiver_new(struct receivers *all)
{
	struct receiver *r = NULL;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return NULL;
	if (have_spawned(all, ends[1]))
		r = add_receiver(all, ends[0]);
	close(ends[1]);
	if (!r)
		close(ends[0]);
	return r;
}

static struct receiver *find_idle(struct receivers *all)
{
	struct receiver *r;

	list_for_each (r, &all->all, link)
		if (r->state == IDLE)
			return r;
	return receiver_new(all);
}

static void become_idle(struct receiver *r)
{
	struct receivers *all = r->all;

	account_unref(all->accounts, r->account);
	r->account = NULL;
	r->state = IDLE;
	r->is_hung = false;
	if (all->n_idle < IDLE_MAX)
		all->n_idle++;
	else
		receiver_end(r);
}

/* ---- Waiting datagrams ---- */

/* Ends the wait for a datagram that was received, or cannot be. */
static void settle_datagram(struct receivers *all, struct receiving *r, int status)
{
	list_remove(&r->link);
	r->receiver = NULL;
	r->status = status;
	r->is_ready = true;
	all->ready(r);
}

/* ---- The next user ---- */

static void look_for_hung_soon(struct receivers *all, struct receiver *r);

static void on_end(struct receiver *r);

/* Gives the order to an idle receiver, and skips those whose process has ended. NULL: none can take it. */
static struct receiver *give(struct receivers *all, const struct receive_order *order, int sock)
{
	for (unsigned i = 0; i <= IDLE_MAX; i++) {
		struct receiver *r = find_idle(all);
		int rc =
		    r ? message_send(r->fd, (const uint8_t *)order, sizeof *order, &sock, 1) : KOPS_E_SYSTEM;

		if (rc == 0)
			return r;
		if (rc != KOPS_E_CONNECT)
			break;
		on_end(r);
	}
	return NULL;
}

/* Users whose memory was accepted before have a reserve. */
static bool too_many_hang(const struct receivers *all, const struct account *a)
{
	return all->n_closing >= all->closing_max * (a->receives.is_known ? 2 : 1);
}

static void start_receiving(struct receivers *all, struct receiving *r)
{
	struct account *a = r->account;
	struct receive_order order = {.bytes_max = RECEIVED_BYTES_MAX,
	                              .drops = a->receives.closer || too_many_hang(all, a)};
	struct receiver *receiver = a->receives.stuck ? NULL : give(all, &order, r->sock);

	if (!receiver) {
		settle_datagram(all, r, KOPS_E_SYSTEM);
		return;
	}
	all->n_idle--;
	all->n_at_work++;
	receiver->state = AT_WORK;
	receiver->account = a;
	receiver->receiving = r;
	r->receiver = a->receives.worker = receiver;
	account_ref(a);
	look_for_hung_soon(all, receiver);
}

static bool may_start(const struct account_receives *of)
{
	return !list_is_empty(&of->waiting) && !of->worker && (!of->closer || of->closer->is_hung);
}

/* Starts the user's waiting datagrams, as far as they need not wait for earlier ones. */
static void start_next(struct receivers *all, struct account *a)
{
	while (may_start(&a->receives)) {
		if (all->n_at_work >= AT_WORK_MAX) {
			all->n_waiting += !a->receives.waits;
			a->receives.waits = true;
			return;
		}
		start_receiving(all, list_first(&a->receives.waiting, struct receiving, link));
	}
}

/* Serves users in rotation by uid: none is served twice before another that waits. */
static struct account *next_waiting(const struct receivers *all)
{
	struct account *first = NULL, *a;

	list_for_each (a, &all->accounts->all, link) {
		if (!a->receives.waits)
			continue;
		if (a->uid < all->served)
			return a;
		first = first ? first : a;
	}
	return first;
}

static void wait_no_more(struct receivers *all, struct account *a)
{
	all->n_waiting -= a->receives.waits;
	a->receives.waits = false;
}

static void start_waiting(struct receivers *all)
{
	struct account *a;

	while (all->n_waiting && all->n_at_work < AT_WORK_MAX && (a = next_waiting(all))) {
		wait_no_more(all, a);
		all->served = a->uid;
		start_next(all, a);
	}
}

/* ---- Receivers that hang ---- */

static void abandon(struct receiver *r)
{
	struct receivers *all = r->all;
	struct account *a = r->account;

	r->is_hung = true;
	if (log_may(&all->lines))
		log_warning(
		    "close() of a descriptor from uid %u hangs; until it returns, kopsd refuses descriptors "
		    "from this user%s",
		    (unsigned)a->uid,
		    all->n_closing >= all->closing_max
		        ? ", and from users who have sent none before, because too many close() calls hang"
		        : "");
	if (r->state == AT_WORK) {
		all->n_at_work--;
		a->receives.worker = NULL;
		a->receives.stuck = r;
		if (r->receiving)
			settle_datagram(all, r->receiving, KOPS_E_SYSTEM);
		r->receiving = NULL;
	}
	start_next(all, a);
	start_waiting(all);
}

static void look_for_hung(uv_timer_t *timer)
{
	struct receivers *all = timer->data;
	struct receiver *r, *next;
	bool any = false;

	list_for_each_safe (r, next, &all->all, link) {
		if (r->state == IDLE || r->is_hung)
			continue;
		any = true;
		if (++r->looks >= (r->state == CLOSING ? LOOKS_CLOSING : LOOKS_AT_WORK))
			abandon(r);
	}
	if (!any)
		uv_timer_stop(timer);
}

static void look_for_hung_soon(struct receivers *all, struct receiver *r)
{
	r->looks = 0;
	if (!uv_is_active((uv_handle_t *)&all->timer))
		timers_start(&all->timer, look_for_hung, LOOK_MS, LOOK_MS);
}

/* ---- Reports ---- */

/* Call it when the receiver has nothing to do, or has ended. */
static void leave(struct receiver *r)
{
	struct receivers *all = r->all;
	struct account_receives *of = r->account ? &r->account->receives : NULL;

	all->n_idle -= r->state == IDLE;
	all->n_at_work -= r->state == AT_WORK && !r->is_hung;
	all->n_closing -= r->state == CLOSING;
	if (!of)
		return;
	if (of->worker == r)
		of->worker = NULL;
	if (of->closer == r)
		of->closer = NULL;
	if (of->stuck == r)
		of->stuck = NULL;
	r->is_hung = false;
}

static void serve_next(struct receivers *all, struct account *a)
{
	if (!a)
		return;
	start_next(all, a);
	start_waiting(all);
	account_unref(all->accounts, a);
}

static void on_end(struct receiver *r)
{
	struct receivers *all = r->all;
	struct account *a = r->account;

	leave(r);
	if (r->receiving)
		settle_datagram(all, r->receiving, KOPS_E_SYSTEM);
	receiver_end(r);
	serve_next(all, a);
}

static void on_all_closed(struct receiver *r)
{
	struct account *a = r->account;

	account_ref(a);
	leave(r);
	become_idle(r);
	serve_next(r->all, a);
}

static const char *why_dropped(const struct account *a)
{
	static const char of_user[] = "kopsd refuses descriptors from you until the close() of one that you "
	                              "sent returns; send only memfds";
	static const char of_all[] =
	    "kopsd refuses descriptors from new users until fewer close() calls hang; try again later";

	return a->receives.closer ? of_user : of_all;
}

static void deliver(struct receivers *all, struct receiving *to, const struct receive_report *report,
                    const uint8_t *data, int fd, bool lost)
{
	to->received = (struct received){
	    .bytes = report->bytes, .n_fds = report->n_fds, .fd = fd, .error = report->error, .lost = lost};
	if (report->dropped)
		to->received.why = why_dropped(to->account);
	memcpy(to->data, data, report->bytes);
	settle_datagram(all, to, report->status);
}

static void on_report(struct receiver *r, const struct receive_report *report, const uint8_t *data, int fd,
                      bool lost)
{
	struct receivers *all = r->all;
	struct account *a = r->account;
	struct receiving *to = r->receiving;

	account_ref(a);
	leave(r);
	r->receiving = NULL;
	if (to)
		deliver(all, to, report, data, fd, lost);
	else if (fd >= 0)
		closing_add(all->accounts, a, fd);
	if (report->closes) {
		r->state = CLOSING;
		all->n_closing++;
		a->receives.closer = r;
		look_for_hung_soon(all, r);
	} else {
		become_idle(r);
	}
	serve_next(all, a);
}

static void read_report(struct receiver *r)
{
	union {
		struct cmsghdr header;
		unsigned char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct receive_report report;
	uint8_t data[RECEIVED_BYTES_MAX];
	struct iovec iov[] = {{&report, sizeof report}, {data, sizeof data}};
	struct msghdr msg = {.msg_iov = iov,
	                     .msg_iovlen = 2,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof control.bytes};
	ssize_t n = recvmsg(r->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *c;
	int fd = -1;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n < (ssize_t)sizeof report || n != (ssize_t)(sizeof report + report.bytes)) {
		on_end(r);
		return;
	}
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	/* If the kernel cut the descriptors off, this process has no free one. */
	on_report(r, &report, data, fd, report.lost || (msg.msg_flags & MSG_CTRUNC));
}

static void read_byte(struct receiver *r)
{
	char byte;
	ssize_t n = recv(r->fd, &byte, 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n == 1 && r->state == CLOSING)
		on_all_closed(r);
	else
		on_end(r);
}

/* The time that this takes is charged to the user, like a turn. */
static void on_channel(uv_poll_t *poll, int status, int events)
{
	struct receiver *r = poll->data;
	struct accounts *accounts = r->all->accounts;
	struct account *a = r->account;
	uint64_t began_ns = clock_ns();

	(void)status;
	(void)events;
	if (a)
		account_ref(a);
	if (r->state == AT_WORK)
		read_report(r);
	else
		read_byte(r);
	if (!a)
		return;
	turns_add(accounts->turns, &a->turns, clock_ns() - began_ns);
	account_unref(accounts, a);
}

/* ---- From outside ---- */

int receivers_start(struct receivers *all, uv_loop_t *loop, uv_loop_t *timers, struct accounts *accounts,
                    unsigned most, void (*ready)(struct receiving *receiving), char why[WHY_BYTES])
{
	int rc;

	*all = (struct receivers){
	    .loop = loop, .accounts = accounts, .ready = ready, .spawner = -1, .closing_max = most};
	uv_timer_init(timers, &all->timer);
	all->timer.data = all;
	rc = start_spawner(all);
	if (rc == 0 && receiver_new(all))
		return 0;
	rc = rc ? rc : errno;
	snprintf(why, WHY_BYTES, "cannot start the process that receives descriptors: %s; %s", strerror(rc),
	         rc == ENOENT ? "make /proc visible to kopsd"
	                      : "raise the limits on processes (TasksMax, ulimit -u), memory and descriptors");
	return KOPS_E_SYSTEM;
}

void receivers_stop(struct receivers *all)
{
	struct receiver *r;

	while ((r = list_first(&all->all, struct receiver, link))) {
		if (r->account)
			account_unref(all->accounts, r->account);
		receiver_end(r);
	}
	if (all->loop && all->spawner >= 0)
		close(all->spawner);
	all->spawner = -1;
}

void receivers_take(struct receivers *all, struct receiving *r, struct account *account, int sock)
{
	r->account = account;
	r->sock = sock;
	r->is_out = true;
	r->is_ready = false;
	r->receiver = NULL;
	r->received = (struct received){.fd = -1};
	list_push_last(&account->receives.waiting, &r->link);
	start_next(all, account);
}

void receivers_forget(struct receivers *all, struct receiving *r)
{
	if (!r->is_out)
		return;
	r->is_out = false;
	if (!r->is_ready) {
		if (r->receiver)
			r->receiver->receiving = NULL;
		list_remove(&r->link);
		if (list_is_empty(&r->account->receives.waiting))
			wait_no_more(all, r->account);
	} else if (r->received.fd >= 0) {
		closing_add(all->accounts, r->account, r->received.fd);
	}
	r->received.fd = -1;
}
