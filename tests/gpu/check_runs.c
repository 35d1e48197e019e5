/*
 * check_runs: compares random jobs through a module, CUDA's or another, with the ops' references.
 *
 *     check_runs --module PATH [--seed N|random] [--cases N] [--brief] [--streamed] [--refused] [--fault]
 *
 * A case is a chain of ops over four buffers (two pinned, one pageable, one RESIDENT), spread over a few runs
 * of one lane that are all out at once. Views overlap, interleave, repeat and run backwards. Afterwards every
 * byte of the buffers is compared: written elements within the tolerance of their type, the others exactly.
 *
 * Kernels whose blocks wait for each other must end even if not all blocks find room. A job that finds the
 * device full must fail, and succeed later. Nothing may wake up while there is nothing to do.
 *
 * --brief     skips these, and runs of a second or more: for sanitizers, whose threads wake up, and which take
 *             minutes for such runs
 * --streamed  runs so many streamed products and other ops (stream_runs.c) and nothing else
 * --refused   runs only the cases, with a module whose device takes no graphs
 * --fault     finally breaks the context
 *
 * Prints its seed. Exit status 0 only if all is right, 77 if there is no GPU.
 */
#include "check_runs.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "seed.h"

static uint64_t next_random(struct bench *t)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random >> 11;
}

uint64_t below(struct bench *t, uint64_t n)
{
	return next_random(t) % n;
}

double uniform(struct bench *t)
{
	return (double)below(t, 1u << 24) / (double)(1u << 23) - 1.0;
}

void die(const char *what, const char *why)
{
	fprintf(stderr, "check_runs: %s: %s\n", what, why);
	exit(1);
}

/* ---- Running ---- */

static unsigned woken;

static void on_wake(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&woken, 1, __ATOMIC_ACQ_REL);
}

void ask_to_be_woken(struct bench *t)
{
	t->driver->notify(t->dev, on_wake, NULL);
}

unsigned times_woken(void)
{
	return __atomic_load_n(&woken, __ATOMIC_ACQUIRE);
}

/* What woke it before is found by poll(), so a wake-up since then is one to look at. */
static void sleep_until_woken(struct bench *t, uint64_t give_up)
{
	static unsigned seen;

	ask_to_be_woken(t);
	while (times_woken() == seen && clock_ns() < give_up)
		usleep(20);
	seen = times_woken();
}

void wait_for(struct bench *t, unsigned n)
{
	uint64_t give_up = clock_ns() + WAIT_NS;
	bool sleeping = below(t, 2) && t->driver->notify;

	while (n > 0 && clock_ns() < give_up) {
		struct run *run = t->driver->poll(t->dev);

		if (run && run->status == 0 && !run_is_through(run))
			t->driver->start(t->dev, run); /* one of several slices */
		else if (run)
			n--;
		else if (sleeping)
			sleep_until_woken(t, give_up);
	}
	if (n > 0)
		die("wait", "a run did not come back in 20 s");
}

struct memory resident(struct bench *t, uint64_t bytes)
{
	struct memory m = {.owner = t->dev, .bytes = bytes};

	if (t->driver->alloc(t->dev, bytes, &m.device) < 0)
		die("alloc", "no memory");
	return m;
}

void check_op(struct op_args *args, const char *what)
{
	char why[WHY_BYTES];

	if (op_check(args, why) < 0)
		die(what, why);
}

void begin(struct bench *t, struct run *run)
{
	if (plan_run(&t->planner, run) < 0)
		die("plan", run->error);
	t->driver->start(t->dev, run);
}

void run_one(struct bench *t, struct run_op *op)
{
	struct run run = {.ops = op, .n_ops = 1, .lane = 77};

	begin(t, &run);
	wait_for(t, 1);
	run_forget_plan(&run);
	if (run.status < 0)
		die("run", run.error);
}

struct view bytes_view(const struct memory *m, uint64_t bytes)
{
	return (struct view){.space = m, .dtype = KOPS_F32, .rank = 1, .shape = {bytes / 4}, .strides = {1}};
}

void copy_between(struct bench *t, const struct memory *from, const struct memory *to, uint64_t bytes)
{
	struct run_op op = {
	    .args = {.op = op_by_name("copy"), .views = {bytes_view(from, bytes), bytes_view(to, bytes)}},
	    .pinned = ""};

	check_op(&op.args, "copy");
	run_one(t, &op);
}

/* ---- Main ---- */

