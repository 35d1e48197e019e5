/*
 * minilm.c: the model, as a job. N. Reimers, I. Gurevych, "Sentence-BERT", 2019; W. Wang et al., "MiniLM",
 * 2020.
 */
#include "minilm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 6, HEADS = 12, WIDTH = MINILM_WIDTH, DEPTH = WIDTH / HEADS, WIDE = 4 * WIDTH };
enum { WEIGHTS_MAX = 5 + 12 * LAYERS, NAME_BYTES = 300 };

#define EPS 1e-12

struct minilm {
	kops *k;
	char name[256];
	uint64_t tokens; /* of the largest batch */
	kops_dtype dtype;
	kops_buffer *scratch; /* what layers hand on */
	struct {
		char name[NAME_BYTES];
		kops_view view;
	} weights[WEIGHTS_MAX];
	size_t n_weights;
};

struct minilm_job {
	struct minilm *m;
	uint32_t batch, length;
	kops_job *job;
	kops_buffer *ids, *lengths, *mask, *vectors;
	int status; /* of the first call that failed, after which others do nothing */
};

/* ---- Weights ---- */

/* Returns the weight of this name, attached when it is first used. */
static int find_weight(struct minilm *m, const char *name, kops_view *ret_view)
{
	kops_buffer *buffer;
	char whole[NAME_BYTES];
	size_t i = 0;
	int status;

	snprintf(whole, sizeof whole, "%s/%s", m->name, name);
	while (i < m->n_weights && strcmp(m->weights[i].name, whole) != 0)
		i++;
	if (i == m->n_weights) {
		if ((status = kops_attach(m->k, geteuid(), whole, &buffer)) < 0)
			return status;
		memcpy(m->weights[i].name, whole, sizeof whole);
		m->weights[i].view = kops_attached_view(buffer);
		m->n_weights++;
	}
	*ret_view = m->weights[i].view;
	return 0;
}

int minilm_attach(kops *k, const char *name, uint32_t batch, uint32_t length, struct minilm **ret_model)
{
	struct minilm *m = calloc(1, sizeof *m);
	kops_view words;
	int status = KOPS_E_NOMEM;

	if (!m)
		return status;
	m->k = k;
	m->tokens = (uint64_t)batch * length;
	snprintf(m->name, sizeof m->name, "%s", name);
	if ((status = find_weight(m, "words", &words)) < 0)
		goto fail;
	m->dtype = words.dtype;
	status = kops_alloc(k, m->tokens * (2 * WIDTH + WIDE) * kops_dtype_size(m->dtype), KOPS_RESIDENT,
	                    kops_buffer_device(words.buffer), &m->scratch);
	if (status < 0)
		goto fail;
	*ret_model = m;
	return 0;
fail:
	free(m);
	return status;
}

void minilm_free(struct minilm *m)
{
	free(m);
}

kops_dtype minilm_dtype(const struct minilm *m)
{
	return m->dtype;
}

/* ---- The job ---- */

static kops_view weight_of(struct minilm_job *j, const char *name)
{
	kops_view view = {0};

	if (j->status == 0)
		j->status = find_weight(j->m, name, &view);
	return view;
}

static kops_view of_layer(struct minilm_job *j, int layer, const char *name, const char *part)
{
	char whole[64];

	snprintf(whole, sizeof whole, "%d.%s.%s", layer, name, part);
	return weight_of(j, whole);
}

static void add(struct minilm_job *j, const char *op, const kops_operand *operands, size_t n_operands,
                const char *attribute, double value, const char *choice)
{
	kops_attribute a = {attribute, value, choice};

	if (j->status == 0)
		j->status = kops_job_op(j->job, op, operands, n_operands, &a, attribute ? 1 : 0, NULL);
}

/* y = x * weight + bias, or gelu of that. */
static void add_linear(struct minilm_job *j, kops_view x, int layer, const char *name, kops_view y,
                       const char *activation)
{
	const kops_operand operands[] = {{"a", x},
	                                 {"b", of_layer(j, layer, name, "weight")},
	                                 {"bias", of_layer(j, layer, name, "bias")},
	                                 {"c", y}};

	add(j, "gemm", operands, 4, "activation", 0, activation);
}

