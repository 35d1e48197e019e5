/*
 * encoder_clients: sentences that client processes get encoded, each with the model of examples/encoder.
 *
 *     encoder_clients NAME SECONDS SPIN_US CLIENTS BATCHES LENGTHS
 *
 * NAME: of the weights that load.py has published. The last three are lists such as 1,4,16. For each
 * combination that many processes at once run jobs of that batch and length for SECONDS, one at a time: ids
 * into the job's memory, the run, the vectors in shared memory. Prints one JSON document with a row for each.
 */
#include <minilm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIST_MAX = 16, CLIENTS_MAX = 64, RUNS_MAX = 1 << 18, WARMUP = 30, VOCABULARY = 30000, LOOK_US = 100 };

struct list {
	uint32_t n, of[LIST_MAX];
};

/* Memory that all processes share. */
static struct {
	uint32_t arrived, failed; /* atomic */
	uint32_t runs[CLIENTS_MAX];
	double took_us[CLIENTS_MAX];
	float us[CLIENTS_MAX][RUNS_MAX];
} * all;

static struct {
	const char *name;
	double seconds;
	uint32_t spin_us, most; /* most: clients, of all cases */
	struct list clients, batches, lengths;
} what;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Waits until all processes have called this as often as this one; returns false if one has failed. */
static bool meet(void)
{
	static uint32_t meetings;

	meetings++;
	__atomic_add_fetch(&all->arrived, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->arrived, __ATOMIC_SEQ_CST) < meetings * (what.most + 1)) {
		if (__atomic_load_n(&all->failed, __ATOMIC_SEQ_CST))
			return false;
		usleep(LOOK_US);
	}
	return true;
}

/* ---- A client ---- */

static void fill(struct minilm_job *j, uint32_t batch, uint32_t length, unsigned *seed)
{
	int32_t ids[MINILM_LENGTH_MAX];

	for (uint32_t i = 0; i < batch; i++) {
		for (uint32_t t = 0; t < length; t++)
			ids[t] = rand_r(seed) % VOCABULARY;
		minilm_job_set(j, i, ids, length);
	}
}

/* Prepares and warms up before all meet, then measures. */
static int run_case(struct minilm *m, uint32_t client, uint32_t batch, uint32_t length)
{
	struct minilm_job *j;
	unsigned seed = client + 1;
	uint32_t runs = 0;
	int status = minilm_job_new(m, batch, length, &j);

	if (status < 0)
		return status;
	for (unsigned i = 0; i < WARMUP && status == 0; i++) {
		fill(j, batch, length, &seed);
		status = minilm_job_run(j);
	}
	if (status == 0 && !meet())
		status = KOPS_E_CANCELLED;
	double begin = now_us(), end = begin, last = begin + what.seconds * 1e6;
	while (end < last && runs < RUNS_MAX && status == 0) {
		double start = end;
		fill(j, batch, length, &seed);
		status = minilm_job_run(j);
		end = now_us();
		all->us[client][runs++] = (float)(end - start);
	}
	all->runs[client] = runs;
	all->took_us[client] = end - begin;
	minilm_job_free(j);
	return status;
}

/* All meet when a case begins, when it ends, and when its times were read. */
static int take_part(struct minilm *m, uint32_t client, uint32_t clients, uint32_t batch, uint32_t length)
{
	int status = 0;

	if (client < clients)
		status = run_case(m, client, batch, length);
	else if (!meet())
		status = KOPS_E_CANCELLED;
	if (status == 0 && (!meet() || !meet()))
		status = KOPS_E_CANCELLED;
	return status;
}

static int run_all(struct minilm *m, uint32_t client)
{
	int status = 0;

	for (uint32_t c = 0; c < what.clients.n; c++)
		for (uint32_t b = 0; b < what.batches.n; b++)
			for (uint32_t l = 0; l < what.lengths.n && status == 0; l++)
				status = take_part(m, client, what.clients.of[c], what.batches.of[b],
				                   what.lengths.of[l]);
	return status;
}

