/* product.h: wgmma. */
#ifndef KOPS_EMULATED_PRODUCT_H
#define KOPS_EMULATED_PRODUCT_H

#include "common/half.h"
#include "emulator.h"

namespace hopper
{

enum class element { F16, BF16, TF32 };

constexpr unsigned PRODUCT_ROWS = 64, PRODUCT_BYTES = 32; /* rows of A; bytes of K */

constexpr unsigned element_bytes(element e)
{
	return e == element::TF32 ? 4 : 2;
}

inline float load_element(element e, const char *from)
{
	uint32_t word = 0;

	memcpy(&word, from, element_bytes(e));
	if (e == element::TF32)
		return half_float(word & ~0x1fffu);
	return e == element::F16 ? f16_to_f32((uint16_t)word) : bf16_to_f32((uint16_t)word);
}

/* A matrix descriptor (PTX ISA, "Matrix Descriptor Format"). */
struct descriptor {
	uint32_t start, leading, stride, offset, swizzle;

	explicit descriptor(uint64_t bits)
	    : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4),
	      stride((bits >> 32 & 0x3fff) << 4), offset(bits >> 49 & 7), swizzle(bits >> 62)
	{
		if (offset != 0 || (swizzle != 1 && swizzle != 2))
			emulator::fail("a descriptor of a kind that is not emulated");
	}
	/* Returns the address of number k of a row of A or column of B. */
	uint32_t address(element e, bool across, unsigned line, unsigned k) const
	{
		unsigned line_bytes = swizzle == 1 ? 128 : 64, bytes = element_bytes(e);
		uint32_t at = start;

		if (across && swizzle == 1)
			at += line / 64 * leading + line % 64 * bytes + k / 8 * stride + k % 8 * line_bytes;
		else if (!across)
			at += line / 8 * stride + line % 8 * line_bytes + k * bytes;
		else
			emulator::fail("a descriptor of a kind that is not emulated");
		return at ^ (swizzle == 1 ? at >> 7 & 7 : at >> 7 & 3) << 4;
	}
};

/* Indexed by rows of A, or by k of B. */
template <element E>
void load_matrix(emulator::block &b, uint64_t bits, bool across, unsigned lines, float *to, unsigned line_step,
                 unsigned k_step)
{
	descriptor d(bits);

	for (unsigned line = 0; line < lines; line++)
		for (unsigned k = 0; k < PRODUCT_BYTES / element_bytes(E); k++)
			to[line * line_step + k * k_step] = load_element(
			    E, emulator::shared_at(b, d.address(E, across, line, k), element_bytes(E)));
}

/* Loads the four registers of each thread, in each of which are one or two numbers. */
template <element E> void load_registers(const emulator::product &p, float *a, unsigned depth)
{
	constexpr unsigned EACH = 4 / element_bytes(E);

	for (unsigned thread = 0; thread < emulator::WARPGROUP; thread++)
		for (unsigned i = 0; i < 4 * EACH; i++) {
			unsigned four = i / EACH, row = thread / 32 * 16 + thread % 32 / 4 + four % 2 * 8,
			         k = (thread % 4 + four / 2 * 4) * EACH + i % EACH;
			a[row * depth + k] =
			    load_element(E, (const char *)p.a_registers[thread] + i * element_bytes(E));
		}
}

