/*
 * minilm.h: sentences, as token ids, to vectors, by MiniLM-L6 in kopsd. The weights are those that load.py has
 * published, in f32 or f16.
 *
 * A minilm has the weights attached. A minilm_job encodes batches of one size, whose sentences are padded to
 * one length: the whole model as one job of libkops, which kopsd checks and plans once. Jobs of a minilm run
 * one after the other, since they share the memory for what layers hand on.
 */
#ifndef MINILM_H
#define MINILM_H

#include <kops.h>

enum { MINILM_WIDTH = 384, MINILM_LENGTH_MAX = 512 };

struct minilm;
struct minilm_job;

/*
 * Attaches the weights that this user has published as `name`, for jobs of up to `batch` sentences of up to
 * `length` tokens. Returns 0, or a code of kops.h; kops_error() explains it. kops_close() frees what it has in
 * kopsd, minilm_free() the rest.
 */
int minilm_attach(kops *k, const char *name, uint32_t batch, uint32_t length, struct minilm **ret_model);
void minilm_free(struct minilm *m);

int minilm_job_new(struct minilm *m, uint32_t batch, uint32_t length, struct minilm_job **ret_job);
void minilm_job_free(struct minilm_job *j);

/* Sets a sentence of the batch, n from 1 to the job's length; until then, and again with n 0, there is none. */
void minilm_job_set(struct minilm_job *j, uint32_t sentence, const int32_t *ids, uint32_t n);

/* Returns 0, or a code of kops.h; kops_error() explains it. */
int minilm_job_run(struct minilm_job *j);

/* The vectors of the last run, one after the other, each of MINILM_WIDTH elements and of length 1. */
const void *minilm_job_vectors(const struct minilm_job *j);
kops_dtype minilm_dtype(const struct minilm *m);

#endif
