/* layout.c: the layout, the copies and the job of a product. */
#include "layout.h"

#include <string.h>

#define REGION_ALIGN_BYTES 256
#define LINE_BYTES         64 /* long columns begin at multiples of this: some kernels read 16 bytes at once */
#define LONG_BYTES         1024
#define BLOCKS_MAX         8 /* blocks of a triangle: at most an eighth is computed in vain */
#define BLOCK_COLS         256
#define EXPECTED_BYTES     (UINT64_C(4) << 20) /* least result whose pages are got ahead */

/* ---- The layout ---- */

/* Puts a matrix in the next bytes. Returns false if no memory could be so large. */
static bool lay(struct layout *l, const struct product *p, int64_t rows, int64_t cols, struct region *region)
{
	region->place = NULL;
	uint64_t element = kops_dtype_size(p->dtype), line = LINE_BYTES / element, bytes;
	region->rows = (uint64_t)rows;
	region->cols = (uint64_t)cols;
	region->ld =
	    region->rows * element < LONG_BYTES ? region->rows : (region->rows + line - 1) / line * line;
	if (rows == 1 && cols == 1)
		region->ld = 2; /* so that kopsd sees which way it is transposed */
	region->offset = l->bytes;
	if (__builtin_mul_overflow(region->ld, region->cols, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)product_count(p), &bytes) ||
	    __builtin_mul_overflow(bytes, element, &bytes) || bytes > INT64_MAX - REGION_ALIGN_BYTES ||
	    __builtin_add_overflow(l->bytes, bytes, &l->bytes))
		return false;
	l->bytes = (l->bytes + REGION_ALIGN_BYTES - 1) / REGION_ALIGN_BYTES * REGION_ALIGN_BYTES;
	return l->bytes <= INT64_MAX;
}

/* Takes a matrix where the caller has it, if it has a place; else lays it. */
static bool put(struct layout *l, const struct product *p, const struct operand *matrix,
                const struct place *place, int64_t rows, int64_t cols, struct region *region)
{
	if (!place->part.block)
		return lay(l, p, rows, cols, region);
	*region = (struct region){.rows = (uint64_t)rows,
	                          .cols = (uint64_t)cols,
	                          .ld = (uint64_t)matrix->ld,
	                          .offset = (uint64_t)((const char *)matrix->data - place->part.base),
	                          .place = place};
	return true;
}

static bool put_a(struct layout *l, const struct product *p, const struct places *places)
{
	return put(l, p, &p->a, &places->a, product_rows_of_a(p), product_cols_of_a(p), &l->a);
}

static bool put_b(struct layout *l, const struct product *p, const struct places *places)
{
	if (!p->b_is_a)
		return put(l, p, &p->b, &places->b, product_rows_of_b(p), product_cols_of_b(p), &l->b);
	l->b = l->a;
	return true;
}

bool layout_make(const struct product *p, const struct places *places, bool b_first, struct layout *ret)
{
	*ret = (struct layout){0};
	if (!(b_first ? put_b : put_a)(ret, p, places))
		return false;
	ret->first_bytes = ret->bytes;
	return (b_first ? put_a : put_b)(ret, p, places) && put(ret, p, &p->c, &places->c, p->m, p->n, &ret->c);
}

/* ---- Copies ---- */

static uint64_t step_bytes(const struct product *p, const struct region *region)
{
	return region->ld * region->cols * kops_dtype_size(p->dtype);
}

/* Matrices of the caller, and where to copy them to or from. */
struct copies {
	const struct product *product;
	const struct operand *operand;
	const struct region *region;
	char *memory;
};

/* The caller's matrix is const here only because operands are. */
static char *its_matrix(const struct copies *c, uint64_t i)
{
	return (char *)(c->operand->each ? c->operand->each[i] : c->operand->data);
}

static char *region_at(const struct copies *c, uint64_t i)
{
	return c->memory + c->region->offset + i * step_bytes(c->product, c->region);
}

static bool is_hermitian(const struct copies *c)
{
	return c->product->hermitian && c->operand->triangle != WHOLE;
}

