#include "share/unread.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/timers.h"
#include "share/closing.h"

/* Descriptors checked when the limit is met, which takes some 10 us; and by the timer. */
#define LOOK_AT_ONCE  64u
#define LOOK_BY_TIMER 256u
#define LOOK_FIRST_MS 10u
#define LOOK_LAST_MS  60000u

const char unread_why[] = "too many descriptors are open or unread by clients; read your replies, try again "
                          "later, or raise LimitNOFILE";

/* ---- The list ---- */

static struct unread *first_of(const struct unreads *all)
{
	return list_first(&all->all, struct unread, link);
}

static void count_unread(struct unreads *all, struct unread *u, int n)
{
	u->n += (unsigned)n;
	u->account->unread_fds += (unsigned)n;
	all->accounts->unread_fds += (unsigned)n;
}

static void forget_unread(struct unreads *all, struct unread *u)
{
	count_unread(all, u, -(int)u->n);
	list_remove(&u->link);
	if (u->holder) {
		*u->holder = NULL;
	} else {
		closing_add(all->accounts, u->account, u->fd);
		account_unref(all->accounts, u->account);
	}
	free(u);
}

/* ---- Looking ---- */

/* Data that a client has not read still counts as our end's memory. */
static bool is_read(const struct unread *u)
{
	int bytes;

	return !u->kept && ioctl(u->fd, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

/* Checks the n that were checked longest ago. Returns false if none was read. */
static bool look_for_read(struct unreads *all, unsigned n)
{
	bool any = false;
	struct unread *u, *seen = NULL; /* the first that is kept */

	while ((u = first_of(all)) && u != seen && n-- > 0) {
		if (is_read(u)) {
			forget_unread(all, u);
			any = true;
			continue;
		}
		list_remove(&u->link);
		list_push_last(&all->all, &u->link);
		seen = seen ? seen : u;
	}
	return any;
}

static void look_again(uv_timer_t *timer)
{
	struct unreads *all = timer->data;

	if (look_for_read(all, LOOK_BY_TIMER))
		all->look_ms = LOOK_FIRST_MS;
	else
		all->look_ms = all->look_ms < LOOK_LAST_MS / 2 ? all->look_ms * 2 : LOOK_LAST_MS;
	if (first_of(all))
		timers_start(timer, look_again, all->look_ms, 0);
}

static void look_for_read_soon(struct unreads *all)
{
	if (uv_is_active((uv_handle_t *)&all->timer) && all->look_ms == LOOK_FIRST_MS)
		return;
	all->look_ms = LOOK_FIRST_MS;
	timers_start(&all->timer, look_again, all->look_ms, 0);
}

/* ---- From outside ---- */

void unreads_init(struct unreads *all, uv_loop_t *timers, struct accounts *accounts)
{
	all->accounts = accounts;
	all->all = (struct list){0};
	uv_timer_init(timers, &all->timer);
	all->timer.data = all;
}

void unreads_clear(struct unreads *all)
{
	struct unread *u;

	while ((u = first_of(all)))
		forget_unread(all, u);
	uv_timer_stop(&all->timer);
}

static bool unread_new(struct unreads *all, struct unread **holder, struct account *account, int fd)
{
	struct unread *u = calloc(1, sizeof *u);

	if (!u)
		return false;
	*u = (struct unread){.holder = holder, .account = account, .fd = fd};
	*holder = u;
	list_push_last(&all->all, &u->link);
	look_for_read_soon(all);
	return true;
}

static bool may_add(const struct unreads *all, const struct account *a)
{
	return a->unread_fds + all->accounts->unread_fds < all->accounts->unread_fds_max;
}

bool unread_add(struct unreads *all, struct unread **holder, struct account *account, int fd)
{
	if (*holder && is_read(*holder))
		count_unread(all, *holder, -(int)(*holder)->n);
	if (!may_add(all, account) && !(look_for_read(all, LOOK_AT_ONCE) && may_add(all, account)))
		return false;
	if (!*holder && !unread_new(all, holder, account, fd))
		return false;
	count_unread(all, *holder, 1);
	return true;
}

void unread_take_back(struct unreads *all, struct unread *u)
{
	if (u->n > 0)
		count_unread(all, u, -1);
}

void unread_leave(struct unreads *all, struct unread *u, struct account *account, int fd)
{
	if (u && !is_read(u)) {
		*u->holder = NULL;
		u->holder = NULL;
		account_ref(account);
		look_for_read_soon(all);
		return;
	}
	if (u)
		forget_unread(all, u);
	closing_add(all->accounts, account, fd);
}
