/*
 * wake_ups: lets two processes reach the same moment again and again: one puts something into shared memory, as
 * ring_memory.h does, while the other goes to sleep. Steps are separated by random pauses.
 *
 *     wake_ups ROUNDS SECONDS
 *
 * ends after so many rounds or seconds, or when a wake-up was lost.
 *
 * A wake-up is lost if the sleeper saw nothing and was not to be woken. Exit status: 0: none was lost; 1: some
 * were; 77: there is only one CPU.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring_memory.h"
#include "seed.h"

#define PAUSE_STEPS  16
#define PATIENT_SPIN 1000

struct meeting {
	struct ring_word arrived; /* of both sides, over all rounds */
	struct ring_word tail, sleeps;
	bool woken; /* in this round */
	bool ends;  /* this round is the last */
};

static uint64_t random_state;

/*
 * Pauses for about as long as a store takes to reach the other CPU, and rarely for longer than a process
 * sleeps.
 */
static void pause_a_while(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	for (volatile unsigned i = random_state % PAUSE_STEPS; i > 0; i--)
		;
	if ((random_state >> 32 & 0xffff) == 0)
		usleep(random_state >> 48 & 63);
}

/* Waits until both have come to their n-th meeting. */
static void meet(struct meeting *m, uint32_t n)
{
	__atomic_add_fetch(&m->arrived.value, 1, __ATOMIC_ACQ_REL);
	for (unsigned i = 0; (int32_t)(__atomic_load_n(&m->arrived.value, __ATOMIC_ACQUIRE) - 2 * n) < 0; i++)
		if (i > PATIENT_SPIN)
			sched_yield();
}

static void publish(struct meeting *m)
{
	for (uint32_t i = 1; !m->ends; i++) {
		meet(m, 2 * i - 1);
		pause_a_while();
		m->woken = ring_publish(&m->tail, i, &m->sleeps);
		meet(m, 2 * i);
	}
}

/* Returns how many rounds there were. */
static uint32_t go_to_sleep(struct meeting *m, uint32_t rounds, time_t end, uint32_t *ret_lost)
{
	uint32_t i = 0;

	for (*ret_lost = 0; !m->ends;) {
		bool seen;

		meet(m, 2 * ++i - 1);
		pause_a_while();
		ring_store(&m->sleeps, 1);
		seen = ring_load(&m->tail) == i;
		m->ends = *ret_lost > 0 || i >= rounds || time(NULL) >= end;
		meet(m, 2 * i);
		*ret_lost += !seen && !m->woken;
		pause_a_while();
		ring_store(&m->sleeps, 0);
	}
	return i;
}

/* Chooses two CPUs, since two processes on one would take turns. Returns false if there is only one. */
static bool choose_cpus(cpu_set_t ret[2])
{
	cpu_set_t allowed;
	unsigned n = 0;

	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		return false;
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET(i, &allowed)) {
			CPU_ZERO(&ret[n]);
			CPU_SET(i, &ret[n++]);
		}
	return n == 2;
}

static void begin(const cpu_set_t *cpu, uint64_t seed)
{
	sched_setaffinity(0, sizeof *cpu, cpu);
	random_state = seed * 2654435769u;
}

int main(int argc, char **argv)
{
	struct meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t rounds = argc == 3 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0, lost;
	cpu_set_t cpus[2];
	pid_t publisher;

	if (rounds == 0 || m == MAP_FAILED)
		return 2;
	if (!choose_cpus(cpus))
		return 77;
	publisher = fork();
	if (publisher == 0) {
		begin(&cpus[0], seed_of_run());
		publish(m);
		_exit(0);
	}
	begin(&cpus[1], ~seed_of_run());
	rounds = go_to_sleep(m, rounds, time(NULL) + strtol(argv[2], NULL, 10), &lost);
	waitpid(publisher, NULL, 0);
	printf("%u wake-ups were lost in %u rounds\n", lost, rounds);
	return lost > 0;
}