template <element E, unsigned SUMS, bool A_ACROSS, bool B_ACROSS>
void compute_product(emulator::block &block, const emulator::product &p)
{
	constexpr unsigned DEPTH = PRODUCT_BYTES / element_bytes(E), COLS = SUMS * 2;
	static float a[PRODUCT_ROWS * DEPTH], b[DEPTH * COLS];
	static double c[PRODUCT_ROWS][COLS];

	if (p.a_registers[0])
		load_registers<E>(p, a, DEPTH);
	else
		load_matrix<E>(block, p.a, A_ACROSS, PRODUCT_ROWS, a, DEPTH, 1);
	load_matrix<E>(block, p.b, B_ACROSS, COLS, b, 1, COLS);
	for (unsigned row = 0; row < PRODUCT_ROWS; row++) {
		std::fill(c[row], c[row] + COLS, 0);
		for (unsigned k = 0; k < DEPTH; k++)
			for (unsigned col = 0; col < COLS; col++)
				c[row][col] += (double)a[row * DEPTH + k] * b[k * COLS + col];
	}
	for (unsigned thread = 0; thread < emulator::WARPGROUP; thread++)
		for (unsigned i = 0; i < SUMS; i++) {
			unsigned row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
			double sum = c[row][i / 4 * 8 + thread % 4 * 2 + i % 2];
			float *to = &p.sums[thread][i];
			*to = (float)(p.keep ? *to + sum : sum);
		}
}

template <element E, bool A_ACROSS = false, bool B_ACROSS = false, unsigned SUMS>
void add_products(float (&d)[SUMS], uint64_t a, uint64_t b, int keep)
{
	emulator::product p = {};

	p.compute = compute_product<E, SUMS, A_ACROSS, B_ACROSS>;
	p.a = a, p.b = b, p.keep = keep != 0;
	emulator::begin_product(p, d, nullptr);
}

template <unsigned SUMS> void add_products_from(float (&d)[SUMS], const float (&a)[4], uint64_t b, int keep)
{
	emulator::product p = {};

	p.compute = compute_product<element::TF32, SUMS, false, false>;
	p.b = b, p.keep = keep != 0;
	emulator::begin_product(p, d, a);
}

template <element E, bool B_ACROSS = false, unsigned SUMS>
void add_products_from(float (&d)[SUMS], const uint32_t (&a)[4], uint64_t b, int keep)
{
	emulator::product p = {};

	p.compute = compute_product<E, SUMS, false, B_ACROSS>;
	p.b = b, p.keep = keep != 0;
	emulator::begin_product(p, d, a);
}

/* Adds the products of a warp, whose lanes read each other's numbers. */
inline void add_products(double (&d)[4], const double (&a)[4], const double (&b)[2])
{
	struct numbers {
		double a[4], b[2];
	} mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
	unsigned row = threadIdx.x % emulator::WARP / 4, col = threadIdx.x % 4 * 2;
	const uint64_t *all = emulator::exchange((uint64_t)&mine);

	for (unsigned k = 0; k < 8; k++)
		for (unsigned i = 0; i < 4; i++)
			d[i] = fma(((const numbers *)all[row * 4 + k % 4])->a[k / 4 * 2 + i / 2],
			           ((const numbers *)all[(col + i % 2) * 4 + k % 4])->b[k / 4], d[i]);
	emulator::exchange(0);
}

/* The same for 16-bit numbers, in pairs along K. */
template <element E> void add_products(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
	struct pairs {
		uint32_t a[4], b[2];
	} mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
	unsigned row = threadIdx.x % emulator::WARP / 4, col = threadIdx.x % 4 * 2;
	const uint64_t *all = emulator::exchange((uint64_t)&mine);
	auto number = [](const uint32_t *words, unsigned odd) {
		return load_element(E, (const char *)words + odd * 2);
	};

	for (unsigned i = 0; i < 4; i++) {
		double sum = 0;
		for (unsigned k = 0; k < 16; k++) {
			auto of_row = (const pairs *)all[row * 4 + k % 8 / 2],
			     of_col = (const pairs *)all[(col + i % 2) * 4 + k % 8 / 2];
			sum += (double)number(&of_row->a[k / 8 * 2 + i / 2], k % 2) *
			       number(&of_col->b[k / 8], k % 2);
		}
		d[i] = (float)(d[i] + sum);
	}
	emulator::exchange(0);
}

inline void products_begin()
{
}

inline void products_commit()
{
	emulator::commit_products();
}

template <unsigned LEFT = 0> void products_wait()
{
	emulator::await_products(LEFT);
}

template <class T, unsigned N> void settle(T (&)[N])
{
}

} // namespace hopper

#endif
