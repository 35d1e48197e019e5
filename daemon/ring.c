#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpus.h"

/* With fewer than MANY_CPUS CPUs, a polling loop may be in another thread's way. If it was, it does not poll
 * for NO_LOOKS_NS. */
#define MANY_CPUS   4
#define NO_LOOKS_NS 100000000u
#define GAVE_WAY_NS 100000u

/* ---- Awake and asleep ---- */

/* Returns true if there is a run to take. An invalid position counts as one, so that it is noticed. */
static bool has_runs_to_take(const struct ring *r)
{
	uint32_t waiting = ring_load(&r->memory->run_tail) - r->taken;
	uint32_t unread = r->put - ring_load(&r->memory->end_head);

	return waiting > r->entries ||
	       (waiting > 0 && (unread > r->entries || unread + r->reserved < r->entries));
}

/* Prefetches the ring's cache lines from the client's CPU while others have their turns. */
static void expect_take(const struct ring *r)
{
	__builtin_prefetch(&ring_runs(r->memory)[r->taken % r->entries]);
	__builtin_prefetch(&r->memory->run_head, 1);
}

static struct ring *first_awake(const struct rings *all)
{
	return list_first(&all->awake, struct ring, awake);
}

static void look_at(const struct ring *r)
{
	if (!has_runs_to_take(r))
		return;
	expect_take(r);
	r->all->has_runs(r->user);
}

static unsigned at_once(unsigned n)
{
	return n < RINGS_AT_ONCE ? n : RINGS_AT_ONCE;
}

void rings_look(struct rings *all)
{
	for (unsigned n = at_once(all->n_awake); n > 0; n--) {
		struct ring *r = all->next_look ? all->next_look : first_awake(all);

		all->next_look = list_next(r, awake);
		look_at(r);
	}
}

/* If the loop yields to a thread that keeps the CPU, a run that arrives then waits for the end of that thread's
 * time slice. */
static void end_if_in_the_way(struct rings *all, uint64_t since_ns)
{
	uint64_t now = clock_ns();

	if (now - since_ns < GAVE_WAY_NS)
		return;
	all->no_looks_until_ns = now + NO_LOOKS_NS;
	uv_idle_stop(&all->idle);
}

static void on_idle(uv_idle_t *idle)
{
	struct rings *all = idle->data;
	uint64_t now = clock_ns();

	if (all->were_used)
		all->look_until_ns = now + RINGS_LOOK_NS;
	else if (now >= all->look_until_ns)
		uv_idle_stop(idle);
	else if (spin_on(&all->spin, SPIN_ROUNDS) && all->cpus_are_few)
		end_if_in_the_way(all, now);
	all->were_used = false;
}

void ring_awaken(struct ring *r)
{
	if (list_has(&r->awake))
		return;
	ring_store(&r->memory->daemon_sleeps, 0);
	r->all->n_awake++;
	r->all->to_sleep = 0;
	list_push_last(&r->all->awake, &r->awake);
}

static void fall_asleep(struct ring *r)
{
	r->all->n_awake--;
	if (r->all->next_look == r)
		r->all->next_look = list_next(r, awake);
	list_remove(&r->awake);
}

/* If the ring's user cannot take the runs now, the ring is not put to sleep again before the loop is. */
static void put_to_sleep(struct ring *r)
{
	unsigned left = r->all->to_sleep;

	fall_asleep(r);
	ring_store(&r->memory->daemon_sleeps, 1);
	if (!has_runs_to_take(r))
		return;
	ring_awaken(r);
	r->all->to_sleep = left;
	r->all->has_runs(r->user);
}

/* Does nothing: an active handle keeps the loop awake. */
static void on_to_come(uv_idle_t *idle)
{
	(void)idle;
}

/*
 * The loop may be about to sleep: clients have to wake it for what they put in from now on.
 * (uv_backend_timeout() does not tell whether it will sleep while changes of watched descriptors are pending.)
 * The loop does not stay awake for a ring whose user cannot take runs now.
 */
static void on_prepare(uv_prepare_t *prepare)
{
	struct rings *all = prepare->data;

	unsigned n;

	if (list_is_empty(&all->awake) || uv_is_active((uv_handle_t *)&all->idle) || all->is_busy(all)) {
		all->to_sleep = 0;
		uv_idle_stop(&all->to_come);
		return;
	}
	if (all->to_sleep == 0)
		all->to_sleep = all->n_awake;
	for (n = at_once(all->to_sleep); n > 0 && !list_is_empty(&all->awake); n--) {
		all->to_sleep--;
		put_to_sleep(first_awake(all));
	}
	if (all->to_sleep > 0)
		uv_idle_start(&all->to_come, on_to_come);
	else
		uv_idle_stop(&all->to_come);
}

