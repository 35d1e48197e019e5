/* shapes_linalg.c: makes shapes of matrices to be factored and solved. See shapes.c. */
#include "check.h"
#include "cholesky/cholesky.h"
#include "lu/operands.h"
#include "triangular_solve/operands.h"

/* Returns a type for ops of linear algebra. */
static kops_dtype random_linalg(struct random *r)
{
	if (random_chance(r, 50))
		return shaper_complex(r);
	return random_chance(r, 50) ? KOPS_F32 : KOPS_F64;
}

/* Makes batches and an order for square matrices, among which are many small ones. Returns the rank. */
static uint32_t square_shape(uint64_t shape[KOPS_RANK_MAX], bool large, struct random *r)
{
	uint32_t rank = 2 + (uint32_t)random_below(r, 3);
	uint64_t n = large                  ? 300 + random_below(r, 500)
	             : random_chance(r, 50) ? shaper_extent(r)
	                                    : random_below(r, 70);

	n = !large && n > 200 ? n % 200 : n;
	for (uint32_t d = 0; d + 2 < rank; d++)
		shape[d] = random_chance(r, 5) ? 0 : 1 + random_below(r, n < 20 ? 40 : 3);
	shape[rank - 2] = shape[rank - 1] = n;
	return rank;
}

void shaper_cholesky(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_linalg(r);
	uint64_t shape[KOPS_RANK_MAX], one = 1;
	uint32_t rank = square_shape(shape, p->large, r);

	p->args.views[CHOLESKY_A] = shaper_view(dtype, rank, shape, false, r);
	p->args.views[CHOLESKY_FACTOR] = shaper_view(dtype, rank, shape, true, r);
	if (random_chance(r, 80))
		p->args.views[CHOLESKY_INFO] =
		    shaper_view(KOPS_I32, rank > 2 ? rank - 2 : 1, rank > 2 ? shape : &one, true, r);
	for (unsigned i = 0; i < p->args.op->n_attributes; i++)
		op_set_attribute(&p->args, i, (double)random_below(r, 2));
}

void shaper_triangular_solve(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_linalg(r);
	uint64_t shape[KOPS_RANK_MAX];
	uint32_t rank = square_shape(shape, p->large, r), fewer = random_chance(r, 30) ? rank - 2 : 0;
	uint64_t columns = random_chance(r, 30) ? 1 : shaper_extent(r);
	bool right = random_chance(r, 40);

	p->args.views[SOLVE_A] = shaper_view(dtype, rank - fewer, shape + fewer, false, r);
	if (fewer == 0 && rank > 2 && random_chance(r, 20))
		p->args.views[SOLVE_A].shape[0] = 1;
	while (columns > 1 && shape[0] * (rank > 3 ? shape[1] : 1) * shape[rank - 1] * columns > 1 << 17)
		columns = columns / 2 + 1 < columns ? columns / 2 + 1 : 1;
	shape[right ? rank - 2 : rank - 1] = columns;
	p->args.views[SOLVE_B] = shaper_view(dtype, rank, shape, false, r);
	p->args.views[SOLVE_X] = shaper_view(dtype, rank, shape, true, r);
	for (unsigned flag = SOLVE_UPPER; flag <= SOLVE_CONJ; flag++)
		p->args.params.plain.flags[flag] = random_chance(r, 50);
	p->args.params.plain.flags[SOLVE_RIGHT] = right;
}

void shaper_lu(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_linalg(r);
	uint64_t shape[KOPS_RANK_MAX], m, n, k, one = 1;
	uint32_t rank = square_shape(shape, p->large, r);

	if (random_chance(r, 60))
		shape[rank - 1 - random_below(r, 2)] = 1 + random_below(r, 100);
	m = shape[rank - 2];
	n = shape[rank - 1];
	k = m < n ? m : n;
	p->args.views[LU_A] = shaper_view(dtype, rank, shape, false, r);
	p->args.views[LU_LU] = shaper_view(dtype, rank, shape, true, r);
	shape[rank - 2] = k;
	if (random_chance(r, 90))
		p->args.views[LU_PIVOTS] = shaper_view(KOPS_I32, rank - 1, shape, true, r);
	if (random_chance(r, 80))
		p->args.views[LU_INFO] =
		    shaper_view(KOPS_I32, rank > 2 ? rank - 2 : 1, rank > 2 ? shape : &one, true, r);
}