static void add_norm(struct minilm_job *j, kops_view x, kops_view residual, kops_view weight, kops_view bias,
                     kops_view y)
{
	const kops_operand operands[] = {
	    {"x", x}, {"weight", weight}, {"bias", bias}, {"residual", residual}, {"y", y}};

	add(j, "layer_norm", operands, 5, "eps", EPS, NULL);
}

/* The rows of all tokens, `columns` wide, from element `at` of each row's part of the scratch memory. */
static kops_view rows_of(const struct minilm_job *j, uint64_t at, uint64_t columns)
{
	uint64_t rows = (uint64_t)j->batch * j->length, size = kops_dtype_size(j->m->dtype);

	return kops_matrix(j->m->scratch, rows * at * size, j->m->dtype, rows, columns, 0);
}

/* The same by sentences: [batch, length, columns]. */
static kops_view by_sentence(const struct minilm_job *j, kops_view rows)
{
	const uint64_t shape[] = {j->batch, j->length, rows.shape[1]};

	return kops_tensor(rows.buffer, rows.offset, rows.dtype, 3, shape);
}

/* The same by heads, from this column on: [batch, heads, length, depth]. */
static kops_view by_heads(const struct minilm_job *j, kops_view rows, uint64_t column)
{
	int64_t pitch = rows.strides[0];

	return (kops_view){.buffer = rows.buffer,
	                   .offset = rows.offset + column * kops_dtype_size(rows.dtype),
	                   .dtype = rows.dtype,
	                   .rank = 4,
	                   .shape = {j->batch, HEADS, j->length, DEPTH},
	                   .strides = {j->length * pitch, DEPTH, pitch, 1}};
}

static void add_attention(struct minilm_job *j, kops_view qkv, kops_view o)
{
	const uint64_t batch = j->batch;
	const kops_operand operands[] = {{"q", by_heads(j, qkv, 0)},
	                                 {"k", by_heads(j, qkv, WIDTH)},
	                                 {"v", by_heads(j, qkv, (uint64_t)2 * WIDTH)},
	                                 {"lengths", kops_tensor(j->lengths, 0, KOPS_I32, 1, &batch)},
	                                 {"o", by_heads(j, o, 0)}};

	add(j, "attention", operands, 5, NULL, 0, NULL);
}

static void add_layer(struct minilm_job *j, int i, kops_view x, kops_view y)
{
	kops_view qkv = rows_of(j, 2 * WIDTH, 3 * WIDTH), attended = rows_of(j, 5 * WIDTH, WIDTH);
	kops_view wide = rows_of(j, 2 * WIDTH, WIDE); /* where qkv and attended are */

	add_linear(j, x, i, "qkv", qkv, "none");
	add_attention(j, qkv, attended);
	add_linear(j, attended, i, "attended", y, "none");
	add_norm(j, y, x, of_layer(j, i, "attended.norm", "weight"), of_layer(j, i, "attended.norm", "bias"),
	         x);
	add_linear(j, x, i, "wide", wide, "gelu");
	add_linear(j, wide, i, "narrow", y, "none");
	add_norm(j, y, x, of_layer(j, i, "narrow.norm", "weight"), of_layer(j, i, "narrow.norm", "bias"), x);
}

static void add_words(struct minilm_job *j, kops_view x)
{
	kops_view positions = weight_of(j, "positions");
	const kops_operand operands[] = {{"x", weight_of(j, "words")},
	                                 {"indices", kops_matrix(j->ids, 0, KOPS_I32, j->batch, j->length, 0)},
	                                 {"y", x}};

	positions.shape[0] = j->length;
	add(j, "gather", operands, 3, NULL, 0, NULL);
	add_norm(j, x, positions, weight_of(j, "norm.weight"), weight_of(j, "norm.bias"), x);
}