static void load_one(void *ctx, uint64_t i)
{
	const struct copies *c = ctx;
	const struct copy copy = {.to = region_at(c, i),
	                          .from = its_matrix(c, i),
	                          .to_ld = c->region->ld,
	                          .from_ld = (uint64_t)c->operand->ld,
	                          .rows = c->region->rows,
	                          .cols = c->region->cols,
	                          .element = kops_dtype_size(c->product->dtype),
	                          .hermitian = c->product->hermitian};
	if (c->operand->triangle == WHOLE || c->operand == &c->product->c)
		copy_matrix(&copy, c->operand->triangle);
	else
		copy_symmetric(&copy, c->operand->triangle);
	if (is_hermitian(c))
		copy_make_diagonal_real(copy.to, copy.to_ld, copy.cols, copy.element);
}

static void store_one(void *ctx, uint64_t i)
{
	const struct copies *c = ctx;
	const struct copy copy = {.to = its_matrix(c, i),
	                          .from = region_at(c, i),
	                          .to_ld = (uint64_t)c->operand->ld,
	                          .from_ld = c->region->ld,
	                          .rows = c->region->rows,
	                          .cols = c->region->cols,
	                          .element = kops_dtype_size(c->product->dtype)};
	copy_matrix(&copy, c->operand->triangle);
	if (is_hermitian(c))
		copy_make_diagonal_real(copy.to, copy.to_ld, copy.cols, copy.element);
}

void layout_load(const struct product *p, const struct operand *from, const struct region *to, char *memory)
{
	struct copies copies = {p, from, to, memory};
	if (!to->place)
		copy_each((uint64_t)product_count(p), step_bytes(p, to), load_one, &copies);
}

void layout_store(const struct product *p, const struct region *c, const char *memory)
{
	struct copies copies = {p, &p->c, c, (char *)memory};
	copy_each((uint64_t)product_count(p), step_bytes(p, c), store_one, &copies);
}

/* Not the pages of a matrix that lies between much else, which may have none, nor those that were read. */
void layout_expect(const struct product *p)
{
	uint64_t element = kops_dtype_size(p->dtype), used = (uint64_t)p->m * (uint64_t)p->n * element, reach;
	if (p->batch > 0 || p->beta != 0 ||
	    __builtin_mul_overflow((uint64_t)p->c.ld, (uint64_t)p->n - 1, &reach) ||
	    __builtin_add_overflow(reach, (uint64_t)p->m, &reach) ||
	    __builtin_mul_overflow(reach, element, &reach))
		return;
	if (used >= EXPECTED_BYTES && reach - used <= used / 4)
		copy_get_pages((void *)(uintptr_t)p->c.data, reach);
}

/* ---- The job ---- */

/*
 * Returns the view of a part of a matrix from element `begin`: by rows of the transposed one, or with `across`
 * by its columns.
 */
static kops_view view_of(const struct product *p, kops_buffer *buffer, const struct region *region,
                         uint64_t begin, uint64_t rows, uint64_t cols, bool across)
{
	unsigned first = p->batch > 0; /* index of the row axis */
	kops_view view = {
	    .buffer = region->place ? region->place->buffer : buffer, .dtype = p->dtype, .rank = first + 2};
	view.offset = region->offset + begin * kops_dtype_size(p->dtype);
	view.shape[0] = (uint64_t)p->batch;
	view.strides[0] = (int64_t)(region->ld * region->cols);
	view.shape[first] = rows;
	view.shape[first + 1] = cols;
	view.strides[first] = across ? 1 : (int64_t)region->ld;
	view.strides[first + 1] = across ? (int64_t)region->ld : 1;
	return view;
}

/* a, b: of kops, which are op(b)' and op(a)' of the product. */
static int add_complex(kops_job *job, const struct product *p, kops_view a, kops_view b, kops_view c)
{
	const kops_operand operands[] = {
	    {.name = "a", .view = a}, {.name = "b", .view = b}, {.name = "c", .view = c}};
	const kops_attribute attributes[] = {
	    {.name = "alpha", .value = creal(p->alpha)},    {.name = "alpha_imag", .value = cimag(p->alpha)},
	    {.name = "beta", .value = creal(p->beta)},      {.name = "beta_imag", .value = cimag(p->beta)},
	    {.name = "conj_a", .value = p->conj_b ? 1 : 0}, {.name = "conj_b", .value = p->conj_a ? 1 : 0},
	};
	return kops_job_op(job, "gemm", operands, sizeof operands / sizeof operands[0], attributes,
	                   sizeof attributes / sizeof attributes[0], NULL);
}

