/* report.c: counts calls of this process and its family. */
#include "report.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"
#include "settings.h"

#define FUNCTIONS 300  /* more than this library exports */
#define PROCESSES 1024 /* in a family at a time; others print only at an orderly end */
#define PRINTING  (-1) /* stored in place of the pid */

static const char *const words[OUTCOMES] = {
    [OUTCOME_KOPSD] = "kopsd",
    [OUTCOME_SMALL] = "small",
    [OUTCOME_UNUSUAL] = "invalid or empty",
    [OUTCOME_WIDE] = "64-bit integers",
    [OUTCOME_SLOWER] = "faster there",
    [OUTCOME_NO_GPU] = "kopsd has no GPU",
    [OUTCOME_AWAY] = "kopsd away",
    [OUTCOME_TAKEN] = "handles taken",
    [OUTCOME_FAILED] = "job failed",
    [OUTCOME_SINGULAR] = "singular or not positive definite",
};

/* The name is this library's text, which has one address in a whole family. */
struct counts {
	const char *_Atomic name;
	_Atomic uint64_t calls[OUTCOMES], ns[OUTCOMES], copied, used;
};

struct process {
	_Atomic int pid; /* 0: free */
	struct counts of[FUNCTIONS];
};

static struct process alone, *family, *mine = &alone;
static const char *names[FUNCTIONS]; /* this process's functions, without those of its children */
static uint32_t n_names;

const char *report_word(enum outcome outcome)
{
	return words[outcome];
}

/* ---- Lines ---- */

static void append(char *line, size_t size, size_t *used, const char *text, uint64_t number, const char *after)
{
	int n = snprintf(line + *used, size - *used, "%s%llu %s", text, (unsigned long long)number, after);
	if (n > 0 && (size_t)n < size - *used)
		*used += (size_t)n;
}

static unsigned long long kib(uint64_t bytes)
{
	return (bytes + 1023) / 1024;
}

static void print_function(int pid, const struct counts *c)
{
	char line[512] = "";
	uint64_t calls = 0, us = c->ns[OUTCOME_KOPSD] / 1000, ns = 0;
	size_t used = 0;
	for (int i = 1; i < OUTCOMES; i++) {
		if (c->calls[i] > 0)
			append(line, sizeof line, &used, calls ? ", " : ": ", c->calls[i], words[i]);
		calls += c->calls[i];
		ns += c->ns[i];
	}
	if (calls + c->calls[OUTCOME_KOPSD] == 0)
		return;
	dprintf(2,
	        "kops-blas[%d]: %s: %llu calls by kopsd in %llu.%03llu ms (%llu KiB copied, %llu in place); "
	        "%llu by the next BLAS in %llu.%03llu ms%s\n",
	        pid, c->name, (unsigned long long)c->calls[OUTCOME_KOPSD], (unsigned long long)(us / 1000),
	        (unsigned long long)(us % 1000), kib(c->copied), kib(c->used), (unsigned long long)calls,
	        (unsigned long long)(ns / 1000000), (unsigned long long)(ns / 1000 % 1000), line);
}

static void print_process(const struct process *p, int pid)
{
	for (uint32_t i = 0; i < FUNCTIONS && p->of[i].name; i++)
		print_function(pid, &p->of[i]);
}

/* ---- The family ---- */

/* Returns true if a process has ended. Zombies that wait for a parent other than this process do not count. */
static bool has_ended(int pid)
{
	siginfo_t info = {0};
	if (kill(pid, 0) < 0 && errno == ESRCH)
		return true;
	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Prints and clears the counts of a process that ended. Returns true if this process has to free its slot. */
static bool print_dead(struct process *p)
{
	int pid = p->pid;
	if (pid <= 0 || !has_ended(pid) || !atomic_compare_exchange_strong(&p->pid, &pid, PRINTING))
		return false;
	print_process(p, pid);
	memset((void *)p->of, 0, sizeof p->of);
	return true;
}

static struct process *find_slot(void)
{
	for (struct process *p = family; p < family + PROCESSES; p++) {
		int free_pid = 0;
		if (atomic_compare_exchange_strong(&p->pid, &free_pid, (int)getpid()))
			return p;
		if (print_dead(p)) {
			p->pid = (int)getpid();
			return p;
		}
	}
	return &alone;
}

void report_child(void)
{
	memset((void *)alone.of, 0, sizeof alone.of);
	mine = family ? find_slot() : &alone;
	for (uint32_t i = 0; i < n_names; i++)
		mine->of[i].name = names[i];
}

/* Runs when the library is loaded, so before any fork(). */
__attribute__((constructor)) static void begin(void)
{
	if (settings_verbose() == 0)
		return;
	struct process *memory = mmap(NULL, PROCESSES * sizeof *memory, PROT_READ | PROT_WRITE,
	                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return;
	family = memory;
	mine = find_slot();
}

__attribute__((destructor)) static void report(void)
{
	struct guard guard;
	guard_begin(&guard);
	if (n_names > 0 && settings_get()->verbose > 0)
		print_process(mine, (int)getpid());
	memset((void *)mine->of, 0, sizeof mine->of);
	mine->pid = 0;
	for (struct process *p = family; family && p < family + PROCESSES; p++)
		if (print_dead(p))
			p->pid = 0;
	guard_end(&guard);
}

/* ---- Counting ---- */

uint32_t report_add(const char *name)
{
	names[n_names] = name;
	mine->of[n_names].name = name;
	return n_names++;
}

void report_count(uint32_t number, enum outcome outcome, uint64_t ns, uint64_t copied, uint64_t used)
{
	atomic_fetch_add_explicit(&mine->of[number].calls[outcome], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&mine->of[number].ns[outcome], ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&mine->of[number].copied, copied, memory_order_relaxed);
	atomic_fetch_add_explicit(&mine->of[number].used, used, memory_order_relaxed);
}