/* The vectors: along the mean of the tokens of x, of length 1. */
static void add_mean(struct minilm_job *j, kops_view x, kops_view y)
{
	const uint64_t masks[] = {j->batch, 1, j->length}, totals[] = {j->batch, 1, WIDTH};
	kops_view total = kops_tensor(y.buffer, y.offset, y.dtype, 3, totals);
	const kops_operand sum[] = {{"a", kops_tensor(j->mask, 0, x.dtype, 3, masks)}, {"b", x}, {"c", total}};
	const kops_operand norm[] = {{"x", total},
	                             {"weight", weight_of(j, "unit")},
	                             {"y", kops_tensor(j->vectors, 0, x.dtype, 3, totals)}};

	add(j, "gemm", sum, 3, NULL, 0, NULL);
	add(j, "rms_norm", norm, 3, "eps", 0, NULL);
}

static void add_model(struct minilm_job *j)
{
	kops_view x = rows_of(j, 0, WIDTH), y = rows_of(j, WIDTH, WIDTH);

	add_words(j, by_sentence(j, x));
	for (int i = 0; i < LAYERS; i++)
		add_layer(j, i, x, y);
	add_mean(j, by_sentence(j, x), y);
}

static void allocate(struct minilm_job *j, uint64_t elements, size_t size, kops_buffer **ret_buffer)
{
	if (j->status == 0)
		j->status = kops_alloc(j->m->k, elements * size, KOPS_SHARED, NULL, ret_buffer);
}

int minilm_job_new(struct minilm *m, uint32_t batch, uint32_t length, struct minilm_job **ret_job)
{
	struct minilm_job *j;
	uint64_t tokens = (uint64_t)batch * length;
	size_t size = kops_dtype_size(m->dtype);
	int status;

	if (tokens == 0 || tokens > m->tokens || length > MINILM_LENGTH_MAX)
		return KOPS_E_RANGE;
	j = calloc(1, sizeof *j);
	if (!j)
		return KOPS_E_NOMEM;
	*j = (struct minilm_job){.m = m, .batch = batch, .length = length};
	j->status = kops_job_new(m->k, NULL, &j->job);
	allocate(j, tokens, sizeof(int32_t), &j->ids);
	allocate(j, batch, sizeof(int32_t), &j->lengths);
	allocate(j, tokens, size, &j->mask);
	allocate(j, (uint64_t)batch * WIDTH, size, &j->vectors);
	add_model(j);
	if (j->status == 0)
		j->status = kops_job_prepare(j->job);
	if (j->status < 0) {
		status = j->status;
		minilm_job_free(j);
		return status;
	}
	for (uint32_t i = 0; i < batch; i++)
		minilm_job_set(j, i, NULL, 0);
	*ret_job = j;
	return 0;
}

void minilm_job_free(struct minilm_job *j)
{
	if (!j)
		return;
	kops_job_free(j->job);
	kops_free(j->ids);
	kops_free(j->lengths);
	kops_free(j->mask);
	kops_free(j->vectors);
	free(j);
}

/* ---- Its use ---- */

void minilm_job_set(struct minilm_job *j, uint32_t sentence, const int32_t *ids, uint32_t n)
{
	static const int32_t nothing[] = {0};
	size_t first = (size_t)sentence * j->length;
	int32_t *to = (int32_t *)kops_data(j->ids) + first;
	const bool is_f16 = j->m->dtype == KOPS_F16;

	if (n == 0)
		ids = nothing, n = 1;
	((int32_t *)kops_data(j->lengths))[sentence] = (int32_t)n;
	memset(to, 0, j->length * sizeof *to);
	memcpy(to, ids, n * sizeof *to);
	for (uint32_t i = 0; i < j->length; i++)
		if (is_f16)
			((uint16_t *)kops_data(j->mask))[first + i] = i < n ? 0x3c00 : 0; /* 1 */
		else
			((float *)kops_data(j->mask))[first + i] = i < n ? 1 : 0;
}

int minilm_job_run(struct minilm_job *j)
{
	return kops_run(j->job);
}

const void *minilm_job_vectors(const struct minilm_job *j)
{
	return kops_data(j->vectors);
}