/* Adds an op for rows i0 to i1 and columns j0 to j1 of c. */
static int add_block(kops_job *job, kops_buffer *buffer, const struct product *p, const struct layout *l,
                     uint64_t i0, uint64_t i1, uint64_t j0, uint64_t j1)
{
	uint64_t k = (uint64_t)p->k;
	kops_view b = view_of(p, buffer, &l->b, p->trans_b ? j0 : j0 * l->b.ld, j1 - j0, k, p->trans_b);
	kops_view a = view_of(p, buffer, &l->a, p->trans_a ? i0 * l->a.ld : i0, k, i1 - i0, p->trans_a);
	kops_view c = view_of(p, buffer, &l->c, j0 * l->c.ld + i0, j1 - j0, i1 - i0, false);
	if (product_is_complex(p))
		return add_complex(job, p, b, a, c);
	return kops_job_gemm(job, creal(p->alpha), b, a, creal(p->beta), c, KOPS_PRECISION_F32, NULL);
}

static int add_triangle(kops_job *job, kops_buffer *buffer, const struct product *p, const struct layout *l)
{
	uint64_t n = (uint64_t)p->n, blocks = (n + BLOCK_COLS - 1) / BLOCK_COLS;
	int status = 0;
	if (blocks > BLOCKS_MAX)
		blocks = BLOCKS_MAX;
	for (uint64_t i = 0; i < blocks && status == 0; i++) {
		uint64_t j0 = n / blocks * i, j1 = i + 1 == blocks ? n : n / blocks * (i + 1);
		bool upper = p->c.triangle == UPPER;
		status = add_block(job, buffer, p, l, upper ? 0 : j0, upper ? j1 : n, j0, j1);
	}
	return status;
}

static uint64_t block_of(const struct region *region)
{
	return region->place ? region->place->part.block : 0;
}

static void make_key(const struct product *p, const struct layout *l, uint32_t queue, struct job_key *ret_key)
{
	memset(ret_key, 0, sizeof *ret_key);
	ret_key->batch = (uint64_t)p->batch;
	ret_key->m = (uint64_t)p->m;
	ret_key->n = (uint64_t)p->n;
	ret_key->k = (uint64_t)p->k;
	ret_key->a = l->a.offset;
	ret_key->b = l->b.offset;
	ret_key->c = l->c.offset;
	ret_key->a_block = block_of(&l->a);
	ret_key->b_block = block_of(&l->b);
	ret_key->c_block = block_of(&l->c);
	ret_key->alpha[0] = creal(p->alpha);
	ret_key->alpha[1] = cimag(p->alpha);
	ret_key->beta[0] = creal(p->beta);
	ret_key->beta[1] = cimag(p->beta);
	ret_key->dtype = p->dtype;
	ret_key->queue = queue;
	ret_key->shape = (uint32_t)(p->trans_a | p->trans_b << 1) | (uint32_t)p->c.triangle << 2 |
	                 (uint32_t)p->conj_a << 8 | (uint32_t)p->conj_b << 9;
}

kops_job *layout_submit(struct channel *channel, kops_buffer *buffer, const struct product *p,
                        const struct layout *l, uint32_t queue)
{
	struct job_key key;
	bool is_new;
	make_key(p, l, queue, &key);
	kops_job *job = channel_job(channel, &key, &is_new);
	if (!job)
		return NULL;
	int status = 0;
	if (is_new && p->c.triangle == WHOLE)
		status = add_block(job, buffer, p, l, 0, (uint64_t)p->m, 0, (uint64_t)p->n);
	else if (is_new)
		status = add_triangle(job, buffer, p, l);
	if (status == 0)
		status = kops_submit(job, NULL, NULL);
	if (status == 0)
		return job;
	channel_drop(channel, job);
	return NULL;
}
