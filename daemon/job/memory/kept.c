#include "job/memory/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/timers.h"
#include "job/memory/segment.h"

/* A client that dies closes its files just after its connection; one that lives may keep them forever. */
#define LOOK_FIRST_MS 10u
#define LOOK_LAST_MS  60000u

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

/* ---- One segment ---- */

/* Returns true if anybody else has the file open or mapped; false if the kernel cannot tell. */
static bool is_held(const struct segment *s)
{
	if (fcntl(s->fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN || errno == EINTR;
	fcntl(s->fd, F_SETLEASE, F_UNLCK);
	return false;
}

bool kept_look(struct kept_all *all, struct account *a)
{
	struct segment *s = list_first(&a->kept.segments, struct segment, link);

	if (is_held(s)) {
		list_remove(&s->link);
		list_push_last(&a->kept.segments, &s->link);
		return false;
	}
	kept_remove(all, s);
	all->unheld(s);
	return true;
}

/* ---- All of one user ---- */

static struct account *of_errand(struct errand *errand)
{
	return container_of(errand, struct account, kept.look);
}

static void start_timer(struct kept_all *all, uint64_t due_ms);

static void look_again_later(struct account *a)
{
	struct user_kept *k = &a->kept;

	k->wait_ms = k->wait_ms * 2 < LOOK_LAST_MS ? k->wait_ms * 2 : LOOK_LAST_MS;
	k->due_ms = now_ms() + k->wait_ms;
	if (k->n > 0)
		start_timer(k->all, k->due_ms);
}

static bool look_step(struct errand *errand)
{
	struct account *a = of_errand(errand);

	if (a->kept.n > 0 && a->kept.left > 0) {
		a->kept.left--;
		kept_look(a->kept.all, a);
		return true;
	}
	look_again_later(a);
	account_unref(a->kept.all->accounts, a);
	return false;
}

static void look_at_all(struct account *a)
{
	a->kept.left = a->kept.n;
	a->kept.due_ms = UINT64_MAX; /* until look_step() has checked all */
	if (a->kept.look.step)
		return;
	account_ref(a);
	errands_add(&a->errands, &a->kept.look, look_step);
}

/* ---- The timer ---- */

static void on_timer(uv_timer_t *timer)
{
	struct kept_all *all = timer->data;
	uint64_t now = now_ms(), next = UINT64_MAX;
	struct account *a;

	all->due_ms = UINT64_MAX;
	list_for_each (a, &all->users, kept.link)
		if (a->kept.due_ms <= now)
			look_at_all(a);
		else if (a->kept.due_ms < next)
			next = a->kept.due_ms;
	if (next < UINT64_MAX)
		start_timer(all, next);
}

static void start_timer(struct kept_all *all, uint64_t due_ms)
{
	uint64_t now = now_ms();

	if (due_ms >= all->due_ms)
		return;
	all->due_ms = due_ms;
	timers_start(&all->timer, on_timer, due_ms > now ? due_ms - now : 0, 0);
}

void kept_look_soon(struct kept_all *all, struct account *a)
{
	if (a->kept.n == 0)
		return;
	a->kept.wait_ms = LOOK_FIRST_MS;
	a->kept.due_ms = now_ms() + LOOK_FIRST_MS;
	start_timer(all, a->kept.due_ms);
}

/* ---- In and out ---- */

/* Inode numbers may repeat one day: of two equal ones, only the first is found. */
void kept_index(struct kept_all *all, struct segment *s)
{
	struct stat st;

	account_ref(s->account);
	s->is_kept = false;
	s->inode = 0;
	if (fstat(s->fd, &st) < 0)
		return;
	s->device = st.st_dev;
	s->inode = st.st_ino;
	idmap_put(&all->by_inode, s->inode, s);
}

void kept_add(struct kept_all *all, struct segment *s)
{
	struct account *a = s->account;

	s->is_kept = true;
	list_push_last(&a->kept.segments, &s->link);
	a->kept.all = all;
	if (a->kept.n++ == 0)
		list_push_first(&all->users, &a->kept.link);
	kept_look_soon(all, a);
}

static void unlist_kept(struct segment *s)
{
	struct account *a = s->account;

	list_remove(&s->link);
	if (--a->kept.n == 0)
		list_remove(&a->kept.link);
}

void kept_remove(struct kept_all *all, struct segment *s)
{
	if (s->is_kept)
		unlist_kept(s);
	if (idmap_get(&all->by_inode, s->inode) == s)
		idmap_remove(&all->by_inode, s->inode);
	account_unref(all->accounts, s->account);
}

struct segment *kept_find(const struct kept_all *all, const struct account *a, dev_t device, ino_t inode)
{
	struct segment *s = idmap_get(&all->by_inode, inode);

	return s && s->account == a && s->device == device ? s : NULL;
}

void kept_init(struct kept_all *all, uv_loop_t *timers, struct accounts *accounts,
               void (*unheld)(struct segment *segment))
{
	*all = (struct kept_all){.accounts = accounts, .unheld = unheld, .due_ms = UINT64_MAX};
	uv_timer_init(timers, &all->timer);
	all->timer.data = all;
}

void kept_clear(struct kept_all *all)
{
	idmap_clear(&all->by_inode);
}