void rings_init(struct rings *all, uv_loop_t *loop, void (*has_runs)(void *user),
                bool (*is_busy)(const struct rings *all))
{
	*all =
	    (struct rings){.has_runs = has_runs, .is_busy = is_busy, .cpus_are_few = cpus_count() < MANY_CPUS};
	uv_prepare_init(loop, &all->prepare);
	uv_idle_init(loop, &all->idle);
	uv_idle_init(loop, &all->to_come);
	all->prepare.data = all->idle.data = all;
	uv_prepare_start(&all->prepare, on_prepare);
	uv_unref((uv_handle_t *)&all->prepare);
	uv_unref((uv_handle_t *)&all->idle);
	uv_unref((uv_handle_t *)&all->to_come);
}

/* ---- One ring ---- */

/* Makes sealed memory, so that none of its pages can disappear. */
static int make_memory(uint64_t bytes, int *ret_fd, void **ret_memory)
{
	int fd = memfd_create("kops-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	*ret_memory = MAP_FAILED;
	if (ftruncate(fd, (off_t)bytes) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		*ret_memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (*ret_memory == MAP_FAILED) {
		close(fd);
		return -1;
	}
	*ret_fd = fd;
	return 0;
}

int ring_new(struct rings *all, void *user, uint32_t entries, struct ring **ret_ring, int *ret_fd,
             char why[WHY_BYTES])
{
	struct ring *r = calloc(1, sizeof *r);
	void *memory;

	if (!r) {
		snprintf(why, WHY_BYTES, "out of memory for a ring");
		return KOPS_E_NOMEM;
	}
	if (make_memory(ring_bytes(entries), ret_fd, &memory) < 0) {
		snprintf(why, WHY_BYTES, "cannot create a ring of %u entries: %s%s", entries, strerror(errno),
		         errno == EMFILE || errno == ENFILE ? "; raise LimitNOFILE" : "");
		free(r);
		return KOPS_E_NOMEM;
	}
	*r = (struct ring){.all = all, .user = user, .memory = memory, .entries = entries};
	ring_store(&r->memory->daemon_sleeps, 1);
	*ret_ring = r;
	return 0;
}

void ring_free(struct ring *r)
{
	if (!r)
		return;
	if (list_has(&r->awake))
		fall_asleep(r);
	munmap(r->memory, ring_bytes(r->entries));
	free(r);
}

/* Also keeps the ring awake. Otherwise its client would have to wake the loop that looks. */
static void stay_awake(struct ring *r)
{
	struct rings *all = r->all;

	ring_awaken(r);
	all->were_used = true;
	if (!uv_is_active((uv_handle_t *)&all->idle))
		uv_idle_start(&all->idle, on_idle);
}

/*
 * Returns true if polling is worthwhile. Two threads that wake each other on two CPUs lose far more time than a
 * short run takes. Otherwise others make better use of few CPUs, and a loop that sleeps takes several clients'
 * runs in batches.
 */
static bool is_worth_looking(const struct ring *r, const struct ring_end *end)
{
	const struct rings *all = r->all;
	const struct ring_memory *m = r->memory;

	if (!all->cpus_are_few)
		return true;
	return ring_load(&m->run_tail) - ring_load(&m->end_head) <= 1 && end->total_us * 1000 < RINGS_LOOK_NS &&
	       !all->is_busy(all) && clock_ns() >= all->no_looks_until_ns;
}

int ring_take(struct ring *r, struct ring_run *ret_run, char why[WHY_BYTES])
{
	uint32_t run_tail = ring_load(&r->memory->run_tail), end_head = ring_load(&r->memory->end_head);
	uint32_t waiting = run_tail - r->taken, unread = r->put - end_head;
	const struct ring_run *from = &ring_runs(r->memory)[r->taken % r->entries];

	if (waiting > r->entries || unread > r->entries) {
		snprintf(why, WHY_BYTES, "invalid ring positions (run_tail %u, end_head %u)", run_tail,
		         end_head);
		return KOPS_E_PROTOCOL;
	}
	if (waiting == 0 || unread + r->reserved >= r->entries)
		return 0;
	ret_run->prepared = __atomic_load_n(&from->prepared, __ATOMIC_RELAXED);
	ret_run->id = __atomic_load_n(&from->id, __ATOMIC_RELAXED);
	ring_store_head(&r->memory->run_head, ++r->taken);
	r->reserved++;
	if (waiting == 1 && !r->all->cpus_are_few)
		stay_awake(r);
	return 1;
}

uint32_t ring_mark(const struct ring *r)
{
	return ring_load(&r->memory->run_tail);
}

bool ring_is_past(const struct ring *r, uint32_t mark)
{
	return (int32_t)(mark - r->taken) <= 0 || !has_runs_to_take(r);
}

bool ring_is_watched(const struct ring *r)
{
	return ring_load(&r->memory->client_spins) > 0;
}

void ring_release(struct ring *r)
{
	r->reserved--;
}

bool ring_put(struct ring *r, const struct ring_end *end)
{
	struct ring_memory *memory = r->memory;

	r->reserved--;
	ring_ends(memory, r->entries)[r->put % r->entries] = *end;
	if (is_worth_looking(r, end))
		stay_awake(r);
	return ring_publish(&memory->end_tail, ++r->put, &memory->client_sleeps);
}