static void set_up(struct bench *t, const char *module)
{
	void *handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	const struct driver *(*entry)(void);
	char why[WHY_BYTES] = "";

	if (!handle)
		die("dlopen", dlerror());
	entry = (const struct driver *(*)(void))dlsym(handle, DRIVER_ENTRY);
	if (!entry)
		die("dlsym", dlerror());
	t->driver = entry();
	if (t->driver->count(why) == 0) {
		printf("skipped: %s\n", why);
		exit(77);
	}
	if (t->driver->open(0, &(struct driver_limits){0}, &t->dev, why) < 0)
		die("open", why);
	driver_planner(t->driver, t->dev, &t->planner);
	printf("%s, %llu MiB\n", t->planner.info.description,
	       (unsigned long long)(t->planner.info.memory_bytes >> 20));
	for (unsigned b = 0; b < BUFFERS; b++) {
		struct buffer *buffer = &t->buffers[b];
		void *host =
		    mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		memset(host, 1, BUFFER_BYTES);
		buffer->memory.bytes = BUFFER_BYTES;
		buffer->expected = calloc(1, BUFFER_BYTES);
		buffer->written = calloc(1, BUFFER_BYTES);
		buffer->content = host;
		if (b == RESIDENT) {
			buffer->memory = resident(t, BUFFER_BYTES);
			continue;
		}
		buffer->memory.host = host;
		if (b == 2)
			continue;
		if (t->driver->pin(host, BUFFER_BYTES, false) < 0)
			die("pin", "cannot register memory");
		buffer->memory.pin = MEMORY_PINNED;
	}
}

static void tear_down(struct bench *t)
{
	for (unsigned b = 0; b < BUFFERS; b++) {
		if (t->buffers[b].memory.pin == MEMORY_PINNED)
			t->driver->unpin(t->buffers[b].memory.host, BUFFER_BYTES);
		if (b == RESIDENT)
			t->driver->free(t->dev, t->buffers[b].memory.device);
		munmap(t->buffers[b].content, BUFFER_BYTES);
		free(t->buffers[b].expected);
		free(t->buffers[b].written);
	}
	t->driver->close(t->dev);
}

static void check_special(struct bench *t, bool brief)
{
	if (!brief) {
		check_idle();
		check_notify(t);
		check_unpin(t);
		check_slices(t);
		check_long_sums(t);
	}
	check_many_graphs(t);
	check_refused_graph(t);
	check_forgotten_graph(t);
	check_graphs_with_room(t);
	check_together(t);
	for (unsigned b = 0; b < BUFFERS; b++)
		check_timed(t, b);
	if (has_hopper(t)) { /* other GPUs have no such kernels */
		check_crowded(t);
		check_room(t);
		check_data_in_graph(t);
	}
	check_streamed(t, ULONG_MAX);
	check_out_of_memory(t);
}

int main(int argc, char **argv)
{
	static struct bench t;
	const char *module = NULL;
	unsigned long cases = 2000;
	uint64_t seed = seed_of_run();
	bool fault = false, brief = false, refused = false, streamed = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--fault") == 0)
			fault = true;
		else if (strcmp(argv[i], "--brief") == 0)
			brief = true;
		else if (strcmp(argv[i], "--refused") == 0)
			refused = true;
		else if (strcmp(argv[i], "--streamed") == 0)
			streamed = true;
		else if (i + 1 < argc && strcmp(argv[i], "--module") == 0)
			module = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
			seed = seed_parse(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--cases") == 0)
			cases = strtoul(argv[++i], NULL, 0);
		else
			die("usage", "check_runs --module PATH [--seed N|random] [--cases N] [--brief] "
			             "[--streamed] [--refused] [--fault]");
	}
	if (!module)
		die("usage", "--module is missing");
	printf("seed %llu\n", (unsigned long long)seed);
	t.random = seed * 2654435769u + 88172645463325252u;
	set_up(&t, module);
	if (streamed) {
		check_streamed(&t, cases);
		tear_down(&t);
		return 0;
	}
	for (unsigned long i = 0; i < cases; i++) {
		if (!run_case(&t)) {
			fprintf(stderr, "check_runs: case %lu of seed %llu is wrong\n", i,
			        (unsigned long long)seed);
			return 1;
		}
	}
	printf("%lu cases, %lu runs, %lu of them as graphs, %lu ops right; %lu plans with windows\n", cases,
	       t.runs, t.graphs, t.ops, t.windowed);
	if (cases >= 20 && t.windowed == 0)
		die("windows", "no run was planned with them");
	if (refused ? t.graphs > 0 : cases >= 20 && t.graphs == 0)
		die("graphs", refused ? "one is told of, though the GPU refuses them"
		                      : "no run that came again was launched as one");
	if (fault)
		check_fault(&t);
	else if (!refused)
		check_special(&t, brief);
	tear_down(&t);
	return 0;
}
