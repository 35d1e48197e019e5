/*
 * exports.c: the exported functions, in each family of names. Names and integer widths are those of Netlib's
 * BLAS, and of the OpenBLAS in the wheels of NumPy and SciPy.
 */
#include <float.h>
#include <stddef.h>
#include <stdint.h>

#include "compute.h"
#include "entry.h"
#include "lapack/system.h"
#include "routine.h"

#define JOIN_(a, b, c, d) a##b##c##d
#define JOIN(a, b, c, d)  JOIN_(a, b, c, d)
#define FORTRAN(name)     JOIN(FORTRAN_BEFORE, LETTER, name, FORTRAN_AFTER)
#define CBLAS(name)       JOIN(CBLAS_BEFORE, LETTER, name, CBLAS_AFTER)

#define MATRIX(data_, ld_) ((struct entry_matrix){.data = data_, .ld = (INT)(ld_)})
#define TIMES(a, b, c)     ((double)(INT)(a) * (double)(INT)(b) * (double)(INT)(c))
/* Size of the product between the halves of a triangle of this order. */
#define HALVES(m, n, order) (TIMES(m, n, order) / 4)

#define MATRICES(each_, ld_) ((struct entry_matrix){.ld = ld_, .each = (const void *const *)(uintptr_t)(each_)})

/* Element i of a caller's array of integers; ONE() makes an array of one. */
#define INTEGER(array, i) (wide ? ((const int64_t *)(const void *)(array))[i] : (array)[i])
#define ONE(value)        ((INT[]){(INT)(value)})

/* Compute by kopsd: PRODUCT as a whole, GEMM also by blocks, of which the next BLAS may compute some. */
#define PRODUCT(...) compute_product(&(struct product[]){__VA_ARGS__}[0], NULL, &call)
#define GEMM(...)    compute_product(&(struct product[]){entry_gemm(__VA_ARGS__)}[0], FORTRAN(part_gemm), &call)
#define TRIANGULAR(...)                                                                                        \
	triangular_compute(&(struct triangular[]){entry_triangular(__VA_ARGS__)}[0], &FORTRAN(calls), &call)

/* Compute a system by kopsd; its parts as LAPACK passes them. */
#define SYSTEM(...)                                                                                            \
	(system_compute(&(struct system[]){{.dtype = DTYPE, __VA_ARGS__}}[0], &call) && (*info = 0, true))
#define OF_TRIANGLE(uplo)         .upper = entry_uplo(uplo) == CBLAS_UPPER, .invalid = !entry_uplo(uplo)
#define SQUARE(n_, a_, lda_)      .m = n_, .n = n_, .a = (void *)(uintptr_t)(a_), .lda = lda_
#define SIDES(columns_, b_, ldb_) .solves = true, .columns = columns_, .b = b_, .ldb = ldb_
#define PIVOTS(pivots_)           .pivots = (void *)(uintptr_t)(pivots_), .pivot_bytes = sizeof(INT)

#define ROUTINE_OF_(name, instead) static struct routine name##_routine = ROUTINE(#name, #instead)
#define ROUTINE_OF(name, instead)  ROUTINE_OF_(name, instead)
#define ITS_ROUTINE_(name)         (&name##_routine)
#define ITS_ROUTINE(name)          ITS_ROUTINE_(name)

#define UNPACKED(...) __VA_ARGS__

/* The function that computes `name` as a part of another call. */
#define PART_OF_(name) name##_compute
#define PART_OF(name)  PART_OF_(name)

/* Returns true for calls with 64-bit integers under a plain name, which go to the next BLAS. */
static bool is_wide(struct call *call)
{
	if (routine_is_wide(call->routine))
		call->outcome = OUTCOME_WIDE;
	return routine_is_wide(call->routine);
}

/*
 * An integer passed by value: a register or a stack slot, which is passed on as it came. If integers have 32
 * bits, the caller's number is its lower half.
 */
typedef intptr_t word;

/*
 * Defines `name`. A product below the routine's floor in `size` multiplications jumps to the next BLAS. With a
 * stack frame of its own, as name_compute() has, that would take three times as long. If the last arguments are
 * true, kopsd computed the product; else it goes to the next BLAS too.
 */
#define EXPORT(name, parameters, arguments, size, ...) EXPORT_(name, parameters, arguments, size, __VA_ARGS__)
#define EXPORT_(name, parameters, arguments, size, ...)                                                        \
	typedef void name##_function parameters;                                                               \
	name##_function name;                                                                                  \
	static struct routine name##_routine = ROUTINE(#name, NULL);                                           \
                                                                                                               \
	__attribute__((noinline)) static void name##_compute(bool is_part, UNPACKED parameters)                \
	{                                                                                                      \
		struct call call;                                                                              \
		routine_begin(&call, &name##_routine, is_part);                                                \
		if (is_wide(&call) || !(__VA_ARGS__))                                                          \
			((name##_function *)routine_next(&name##_routine)) arguments;                          \
		routine_end(&call);                                                                            \
	}                                                                                                      \
                                                                                                               \
	void name parameters                                                                                   \
	{                                                                                                      \
		if (routine_hands_on(&name##_routine, size))                                                   \
			((name##_function *)routine_next(&name##_routine)) arguments;                          \
		else                                                                                           \
			name##_compute(false, UNPACKED arguments);                                             \
	}

#pragma GCC visibility push(default)

/* dgemm_, cblas_dgemm */
#define FORTRAN_BEFORE
#define FORTRAN_AFTER _
#define CBLAS_BEFORE  cblas_
#define CBLAS_AFTER
#define INT int32_t
#include "family.h"

/* scipy_dgemm_, scipy_cblas_dgemm */
#define FORTRAN_BEFORE scipy_
#define FORTRAN_AFTER  _
#define CBLAS_BEFORE   scipy_cblas_
#define CBLAS_AFTER
#define INT int32_t
#include "family.h"

/* scipy_dgemm_64_, scipy_cblas_dgemm64_ */
#define FORTRAN_BEFORE scipy_
#define FORTRAN_AFTER  _64_
#define CBLAS_BEFORE   scipy_cblas_
#define CBLAS_AFTER    64_
#define INT            int64_t
#include "family.h"

#pragma GCC visibility pop
