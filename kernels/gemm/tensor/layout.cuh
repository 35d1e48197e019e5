/* layout.cuh: how the operands of a product on tensor cores lie in memory, and its tiles. */
#ifndef KOPS_KERNELS_GEMM_TENSOR_LAYOUT_H
#define KOPS_KERNELS_GEMM_TENSOR_LAYOUT_H

#include "gemm/tensor/form.cuh"

namespace
{

constexpr uint64_t EXTENT_MAX = 1 << 30, TILES_MAX = 1u << 31;
constexpr uint64_t OVERLAP_DEPTH_MAX = 1024;

/* LOOSE: lines of neighbours that begin anywhere. ALIGNED: at multiples of 16 bytes, as the copy engine wants
 * them. */
enum class placing { NONE, LOOSE, ALIGNED };

/* An operand as `extent` lines along K, or K lines across; C: as m lines along n. */
struct layout {
	uint64_t length, count;
	int64_t apart;
	bool across;
	placing lies;
};

inline placing placing_of(const gemm_operand &o, uint64_t batch, uint64_t length, uint64_t count, int64_t along,
                          int64_t apart, int bytes)
{
	if (length > 1 && along != 1)
		return placing::NONE;
	if ((uintptr_t)o.data % 16 != 0 || (count > 1 && !map_stride(apart, bytes)) ||
	    (batch > 1 && o.batch != 0 && !map_stride(o.batch, bytes)))
		return placing::LOOSE;
	return placing::ALIGNED;
}

inline layout layout_of(const gemm_operand &o, uint64_t batch, uint64_t extent, uint64_t k,
                        int64_t extent_stride, int64_t k_stride, int bytes)
{
	layout along = {k, extent, extent_stride, false,
	                placing_of(o, batch, k, extent, k_stride, extent_stride, bytes)};
	layout across = {extent, k, k_stride, true,
	                 placing_of(o, batch, extent, k, extent_stride, k_stride, bytes)};

	return across.lies > along.lies ? across : along;
}

/* A product as the kernel does it. */
struct mapped_product {
	gemm_problem p;
	layout a, b, c; /* c.across: its lines are along M */
	int bytes;      /* of an element */
};

inline mapped_product mapped_product_of(const gemm_problem &p, int bytes)
{
	return {p, layout_of(p.a, p.batch, p.m, p.k, p.a.row, p.a.col, bytes),
	        layout_of(p.b, p.batch, p.n, p.k, p.b.col, p.b.row, bytes),
	        layout_of(p.c, p.batch, p.m, p.n, p.c.row, p.c.col, bytes), bytes};
}

inline bool is_tf32(const mapped_product &mapped)
{
	return mapped.bytes == sizeof(float);
}

/* C by rows; but tf32 may lie across only in A. */
inline mapped_product mapped_product_of(const op_args *args, const gemm_problem &given)
{
	gemm_problem rows = gemm_by_rows(&given);
	mapped_product mapped = mapped_product_of(rows, (int)dtype_size(args->views[0].dtype));

	if (mapped.c.across) /* one column of neighbours */
		mapped = mapped_product_of(gemm_transposed(&mapped.p), mapped.bytes);
	if (is_tf32(mapped) && mapped.b.across)
		mapped = mapped_product_of(gemm_transposed(&mapped.p), mapped.bytes);
	return mapped;
}

/* Addresses are not known yet when a plan is made, but how they are aligned is. */
inline mapped_product planned_product_of(const op_args *args)
{
	gemm_problem p = gemm_problem_of(args);
	const struct {
		gemm_operand *operand;
		unsigned view;
	} operands[] = {{&p.a, GEMM_A}, {&p.b, GEMM_B}, {&p.c, GEMM_C}};

	for (const auto &o : operands)
		o.operand->data = (void *)(uintptr_t)(args->views[o.view].offset % 16);
	return mapped_product_of(args, p);
}

inline work work_of(const mapped_product &mapped, const op_args *args)
{
	const gemm_problem &p = mapped.p;
	unsigned depth = LINE_BYTES / mapped.bytes;
	work w = {};

	w.c_at = p.c;
	w.to_c = epilogue_of<float>(args, p);
	w.m = (unsigned)p.m;
	w.n = (unsigned)p.n;
	w.k_tiles = ((unsigned)p.k + depth - 1) / depth;
	w.a_batch = p.a.batch != 0;
	w.b_batch = p.b.batch != 0;
	/* Longer sums take longer than what it saves. */
	w.overlap = mapped.c.lies == placing::LOOSE && p.k <= OVERLAP_DEPTH_MAX;
	return w;
}

/* Clusters of a cut: so many at a time, so many times. */
struct waves {
	unsigned clusters, count;
};

template <class CUT> waves count_tiles(work *w, uint64_t batch, int multiprocessors)
{
	constexpr unsigned ROWS = CUT::ROWS * CUT::BELOW;
	unsigned step = CUT::SPLITS > 1 ? CUT::COLS : tile_step<CUT>(*w);
	unsigned most = multiprocessors > CUT::SHARERS ? (unsigned)(multiprocessors / CUT::SHARERS) : 1;

	w->row_tiles = (w->m + ROWS - 1) / ROWS;
	w->col_tiles = w->n > CUT::COLS ? (w->n - CUT::COLS + step - 1) / step + 1 : 1;
	w->col_tiles = (w->col_tiles + CUT::BESIDE - 1) / CUT::BESIDE;
	w->tiles = (unsigned)batch * w->row_tiles * w->col_tiles;
	unsigned count = w->tiles / most + (w->tiles % most != 0);
	return {count ? w->tiles / count + (w->tiles % count != 0) : 0, count};
}

} // namespace

#endif
