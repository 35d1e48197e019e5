/*
 * embed.c: vectors of sentences. Reads the token ids of a sentence from each line of standard input, as
 * wordpiece.py writes them, and writes vectors to standard output, in the type of the weights.
 *
 *     cc embed.c minilm.c $(pkg-config --cflags --libs kops) -o embed
 *     python3 wordpiece.py model/vocab.txt < sentences | ./embed minilm > vectors.bin
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "minilm.h"

enum { BATCH = 32, CLASSES = 6 };

static const uint32_t lengths[CLASSES] = {16, 32, 64, 128, 256, MINILM_LENGTH_MAX};

struct batch {
	int32_t ids[BATCH][MINILM_LENGTH_MAX];
	uint32_t n[BATCH], sentences, longest;
	unsigned long lines;
};

static int complain(const char *what)
{
	fprintf(stderr, "embed: %s\n", what);
	return -1;
}

/* Returns 0, or -1 if the line is not what it should be. */
static int read_ids(struct batch *b, const char *line)
{
	uint32_t n = 0;
	char *end, why[100];
	long id;

	b->lines++;
	for (;; line = end) {
		errno = 0;
		id = strtol(line, &end, 10);
		if (end == line)
			break;
		if (n == MINILM_LENGTH_MAX || errno != 0 || id < 0 || id > INT32_MAX) {
			snprintf(why, sizeof why,
			         "line %lu has a number that is no id, or at most %d ids were expected",
			         b->lines, MINILM_LENGTH_MAX);
			return complain(why);
		}
		b->ids[b->sentences][n++] = (int32_t)id;
	}
	if (n == 0 || (*end != '\0' && *end != '\n')) {
		snprintf(why, sizeof why, "line %lu is not a list of ids", b->lines);
		return complain(why);
	}
	b->n[b->sentences++] = n;
	b->longest = n > b->longest ? n : b->longest;
	return 0;
}

/* Encodes the sentences by the job of their length, made when it is first used. */
static int encode(kops *k, struct minilm *m, struct minilm_job *jobs[CLASSES], struct batch *b)
{
	size_t bytes = (size_t)b->sentences * MINILM_WIDTH * kops_dtype_size(minilm_dtype(m));
	unsigned which = 0;

	while (lengths[which] < b->longest)
		which++;
	if (!jobs[which] && minilm_job_new(m, BATCH, lengths[which], &jobs[which]) < 0)
		return complain(kops_error(k));
	for (uint32_t i = 0; i < BATCH; i++)
		minilm_job_set(jobs[which], i, b->ids[i], i < b->sentences ? b->n[i] : 0);
	if (minilm_job_run(jobs[which]) < 0)
		return complain(kops_error(k));
	if (fwrite(minilm_job_vectors(jobs[which]), 1, bytes, stdout) < bytes)
		return complain("cannot write");
	b->sentences = b->longest = 0;
	return 0;
}

static int encode_all(kops *k, struct minilm *m)
{
	static struct batch b;
	struct minilm_job *jobs[CLASSES] = {0};
	char *line = NULL;
	size_t size = 0;
	int status = 0;

	while (status == 0 && getline(&line, &size, stdin) >= 0) {
		status = read_ids(&b, line);
		if (status == 0 && b.sentences == BATCH)
			status = encode(k, m, jobs, &b);
	}
	if (status == 0 && b.sentences > 0)
		status = encode(k, m, jobs, &b);
	for (unsigned i = 0; i < CLASSES; i++)
		minilm_job_free(jobs[i]);
	free(line);
	return status;
}

int main(int argc, char **argv)
{
	struct minilm *m = NULL;
	kops *k;
	char why[256];
	int status;

	if (argc != 2)
		return fprintf(stderr, "usage: embed NAME < IDS\n"), 2;
	if (kops_open(&k, NULL, why, sizeof why) < 0)
		return complain(why), 1;
	if (minilm_attach(k, argv[1], BATCH, MINILM_LENGTH_MAX, &m) < 0)
		status = complain(kops_error(k));
	else
		status = encode_all(k, m);
	minilm_free(m);
	kops_close(k);
	return status < 0 || fflush(stdout) != 0;
}
