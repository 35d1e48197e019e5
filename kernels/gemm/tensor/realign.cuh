/*
 * realign.cuh: how tiles of 16-bit operands whose lines begin anywhere get into the stages of a product on
 * tensor cores.
 *
 * The copy engine wants lines at multiples of 16 bytes. Every eighth line of a matrix is a multiple of 16 bytes
 * behind the first. So an operand is eight matrices, its classes, each with lines that begin equally far behind
 * a multiple of 16 bytes. A warp for each class has the copy engine bring boxes of it, from that multiple on,
 * and shifts their pieces of 16 bytes to where the tensor cores expect them.
 */
#ifndef KOPS_KERNELS_GEMM_TENSOR_REALIGN_H
#define KOPS_KERNELS_GEMM_TENSOR_REALIGN_H

#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "gemm/shift.cuh"
#include "gemm/tensor/layout.cuh"

namespace
{

constexpr unsigned CLASSES = 8;

/* An operand by classes. */
struct classes {
	CUtensorMap maps[CLASSES];
	uint8_t shifts[CLASSES]; /* numbers between where a map's lines begin and the operand's */
	unsigned count;          /* fewer than CLASSES only if there are fewer lines */
	unsigned box_bytes;
	unsigned batch; /* 0: one matrix serves all */
};

/* How a class of EXTENT rows of A or columns of B, DEPTH of K, comes, if all of them are there. */
template <int EXTENT, bool ACROSS_, int DEPTH> struct class_box {
	static constexpr bool ACROSS = ACROSS_;
	static constexpr int LINES = ACROSS ? DEPTH : EXTENT, LENGTH = ACROSS ? EXTENT : DEPTH;
	static constexpr int BOX_LINES = LINES / (int)CLASSES, PIECES = LENGTH / PIECE_ELEMENTS;
	/* The piece more is for what the last one lacks by the shift. */
	static constexpr int BOX_LENGTH = LENGTH + PIECE_ELEMENTS, PITCH = BOX_LENGTH * 2;
	static constexpr int BYTES = BOX_LINES * PITCH;
	static_assert(BYTES % 128 == 0, "boxes lie at multiples of 128 bytes");
};

/* False where the copy engine cannot. */
template <class BOX> bool map_classes(classes *ret, const gemm_operand &o, const layout &l, uint64_t batch)
{
	/* Behind K's end zeros are to come, but not behind the last row or column. */
	uint64_t lines_there = (l.count + CLASSES - 1) / CLASSES;
	unsigned lines = !BOX::ACROSS && lines_there < BOX::BOX_LINES ? (unsigned)lines_there : BOX::BOX_LINES;

	ret->count = l.count < CLASSES ? (unsigned)l.count : CLASSES;
	ret->box_bytes = lines * BOX::PITCH;
	ret->batch = o.batch != 0;
	for (unsigned c = 0; c < ret->count; c++) {
		uintptr_t first = (uintptr_t)o.data + (uintptr_t)(c * l.apart * 2), shift = first % PIECE_BYTES;

		ret->shifts[c] = (uint8_t)(shift / 2);
		if (!map_lines(&ret->maps[c], CU_TENSOR_MAP_DATA_TYPE_UINT16, (void *)(first - shift),
		               {l.length + shift / 2, (l.count - c + CLASSES - 1) / CLASSES, batch,
		                l.apart * CLASSES, o.batch},
		               BOX::BOX_LENGTH, lines, CU_TENSOR_MAP_SWIZZLE_NONE))
			return false;
	}
	return true;
}

#ifdef KOPS_HOPPER

/* Brings this warp's class of a tile, whose first row or column, and place in K, are these. */
template <class BOX>
__device__ __forceinline__ void fetch_class(uint32_t to, const classes &o, unsigned outer, unsigned k,
                                            unsigned batch, uint32_t barrier)
{
	unsigned line = BOX::ACROSS ? k : outer, at = BOX::ACROSS ? outer : k;

	hopper::copy_box(to, &o.maps[threadIdx.x / 32], (int)at, (int)(line / CLASSES), (int)(batch * o.batch),
	                 barrier);
}

/* The piece that begins WORD words and, if odd, one number more into these two. */
template <int WORD> __device__ __forceinline__ float4 piece_within(float4 low, float4 high, bool odd)
{
	const uint32_t w[8] = {__float_as_uint(low.x),  __float_as_uint(low.y),  __float_as_uint(low.z),
	                       __float_as_uint(low.w),  __float_as_uint(high.x), __float_as_uint(high.y),
	                       __float_as_uint(high.z), __float_as_uint(high.w)};
	float v[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		v[i] = __uint_as_float(__funnelshift_r(w[WORD + i], w[WORD + i + 1], odd ? 16 : 0));
	return make_float4(v[0], v[1], v[2], v[3]);
}

/* This warp's class of a tile on its way. In each round, its lanes have all pieces of some lines. */
template <class BOX> struct shifter {
	static constexpr int LINES_AT_ONCE = 32 / BOX::PIECES, ROUNDS = BOX::BOX_LINES / LINES_AT_ONCE;
	static constexpr int LINES_APART = LINES_AT_ONCE * (int)CLASSES;
	static_assert(BOX::BOX_LINES % LINES_AT_ONCE == 0 && CLASSES * LINE_BYTES == 1024);
	float4 low[ROUNDS], high[ROUNDS];
	int piece, in_class, line, rounds;

	/* outer_there: rows or columns that C has here; at others anything may come. What is not there along K
	 * are zeros, by the copy engine. */
	__device__ __forceinline__ explicit shifter(int outer_there)
	    : piece(threadIdx.x % BOX::PIECES), in_class(threadIdx.x % 32 / BOX::PIECES),
	      line(in_class * (int)CLASSES + threadIdx.x / 32)
	{
		rounds = BOX::ACROSS ? (piece * PIECE_ELEMENTS < outer_there ? ROUNDS : 0)
		                     : (outer_there - line + LINES_APART - 1) / LINES_APART;
	}
	__device__ __forceinline__ void load(uint32_t box)
	{
		uint32_t source = box + in_class * BOX::PITCH + piece * PIECE_BYTES;

#pragma unroll
		for (int i = 0; i < ROUNDS; i++, source += LINES_AT_ONCE * BOX::PITCH) {
			if (i >= rounds)
				continue;
			low[i] = hopper::load_shared_quad(source);
			high[i] = hopper::load_shared_quad(source + PIECE_BYTES);
		}
	}
	/* shift: in numbers, the same for all. */
	__device__ __forceinline__ void store(uint32_t stage, unsigned shift) const
	{
		switch (shift / 2) {
		case 0:
			store_from<0>(stage, shift % 2);
			break;
		case 1:
			store_from<1>(stage, shift % 2);
			break;
		case 2:
			store_from<2>(stage, shift % 2);
			break;
		default:
			store_from<3>(stage, shift % 2);
		}
	}

      private:
	template <int WORD> __device__ __forceinline__ void store_from(uint32_t stage, bool odd) const
	{
		uint32_t target = stage + piece / 8 * (BOX::LINES * LINE_BYTES) + line * LINE_BYTES +
		                  (piece % 8 ^ line % 8) * PIECE_BYTES;

#pragma unroll
		for (int i = 0; i < ROUNDS; i++)
			if (i < rounds)
				hopper::store_shared_quad(target + i * LINES_APART * LINE_BYTES,
				                          piece_within<WORD>(low[i], high[i], odd));
	}
};

#endif

} // namespace

#endif