static uint32_t largest(const struct list *list)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < list->n; i++)
		most = list->of[i] > most ? list->of[i] : most;
	return most;
}

static int client_main(uint32_t client)
{
	const kops_options options = {.size = sizeof options, .spin_us = what.spin_us};
	struct minilm *m = NULL;
	kops *k;
	char why[256];
	int status = kops_open(&k, &options, why, sizeof why);

	if (status < 0) {
		fprintf(stderr, "encoder_clients: %s\n", why);
	} else {
		status = minilm_attach(k, what.name, largest(&what.batches), largest(&what.lengths), &m);
		if (status == 0)
			status = run_all(m, client);
		if (status < 0 && status != KOPS_E_CANCELLED)
			fprintf(stderr, "encoder_clients: %s\n", kops_error(k));
		minilm_free(m);
		kops_close(k);
	}
	if (status < 0)
		__atomic_store_n(&all->failed, 1, __ATOMIC_SEQ_CST);
	return status < 0;
}

/* ---- All of them ---- */

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void report(uint32_t clients, uint32_t batch, uint32_t length, float *us)
{
	double per_second = 0;
	size_t n = 0;

	for (uint32_t c = 0; c < clients; c++) {
		memcpy(us + n, all->us[c], all->runs[c] * sizeof *us);
		n += all->runs[c];
		per_second += batch * all->runs[c] * 1e6 / all->took_us[c];
	}
	qsort(us, n, sizeof *us, compare);
	printf("{\"clients\": %u, \"batch\": %u, \"length\": %u, \"per_second\": %.1f, \"p50_us\": %.1f, "
	       "\"p99_us\": %.1f}",
	       clients, batch, length, per_second, (double)us[n / 2], (double)us[n - 1 - n / 100]);
}

static bool follow(float *us)
{
	const char *between = "";

	printf("{\"rows\": [");
	for (uint32_t c = 0; c < what.clients.n; c++)
		for (uint32_t b = 0; b < what.batches.n; b++)
			for (uint32_t l = 0; l < what.lengths.n; l++) {
				if (!meet() || !meet())
					return false;
				printf("%s", between);
				report(what.clients.of[c], what.batches.of[b], what.lengths.of[l], us);
				between = ",\n ";
				if (!meet())
					return false;
			}
	printf("]}\n");
	return true;
}

static bool read_list(const char *text, uint32_t most, struct list *ret)
{
	char *end;

	for (ret->n = 0; ret->n < LIST_MAX; text = end + 1) {
		unsigned long value = strtoul(text, &end, 10);
		if (end == text || value == 0 || value > most)
			return false;
		ret->of[ret->n++] = (uint32_t)value;
		if (*end != ',')
			return *end == '\0';
	}
	return false;
}

static bool read_arguments(int argc, char **argv)
{
	if (argc != 7 || !read_list(argv[4], CLIENTS_MAX, &what.clients) ||
	    !read_list(argv[5], 1024, &what.batches) || !read_list(argv[6], MINILM_LENGTH_MAX, &what.lengths))
		return false;
	what.name = argv[1];
	what.seconds = strtod(argv[2], NULL);
	what.spin_us = (uint32_t)strtoul(argv[3], NULL, 10);
	what.most = largest(&what.clients);
	return what.seconds > 0;
}

int main(int argc, char **argv)
{
	float *us;
	int status = 0;

	if (!read_arguments(argc, argv))
		return fprintf(stderr, "usage: encoder_clients NAME SECONDS SPIN_US CLIENTS BATCHES LENGTHS\n"),
		       2;
	all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	us = malloc(sizeof all->us);
	if (all == MAP_FAILED || !us)
		return fprintf(stderr, "encoder_clients: out of memory\n"), 1;
	for (uint32_t c = 0; c < what.most; c++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(client_main(c));
		}
	if (!follow(us))
		status = 1;
	for (uint32_t c = 0; c < what.most; c++)
		wait(NULL);
	return status;
}
